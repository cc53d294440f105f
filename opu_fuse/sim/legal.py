"""What makes an instruction illegal, and which accesses leave their memory.

The RTL stops with an error code in the same cases; here the error says in words which instruction
did what.
"""

from collections.abc import Mapping

from opu_fuse.errors import RunError
from opu_fuse.hw.footprint import Access, dram_word_bytes, footprint, space_limit
from opu_fuse.hw.instruction import Instruction
from opu_fuse.hw.isa import OPCODE, SYNC_ENGINES, Engine, PoolKind, ResidualKind, Space, Stage
from opu_fuse.hw.spec import HwSpec
from opu_fuse.hw.spec import ModuleKind as K
from opu_fuse.hw.sweep import sweep

_TRANSFER = ("run", "rows", "blocks")
_STRIDES = ("stride_y", "stride_x")
_WINDOW = (
    *("out_rows", "out_cols", *_STRIDES, "dilation_y", "dilation_x"),
    *("kernel_rows", "kernel_cols", "ic_steps"),
)
COUNTS: dict[tuple[Engine, str], tuple[str, ...]] = {
    (Engine.LOAD, "feature"): _TRANSFER,
    (Engine.LOAD, "weight"): _TRANSFER,
    (Engine.LOAD, "param"): _TRANSFER,
    (Engine.LOAD, "residual"): _TRANSFER,
    (Engine.LOAD, "pre"): _TRANSFER,
    (Engine.LOAD, "table"): _TRANSFER,
    (Engine.COMPUTE, "conv"): (*_WINDOW, "oc_steps"),
    (Engine.COMPUTE, "depthwise"): _WINDOW,
    (Engine.COMPUTE, "copy"): ("out_rows", "out_cols", *_STRIDES, "ic_steps"),
    (Engine.POST, "run"): ("out_rows", "out_cols", *_STRIDES, "win_rows", "win_cols", "blocks"),
    (Engine.STORE, "store"): _TRANSFER,
}
"""Registers that must not be zero when the instruction starts."""

_HELP = "compile the model again for this machine"


def check(
    instruction: Instruction, spec: HwSpec, window_bytes: int, number: int
) -> tuple[Access, ...]:
    """The instruction's footprint, all of it inside the memories.

    window_bytes: size of the memory window; number: the instruction's in its segment, for messages.
    Raises RunError naming instruction, register or memory, address and limit.
    """
    _check_legal(instruction, spec, number)
    found = footprint(instruction, spec)
    for access in found:
        dram = access.space is Space.DRAM
        limit = window_bytes if dram else space_limit(access.space, spec)
        end = max(stop for _, stop in access.intervals)
        start = access.intervals[0][0]
        if end > limit or start < 0:
            verb = "writes" if access.write else "reads"
            unit, home = ("byte", "memory window") if dram else ("word", f"{access.space} buffer")
            bad = start if start < 0 else max(start, limit)
            raise error(
                instruction,
                number,
                f"{verb} {unit} {bad} of the {home}, which holds {limit} {unit}s",
            )
    return found


def error(instruction: Instruction, number: int, what: str) -> RunError:
    """A RunError that names the instruction."""
    name = f"{instruction.engine.name.lower()}.{instruction.opcode}"
    return RunError(where=f"instruction {number} ({name})", what=what, help=_HELP)


def _check_legal(instruction: Instruction, spec: HwSpec, number: int) -> None:
    key = (instruction.engine, instruction.opcode)
    p = instruction.params
    if key not in OPCODE:
        raise error(instruction, number, "is no instruction of this machine")
    for other in (*instruction.waits, *instruction.signals):
        if other not in SYNC_ENGINES or other is instruction.engine:
            raise error(instruction, number, f"waits on or signals {other.name.lower()}")
    if (instruction.waits or instruction.signals) and instruction.engine not in SYNC_ENGINES:
        raise error(instruction, number, "waits or signals, but fetch has no counters")
    _check_modules(instruction, spec, number)
    for name in COUNTS.get(key, ()):
        if p[name] == 0:
            raise error(instruction, number, f"has {name} = 0, at least 1 is needed")
    if instruction.engine in (Engine.LOAD, Engine.STORE):
        space = Space.OUTPUT if instruction.engine is Engine.STORE else Space(instruction.opcode)
        word = dram_word_bytes(space, spec)
        if instruction.dram % word:
            what = f"has DRAM address {instruction.dram:#x}, not a multiple of {word} bytes"
            raise error(instruction, number, what)
        if instruction.engine is Engine.STORE:
            _check_store(instruction, spec, number)
    elif instruction.engine is Engine.COMPUTE:
        _check_compute(instruction, spec, number)
    elif instruction.engine is Engine.POST:
        _check_post(instruction, spec, number)


