"""What stops the machine: every illegal instruction and every access outside a memory is named."""

from dataclasses import replace

import numpy as np
import pytest

from opu_fuse.errors import RunError
from opu_fuse.hw.isa.instruction import split_address
from opu_fuse.hw.isa.legality import COUNTS
from opu_fuse.hw.isa.table import Engine
from opu_fuse.sim.functional.machine import Machine
from rtl_sim.benches.graph_orders import orders_of
from tests.bundle.sample import HW, program, sample_bundle
from tests.hw.norm_machine import norm_machine
from tests.sim.machines import BARE, MACHINES, unfolding
from tests.sim.random_instructions import instruction

WINDOW = 1024
GOOD = {x.opcode: x for x in program()}
GOOD["copy"] = instruction(Engine.COMPUTE, "copy", dict(GOOD["conv"].params))
GOOD["depthwise"] = instruction(
    Engine.COMPUTE,
    "depthwise",
    {**GOOD["conv"].params, "kernel_rows": 2, "kernel_cols": 2, "oc_steps": 1},
)
for opcode in ("residual", "pre", "table", "image", "norm"):
    GOOD[opcode] = instruction(Engine.LOAD, opcode, dict(GOOD["feature"].params))
GOOD["unfold"] = instruction(
    Engine.LOAD, "unfold", {"run": 2, "rows": 1, "stride_y": 1, "kernel_rows": 3, "in_rows": 3}
)
FULL = unfolding(MACHINES["full"])
NORMS = norm_machine()
CHAIN = orders_of(FULL)
REQUANT, ACT, POOL, SUM = (CHAIN.pack([name]) for name in ("requant", "compare", "pool", "res_add"))
"""Orders of a single stage."""


def with_params(opcode, **changes):
    x = GOOD[opcode]
    return instruction(x.engine, opcode, {**x.params, **changes}, waits=x.waits, signals=x.signals)


def refuse(x, message, spec=HW):
    machine = Machine(spec, np.zeros(WINDOW, np.uint8))
    before = machine.memories.output.copy()
    with pytest.raises(RunError, match=message) as error:
        machine.execute(x, 5)
    assert f"instruction 5 ({x.engine.name.lower()}.{x.opcode})" in str(error.value)
    assert np.array_equal(machine.memories.output, before), "a refused instruction did something"


def test_the_good_ones_are_good():
    for x in GOOD.values():
        spec = {"check": HW, "norm": NORMS}.get(x.opcode, FULL)
        machine = Machine(spec, np.zeros(WINDOW, np.uint8))
        machine.memories.param[:] = 0
        machine.execute(x)


@pytest.mark.parametrize(
    ("key", "register"),
    [(key, name) for key, names in COUNTS.items() for name in names],
    ids=lambda v: v if isinstance(v, str) else v[1],
)
def test_zero_counts_are_illegal(key, register):
    message = f"has {register} = 0, at least 1 is needed"
    refuse(with_params(key[1], **{register: 0}), message, NORMS if key[1] == "norm" else FULL)


OUTSIDE = {
    "load past the window": (
        "feature",
        split_address(WINDOW - 64),
        "reads byte 1024 .* 1024 bytes",
    ),
    "store past the window": ("store", split_address(WINDOW - 8), "writes byte 1024 of the memory"),
    "far outside": (
        "feature",
        split_address(1 << 30),
        f"reads byte {1 << 30} of the memory window",
    ),
    "feature": ("feature", {"dst": 250}, "writes word 256 of the feature buffer.*256 words"),
    "weight": ("weight", {"dst": 200}, "writes word 256 of the weight buffer"),
    "param": ("param", {"dst": 57}, "writes word 64 of the param buffer"),
    "residual": ("residual", {"dst": 128}, "writes word 128 of the residual buffer"),
    "output": ("store", {"src": 127}, "reads word 128 of the output buffer"),
    "conv features": ("conv", {"feature": 241}, "reads word 256 of the feature buffer"),
    "conv weights": ("conv", {"weight": 185}, "reads word 256 of the weight buffer"),
    "conv sums": ("conv", {"psum": 113}, "writes word 128 of the psum buffer"),
    "copy sums": ("copy", {"psum": 113}, "writes word 128 of the psum buffer"),
    "post sums": ("run", {"psum": 113}, "reads word 128 of the psum buffer"),
    "post parameters": ("run", {"param": 57}, "reads word 64 of the param buffer"),
    "post output": ("run", {"out": 125}, "writes word 128 of the output buffer"),
    "post kept": ("run", {"keep": 1, "keep_at": 256}, "writes word 256 of the feature buffer"),
    "post residual": (
        "run",
        {"order": CHAIN.pack(["pool", "res_add"]), "res": 127, "res_row_pitch": 2},
        "reads word 128 of the residual buffer",
    ),
}


