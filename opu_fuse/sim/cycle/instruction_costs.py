"""Costs of a program's instructions on their engines, for the cycle engine."""

import numpy as np
from msgspec import Struct

from opu_fuse.errors import ProgramError
from opu_fuse.hw import unit_rates
from opu_fuse.hw.compute_channels import Sweep, continues_accumulation, sweep
from opu_fuse.hw.im2row_window import UNFOLD
from opu_fuse.hw.isa.encoding import decode_with_positions
from opu_fuse.hw.isa.faults import Faults
from opu_fuse.hw.isa.footprint import dram_word_bytes
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import Engine, order_of
from opu_fuse.hw.spec.chain import chain_of, pool_kind
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.cycle.bursts import PAGE_BYTES, Transfer, transfer
from opu_fuse.sim.machine_stop import stop_error
from opu_fuse.units.base import Space, Stage
from opu_fuse.units.params import ComputeParams, PostParams


class Sweeps(Struct, frozen=True, kw_only=True):
    """conv or copy: `count` sweeps over `steps` steps, one sweep every `period` cycles.

    setup: cycles from the start to the first sweep; waits: further cycles in which sweeps wait for
    parameters of the pre chain; gap: from a sweep of conv to the next at least; accumulate: the
    first sweep waits until the array is empty.
    """

    setup: int
    count: int
    steps: int
    period: int
    waits: int
    gap: int
    accumulate: bool


class Windows(Struct, frozen=True, kw_only=True):
    """depthwise: see `hw.window.queue`; parts: of every block, output rows of a single one."""

    out_rows: int
    out_cols: int
    kernel: tuple[int, int]
    stride_x: int
    dilation_x: int
    parts: tuple[int, ...]
    accumulate: bool


class Chain(Struct, frozen=True, kw_only=True):
    """post: `blocks` blocks, one per `period` cycles; all iterations of one take `iterations`.

    words: parameter words of a block; hold: cycles from the first iteration of a block until the
    next words may come; drain: cycles from the last iteration to done.
    """

    blocks: int
    iterations: int
    period: int
    words: int
    hold: int
    drain: int


class Im2Row(Struct, frozen=True, kw_only=True):
    """load.unfold, which does not use the bus: `words` words of the feature buffer, one a cycle."""

    words: int


InstructionCost = Sweeps | Windows | Chain | Transfer | Im2Row | None


class Step(Struct, frozen=True, kw_only=True):
    """One instruction. number: among the C-types; pc: word index of its C-type; words: with the
    U-types before it; waits, signals: engine numbers.
    """

    number: int
    pc: int
    engine: Engine
    opcode: str
    words: int
    waits: tuple[int, ...]
    signals: tuple[int, ...]
    work: InstructionCost


def steps_of(
    words: np.ndarray, hw: HwSpec, window_bytes: int
) -> tuple[list[Instruction], list[Step]]:
    """The decoded program, and its steps in program order. Raises ProgramError for words that are
    no instructions or do not end, RunError for instructions at which the machine stops.
    """
    instructions, positions = decode_with_positions(words)
    steps, before, faults = [], -1, Faults(hw, window_bytes)
    computed: Instruction | None = None
    for number, (x, pc) in enumerate(zip(instructions, positions.tolist(), strict=True)):
        why = faults.reason(x)
        if why is not None:
            raise stop_error(x, number, why)
        steps.append(
            Step(
                number=number,
                pc=pc,
                engine=x.engine,
                opcode=x.opcode,
                words=pc - before,
                waits=tuple(map(int, x.waits)),
                signals=tuple(map(int, x.signals)),
                work=_work(x, hw, computed),
            )
        )
        computed = x if x.engine is Engine.COMPUTE else computed
        before = pc
    if not steps or (steps[-1].engine, steps[-1].opcode) != (Engine.FETCH, "end"):
        raise ProgramError("program", "has no `end`", "compile the model again")
    return instructions, steps


