"""What makes an instruction illegal, and which accesses leave their memory.

The RTL stops with an error code in the same cases; here the error says in words which instruction
did what.
"""

from opu_fuse.errors import RunError
from opu_fuse.hw.footprint import Access, dram_word_bytes, footprint, space_limit
from opu_fuse.hw.instruction import Instruction
from opu_fuse.hw.isa import OPCODE, SYNC_ENGINES, Engine, Space, Stage
from opu_fuse.hw.spec import HwSpec

_TRANSFER = ("run", "rows", "blocks")
_STRIDES = ("stride_y", "stride_x")
COUNTS: dict[tuple[Engine, str], tuple[str, ...]] = {
    (Engine.LOAD, "feature"): _TRANSFER,
    (Engine.LOAD, "weight"): _TRANSFER,
    (Engine.LOAD, "param"): _TRANSFER,
    (Engine.LOAD, "residual"): _TRANSFER,
    (Engine.COMPUTE, "conv"): (
        *("out_rows", "out_cols", *_STRIDES, "dilation_y", "dilation_x"),
        *("kernel_rows", "kernel_cols", "ic_steps", "oc_steps"),
    ),
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
    for name in COUNTS.get(key, ()):
        if p[name] == 0:
            raise error(instruction, number, f"has {name} = 0, at least 1 is needed")
    if instruction.engine in (Engine.LOAD, Engine.STORE):
        space = Space.OUTPUT if instruction.engine is Engine.STORE else Space(instruction.opcode)
        word = dram_word_bytes(space, spec)
        if instruction.dram % word:
            what = f"has DRAM address {instruction.dram:#x}, not a multiple of {word} bytes"
            raise error(instruction, number, what)
    elif instruction.engine is Engine.COMPUTE:
        _check_compute(instruction, spec, number)
    elif instruction.engine is Engine.POST:
        _check_post(instruction, number)


def _check_compute(instruction: Instruction, spec: HwSpec, number: int) -> None:
    p = instruction.params
    if 1 << p["slot_log2"] > spec.word_bytes:
        what = f"has slot_log2 = {p['slot_log2']}, a word has {spec.word_bytes} bytes"
        raise error(instruction, number, what)
    blocks = p["ic_steps"]
    if instruction.opcode == "conv":
        modes = spec.array.modes
        if p["mode"] >= len(modes):
            raise error(instruction, number, f"has mode {p['mode']}, the array has {len(modes)}")
        blocks = -(-p["oc_steps"] * modes[p["mode"]].oc // spec.word_channels)
    pixels, pitch = p["out_rows"] * p["out_cols"], p["psum_block_pitch"]
    if blocks > 1 and pitch < pixels:
        what = f"has psum_block_pitch = {pitch}, but {pixels} pixels a block: blocks overlap"
        raise error(instruction, number, what)


def _check_post(instruction: Instruction, number: int) -> None:
    p = instruction.params
    codes = [p["order"] >> (4 * i) & 15 for i in range(5)]
    chain = codes[: codes.index(0)] if 0 in codes else codes
    known = all(code in tuple(Stage) for code in codes)
    if not known or any(codes[len(chain) :]) or len(set(chain)) < len(chain):
        what = f"has order {p['order']:#x}: unknown, repeated or interrupted stages"
        raise error(instruction, number, what)
    if Stage.REQUANT in chain[1:]:
        raise error(instruction, number, "has REQUANT behind another stage")
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
