"""Random programs for a small machine, every instruction ordered behind the one before."""

import numpy as np
from msgspec.structs import replace

from opu_fuse.hw.im2row_window import COLUMN_BYTES, IMAGE_SLOT, row_words
from opu_fuse.hw.isa.encoding import encode
from opu_fuse.hw.isa.footprint import footprint
from opu_fuse.hw.isa.instruction import Instruction, split_address
from opu_fuse.hw.isa.table import Engine
from opu_fuse.units.base import Space
from tests.sim import random_instructions as rand

PROGRAM_AT = 0x4000
WINDOW_BYTES = 0x10000
RECORDS = {"param": (0x400, 0x800), "pre": (0x800, 0xA00)}
"""Where requantisation and pre chain records lie; from NOISE on everything is noise."""
NOISE = 0xA00


def chained(instructions: list[Instruction]) -> list[Instruction]:
    """Tokens that let every instruction start only when the one before has retired."""
    result = list(instructions)
    for n in range(len(result) - 1):
        one, two = result[n], result[n + 1]
        if one.engine is not two.engine:
            result[n] = replace(one, signals=(*one.signals, two.engine))
            result[n + 1] = replace(two, waits=(*two.waits, one.engine))
    return result


def framed(body: list[Instruction], spec) -> list[Instruction]:
    """`check`, the body, `end`."""
    low, high = spec.spec_hash & 0x3FFFFF, spec.spec_hash >> 22
    check = rand.instruction(Engine.FETCH, "check", {"hash_lo": low, "hash_hi": high})
    return [check, *body, replace(check, opcode="end")]


def load(opcode: str, dram: int, words: int, dst: int = 0) -> Instruction:
    shape = {"run": words, "rows": 1, "blocks": 1, "dst": dst}
    return rand.instruction(Engine.LOAD, opcode, {**split_address(dram), **shape})


def store(dram: int, words: int, src: int = 0) -> Instruction:
    shape = {"run": words, "rows": 1, "blocks": 1, "src": src}
    return rand.instruction(Engine.STORE, "store", {**split_address(dram), **shape})


def copy(rows: int, cols: int, spec) -> Instruction:
    shape = {"in_rows": rows, "in_cols": cols, "out_rows": rows, "out_cols": cols}
    unit = {"stride_y": 1, "stride_x": 1, "ic_steps": 1, "row_pitch": cols}
    slot = {"slot_log2": spec.word_bytes.bit_length() - 1}
    return rand.instruction(Engine.COMPUTE, "copy", {**shape, **unit, **slot})


def narrow(rows: int, cols: int) -> Instruction:
    """Post: the low 8 bits of a tile of partial sums to the output buffer."""
    shape = {"in_rows": rows, "in_cols": cols, "out_rows": rows, "out_cols": cols, "blocks": 1}
    pitch = {"psum_row_pitch": cols, "out_row_pitch": cols}
    unit = {"stride_y": 1, "stride_x": 1, "win_rows": 1, "win_cols": 1}
    return rand.instruction(Engine.POST, "run", {**shape, **pitch, **unit})


def transfer(rng: np.random.Generator, spec) -> Instruction | None:
    """A random load or store that keeps records apart from noise, else None."""
    x = rand.transfer(rng, spec)
    low, high = RECORDS.get(x.opcode, (NOISE, WINDOW_BYTES))
    inside = (
        low <= start and end <= high
        for access in footprint(x, spec)
        if access.space is Space.DRAM
        for start, end in access.intervals
    )
    return x if all(inside) else None


def random_program(rng: np.random.Generator, spec, length: int) -> list[Instruction]:
    """Every buffer filled from DRAM, `length` random instructions, the output buffer stored."""
    makers = [transfer, rand.conv, rand.copy, rand.post]
    if spec.array.depthwise:
        makers.append(rand.depthwise)
    if spec.buffers.image:
        makers.append(rand.unfold)
    body = [rand.until_fits(makers[rng.integers(len(makers))], rng, spec) for _ in range(length)]
    return _filled(body, spec)


