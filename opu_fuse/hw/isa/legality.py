"""Rules that make an instruction illegal.

The RTL stops with an error code in the same cases; here it is said in words. Addresses are not
checked here: `hw/isa/faults.py` compares accesses with the sizes of their memories.
"""

from collections.abc import Callable, Iterator, Mapping

from opu_fuse.fixedpoint import MAX_SHIFT
from opu_fuse.hw.compute_channels import sweep
from opu_fuse.hw.im2row_window import COLUMN_BYTES, UNFOLD
from opu_fuse.hw.isa.footprint import moved_bytes
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import (
    OPCODE,
    REGISTER,
    SYNC_ENGINES,
    WATCHDOG_RESET,
    Engine,
    order_of,
    unit_params,
)
from opu_fuse.hw.spec.chain import chain_of, pool_kind
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.unit_rates import iteration_cycles, post_iterations
from opu_fuse.hw.weight_maps import sets_zeros
from opu_fuse.units import BY_STAGE
from opu_fuse.units.base import ModuleKind as K
from opu_fuse.units.base import Space, Stage, StageContext
from opu_fuse.units.memory import MEMORIES
from opu_fuse.units.params import ComputeParams, PostParams
from opu_fuse.units.spread import spread_pixels

_TRANSFER = ("run", "rows", "blocks")
_STRIDES = ("stride_y", "stride_x")
_WINDOW = (
    *("out_rows", "out_cols", *_STRIDES, "dilation_y", "dilation_x"),
    *("kernel_rows", "kernel_cols", "ic_steps"),
)
COUNTS: dict[tuple[Engine, str], tuple[str, ...]] = {
    **{(Engine.LOAD, memory.space.value): _TRANSFER for memory in MEMORIES if memory.loads},
    (Engine.LOAD, UNFOLD): ("run", "rows", "stride_y"),
    (Engine.COMPUTE, "conv"): (*_WINDOW, "oc_steps"),
    (Engine.COMPUTE, "depthwise"): (*_WINDOW, "oc_steps"),
    (Engine.COMPUTE, "copy"): ("out_rows", "out_cols", *_STRIDES, "ic_steps"),
    (Engine.POST, "run"): ("out_rows", "out_cols", *_STRIDES, "win_rows", "win_cols", "blocks"),
    (Engine.STORE, "store"): _TRANSFER,
}
"""Registers that must not be zero when the instruction starts."""
_OPTIONAL = tuple((memory.space, memory.needs) for memory in MEMORIES if memory.needs)


def illegal(instruction: Instruction, spec: HwSpec) -> str | None:
    """Why the machine refuses an instruction wherever its addresses point, None if it does not."""
    return next(_mistakes(instruction, spec), None)  # each rule relies on those before it


def _mistakes(instruction: Instruction, spec: HwSpec) -> Iterator[str]:
    key = (instruction.engine, instruction.opcode)
    p = instruction.params
    if key not in OPCODE:
        yield "is no instruction of this machine"
    for other in (*instruction.waits, *instruction.signals):
        if other not in SYNC_ENGINES or other is instruction.engine:
            yield f"waits on or signals {other.name.lower()}"
    if (instruction.waits or instruction.signals) and instruction.engine not in SYNC_ENGINES:
        yield "waits or signals, but fetch has no counters"
    yield from _missing_units(instruction, spec)
    yield from _missing_modules(instruction, spec)
    for name in COUNTS.get(key, ()):
        if p[name] == 0:
            yield f"has {name} = 0, at least 1 is needed"
    if instruction.opcode == UNFOLD and p["kernel_rows"] not in COLUMN_BYTES:
        known = ", ".join(map(str, COLUMN_BYTES))
        yield f"has kernel_rows = {p['kernel_rows']}, im2row supports {known}"
    if instruction.engine in _OF_ENGINE:
        yield from _OF_ENGINE[instruction.engine](instruction, spec)
    cycles = least_cycles(instruction, spec)
    if cycles > WATCHDOG_RESET:
        yield f"takes {cycles} cycles, the watchdog stops the machine after {WATCHDOG_RESET}"


def _missing_units(instruction: Instruction, spec: HwSpec) -> Iterator[str]:
    for name in instruction.params:
        register, _, bank = name.partition("@")
        stage = REGISTER[instruction.engine, register].stage
        if bank and int(bank) >= chain_of(spec).banks(stage):
            yield f"sets {name}, which {spec.name} has not"


