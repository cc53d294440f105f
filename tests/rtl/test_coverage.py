"""`make coverage`: which lines, signals and cover properties of the RTL the simulations reach."""

import pytest

from rtl_sim.build import COVERAGE
from rtl_sim.coverage import Coverage, main, page
from tests.rtl.bench import run_bench


def _line(page_: str, line: int, what: str, count: int, module: str = "opu_queue") -> str:
    keys = {"f": f"{module}.sv", "l": line, "n": 5, "page": f"{page_}/{module}", "o": what}
    text = "".join(f"\x01{key}\x02{value}" for key, value in keys.items())
    return f"C '{text}' {count}\n"


FIRST = [
    "# SystemC::Coverage-3\n",
    _line("v_branch", 100, "if", 3),
    _line("v_branch", 100, "else", 0),
    _line("v_toggle", 17, "clk_i:0->1", 9),
    _line("v_toggle", 18, "rst_ni:1->0", 0),
    _line("v_user", 30, "cover", 0, "opu_top"),
    _line("v_line", 1, "block", 0, "opu_queue_bench"),
]
SECOND = [_line("v_branch", 100, "else", 1), _line("v_user", 30, "cover", 0, "opu_top")]


@pytest.fixture
def folder(tmp_path):
    for name, lines in (("one", FIRST), ("two", SECOND)):
        (tmp_path / f"{name}.dat").write_text("".join(lines))
    return tmp_path


def test_a_point_counts_where_any_run_reaches_it(folder):
    one, both = (Coverage.of(sorted(folder.glob(pattern))) for pattern in ("one.dat", "*.dat"))
    assert one.share("line") == (1, 2)
    assert both.share("line") == (2, 2)
    assert both.share("toggle") == (1, 2)
    assert both.share("user", "opu_top") == (0, 1)
    assert both.modules() == ["opu_queue", "opu_top"], "benches are no hardware"


def test_the_page_names_the_lines_that_nothing_reached(folder):
    text = page(Coverage.of([folder / "one.dat"]), 1)
    assert "| opu_queue | 100: else |" in text
    assert "| opu_queue | 50.0 % of 2 | 50.0 % of 2 | – |" in text


def test_a_folder_without_runs_is_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["coverage", str(tmp_path)])
    assert main() == 2
    assert "no simulation wrote a file there" in capsys.readouterr().err


@pytest.mark.rtl
def test_benches_of_two_queues_reach_all_lines_together(tmp_path, monkeypatch):
    """Alone the one of 3 entries wraps its pointers in another branch than the one of 8."""
    monkeypatch.setenv(COVERAGE, str(tmp_path))
    for depth in (3, 8):
        folder = tmp_path / str(depth)
        folder.mkdir()
        run_bench(
            folder,
            top="opu_queue",
            module="rtl_sim.benches.queue_bench",
            spec="opu-tiny",
            seed=1,
            rounds=2000,
            parameters={"DEPTH": depth},
        )
    found = Coverage.of(tmp_path.glob("*.dat"))
    assert not found.holes("line")
    assert found.share("line", "opu_queue")[1] > 10