NEW_OUTSIDE = {
    "pre": ("pre", {"dst": 57}, "writes word 64 of the pre buffer"),
    "table": ("table", {"dst": 595}, "writes word 600 of the table buffer"),
    "pre chain": ("conv", {"pre": 1, "pre_param": 57}, "reads word 64 of the pre buffer"),
    "table entries": (
        "run",
        {"order": CHAIN.pack(["pool", "table"]), "table": 345},
        "reads word 600 of the table buffer, which holds 600",
    ),
    "a later segment": (
        "conv",
        {"ic_first": 16, "feature": 0, "block_pitch": 16},
        "reads word 256 of the feature buffer",
    ),
    "a later group": (
        "conv",
        {"oc_first": 8, "psum": 56, "psum_block_pitch": 16},
        "writes word 128 of the psum buffer",
    ),
    "depthwise weights": ("depthwise", {"weight": 505}, "reads word 512 of the weight buffer"),
    "depthwise sums": ("depthwise", {"psum": 113}, "writes word 128 of the psum buffer"),
    "broadcast": (
        "run",
        {"order": CHAIN.pack(["pool", "res_add"]), "res": 128, "res_broadcast": 1},
        "reads word 128 of the residual buffer",
    ),
    "the last repeated row": (
        "store",
        {"repeat_rows": 1, "row_pitch": 16, **split_address(WINDOW - 128)},
        "writes byte 1024 of the memory window",
    ),
    "behind gaps": (
        "store",
        {"word_gap": 63, **split_address(0)},
        "writes byte 1024 of the memory window",
    ),
}


@pytest.mark.parametrize("kind", NEW_OUTSIDE)
def test_an_access_outside_a_memory_of_the_full_machine_is_named(kind):
    opcode, changes, message = NEW_OUTSIDE[kind]
    refuse(with_params(opcode, **changes), message, FULL)


@pytest.mark.parametrize("kind", OUTSIDE)
def test_an_access_outside_a_memory_is_named(kind):
    opcode, changes, message = OUTSIDE[kind]
    refuse(with_params(opcode, **changes), message)


ILLEGAL = {
    "address between words": ("feature", split_address(4), "0x4, not a multiple of 8 bytes"),
    "mode": ("conv", {"mode": 2}, "has mode 2, the array has 2"),
    "slot": ("conv", {"slot_log2": 4}, "slot_log2 = 4, a word has 8 bytes"),
    "blocks overlap": (
        "conv",
        {"oc_steps": 4, "psum_block_pitch": 15},
        "psum_block_pitch = 15, but 16 pixels",
    ),
    "unknown stage": ("run", {"order": 0x9}, "0x9, which .* opu-tiny has not: unknown stage 9"),
    "stage twice": (
        "run",
        {"order": 0x22},
        "0x22, .*: compare appears twice",
    ),
    "gap in the chain": ("run", {"order": 0x201}, "0x201, .*: codes after its end"),
    "late requant": ("run", {"order": 0x12}, "0x12, .*: compare does not lead to requant"),
    "window without pool": ("run", {"order": 0x1}, "has a window, but no POOL"),
    "outside without pool": (
        "run",
        {"order": 0x1, "win_rows": 1, "win_cols": 1, "in_rows": 2},
        "reads y 0..2 of a tile of 2 without POOL",
    ),
}


