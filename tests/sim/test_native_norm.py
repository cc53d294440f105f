"""The native engine has the bits and the faults of the functional one in passes of norms."""

from functools import partial

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.attention_networks import SMALL
from opu_fuse.hw.isa.encoding import encode
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.legality import illegal
from opu_fuse.hw.isa.table import REGISTER, Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.units.base import Space
from opu_fuse.units.norm_pass import OF_QUARTERS, NormOp
from rtl_sim.benches.graph_orders import orders_of
from tests.hw.norm_machine import PASSES, norm_machine
from tests.networks.attention_blocks import transformer
from tests.networks.norm_blocks import NORMS, network, transformer_block
from tests.sim.native_cases import (
    both,
    changed,
    check_and_end,
    differences,
    error_of,
    replay,
    same_runs,
    sanitized_replay,
)
from tests.sim.random_instructions import (
    WINDOW_BYTES,
    fits,
    instruction,
    pick,
    post,
    until_fits,
)
from tests.tiers import by_night

ORDERS = (
    ["norm"],
    ["requant", "norm"],
    ["requant", "norm", "table"],
    ["requant", "compare", "norm", "compare"],
    ["requant", "res_add", "norm", "table"],
    ["res_add", "norm"],
)
SPECS = {"norms": norm_machine(), "opu-1024a": load_hw("opu-1024a")}


def _own(rng, spec, op):
    """Registers of a pass, with every value that is legal."""
    sums = (NormOp.EXPSUM, NormOp.QUARTER_EXPSUM, NormOp.QUARTER_EXPSUM_ODD)
    lowest, highest = (-32, 31) if op in sums else (0, 41)
    return {
        "norm_op": int(op),
        "norm_table": pick(rng, 0, spec.buffers.norm.words - 256),
        "norm_zero": pick(rng, -128, 127),
        "norm_scale": int(rng.choice([0, 1, 65535, pick(rng, 0, 65535)])),
        "norm_shift": pick(rng, 4, 10) if rng.random() < 0.7 else pick(rng, lowest, highest),
    }


def _first(rng, spec):
    """A pass without pool and spread, in an order that the machine has; None if it has not."""
    try:
        order = orders_of(spec).pack(ORDERS[rng.integers(len(ORDERS))])
    except (KeyError, ValueError):
        return None
    params = {**post(rng, spec, order).params, "spread": 0, "pool_slots": 0}
    params |= {"norm_idle": pick(rng, 0, spec.word_channels - 1)}
    x = Instruction(
        engine=Engine.POST, opcode="run", params={**params, **_own(rng, spec, NormOp.MAX)}
    )
    return None if illegal(x, spec) else x


def _passes(rng, spec, count=5):
    """Passes over the same pixels, in any order: also those that read what none wrote."""
    first = until_fits(_first, rng, spec)
    halves = 2 * spec.post.lanes == spec.word_channels
    known = [op for op in NormOp if halves or op not in OF_QUARTERS]
    whole = [*PASSES, OF_QUARTERS] if halves else PASSES
    ops = [known[n] for n in rng.integers(0, len(known), count)]
    if rng.random() < 0.7 and count >= len(OF_QUARTERS):
        ops = whole[rng.integers(len(whole))]
    if not {*OF_QUARTERS}.isdisjoint(ops):
        first = replace(first, params={**first.params, "blocks": 1, "norm_idle": 0})
    made = [
        Instruction(
            engine=Engine.POST, opcode="run", params={**first.params, **_own(rng, spec, op)}
        )
        for op in ops
    ]
    if rng.random() < 0.3:  # fewer pixels, more than before, or the same in another shape
        rows, cols = (first.params[name] for name in ("out_rows", "out_cols"))
        sizes = [(rows, cols), (cols, rows), (1, cols), (rows, 1)]
        made = [_sized(x, *sizes[rng.integers(len(sizes))]) for x in made]
    return made if all(fits(x, spec) for x in made) else _passes(rng, spec, count)


