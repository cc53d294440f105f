"""Load and store between the memory window and the buffers (docs/machine.md, load and store)."""

import numpy as np
from numpy.lib.stride_tricks import as_strided

from opu_fuse.hw.im2row_window import COLUMN_BYTES, IMAGE_CHANNELS, IMAGE_SLOT, row_words
from opu_fuse.hw.isa.footprint import dram_word_bytes
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.functional.memories import Memories
from opu_fuse.units.base import Space
from opu_fuse.units.params import LoadParams


def load(mem: Memories, instruction: Instruction) -> None:
    """DRAM to a buffer. Bounds have been checked."""
    p, space = instruction.load, Space(instruction.opcode)
    word = dram_word_bytes(space, mem.spec)
    words = p["run"] * p["rows"] * p["blocks"]
    source = as_strided(
        mem.dram[instruction.dram :],
        shape=(p["blocks"], p["rows"], p["run"] * word),
        strides=(p["block_pitch"] * word, p["row_pitch"] * word, 1),
    )
    target = mem.buffer(space)[p["dst"] : p["dst"] + words]
    target = target.view(np.uint8)
    target[:] = source.reshape(words, word)
    if space is Space.WEIGHT:
        target[:, : p["zero_low"]] = 0
        target[:, word - p["zero_high"] :] = 0


def im2row(mem: Memories, p: LoadParams) -> None:
    """Image buffer to feature buffer. Bounds have been checked."""
    rows, kernel = p["rows"], p["kernel_rows"]
    columns = p["run"] * mem.spec.word_bytes // IMAGE_SLOT
    y = p["origin_y"] + np.arange(rows)[:, None] * p["stride_y"] + np.arange(kernel)
    word = p["image"] + np.arange(rows)[:, None] * p["row_pitch"] + np.arange(kernel) * p["run"]
    inside = (y >= 0) & (y < p["in_rows"])
    image_words = mem.image[np.where(inside, word, 0)[..., None] + np.arange(p["run"])]
    pixels = image_words.reshape(rows, kernel, columns, IMAGE_SLOT)[..., :IMAGE_CHANNELS]
    pixels = np.where(inside[..., None, None], pixels, np.int8(p["pad_value"]))
    words = row_words(p["run"], kernel)
    target = mem.feature[p["dst"] : p["dst"] + rows * words].reshape(rows, -1)
    windows = as_strided(
        target,
        shape=(rows, columns, kernel, IMAGE_CHANNELS),
        strides=(target.strides[0], COLUMN_BYTES[kernel], IMAGE_CHANNELS, 1),
    )
    windows[:] = pixels.transpose(0, 2, 1, 3)


def store(mem: Memories, instruction: Instruction) -> None:
    """Output buffer to DRAM, scattered. Bounds have been checked."""
    p, word = instruction.store, mem.spec.word_bytes
    counts, pitches = _store_loops(instruction)
    blocks, rows, down, run, _ = counts
    target = as_strided(
        mem.dram[instruction.dram :],
        shape=(*counts, word),
        strides=(*(pitch * word for pitch in pitches), 1),
    )
    words = mem.output[p["src"] : p["src"] + blocks * rows * run].view(np.uint8)
    source = np.broadcast_to(words.reshape(blocks, rows, 1, run, 1, word), target.shape)
    written = (..., slice(p["skip_low"], word - p["skip_high"]))
    if _disjoint(counts, pitches):
        target[written] = source[written]
    else:  # the last write wins
        for index in np.ndindex(blocks, rows, down):
            target[index][written] = source[index][written]


def stored_bytes(instruction: Instruction, spec: HwSpec) -> np.ndarray:
    """Offsets in the memory window of all bytes that a store writes, int64, ascending."""
    counts, pitches = _store_loops(instruction)
    p, word = instruction.store, spec.word_bytes
    word_offsets = np.zeros(1, np.int64)
    for count, pitch in zip(counts, pitches, strict=True):
        word_offsets = np.add.outer(word_offsets, np.arange(count) * pitch * word).reshape(-1)
    written = np.arange(p["skip_low"], word - p["skip_high"])
    return instruction.dram + np.unique(np.add.outer(word_offsets, written))


def _store_loops(instruction: Instruction) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Counts and pitches, in words, of the loops of a store: blocks, rows, repeats of a row, words
    of a run, repeats of a word.
    """
    p = instruction.store
    down, across = p["repeat_rows"] + 1, p["repeat_cols"] + 1
    pitches = (p["block_pitch"], down * p["row_pitch"], p["row_pitch"], across + p["word_gap"], 1)
    return (p["blocks"], p["rows"], down, p["run"], across), pitches


def _disjoint(counts: tuple[int, ...], pitches: tuple[int, ...]) -> bool:
    """True when no two words of a store can share an address."""
    extent = 1
    for pitch, count in sorted((q, c) for c, q in zip(counts, pitches, strict=True) if c > 1):
        if pitch < extent:
            return False
        extent += (count - 1) * pitch
    return True