def _check_modules(instruction: Instruction, spec: HwSpec, number: int) -> None:
    p = instruction.params
    stages = set(_chain(p)) if instruction.engine is Engine.POST else ()
    product = Stage.RESIDUAL in stages and p["res_kind"] == ResidualKind.MULTIPLY
    repeats = instruction.engine is Engine.STORE and (p["repeat_rows"] or p["repeat_cols"])
    pre = instruction.opcode == "pre" or (instruction.opcode == "conv" and p["pre"])
    table = instruction.opcode == "table" or Stage.TABLE in stages
    needs = (
        (pre, spec.buffers.pre, "a pre chain"),
        (table, spec.buffers.table, "tables"),
        (instruction.opcode == "depthwise", spec.array.depthwise, "depthwise windows"),
        (Stage.ACT in stages, spec.has(K.COMPARATOR), "a comparator"),
        (Stage.POOL in stages, spec.has(K.POOL), "a pool"),
        (product, spec.has(K.SE), "a product of feature maps"),
        (Stage.RESIDUAL in stages and not product, spec.has(K.RES_ADDER), "a residual adder"),
        (repeats, spec.has(K.UPSAMPLE), "upsampling"),
        (instruction.engine is Engine.POST and p["keep"], spec.post.keep, "a way to keep maps"),
    )
    for needed, there, name in needs:
        if needed and not there:
            raise error(instruction, number, f"needs {name}, {spec.name} has none")


def _check_store(instruction: Instruction, spec: HwSpec, number: int) -> None:
    skipped = instruction.params["skip_low"] + instruction.params["skip_high"]
    if skipped >= spec.word_bytes:
        what = f"skips {skipped} bytes of words of {spec.word_bytes}"
        raise error(instruction, number, what)


def _check_compute(instruction: Instruction, spec: HwSpec, number: int) -> None:
    p = instruction.params
    slot = 1 << p["slot_log2"]
    if slot > spec.word_bytes:
        what = f"has slot_log2 = {p['slot_log2']}, a word has {spec.word_bytes} bytes"
        raise error(instruction, number, what)
    if instruction.opcode == "conv":
        _check_mode(instruction, spec, number)
    elif p["pre"]:
        raise error(instruction, number, "has pre = 1, only conv passes the pre chain")
    if instruction.opcode == "depthwise":
        side = spec.array.window_side
        if slot < spec.word_bytes:
            raise error(instruction, number, f"has slots of {slot} bytes, it reads whole words")
        if max(p["kernel_rows"], p["kernel_cols"]) > side:
            window = f"{p['kernel_rows']} x {p['kernel_cols']}"
            raise error(instruction, number, f"has a window of {window}, at most {side} x {side}")
    if slot < spec.word_bytes:
        _check_slotted(instruction, spec, number)
    s = sweep(instruction.opcode, p, spec)
    pixels, pitch = p["out_rows"] * p["out_cols"], p["psum_block_pitch"]
    if len(s.psum_blocks) > 1 and pitch < pixels:
        what = f"has psum_block_pitch = {pitch}, but {pixels} pixels a block: blocks overlap"
        raise error(instruction, number, what)


def _check_slotted(instruction: Instruction, spec: HwSpec, number: int) -> None:
    """Slots fill whole words; what lies in them is one segment of one block."""
    p, word = instruction.params, spec.word_bytes
    if word != spec.word_channels:
        what = f"has slots in words of {spec.word_channels} channels, which take {word} bytes"
        raise error(instruction, number, what)
    if p["ic_steps"] > 1 or (instruction.opcode == "conv" and p["ic_first"]):
        what = f"has ic_first = {p['ic_first']}, ic_steps = {p['ic_steps']}"
        raise error(instruction, number, f"{what}: a slotted tile is one segment")