def _sized(x, rows, cols):
    """A pass over other rows and columns."""
    return replace(x, params={**x.params, "out_rows": rows, "out_cols": cols})


def _vary(python, native):
    """Shifts of the channels with which most results are inside int8; some have upper bits."""
    rng = np.random.default_rng(1)
    shifts = rng.integers(12, 34, python.memories.param.size // 8)
    shifts += 64 * rng.choice(4, shifts.size, p=(0.7, 0.1, 0.1, 0.1))
    for words in (python.memories.param, native.memory(Space.PARAM)):
        words.view(np.uint8).reshape(-1, 8)[:, 2] = shifts


@pytest.mark.parametrize("name", SPECS)
def test_passes_in_any_order_leave_the_same_bytes(name):
    spec, rng = SPECS[name], np.random.default_rng(3)
    written = 0
    for _ in range(120 if name == "norms" else 25):
        passes = _passes(rng, spec)
        python, native = both(spec, rng)
        _vary(python, native)
        before = python.memories.output.copy()
        assert differences(python, native, check_and_end(spec, *passes)) == []
        written += not np.array_equal(before, python.memories.output)
    assert written > 10, "no pass had results"


def test_both_engines_fault_at_the_same_passes():
    spec, rng = SPECS["norms"], np.random.default_rng(5)
    faults = 0
    for number in range(300):
        x = changed(rng, _passes(rng, spec, 1)[0])
        own = [n for n in x.params if n.startswith("norm_")]
        register = REGISTER[Engine.POST, own[number % len(own)]]
        odd = [register.lowest, register.highest, pick(rng, register.lowest, register.highest)]
        x = Instruction(
            engine=x.engine, opcode=x.opcode, params={**x.params, register.name: odd[number % 3]}
        )
        program = check_and_end(spec, x)
        python, native = both(spec, rng)
        found = differences(python, native, program)
        assert not found, (found, x)
        faults += error_of(partial(python.run, program)) is not None
    assert 30 < faults < 300


def test_a_load_fills_the_memory_of_norms():
    spec, rng = SPECS["norms"], np.random.default_rng(6)
    assert spec.buffers.norm is not None, "a machine with norms"
    for dst, refused in ((7, False), (spec.buffers.norm.words - 1, True)):
        load = instruction(Engine.LOAD, "norm", {"run": 3, "rows": 2, "blocks": 1, "dst": dst})
        python, native = both(spec, rng)
        program = check_and_end(spec, load)
        assert differences(python, native, program) == []
        assert (error_of(partial(python.run, program)) is not None) is refused


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("norm", NORMS)
def test_norms_leave_the_same_window(name, norm):
    for channels, before, after in ((13, "residual", "output"), (16, "conv", "table")):
        model = network(norm, channels, before=before, after=after)
        same_runs(compile_model(model, SPECS[name]).bundle, SPECS[name])


def test_attention_leaves_the_same_window():
    spec = SPECS["opu-1024a"]
    for model in (transformer_block(16, 32, 2), transformer(9, 24, 2)):
        same_runs(compile_model(model, spec).bundle, spec)


@pytest.mark.parametrize("name", SMALL)
def test_small_attention_networks_leave_the_same_window(name):
    spec = SPECS["opu-1024a"]
    same_runs(compile_model(SMALL[name](), spec).bundle, spec)


@pytest.mark.parametrize("count", by_night([100, 2000], [2000]))
def test_odd_passes_reach_nothing_outside(count, tmp_path):
    sanitized = sanitized_replay(tmp_path)
    spec, rng = SPECS["norms"], np.random.default_rng(8)
    programs = []
    for number in range(count):
        body = _passes(rng, spec, 3)
        if number % 2:
            body.append(changed(rng, body[0]))
        programs.append(encode(check_and_end(spec, *body)))
    window = rng.integers(0, 256, WINDOW_BYTES, np.uint8)
    replay(sanitized, spec, window, programs, tmp_path)
