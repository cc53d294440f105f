"""The tutorial and the how-tos of docs/, done as written: their commands in order, what they print
beside what the page shows.

A block `console` holds commands (`$ …`) and what they print, `pycon` a Python session, `yaml FILE`
or `c FILE` what to write into a file. `console rtl` runs in the RTL tier only. `…` is
anything, on a line of its own for any lines. What follows `>` is a file for what a command
prints, a command that ends in `&` runs until the page ends.
"""

import doctest
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from opu_fuse.resources import hw_specs_dir

ROOT = hw_specs_dir().parent
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
HOW_TOS = ("python", "swap-a-machine", "your-model")
LONG_HOW_TOS = ("report", "sweep", "explore")
NOT_HERE = {". .venv/bin/activate"}  # the tests run in an environment already


def pattern(shown):
    """The regular expression for what a block shows."""
    lines = ["(?:.*\n)*" if line == "…" else f"{line_pattern(line)}\n" for line in shown]
    return "".join(lines)


def line_pattern(line):
    """Columns of tables are as wide as what they hold; …, what was left out."""
    words = r"\s+".join(re.escape(word) for word in line.split())
    indent = re.escape(line[: len(line) - len(line.lstrip())])
    return indent + words.replace("…", ".*") + r"\s*?"


def follow(command, opu_fuse, stack):
    """Output and exit code of a command."""
    program, *arguments = shlex.split(command)
    if program == "opu-fuse":
        target = Path(arguments[-1]) if ">" in arguments else None
        called = opu_fuse(*(arguments[:-2] if target else arguments))
        if target:
            target.write_text(called.out, encoding="utf-8")
            return "", called.code
        lines = called.err.splitlines(keepends=True)
        errors = [line for line in lines if re.match(r"error: | +\d* \| ", line)]
        return "".join([called.out, *errors]), called.code
    if arguments[-1] == "&":
        started = [sys.executable, "-m", program, *arguments[:-1]]
        stack.callback(end, subprocess.Popen(started, stderr=subprocess.DEVNULL))
        return "", 0
    if command not in NOT_HERE:
        assert (program, arguments[0]) == ("mkdir", "-p"), command
        Path(arguments[1]).mkdir(parents=True)
    return "", 0


def end(process):
    process.terminate()
    process.wait()


def blocks(page):
    return blocks_of((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))


def blocks_of(text):
    found = re.findall(r"^```(.+)\n((?:.*\n)*?)```$", text, flags=re.MULTILINE)
    # Blocks of other kinds are read, not run.
    return [b for b in found if re.match(r"console|pycon|(yaml|c) .", b[0])]


def work_through(page, opu_fuse, *, rtl=False):
    """Follow the whole text; without rtl the blocks of hardware are left out."""
    with ExitStack() as stack:
        work_through_blocks(blocks(page), opu_fuse, stack, rtl=rtl)


def work_through_blocks(found, opu_fuse, stack, *, rtl):
    session = {}
    for kind, text in found:
        name, _, option = kind.partition(" ")
        if name == "yaml":
            Path(option).write_text(text, encoding="utf-8")
        elif name == "pycon":
            example = doctest.DocTestParser().get_doctest(text, session, "page", None, None)
            assert doctest.DocTestRunner().run(example, clear_globs=False).failed == 0
            session = example.globs
        elif option != "rtl" or rtl:
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, *shown = part.splitlines()
                printed, code = follow(command, opu_fuse, stack)
                assert code == int(any(s.startswith("error: ") for s in shown)), command + printed
                if shown:
                    assert re.fullmatch(pattern(shown), printed), f"{command}\n{printed}"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder to work in that has the examples, and a terminal of 160 columns."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")


@pytest.mark.slow
@pytest.mark.usefixtures("checkout")
def test_the_tutorial_can_be_followed(opu_fuse):
    work_through("tutorial", opu_fuse)


@pytest.mark.slow
@pytest.mark.usefixtures("checkout")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # sockets of dask's processes
@pytest.mark.parametrize(
    "page", [*HOW_TOS, *(pytest.param(page, marks=pytest.mark.nightly) for page in LONG_HOW_TOS)]
)
def test_a_how_to_can_be_followed(page, opu_fuse):
    work_through(page, opu_fuse)


@pytest.mark.slow
@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize("page", ["commands", "gallery"])
def test_what_a_page_shows_of_a_terminal_of_100_columns_is_printed(page, opu_fuse, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    work_through(page, opu_fuse)


@pytest.mark.rtl
@pytest.mark.slow
@pytest.mark.usefixtures("checkout")
def test_the_tutorial_can_be_followed_to_the_hardware(opu_fuse):
    work_through("tutorial", opu_fuse, rtl=True)
    assert Path("out/digits.fst").stat().st_size > 0


def test_signals_of_the_tutorial_are_in_the_hardware():
    sources = "".join(p.read_text(encoding="utf-8") for p in sorted(ROOT.glob("rtl_sim/**/*.sv")))
    table = TUTORIAL[TUTORIAL.index("| signal |") : TUTORIAL.index("## 9.")]
    rows = [row.split("|")[1] for row in table.splitlines()[2:] if row.startswith("|")]
    names = {part for row in rows for part in re.findall(r"[a-z_]{3,}", row)}
    assert len(names) > 10
    assert [n for n in sorted(names) if not re.search(rf"\b{n}\b", sources)] == []
