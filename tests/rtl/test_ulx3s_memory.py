"""The memory controller of the board ULX3S against a memory that checks its data sheet."""

import os
from pathlib import Path

import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.resources import rtl_dir
from rtl_sim.build import Design, executable
from rtl_sim.cocotb_run import run_tests
from tests.tiers import by_night

pytestmark = pytest.mark.rtl
ROOT = Path(__file__).resolve().parents[2]
BOARD = rtl_dir() / "boards" / "ulx3s"
FILES = ("sdram_controller.sv", "sdram_model.sv", "sdram_bench.sv")


CLOCKS = [(62_500, 8), (76_923, 8), (50_000, 4)]


@pytest.mark.parametrize(("clock_khz", "bus_bytes"), by_night(CLOCKS, CLOCKS[1:]))
def test_the_sdram_controller_keeps_every_rule_and_every_byte(clock_khz, bus_bytes, tmp_path, seed):
    hw = load_hw("opu-ulx3s")

    design = Design(
        top="sdram_bench",
        spec=hw,
        sources=(rtl_dir() / "tb" / "opu_image.cpp", *(BOARD / name for name in FILES)),
        public=True,
        parameters={"CLOCK_KHZ": clock_khz, "BUS_BYTES": bus_bytes},
    )
    log = tmp_path / "log.txt"
    tests, failed = run_tests(
        executable(design),
        "rtl_sim.boards.ulx3s.sdram_bench",
        tmp_path,
        seed=1,
        log_file=log,
        extra_env={
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "BENCH_SEED": str(seed),
            "BENCH_RATE": str(hw.dram.bytes_per_cycle),
            "BENCH_LATENCY": str(hw.dram.latency),
        },
    )
    text = log.read_text(encoding="utf-8", errors="replace")
    assert (tests, failed) == (2, 0), text[-4000:]
    assert "Error" not in text, text[:4000]