def image_program(rng: np.random.Generator, spec, length: int) -> list[Instruction]:
    """As `random_program`, of what first layers do: half of the loads are unfolds that overlap with
    others, and most convolutions read what was unfolded.
    """
    body: list[Instruction] = []
    while len(body) < length:
        unfold = rand.until_fits(rand.unfold, rng, spec)
        loads = [rand.until_fits(transfer, rng, spec) for _ in range(rng.integers(0, 5))]
        loads = [x for x in loads if x.engine is Engine.LOAD] + [unfold] * int(rng.integers(1, 3))
        rng.shuffle(loads)
        body += [*loads, window_of(rng, unfold, spec), rand.until_fits(rand.post, rng, spec)]
    return _filled(body, spec)


def window_of(rng: np.random.Generator, unfold: Instruction, spec) -> Instruction:
    """A convolution over rows that an unfold writes: a window is one run of bytes."""
    p, word = unfold.load, spec.word_bytes
    column = COLUMN_BYTES[p["kernel_rows"]]
    columns, words = p["run"] * word // IMAGE_SLOT, row_words(p["run"], p["kernel_rows"])

    def conv(rng: np.random.Generator, spec) -> Instruction | None:
        number = int(rng.integers(len(spec.array.modes)))
        mode, stride = spec.array.modes[number], int(rng.integers(1, 5))
        visits = -(-p["kernel_rows"] * column // mode.ic)
        params = {
            "feature": p["dst"],
            "row_pitch": words,
            "in_rows": p["rows"],
            "in_cols": columns * column,
            "origin_x": -column * int(rng.integers(0, 3)),
            "stride_y": 1,
            "stride_x": stride * column,
            "dilation_y": 1,
            "dilation_x": mode.ic,
            "out_rows": p["rows"],
            "out_cols": mode.px * int(rng.integers(1, 5)),
            "kernel_rows": 1,
            "kernel_cols": visits,
            "ic_steps": 1,
            "oc_steps": 1,
            "mode": number,
            "weight": int(rng.integers(0, 20)),
            "psum": int(rng.integers(0, 20)),
            "pad_value": p["pad_value"],
        }
        if mode.px > 1 and not rand.near(spec, mode, params | {"slot_log2": 0}):
            return None
        return rand.instruction(Engine.COMPUTE, "conv", params)

    return rand.until_fits(conv, rng, spec)


def _filled(body: list[Instruction], spec) -> list[Instruction]:
    b = spec.buffers
    fill = [
        load("feature", 0, b.feature.words),
        load("weight", 2048, b.weight.words),
        load("param", RECORDS["param"][0], b.param.words),
        load("residual", 0, b.residual.words),
        *([load("pre", RECORDS["pre"][0], b.pre.words)] if b.pre else []),
        *([load("table", NOISE, b.table.words)] if b.table else []),
        *([load("image", 0x1000, b.image.words)] if b.image else []),
        copy(b.psum.words // 8, 8, spec),
        narrow(b.output.words // 8, 8),
    ]
    return framed(chained([*fill, *body, store(0x1000, b.output.words)]), spec)


def random_image(rng: np.random.Generator, program: list[Instruction]) -> tuple[np.ndarray, int]:
    """Memory window with noise, sensible records and the program; words of it."""
    image = rng.integers(0, 256, WINDOW_BYTES).astype(np.uint8)
    for name, shifts in (("param", (24, 40)), ("pre", (-2, 20))):
        records = image[slice(*RECORDS[name])].reshape(-1, 8)
        records[:, 2:4] = np.where(records[:, 1:2] >= 128, 255, 0)
        records[:, 6] = rng.integers(*shifts, len(records)) & 255
        records[:, 7] = 0
    return _with_program(image, program)


def program_image(program: list[Instruction]) -> tuple[np.ndarray, int]:
    """Memory window with zeros and the program; words of it."""
    return _with_program(np.zeros(WINDOW_BYTES, np.uint8), program)


def _with_program(image: np.ndarray, program: list[Instruction]) -> tuple[np.ndarray, int]:
    words = np.asarray(encode(program), "<u4")
    image[PROGRAM_AT : PROGRAM_AT + 4 * words.size] = words.view(np.uint8)
    return image, words.size