@pytest.mark.parametrize("kind", ILLEGAL)
def test_an_illegal_instruction_is_named(kind):
    opcode, changes, message = ILLEGAL[kind]
    refuse(with_params(opcode, **changes), message)


PACKED = {"mode": 2, "oc_steps": 1}
"""Two pixels of four channels, in words of eight lanes."""
SLOTS = {"pool_slots": 2, "order": POOL, "out_rows": 1, "out_cols": 1}
SPREAD = {"spread": 2, "order": ACT, "win_rows": 1, "win_cols": 1, "stride_x": 1}
FULL_ILLEGAL = {
    "all bytes skipped": ("store", {"skip_low": 5, "skip_high": 3}, "skips 8 bytes of words of 8"),
    "later groups overlap": (
        "conv",
        {"oc_first": 1, "psum_block_pitch": 15},
        "psum_block_pitch = 15, but 16 pixels",
    ),
    "odd columns": ("conv", PACKED | {"out_cols": 3}, "has 3 columns in a mode of 2 pixels"),
    "packed lanes": ("conv", PACKED | {"oc_steps": 2}, "packs 8 lanes a pixel, 2 pixels a word"),
    "packed later lanes": ("conv", PACKED | {"oc_first": 1}, "packs 8 lanes a pixel"),
    "pixels two words apart": (
        "conv",
        PACKED | {"stride_x": 2},
        "reads 2 pixels with stride 2, more than two neighbouring words",
    ),
    "slotted pixels in three words": (
        "conv",
        {"mode": 3, "oc_steps": 1, "slot_log2": 2, "stride_x": 2},
        "reads 2 pixels with stride 2, more than two neighbouring words",
    ),
    "four pixels in three words": (
        "conv",
        {"mode": 4, "oc_steps": 1, "slot_log2": 2},
        "reads 4 pixels with stride 1, more than two neighbouring words",
    ),
    "pre chain in slots": (
        "conv",
        {"pre": 1, "slot_log2": 2},
        "pre chain 1 pixels at a time in slots of 4",
    ),
    "pre chain packed": ("conv", PACKED | {"pre": 1}, "pre chain 2 pixels at a time"),
    "copy through the pre chain": ("copy", {"pre": 1}, "only conv passes the pre chain"),
    "depthwise through it": ("depthwise", {"pre": 1}, "only conv passes the pre chain"),
    "window": ("depthwise", {"kernel_cols": 3}, "has a window of 2 x 3, at most 2 x 2"),
    "two rows in a word of one part": (
        "depthwise",
        {"oc_steps": 2},
        "ic_steps = 1, oc_steps = 2: one part makes up to 1 output rows at once",
    ),
    "two rows of two parts": (
        "depthwise",
        {"ic_steps": 2, "oc_steps": 2},
        "ic_steps = 2, oc_steps = 2: .*, several make one",
    ),
    "depthwise in slots": ("depthwise", {"slot_log2": 2}, "has slots of 4 bytes"),
    "one slot": ("run", SLOTS | {"pool_slots": 1}, "pool_slots = 1, the array packs up to 4"),
    "three slots": ("run", SLOTS | {"pool_slots": 3}, "pool_slots = 3, the array packs up to 4"),
    "slots without pool": (
        "run",
        SLOTS | {"order": ACT, "win_rows": 1, "win_cols": 1},
        "has pool_slots, but no maximum in its chain",
    ),
    "average of slots": ("run", SLOTS | {"pool_kind": 1}, "has pool_slots, but no maximum"),
    "three columns of slots": ("run", SLOTS | {"win_cols": 3}, "of 3 columns with stride 2"),
    "slots one word apart": ("run", SLOTS | {"stride_x": 1}, "windows of 2 columns with stride 1"),
    "spread into one": ("run", SPREAD | {"spread": 1}, "spread = 1, the array packs up to 4"),
    "spread with a pool": ("run", SPREAD | {"order": POOL}, "spreads pixels, but has POOL in"),
    "spread from column 1": ("run", SPREAD | {"origin_x": 1}, "from column 1 with stride 1"),
    "every other pixel spread": (
        "run",
        SPREAD | {"stride_x": 2},
        "spreads pixels from column 0 with stride 2",
    ),
    "two slotted segments": (
        "conv",
        {"slot_log2": 2, "ic_steps": 2},
        "has ic_first = 0, ic_steps = 2: a slotted tile is one segment",
    ),
    "a later slotted segment": ("conv", {"slot_log2": 2, "ic_first": 1}, "ic_first = 1, ic_steps"),
    "slotted blocks": ("copy", {"slot_log2": 2, "ic_steps": 2}, "a slotted tile is one segment"),
    "depthwise blocks overlap": (
        "depthwise",
        {"ic_steps": 2, "psum_block_pitch": 15},
        "psum_block_pitch = 15, but 16 pixels",
    ),
}