def _check_mode(instruction: Instruction, spec: HwSpec, number: int) -> None:
    p, modes, word = instruction.params, spec.array.modes, spec.word_bytes
    if p["mode"] >= len(modes):
        raise error(instruction, number, f"has mode {p['mode']}, the array has {len(modes)}")
    mode, slot = modes[p["mode"]], 1 << p["slot_log2"]
    if p["pre"] and (slot < word or mode.px > 1):
        what = f"passes the pre chain {mode.px} pixels at a time in slots of {slot} bytes"
        raise error(instruction, number, f"{what}, it takes one pixel a word")
    if mode.px == 1:
        return
    if p["out_cols"] % mode.px:
        what = f"has {p['out_cols']} columns in a mode of {mode.px} pixels"
        raise error(instruction, number, what)
    lanes = (p["oc_first"] + p["oc_steps"]) * mode.oc
    if lanes > spec.word_channels // mode.px:
        what = f"packs {lanes} lanes a pixel, {mode.px} pixels a word of {spec.word_channels}"
        raise error(instruction, number, what)
    apart = (mode.px - 1) * p["stride_x"]
    if apart > 1 if slot == word else apart * slot + mode.ic > word + slot:
        what = f"reads {mode.px} pixels {p['stride_x']} apart, more than two neighbouring words"
        raise error(instruction, number, what)


def _chain(p: Mapping[str, int]) -> list[int]:
    """Stage codes up to END, known or not."""
    codes = [p["order"] >> (4 * i) & 15 for i in range(5)]
    return codes[: codes.index(0)] if 0 in codes else codes


def _check_post(instruction: Instruction, spec: HwSpec, number: int) -> None:
    p = instruction.params
    chain = _chain(p)
    known = all(code in tuple(Stage) for code in chain)
    if not known or p["order"] >> (4 * len(chain)) or len(set(chain)) < len(chain):
        what = f"has order {p['order']:#x}: unknown, repeated or interrupted stages"
        raise error(instruction, number, what)
    if Stage.REQUANT in chain[1:]:
        raise error(instruction, number, "has REQUANT behind another stage")
    if Stage.RESIDUAL in chain and not spec.numeric.multiplier_bits:
        product = p["res_kind"] == ResidualKind.MULTIPLY
        for name in ("res_a_mult",) if product else ("res_a_mult", "res_b_mult"):
            if p[name] & (p[name] - 1):
                what = f"has {name} = {p[name]}, {spec.name} only shifts"
                raise error(instruction, number, what)
    if p["pool_slots"]:
        _check_slots(instruction, spec, number)
    if Stage.POOL in chain:
        return
    if (p["win_rows"], p["win_cols"]) != (1, 1):
        raise error(instruction, number, "has a window, but no POOL in its chain")
    for axis, outputs, limit in (
        ("y", p["out_rows"], p["in_rows"]),
        ("x", p["out_cols"], p["in_cols"]),
    ):
        first = p[f"origin_{axis}"]
        last = first + (outputs - 1) * p[f"stride_{axis}"]
        if first < 0 or last >= limit:
            what = f"reads {axis} {first}..{last} of a tile of {limit} without POOL in its chain"
            raise error(instruction, number, what)


def _check_slots(instruction: Instruction, spec: HwSpec, number: int) -> None:
    """Packed pixels pool two columns by two, by maximum."""
    p, largest = instruction.params, max(mode.px for mode in spec.array.modes)
    slots = p["pool_slots"]
    if slots not in (2, 4) or slots > largest:
        what = f"has pool_slots = {slots}, the array packs up to {largest} pixels into a word"
        raise error(instruction, number, what)
    if Stage.POOL not in _chain(p) or p["pool_kind"] != PoolKind.MAX:
        raise error(instruction, number, "has pool_slots, but no maximum in its chain")
    if (p["win_cols"], p["stride_x"]) != (2, 2):
        what = f"folds windows of {p['win_cols']} columns, {p['stride_x']} apart, only 2 by 2"
        raise error(instruction, number, what)
