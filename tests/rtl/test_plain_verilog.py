"""`opu-fuse hw rtl --verilog`: one Verilog-2005 file that tools without SystemVerilog read.

Icarus Verilog is another simulator with another front end. `.ci/packages` installs it.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

import opu_fuse
from opu_fuse.hw.rtlgen.yosys import yosys
from opu_fuse.sim.rtl.process import child_environment

pytestmark = pytest.mark.rtl

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
TOP = "opu_top"
SEED = 20261128


def _written(folder: Path, *options: str) -> Path:
    """The Verilog file of `hw rtl`."""
    command = [sys.executable, "-m", "opu_fuse", "hw", "rtl", "opu-tiny", "-o", str(folder)]
    subprocess.run([*command, "--verilog", *options], check=True, env=child_environment())
    return next(folder.glob("*.v"))


@pytest.fixture(scope="module")
def verilog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _written(tmp_path_factory.mktemp("verilog"))


def test_memories_are_written_in_words_and_lanes(verilog: Path) -> None:
    """A memory with a write enable for every bit takes a block RAM for every bit."""
    text = verilog.read_text(encoding="utf-8")
    written = re.findall(r"^ +(?:mem|entries)\[\w+\](?:\[(\d+):(\d+)\])? <=", text, re.MULTILINE)
    assert len(written) > 8
    assert not [high for high, low in written if high and high == low]


def test_icarus_runs_a_network_bit_for_bit(
    verilog: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shutil.which("iverilog"), "install Icarus Verilog (Debian: iverilog)"
    program = opu_fuse.compile(
        DIGITS / "digits.onnx", "opu-tiny", calibration=DIGITS / "calibration.npz"
    )
    program.save(tmp_path / "digits.opu")
    monkeypatch.syspath_prepend(Path(__file__).parent)  # the simulation's Python has our path
    runner = get_runner("icarus")
    runner.build(
        sources=[verilog],
        hdl_toplevel=TOP,
        build_dir=tmp_path,
        build_args=["-g2005"],
        timescale=("1ns", "1ps"),
    )
    results = runner.test(
        test_module="verilog_bench",
        hdl_toplevel=TOP,
        build_dir=tmp_path,
        test_dir=tmp_path,
        results_xml=str(tmp_path / "results.xml"),
        seed=SEED,
        extra_env={
            "COCOTB_LOG_LEVEL": "WARNING",
            "COCOTB_ANSI_OUTPUT": "0",
            "PROGRAM": str(tmp_path / "digits.opu"),
        },
    )
    assert get_results(results) == (1, 0)


def test_plain_yosys_reads_it(verilog: Path, tmp_path: Path) -> None:
    """No frontend for SystemVerilog. All modules and ports are there, nothing has two drivers."""
    shutil.copy(verilog, tmp_path)  # it sees its own folder alone
    said = yosys(
        tmp_path,
        f"read_verilog {verilog.name}",
        f"hierarchy -check -top {TOP}",
        "proc",
        "check -assert",
        "stat",
    )
    assert re.search(r"\$mem\w*|\$memrd", said), "memories are still memories"


def test_two_machines_with_prefixes_share_one_design(verilog: Path, tmp_path: Path) -> None:
    left = _written(tmp_path / "left", "--prefix", "left_")
    both = tmp_path / "both.v"
    both.write_text(
        "module both (input clk_i, input rst_ni);\n"
        "  opu_top u_right (.clk_i(clk_i), .rst_ni(rst_ni));\n"
        "  left_opu_top u_left (.clk_i(clk_i), .rst_ni(rst_ni));\n"
        "endmodule\n"
    )
    command = ["iverilog", "-g2005", "-s", "both", "-o", str(tmp_path / "both")]
    subprocess.run([*command, both, left, verilog], check=True)