@pytest.mark.parametrize("opcode", ["conv", "copy"])
def test_words_with_padding_hold_one_pixel(opcode):
    change = {"slot_log2": 3, "mode": 0}
    message = "has slots in words of 24 channels, which take 32 bytes"
    refuse(with_params(opcode, **change), message, MACHINES["odd"])


@pytest.mark.parametrize("kind", FULL_ILLEGAL)
def test_an_illegal_instruction_of_the_full_machine_is_named(kind):
    opcode, changes, message = FULL_ILLEGAL[kind]
    refuse(with_params(opcode, **changes), message, FULL)


AT_THE_LIMIT = {
    "all but one byte": ("store", {"skip_low": 4, "skip_high": 3}),
    "groups of one word": ("conv", {"oc_first": 2, "psum_block_pitch": 0}),
    "two neighbouring words": ("conv", PACKED),
    "slotted pixels in two words": ("conv", {"mode": 3, "oc_steps": 1, "slot_log2": 2}),
    "the last packed group": ("conv", {"mode": 3, "oc_first": 1, "oc_steps": 1}),
    "what copy does not use": ("copy", {"ic_first": 9, "oc_first": 9, "oc_steps": 0, "mode": 9}),
    "what depthwise does not use": ("depthwise", {"oc_first": 9, "mode": 9}),
    "a tile of padding": ("conv", {"in_rows": 0, "feature": 400}),
    "the most slots": ("run", SLOTS | {"pool_slots": 4, "win_rows": 3, "stride_y": 3}),
    "skipped bytes of the last word": ("store", {"skip_high": 7, **split_address(WINDOW - 32)}),
}


@pytest.mark.parametrize("kind", AT_THE_LIMIT)
def test_what_is_just_legal_runs(kind):
    opcode, changes = AT_THE_LIMIT[kind]
    Machine(FULL, np.zeros(WINDOW, np.uint8)).execute(with_params(opcode, **changes))


ONE = {"win_rows": 1, "win_cols": 1}
SHIFTS = replace(FULL, numeric=replace(FULL.numeric, multiplier_bits=0))
GATED, GATE = MACHINES["gated"], {"pre": 1, "gate": 1}
ABSENT = {
    "load.pre": (BARE, "pre", {}, "needs a pre chain, bare has none"),
    "load.table": (BARE, "table", {}, "needs tables, bare has none"),
    "pre": (BARE, "conv", {"pre": 1}, "needs a pre chain"),
    "gate": (FULL, "conv", {"pre": 1, "gate": 1}, "by a gate before the array, full has none"),
    "shift of a gate": (GATED, "conv", GATE | {"gate_shift": 48}, "gate_shift = 48, at most 47"),
    "gate of many blocks": (
        GATED,
        "conv",
        GATE | {"pre_param": 64},
        "reads word 64 of the pre buffer",
    ),
    "depthwise": (BARE, "depthwise", {}, "needs depthwise windows"),
    "any stage": (BARE, "run", {"order": ACT, **ONE}, "0x2, .* bare has not: unknown stage 2"),
    "slots": (HW, "run", SLOTS, "has pool_slots = 2, the array packs up to 1 pixels"),
    "spread": (HW, "run", SPREAD, "has spread = 2, the array packs up to 1 pixels"),
    "keep": (BARE, "run", {"order": 0, "keep": 1, **ONE}, "needs a way to keep maps"),
    "repeated rows": (BARE, "store", {"repeat_rows": 1}, "needs upsampling"),
    "repeated columns": (BARE, "store", {"repeat_cols": 1}, "needs upsampling"),
}


