"""The compute engine against the page that defines it."""

import pytest

from tests.rtl.bench import run_bench
from tests.tiers import by_night

pytestmark = pytest.mark.rtl

MACHINE = """\
extends: opu-tiny
name: {name}
build: false
word_channels: {lanes}
array:
  {{units: {units}, multipliers: {multipliers}, table_terms: {tables}, depthwise: {depthwise},
    window_cycles: {window_cycles}, modes: [{modes}]}}
buffers:
  weight: {{words: 512, banks: 2, width: 8}}
  {pre}
post: {{lanes: {lanes}}}
"""
TWO_BEFORE = """\
dataflow:
  modules:
    shift: {kind: adder, operand: per_channel, bypass: true}
    early: {kind: comparator, bypass: true}
    scale: {kind: multiplier, operand: per_channel, bypass: true}
  edges:
    concat: [shift]
    shift: [early]
    early: [scale]
    scale: [pad]
"""
"""Two units before the array: `early` is the clamp of `shift`."""
GATES_BEFORE = """\
dataflow:
  modules:
    scale: {kind: multiplier, operand: per_channel, bypass: true}
    gate: {kind: se, operand: per_channel, bypass: true}
    early: {kind: comparator, bypass: true}
  edges:
    concat: [scale, gate]
    scale: [early]
    gate: [early]
    early: [pad]
"""
"""One unit before the array, for constants or a gate."""


def machine(
    folder,
    name,
    *,
    lanes,
    units,
    multipliers,
    modes,
    tables=0,
    depthwise=True,
    window_cycles=1,
    pre=TWO_BEFORE,
):
    """File of a machine for benches of this engine alone. modes: (ic, oc, px)."""
    path = folder / f"{name}.yaml"
    text = MACHINE.format(
        name=name,
        lanes=lanes,
        units=units,
        multipliers=multipliers,
        tables=tables,
        depthwise=str(depthwise).lower(),
        window_cycles=window_cycles,
        modes=", ".join(f"{{ic: {ic}, oc: {oc}, px: {px}}}" for ic, oc, px in modes),
        pre="pre: {words: 64, banks: 2}" if pre else "",
    )
    path.write_text(text + pre)
    return str(path)


CASES = {
    "tiny": ("opu-tiny", 60, ()),
    "tiny, widths as synthesised": ("opu-tiny", 60, ("OPU_EXACT_WIDTHS",)),
    "tiny, short slices": ("opu-tiny", 30, ("OPU_EXACT_WIDTHS", "OPU_SHORT_SLICES")),
    "1024": ("opu-1024", 6, ()),
    "light": ("opu-light", 6, ()),
}

MACHINES = {
    "pixels": {
        "lanes": 8,
        "units": 8,
        "multipliers": 4,
        "modes": ((8, 4, 1), (4, 8, 1), (4, 4, 2)),
        "depthwise": False,
        "pre": "",
    },
    "everything": {
        "lanes": 8,
        "units": 8,
        "multipliers": 4,
        "modes": ((8, 4, 1), (4, 8, 1), (4, 4, 2)),
    },
    "two parts a word": {
        "lanes": 8,
        "units": 4,
        "multipliers": 4,
        "modes": ((8, 2, 1), (4, 4, 1), (4, 2, 2)),
    },
    "windows of 4 by 4": {
        "lanes": 16,
        "units": 8,
        "multipliers": 16,
        "modes": ((16, 8, 1),),
        "pre": "",
    },
    "four pixels, idle taps": {
        "lanes": 16,
        "units": 16,
        "multipliers": 8,
        "modes": ((16, 8, 1), (8, 16, 1), (8, 8, 2), (8, 4, 4)),
    },
    "windows of two cycles": {
        "lanes": 16,
        "units": 16,
        "multipliers": 4,
        "modes": ((16, 4, 1), (8, 8, 1), (4, 16, 1), (4, 8, 2)),
        "window_cycles": 2,
    },
    "windows of two cycles, idle units": {
        "lanes": 8,
        "units": 16,
        "multipliers": 4,
        "modes": ((8, 8, 1), (8, 4, 2)),
        "window_cycles": 2,
        "pre": "",
    },
    "gates": {
        "lanes": 16,
        "units": 8,
        "multipliers": 4,
        "modes": ((16, 2, 1), (8, 4, 1), (4, 8, 1)),
        "pre": GATES_BEFORE,
    },
}


IDLE_UNITS = "windows of two cycles, idle units"
"""In the gate as synthesised."""


def keeps_its_page(folder, seed, spec, rounds, defines=()):
    run_bench(
        folder,
        top="opu_compute_bench",
        module="rtl_sim.benches.compute_bench",
        spec=spec,
        seed=seed,
        rounds=rounds,
        defines=defines,
    )


@pytest.mark.parametrize("case", by_night(CASES, ["tiny", "1024", "light"]))
def test_compute_engine_keeps_its_page(tmp_path, seed, case):
    spec, rounds, defines = CASES[case]
    keeps_its_page(tmp_path, seed, spec, rounds, defines)


@pytest.mark.parametrize(
    "case", by_night(MACHINES, ["pixels", "everything", "four pixels, idle taps", IDLE_UNITS])
)
def test_compute_engine_of_another_shape_keeps_its_page(tmp_path, seed, case):
    spec = machine(tmp_path, "bench", **MACHINES[case])
    keeps_its_page(tmp_path, seed, spec, 40)


PAIRS = MACHINES["pixels"] | {"tables": 2}
TABLES = {
    "pairs": (PAIRS, ("OPU_EXACT_WIDTHS",)),
    "pairs, two sums in slices get back what is missed": (
        MACHINES["four pixels, idle taps"] | {"tables": 2, "depthwise": False, "pre": ""},
        ("OPU_EXACT_WIDTHS",),
    ),
    "windows": (MACHINES["everything"] | {"tables": 2}, ("OPU_EXACT_WIDTHS",)),
    "pairs with windows": (
        MACHINES["windows of two cycles"] | {"tables": 2},
        ("OPU_EXACT_WIDTHS",),
    ),
    "short slices": (PAIRS, ("OPU_EXACT_WIDTHS", "OPU_SHORT_SLICES")),
    "as simulated": (PAIRS, ()),
}
"""Machines with products in tables, defines."""


TABLES_BY_NIGHT = {*TABLES} - {"pairs", "short slices"}
"""No machine of the package has products in tables; two cases hold the gate."""


@pytest.mark.parametrize("case", by_night(TABLES, TABLES_BY_NIGHT))
def test_products_in_tables_keep_the_page(tmp_path, seed, case):
    shape, defines = TABLES[case]
    keeps_its_page(tmp_path, seed, machine(tmp_path, "bench", **shape), 20, defines)


SYNTHESISED = ["everything", "gates", "windows of two cycles", IDLE_UNITS]


@pytest.mark.parametrize("case", by_night(SYNTHESISED, SYNTHESISED[1:3]))
def test_widths_as_synthesised_suffice_for_everything(tmp_path, seed, case):
    spec = machine(tmp_path, "bench", **MACHINES[case])
    keeps_its_page(tmp_path, seed, spec, 40, ("OPU_EXACT_WIDTHS",))


def test_pairs_of_short_slices_have_windows_too(tmp_path, seed):
    spec = machine(tmp_path, "bench", **MACHINES["windows of two cycles"])
    keeps_its_page(tmp_path, seed, spec, 20, ("OPU_EXACT_WIDTHS", "OPU_SHORT_SLICES"))