def _work(x: Instruction, hw: HwSpec, computed: Instruction | None) -> InstructionCost:
    """computed: the instruction of compute before."""
    match x.engine, x.opcode:
        case Engine.LOAD, opcode if opcode == UNFOLD:
            p = x.load
            return Im2Row(words=unit_rates.im2row_cycles(p["run"], p["rows"], p["kernel_rows"]))
        case Engine.LOAD | Engine.STORE, _:
            return _transfer(x, hw)
        case Engine.COMPUTE, "depthwise":
            return _windows(x.compute, hw)
        case Engine.COMPUTE, opcode:
            return _sweeps(
                opcode, x.compute, hw, continues_accumulation=continues_accumulation(computed, x)
            )
        case Engine.POST, _:
            return _chain(x.post, hw)
        case _:
            return None


def _transfer(x: Instruction, hw: HwSpec) -> Transfer:
    p, bus = x.transfer, hw.dram.bus_bytes
    store = x.engine is Engine.STORE
    word = dram_word_bytes(Space.OUTPUT if store else Space(x.opcode), hw) // bus
    run, repeats = p["run"], 1
    if store:
        s = x.store
        repeats = 1 + s["repeat_rows"]
        run = run * (1 + s["repeat_cols"] + s["word_gap"]) - s["word_gap"]
    page = PAGE_BYTES // bus
    # The rows of a block with their repeats follow each other at the row pitch.
    return transfer(
        at=x.dram // bus,
        run=run * word,
        rows=p["rows"] * repeats,
        row_pitch=p["row_pitch"] * word,
        blocks=p["blocks"],
        block_pitch=p["block_pitch"] * word,
        page=page,
        longest=min(hw.dram.max_burst, page),
    )


def _sweeps(opcode: str, p: ComputeParams, hw: HwSpec, *, continues_accumulation: bool) -> Sweeps:
    pixels = p["out_rows"] * p["out_cols"]
    if opcode == "copy":
        return Sweeps(
            setup=unit_rates.SWEEP_SETUP_CYCLES,
            count=p["ic_steps"],
            steps=pixels,
            period=pixels,
            waits=0,
            gap=0,
            accumulate=False,
        )
    s = sweep(opcode, p, hw)
    period = unit_rates.row_cycles(hw, pixels, s.px)
    # A block's parameters are loaded during the sweeps of the block before.
    lasting = [period * s.weight_rows // len(s.steps) * parts for parts in _parts(s)[:-1]]
    gate = bool(p["pre"] and p["gate"])
    coming = unit_rates.pre_block_cycles(pre=p["pre"], gate=gate)
    return Sweeps(
        setup=unit_rates.conv_setup_cycles(hw, px=s.px, pre=p["pre"], gate=gate),
        count=s.weight_rows,
        steps=pixels // s.px,
        period=period,
        waits=sum(max(coming - cycles, 0) for cycles in lasting),
        gap=unit_rates.MIN_ROW_CYCLES,
        accumulate=bool(p["accumulate"]) and not continues_accumulation,
    )


def _windows(p: ComputeParams, hw: HwSpec) -> Windows:
    s = sweep("depthwise", p, hw)
    return Windows(
        out_rows=p["out_rows"],
        out_cols=p["out_cols"],
        kernel=s.kernel,
        stride_x=p["stride_x"],
        dilation_x=p["dilation_x"],
        parts=tuple(count * s.at_once for count in _parts(s)),
        accumulate=bool(p["accumulate"]),
    )


def _parts(s: Sweep) -> tuple[int, ...]:
    """Steps in every block of channels."""
    per_block = s.lanes // s.ic
    parts = [0] * len(s.blocks)
    for step in s.steps:
        parts[step // per_block - s.blocks.start] += 1
    return tuple(parts)


def _chain(p: PostParams, hw: HwSpec) -> Chain:
    stages = chain_of(hw).stages(order_of(p))
    words, hold = unit_rates.post_words(stages), unit_rates.post_hold_cycles(hw, stages)
    each = unit_rates.iteration_cycles(hw, second_operand=Stage.RESIDUAL in stages)
    iterations = each * unit_rates.post_iterations(
        out_rows=p["out_rows"],
        out_cols=p["out_cols"],
        window=(p["win_rows"], p["win_cols"]),
        stride_x=p["stride_x"],
        kind=pool_kind(p, hw),
    )
    return Chain(
        blocks=p["blocks"],
        iterations=iterations,
        period=unit_rates.post_block_cycles(iterations=iterations, words=words, hold=hold),
        words=words,
        hold=hold,
        drain=unit_rates.post_drain_cycles(hw, stages),
    )