@pytest.mark.parametrize("kind", ABSENT)
def test_what_a_machine_does_not_have_is_illegal(kind):
    spec, opcode, changes, message = ABSENT[kind]
    refuse(with_params(opcode, **changes), message, spec)


def test_registers_of_a_gate_hold_anything_where_none_is_used():
    anything = {"gate": 1, "gate_shift": 63}
    for spec in (BARE, GATED):
        Machine(spec, np.zeros(WINDOW, np.uint8)).execute(with_params("conv", **anything))


def run_with_record(spec, mult, shift, pre=False):
    """Execute `run`, or `conv` through the pre chain, on records that are all alike."""
    machine = Machine(spec, np.zeros(WINDOW, np.uint8))
    memory = machine.memories.pre if pre else machine.memories.param
    memory.reshape(-1, 8)[:] = (0, 0, 0, 0, mult, 0, shift & 255, 0)
    one = {"order": REQUANT, **ONE, "out_rows": 1, "out_cols": 1}
    machine.execute(with_params("conv", pre=1) if pre else with_params("run", **one))


RECORDS = {
    "large": (FULL, (9, 48), "has multiplier 9 and shift 48; full shifts by 0 to 47"),
    "left": (FULL, (1, -1), "shift -1; full shifts by 0 to 47"),
    "too far left": (SHIFTS, (1, -17), "shift -17; full shifts by -16 to 47"),
    "factor": (SHIFTS, (2, 8), "multiplier 2 and shift 8; .* and has no multipliers"),
    "pre chain": (FULL, (9, 48, True), "pre buffer, block at word .*, lane 0: .* shift 48"),
    "pre chain left": (FULL, (9, -17, True), "shift -17; full shifts by -16 to 47"),
}


@pytest.mark.parametrize("kind", RECORDS)
def test_a_record_that_the_machine_cannot_compute_with_is_named(kind):
    spec, record, message = RECORDS[kind]
    with pytest.raises(RunError, match=message):
        run_with_record(spec, *record)


def test_records_at_the_limits_are_computed_with():
    for record in ((0xFF, 47), (1, 0)):
        run_with_record(FULL, *record)
    for record in ((1, -16), (0, 47)):
        run_with_record(SHIFTS, *record)
    run_with_record(FULL, 0xFF, -16, pre=True)


def test_waiting_on_itself_is_illegal():
    refuse(
        instruction(Engine.LOAD, "feature", {}, waits=(Engine.LOAD,)), "waits on or signals load"
    )


def test_fetch_takes_no_part_in_counters():
    refuse(instruction(Engine.FETCH, "end", {}, signals=(Engine.LOAD,)), "fetch has no counters")


def test_a_program_of_another_machine_stops_at_its_first_instruction():
    refuse(
        instruction(Engine.FETCH, "check", {"hash_lo": 1}),
        "was compiled for spec 00000000001, opu-tiny",
    )


def test_a_program_begins_with_check_and_ends_with_end():
    machine = Machine(HW, np.zeros(sample_bundle().window_bytes, np.uint8))
    with pytest.raises(RunError, match="does not begin with `check`"):
        machine.run(program()[1:])
    with pytest.raises(RunError, match="has no `end`"):
        machine.run(program()[:-1])


def test_an_instruction_that_outlasts_the_watchdog_is_refused():
    """The machine would stop by itself; simulators would not end within a day."""
    forever = {"out_rows": 65535, "out_cols": 65535, "win_rows": 255, "win_cols": 255}
    refuse(with_params("run", **forever), "takes .* cycles, the watchdog stops .* 16777215")
