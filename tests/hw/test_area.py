"""The area model: memories as Yosys maps them, machines as it counts them, what users see."""

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import pytest

from opu_fuse.cli.main import app
from opu_fuse.errors import SpecError
from opu_fuse.hw.area.coefficients import FITTED
from opu_fuse.hw.area.estimate import Area, area, parts, terms_of
from opu_fuse.hw.memories import Family, Memory, blocks
from opu_fuse.hw.spec.load_spec import load_hw
from tests.some import some

ROOT = Path(__file__).resolve().parents[2]

# Width, depth -> tables of LUT RAM and blocks, counted by Yosys 0.70.
YOSYS = {
    Family.XC7: {
        (8, 256): (48, 0), (8, 512): (0, 0.5), (32, 64): (44, 0), (32, 96): (0, 0.5),
        (32, 8192): (0, 8), (64, 48): (88, 0), (64, 722): (0, 2), (128, 32): (88, 0),
        (128, 128): (0, 2), (128, 2048): (0, 7.5), (256, 8192): (0, 58), (512, 64): (684, 0),
        (512, 512): (0, 7.5), (512, 4096): (0, 57),
    },
    Family.ECP5: {
        (8, 128): (96, 0), (8, 256): (0, 1), (32, 48): (144, 0), (32, 64): (0, 1),
        (64, 96): (0, 2), (128, 4096): (0, 30), (256, 48): (1152, 0), (256, 8192): (0, 116),
        (512, 32): (1536, 0), (512, 48): (0, 15), (512, 4096): (0, 114),
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def bench():
    found = importlib.util.spec_from_file_location("area_bench", ROOT / "benchmarks" / "area.py")
    module = importlib.util.module_from_spec(some(found))
    some(some(found).loader).exec_module(module)
    return module


@pytest.mark.parametrize("family", Family)
def test_memories_are_those_of_yosys(family):
    for (width, depth), counted in YOSYS[family].items():
        memory = Memory(part="buffers", width=width, depth=depth)
        assert blocks(memory, family) == counted, (width, depth)


@pytest.mark.parametrize("family", Family)
def test_the_costs_are_those_that_the_corpus_gives(bench, family):
    assert bench.fit(bench.measured()[family], family) == FITTED[family]


@pytest.mark.parametrize("family", Family)
def test_whole_machines_are_near_what_yosys_counts(bench, family):
    for name, found in bench.whole(bench.measured()[family]).items():
        real, said = sum(found.values(), Area()), area(bench.machine(name), family)
        assert said.lut == pytest.approx(real.lut, rel=bench.BARS["lut"]), name
        assert said.dsp == pytest.approx(real.dsp, rel=bench.BARS["dsp"]), name
        assert said.bram == pytest.approx(real.bram, rel=bench.BARS["bram"]), name


@pytest.mark.parametrize("name", ["opu-1024", "opu-1024-lean"])
def test_lanes_that_a_machine_leaves_out_are_not_counted(bench, name):
    """What Yosys counts (docs/synthesis.md) of machines that no fit has seen."""
    page = (ROOT / "docs" / "synthesis.md").read_text(encoding="utf-8")
    total = page.split(f"\n## {name}\n")[1].split("| **total** |")[1].splitlines()[0]
    lut, _, dsp, bram = (float(cell) for cell in re.findall(r"\*\*([\d.]+)\*\*", total))
    said = area(load_hw(name), Family.XC7)
    assert said.lut == pytest.approx(lut, rel=bench.BARS["lut"])
    assert said.dsp == pytest.approx(dsp, rel=bench.BARS["dsp"])
    assert said.bram == bram


def test_parts_are_those_of_the_corpus(bench):
    for family, corpus in bench.measured().items():
        for name, found in corpus.items():
            assert set(found) <= set(terms_of(bench.machine(name), family)), (family, name)


@pytest.mark.parametrize("name", ["opu-1024", "opu-light", "opu-micro"])
@pytest.mark.parametrize("family", Family)
def test_the_whole_is_its_parts(name, family):
    spec = load_hw(name)
    total, whole = sum(parts(spec, family).values(), Area()), area(spec, family)
    assert whole.lut == round(total.lut)
    assert whole.dsp == round(total.dsp)
    assert whole.bram == total.bram


def test_the_command_prints_parts_and_devices(capsys):
    app(["hw", "show", "opu-tiny", "--area"], standalone_mode=False)
    said = capsys.readouterr().out
    whole = area(load_hw("opu-tiny"), Family.XC7)
    assert f"{whole.lut:,}" in said
    assert "requant" in said
    assert "xc7k325t: " in said
    assert ", does not fit" not in said.split("xc7k325t: ")[1].splitlines()[0]


def test_what_runs_and_what_it_takes_are_both_shown_when_both_are_asked_for(capsys):
    app(["hw", "show", "opu-tiny", "--operators", "--area"], standalone_mode=False)
    said = capsys.readouterr().out
    assert "max_pool" in said
    assert "xc7k325t: " in said


def test_a_machine_that_is_not_built_takes_nothing():
    spec = replace(load_hw("opu-tiny"), build=False)
    with pytest.raises(SpecError, match=r"no hardware of it to estimate \(build: false\); choose"):
        area(spec, Family.XC7)
