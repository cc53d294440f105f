"""Programs with passes through a norm: the RTL's memory is the functional engine's, its cycles are
the cycle engine's.
"""

import numpy as np
import pytest
from msgspec.structs import replace

from opu_fuse.hw.isa.encoding import decode
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.register_map import ErrorCode
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim.cycle.instruction_costs import steps_of
from opu_fuse.sim.cycle.machine import CycleMachine
from opu_fuse.sim.functional.machine import Machine
from opu_fuse.sim.rtl.machine_run import MachineStop, ProgramRun
from opu_fuse.sim.rtl.process import RtlMachine
from opu_fuse.units.base import Stage
from opu_fuse.units.norm import exponential_words
from opu_fuse.units.norm_pass import EXPONENTIALS, NormOp
from rtl_sim.benches.graph_orders import orders_of
from tests.hw.norm_machine import PASSES
from tests.rtl.machines import write_machine
from tests.rtl.random_programs import (
    PROGRAM_AT,
    RECORDS,
    WINDOW_BYTES,
    chained,
    copy,
    framed,
    load,
    narrow,
    program_image,
    random_image,
    store,
)
from tests.sim import random_instructions as rand

pytestmark = pytest.mark.rtl

TABLE_AT, TABLES, STORE_AT = 0x2000, 2, 0x1000
LATENCY, LAYERS, SEEDS = 20, 12, 6


@pytest.fixture(scope="module")
def spec(tmp_path_factory) -> HwSpec:
    return load_hw(write_machine("norms", tmp_path_factory.mktemp("norms")))


@pytest.fixture(scope="module")
def machine(spec):
    window = np.zeros(WINDOW_BYTES, np.uint8)
    speed = spec.dram.bus_bytes
    with RtlMachine(spec, window, latency=LATENCY, bytes_per_cycle=speed) as started:
        yield started


def layer(rng: np.random.Generator, spec: HwSpec) -> list[Instruction]:
    """All passes of a random layer."""
    orders = orders_of(spec)
    norms = [
        order
        for order in orders.every
        if Stage.NORM in orders.kinds(order) and Stage.POOL not in orders.kinds(order)
    ]
    order = int(rng.choice(norms))
    one = rand.until_fits(lambda rng, spec: rand.post(rng, spec, order=order), rng, spec)
    idle = int(rng.integers(0, spec.word_channels - 1))
    base = {**one.params, "norm_idle": idle, "spread": 0}
    passes = PASSES[rng.integers(len(PASSES))]
    scale = {"norm_scale": int(rng.integers(16, 1 << 16)), "norm_shift": int(rng.integers(0, 9))}
    result = []
    for op in passes:
        own = {"norm_op": int(op), "norm_zero": rand.int8(rng), **scale}
        own["norm_table"] = int(rng.integers(TABLES)) * EXPONENTIALS
        result.append(replace(one, params={**base, **own}))
    if passes[0] is NormOp.MAX:  # one table
        for x in result[1:]:
            x.params["norm_table"] = result[0].params["norm_table"]
    for size in ("out_rows", "out_cols"):  # pixels of the result have other places
        result[-1].params[size] = int(rng.integers(1, base[size] + 1))
    return result


def random_program(rng: np.random.Generator, spec: HwSpec) -> list[Instruction]:
    b = spec.buffers
    assert b.table is not None, "a machine with tables"
    fill = [
        load("feature", 0, b.feature.words),
        load("param", RECORDS["param"][0], b.param.words),
        load("residual", 0, b.residual.words),
        load("table", 0, b.table.words),
        load("norm", TABLE_AT, TABLES * EXPONENTIALS),
        copy(b.psum.words // 8, 8, spec),
        narrow(b.output.words // 8, 8),
    ]
    body = []
    for _ in range(LAYERS):
        body += layer(rng, spec)
    return framed(chained([*fill, *body, store(STORE_AT, b.output.words)]), spec)


def image_of(rng: np.random.Generator, program: list[Instruction], spec: HwSpec):
    """Noise, records of requantiser and norm, tables of exponentials, the program; its words."""
    image, words = random_image(rng, program)
    records = image[slice(*RECORDS["param"])].reshape(-1, 8)
    records[:, 2], records[:, 3] = rng.integers(18, 40, len(records)), 0
    for number in range(TABLES):
        table = np.zeros((EXPONENTIALS, spec.word_bytes), np.uint8)
        table[:, :3] = exponential_words(float(rng.choice([0.01, 0.1])))
        at = TABLE_AT + number * table.size
        image[at : at + table.size] = table.reshape(-1)
    return image, words


@pytest.mark.parametrize("seed", range(SEEDS))
def test_programs_leave_the_same_memory_in_the_same_cycles(machine, spec, seed):
    rng = np.random.default_rng(seed)
    image, words = image_of(rng, random_program(rng, spec), spec)
    before = image.copy()
    machine.window[:] = image
    ran = machine.run(PROGRAM_AT, words, max_cycles=2_000_000)
    assert isinstance(ran, ProgramRun), ran
    code = image[PROGRAM_AT:].view("<u4")[:words].copy()
    Machine(spec, image).run(decode(code))
    assert (image != before).any()
    wrong = np.flatnonzero(machine.window != image)
    assert wrong.size == 0, f"{wrong.size} bytes differ, first at {wrong[0]:#x}"
    steps = steps_of(code, spec, WINDOW_BYTES)[1]
    cycle = CycleMachine(
        steps, spec, base=PROGRAM_AT, latency=LATENCY, bytes_per_cycle=spec.dram.bus_bytes
    )
    assert cycle.run() == ran.cycles


@pytest.mark.parametrize(
    "change",
    [{"norm_op": 6, "norm_shift": 42}, {"norm_idle": 8}, {"out_rows": 300, "in_rows": 300}],
)
def test_a_pass_that_the_unit_cannot_do_stops_the_machine(machine, spec, change):
    orders = orders_of(spec)
    one = rand.until_fits(
        lambda rng, spec: rand.post(rng, spec, order=orders.pack(["norm"])),
        np.random.default_rng(0),
        spec,
    )
    bad = replace(one, params={**one.params, "norm_op": 0, "norm_idle": 0, **change})
    machine.window[:], words = program_image(framed([bad], spec))
    found = machine.run(PROGRAM_AT, words, max_cycles=100_000)
    assert isinstance(found, MachineStop)
    assert (found.code, found.engine) == (ErrorCode.ILLEGAL_INSTRUCTION, Engine.POST)


def test_a_load_behind_the_end_of_the_norm_memory_stops_the_machine(machine, spec):
    program = framed([load("norm", 0, 2, dst=spec.buffers.norm.words - 1)], spec)
    machine.window[:], words = program_image(program)
    found = machine.run(PROGRAM_AT, words, max_cycles=100_000)
    assert isinstance(found, MachineStop)
    assert (found.code, found.engine) == (ErrorCode.BUFFER, Engine.LOAD)


def test_a_machine_without_a_norm_refuses_its_load():
    tiny = load_hw("opu-tiny")
    image, words = program_image(framed([load("norm", 0, 1)], tiny))
    with RtlMachine(tiny, image) as other:
        found = other.run(PROGRAM_AT, words, max_cycles=100_000)
    assert isinstance(found, MachineStop)
    assert (found.code, found.engine) == (ErrorCode.ILLEGAL_INSTRUCTION, Engine.LOAD)