def _missing_modules(instruction: Instruction, spec: HwSpec) -> Iterator[str]:
    store, post = instruction.engine is Engine.STORE, instruction.engine is Engine.POST
    repeats = store and (instruction.store["repeat_rows"] or instruction.store["repeat_cols"])
    used = instruction.opcode
    if used == "conv" and instruction.compute["pre"]:
        used = Space.PRE
    elif used == UNFOLD:
        used = Space.IMAGE
    needs = (
        *((used == space, spec.buffer(space), needs) for space, needs in _OPTIONAL),
        (instruction.opcode == "depthwise", spec.array.depthwise, "depthwise windows"),
        (repeats, spec.has(K.UPSAMPLE), "upsampling"),
        (post and instruction.post["keep"], spec.post.keep, "a way to keep maps"),
    )
    for needed, available, name in needs:
        if needed and not available:
            yield f"needs {name}, {spec.name} has none"


def _store(instruction: Instruction, spec: HwSpec) -> Iterator[str]:
    p = instruction.store
    skipped = p["skip_low"] + p["skip_high"]
    if skipped >= spec.word_bytes:
        yield f"skips {skipped} bytes of words of {spec.word_bytes}"


def _load(instruction: Instruction, spec: HwSpec) -> Iterator[str]:
    p = instruction.load
    zeros = p["zero_low"] + p["zero_high"]
    if instruction.opcode != Space.WEIGHT:
        return
    if zeros and not sets_zeros(spec):
        yield f"sets lanes of weights to zero, which {spec.name} cannot"
    if zeros >= spec.word_bytes:
        yield f"loads {zeros} bytes of words of {spec.word_bytes} as zeros"


def _compute(instruction: Instruction, spec: HwSpec) -> Iterator[str]:
    p = instruction.compute
    slot = 1 << p["slot_log2"]
    if slot > spec.word_bytes:
        yield f"has slot_log2 = {p['slot_log2']}, a word has {spec.word_bytes} bytes"
    units = chain_of(spec).banks(Stage.PRE)
    if p["pre"] > units:
        yield f"passes {p['pre']} units of the pre chain, {spec.name} has {units}"
    if instruction.opcode == "conv":
        yield from _mode(instruction, spec)
        if p["pre"] and p["gate"]:
            yield from _gate(p, spec)
    elif p["pre"]:
        yield f"has pre = {p['pre']}, only conv passes the pre chain"
    if instruction.opcode == "depthwise":
        side = spec.array.window_side
        if slot < spec.word_bytes:
            yield f"has slots of {slot} bytes, it reads whole words"
        if max(p["kernel_rows"], p["kernel_cols"]) > side:
            window = f"{p['kernel_rows']} x {p['kernel_cols']}"
            yield f"has a window of {window}, at most {side} x {side}"
        most = spec.word_parts
        if p["oc_steps"] > 1 and (p["ic_steps"] > 1 or p["oc_steps"] > most):
            what = f"has ic_steps = {p['ic_steps']}, oc_steps = {p['oc_steps']}"
            yield f"{what}: one part makes up to {most} output rows at once, several make one"
    if slot < spec.word_bytes:
        yield from _slotted(instruction, spec)
    s = sweep(instruction.opcode, p, spec)
    pixels, pitch = p["out_rows"] * p["out_cols"], p["psum_block_pitch"]
    if len(s.psum_blocks) > 1 and pitch < pixels:
        yield f"has psum_block_pitch = {pitch}, but {pixels} pixels a block: blocks overlap"


def _gate(p: ComputeParams, spec: HwSpec) -> Iterator[str]:
    """The one unit before the array multiplies by a gate, where it can."""
    if not chain_of(spec).gates:
        yield f"multiplies by a gate before the array, {spec.name} has none"
    if p["gate_shift"] > MAX_SHIFT:
        yield f"has gate_shift = {p['gate_shift']}, at most {MAX_SHIFT}"


def _slotted(instruction: Instruction, spec: HwSpec) -> Iterator[str]:
    """Slots fill whole words; their content is one segment of one block."""
    p, word = instruction.compute, spec.word_bytes
    if word != spec.word_channels:
        yield f"has slots in words of {spec.word_channels} channels, which take {word} bytes"
    if p["ic_steps"] > 1 or (instruction.opcode == "conv" and p["ic_first"]):
        what = f"has ic_first = {p['ic_first']}, ic_steps = {p['ic_steps']}"
        yield f"{what}: a slotted tile is one segment"


