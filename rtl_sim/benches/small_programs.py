"""Two small programs for opu_top, written by hand, and what they must leave in memory (numpy).

`prepare_copy` and `prepare_conv` write the operands of a program into memory and return the check
of its results.
"""

import os

import numpy as np

from opu_fuse.fixedpoint import requantize
from opu_fuse.hw.isa.assembly import assemble
from opu_fuse.hw.isa.encoding import encode
from opu_fuse.hw.spec.load_spec import load_hw

SPEC = load_hw(os.environ["OPU_BENCH_SPEC"])
CHECK = f"fetch.check hash={SPEC.spec_hash:#x}\n"
W = SPEC.word_channels
UNIT = "stride_y=1 stride_x=1"
SLOT = f"slot_log2={W.bit_length() - 1}"
MAP, WEIGHTS, PARAMS, RESULT = 0x0, 0x400, 0xC00, 0x1000


def program(text):
    """Assembly to words, with `check` before and `end` after it."""
    return [int(w) for w in encode(assemble(f"{CHECK}{text}\nfetch.end\n", spec=SPEC))]


def inner(text):
    """Assembly to words for the middle of a program: without `check` and `end`, which set two
    registers each.
    """
    return program(text)[3:-3]


COPY = f"""
load.feature dram={MAP:#x} run=16 rows=1 blocks=1 signal=compute
compute.copy in_rows=4 in_cols=4 row_pitch=4 {UNIT} origin_y=-1 origin_x=-1 \
  out_rows=6 out_cols=6 ic_steps=1 {SLOT} pad_value=-7 wait=load signal=post
post.run in_rows=6 in_cols=6 psum_row_pitch=6 {UNIT} win_rows=1 win_cols=1 \
  out_rows=6 out_cols=6 blocks=1 out_row_pitch=6 wait=compute signal=store
store.store dram={RESULT:#x} run=12 rows=3 row_pitch=12 blocks=1 wait=post
"""


def prepare_copy(machine, rng):
    """The map of COPY: W channels of 4 x 4 pixels, which the copy pads to 6 x 6."""
    tile = rng.integers(-128, 128, (4, 4, W)).astype(np.int8)
    machine.put(MAP, tile)
    machine.put(RESULT, np.zeros((6, 6, W), np.int8))

    def check():
        expected = np.pad(tile, ((1, 1), (1, 1), (0, 0)), constant_values=-7)
        assert (machine.get(RESULT, (6, 6, W)) == expected).all(), "the padded copy differs"

    return check


MODE = SPEC.array.modes[0]
GROUPS = W // MODE.oc
ROWS = 9 * GROUPS  # W input channels in one segment, 3 x 3 taps
CONV = f"""
load.param dram={PARAMS:#x} run=8 rows=1 blocks=1
load.weight dram={WEIGHTS:#x} run={ROWS * SPEC.row_words} rows=1 blocks=1
load.feature dram={MAP:#x} run=5 rows=5 row_pitch=5 blocks=1 signal=compute
compute.conv in_rows=5 in_cols=5 row_pitch=5 {UNIT} origin_y=-1 origin_x=-1 \
  dilation_y=1 dilation_x=1 out_rows=5 out_cols=5 kernel_rows=3 kernel_cols=3 \
  ic_steps=1 oc_steps={GROUPS} {SLOT} pad_value=3 wait=load signal=post
post.run in_rows=5 in_cols=5 psum_row_pitch=5 {UNIT} win_rows=1 win_cols=1 \
  out_rows=5 out_cols=5 blocks=1 out_row_pitch=5 order=requant requant_zero=3 \
  wait=compute signal=store
store.store dram={RESULT:#x} run=25 rows=1 blocks=1 wait=post
"""


def prepare_conv(machine, rng):
    """Operands of CONV, a 3 x 3 convolution of W channels; zero points of input and output: 3."""
    assert MODE.ic == W, "the bench needs a mode that takes a whole word"
    tile = rng.integers(-128, 128, (5, 5, W)).astype(np.int8)
    weights = rng.integers(-128, 128, (W, W, 3, 3)).astype(np.int8)  # oc, ic, ky, kx
    bias = rng.integers(-5000, 5000, W).astype(np.int32)
    mult = rng.integers(20000, 60000, W).astype(np.uint16)
    shift = rng.integers(24, 26, W).astype(np.int8)
    rows = [
        weights[g * MODE.oc : (g + 1) * MODE.oc, :, ky, kx]
        for ky in range(3)
        for kx in range(3)
        for g in range(GROUPS)
    ]
    record = np.dtype([("bias", "<i4"), ("mult", "<u2"), ("shift", "i1"), ("zero", "i1")])
    records = np.zeros(W, record)
    records["bias"], records["mult"], records["shift"] = bias, mult, shift
    machine.put(MAP, tile)
    machine.put(WEIGHTS, np.stack(rows))
    machine.put(PARAMS, records)
    machine.put(RESULT, np.zeros((5, 5, W), np.int8))

    def check():
        padded = np.pad(tile.astype(int), ((1, 1), (1, 1), (0, 0)), constant_values=3)
        acc = sum(
            padded[ky : ky + 5, kx : kx + 5] @ weights[:, :, ky, kx].astype(int).T
            for ky in range(3)
            for kx in range(3)
        )
        expected = requantize(acc + bias, mult, shift, 3)
        assert len(np.unique(expected)) > 20, "the bench saturates"
        assert (machine.get(RESULT, (5, 5, W)) == expected).all(), "the convolution differs"

    return check


PREPARED = ((COPY, prepare_copy), (CONV, prepare_conv))
"""(assembly text, function that prepares memory for it and returns the check of its results)."""


def starts(words, engine):
    """Word indices of an engine's instructions."""
    return [n for n, w in enumerate(words) if w >> 31 and w >> 28 & 7 == engine]


async def runs_well(machine, rng):
    """The machine is sound: both programs give the right bytes and leave a quiet bus."""
    for text, prepare in PREPARED:
        check = prepare(machine, rng)
        assert await machine.run(program(text)) is None
        check()
    await machine.assert_quiet(20)
    assert not machine.window.touched_outside, "the bus was used outside of the window"