def _mode(instruction: Instruction, spec: HwSpec) -> Iterator[str]:
    p, modes, word = instruction.compute, spec.array.modes, spec.word_bytes
    if p["mode"] >= len(modes):
        yield f"has mode {p['mode']}, the array has {len(modes)}"
    mode, slot = modes[p["mode"]], 1 << p["slot_log2"]
    if p["pre"] and (slot < word or mode.px > 1):
        what = f"passes the pre chain {mode.px} pixels at a time in slots of {slot} bytes"
        yield f"{what}, it takes one pixel a word"
    if mode.px == 1:
        return
    if p["out_cols"] % mode.px:
        yield f"has {p['out_cols']} columns in a mode of {mode.px} pixels"
    lanes = (p["oc_first"] + p["oc_steps"]) * mode.oc
    if lanes > spec.word_channels // mode.px:
        yield f"packs {lanes} lanes a pixel, {mode.px} pixels a word of {spec.word_channels}"
    distance = (mode.px - 1) * p["stride_x"]  # from the first pixel to the last
    if distance > 1 if slot == word else distance * slot + mode.ic > word + slot:
        yield (
            f"reads {mode.px} pixels with stride {p['stride_x']}, more than two neighbouring words"
        )


def _post(instruction: Instruction, spec: HwSpec) -> Iterator[str]:
    p, chain = instruction.post, chain_of(spec)
    order = order_of(p)
    mistake = chain.mistake(order)
    if mistake is not None:
        yield f"has order {order:#x}, which the graph of {spec.name} has not: {mistake}"
    stages = chain.unpack(order)
    pools = any(BY_STAGE[stage.stage].windows for stage in stages)
    for stage in stages:
        context = StageContext(
            module=stage.name,
            machine=spec.name,
            product=stage.product,
            shifts=not spec.numeric.multiplier_bits,
            lanes=spec.word_channels,
            pixels=spec.buffers.psum.bank_words,
            pools=pools,
            halves=spec.halves_words,
        )
        yield from BY_STAGE[stage.stage].mistakes(unit_params(p, stage.bank), context)
    if p["pool_slots"]:
        yield from _slots(p, spec, pools=pools)
    if p["spread"]:
        yield from _spreads(p, spec, [stage.stage for stage in stages])
    if pools:
        return
    if (p["win_rows"], p["win_cols"]) != (1, 1):
        yield "has a window, but no POOL in its chain"
    for axis, first, outputs, stride, limit in (
        ("y", p["origin_y"], p["out_rows"], p["stride_y"], p["in_rows"]),
        ("x", p["origin_x"], p["out_cols"], p["stride_x"], p["in_cols"]),
    ):
        last = first + (outputs - 1) * stride
        if first < 0 or last >= limit:
            yield f"reads {axis} {first}..{last} of a tile of {limit} without POOL in its chain"


def _spreads(p: PostParams, spec: HwSpec, stages: list[Stage]) -> Iterator[str]:
    """Pixels of a word go to words of their own after a chain that reads each of them once."""
    pixels, _ = spread_pixels(p["spread"])
    yield from _packed("spread", pixels, spec)
    if Stage.POOL in stages:
        yield "spreads pixels, but has POOL in its chain"
    if (p["origin_x"], p["stride_x"]) != (0, 1):
        yield (
            f"spreads pixels from column {p['origin_x']} with stride {p['stride_x']}, "
            "only all of them"
        )


def _slots(p: PostParams, spec: HwSpec, *, pools: bool) -> Iterator[str]:
    """Packed pixels are pooled only where the array packs them and the chain has a pool."""
    yield from _packed("pool_slots", p["pool_slots"], spec)
    if not pools:
        yield "has pool_slots, but no maximum in its chain"


def _packed(register: str, pixels: int, spec: HwSpec) -> Iterator[str]:
    largest = max(mode.px for mode in spec.array.modes)
    if pixels not in (2, 4) or pixels > largest:
        yield f"has {register} = {pixels}, the array packs up to {largest} pixels into a word"


def least_cycles(instruction: Instruction, spec: HwSpec) -> int:
    """Cycles that a legal instruction takes at least, without waiting for anything."""
    if instruction.engine in (Engine.LOAD, Engine.STORE):
        return moved_bytes(instruction, spec) // spec.dram.bus_bytes
    if instruction.engine is Engine.COMPUTE:
        p = instruction.compute
        s, pixels = sweep(instruction.opcode, p, spec), p["out_rows"] * p["out_cols"]
        return max(s.weight_rows, len(s.steps)) * pixels // s.px
    if instruction.engine is Engine.POST:
        p = instruction.post
        window = (p["win_rows"], p["win_cols"])
        shape = {"out_rows": p["out_rows"], "out_cols": p["out_cols"], "stride_x": p["stride_x"]}
        kind = pool_kind(p, spec)
        second = Stage.RESIDUAL in chain_of(spec).stages(order_of(p))
        each = iteration_cycles(spec, second_operand=second)
        return each * p["blocks"] * post_iterations(**shape, window=window, kind=kind)
    return 0


_OF_ENGINE: Mapping[Engine, Callable[[Instruction, HwSpec], Iterator[str]]] = {
    Engine.LOAD: _load,
    Engine.COMPUTE: _compute,
    Engine.POST: _post,
    Engine.STORE: _store,
}
