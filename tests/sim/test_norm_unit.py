"""The norm unit's passes on the functional engine compute what `opu_fuse.normalisation` defines."""

import numpy as np
import pytest

from opu_fuse import normalisation
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.legality import illegal
from opu_fuse.hw.isa.table import Engine, order_registers, parameters_of
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.functional import post
from opu_fuse.sim.functional.memories import Memories
from opu_fuse.units.norm import exponential_words
from opu_fuse.units.norm_pass import EXPONENTIALS, OF_QUARTERS, RECORD, NormOp
from tests.hw.norm_machine import four_pixel_machine, norm_machine

ROWS, COLS, ZERO = 3, 2, -128
IN_SCALE, OUT_SCALE = 0.0917, 2.0**-8


def _pass(hw: HwSpec, op: NormOp, blocks: int, idle: int, **own: int) -> Instruction:
    chain = chain_of(hw)
    p = {r.name: 0 for r in parameters_of(Engine.POST)}
    p |= order_registers(chain.pack(["norm"])) | {
        "blocks": blocks, "out_rows": ROWS, "out_cols": COLS, "in_rows": ROWS, "in_cols": COLS,
        "stride_y": 1, "stride_x": 1, "win_rows": 1, "win_cols": 1,
        "psum_row_pitch": COLS, "psum_block_pitch": ROWS * COLS,
        "out_row_pitch": COLS, "out_block_pitch": ROWS * COLS,
        "norm_op": int(op), "norm_idle": idle, **own,
    }  # fmt: skip
    return Instruction(engine=Engine.POST, opcode="run", params=p)


def _machine(x: np.ndarray, hw: HwSpec, blocks: int) -> Memories:
    """Memories whose partial sums are x, int8 (pixels, channels); other lanes are poison."""
    mem, lanes = Memories(hw, np.zeros(64, np.uint8)), hw.word_channels
    pixels = ROWS * COLS
    words = mem.psum[: blocks * pixels].reshape(blocks, pixels, lanes)
    for channel in range(x.shape[1]):
        words[channel // lanes, :, channel % lanes] = x[:, channel]
    return mem


def _results(mem: Memories, channels: int, blocks: int) -> np.ndarray:
    words = mem.output[: blocks * ROWS * COLS, : mem.spec.word_channels]
    by_block = words.reshape(blocks, ROWS * COLS, -1)
    return np.concatenate(list(by_block), axis=1)[:, :channels]


@pytest.mark.parametrize("channels", [1, 7, 8, 9, 24])
def test_softmax_takes_three_passes(channels: int) -> None:
    hw = norm_machine()
    blocks, idle = -(-channels // hw.word_channels), -channels % hw.word_channels
    rng = np.random.default_rng(channels)
    x = rng.integers(-128, 128, (ROWS * COLS, channels))
    mem = _machine(x, hw, blocks)
    mem.norm[:EXPONENTIALS, :3] = exponential_words(IN_SCALE)
    output = normalisation.OutputScale.of(OUT_SCALE)
    scale = {"norm_scale": output.mantissa - 1, "norm_shift": output.exponent}
    before = mem.output.copy()
    for op, own in ((NormOp.MAX, {}), (NormOp.EXPSUM, scale)):
        one = _pass(hw, op, blocks, idle, **own)
        assert illegal(one, hw) is None
        assert post.run(mem, one.post) == ()
    assert (mem.output == before).all(), "passes of statistics write nothing"
    last = _pass(hw, NormOp.SOFTMAX, blocks, idle, norm_zero=ZERO)
    assert illegal(last, hw) is None
    post.run(mem, last.post)
    table = normalisation.exponentials(IN_SCALE)
    expected = normalisation.softmax(x, table, output, ZERO)
    assert (_results(mem, channels, blocks) == expected).all()
    if idle:
        assert (mem.output[(blocks - 1) * ROWS * COLS, hw.word_channels - idle :] == ZERO).all()


def test_each_quarter_of_a_word_has_a_softmax_of_its_own() -> None:
    hw, rng = four_pixel_machine(), np.random.default_rng(4)
    x = rng.integers(-128, 128, (ROWS * COLS, 16))
    mem = _machine(x, hw, 1)
    mem.norm[:EXPONENTIALS, :3] = exponential_words(IN_SCALE)
    output = normalisation.OutputScale.of(OUT_SCALE)
    scale = {"norm_scale": output.mantissa - 1, "norm_shift": output.exponent}
    before = mem.output.copy()
    for op in OF_QUARTERS:
        assert (mem.output == before).all(), "passes of statistics write nothing"
        own = {"norm_zero": ZERO} if op is NormOp.QUARTER_SOFTMAX else scale
        one = _pass(hw, op, 1, 0, **own)
        assert illegal(one, hw) is None
        post.run(mem, one.post)
    table = normalisation.exponentials(IN_SCALE)
    parts = [
        normalisation.softmax(x[:, at : at + 4], table, output, ZERO) for at in range(0, 16, 4)
    ]
    assert (_results(mem, 16, 1) == np.concatenate(parts, axis=1)).all()


@pytest.mark.parametrize("own", [{"blocks": 2}, {"norm_idle": 1}])
def test_quarters_are_those_of_one_whole_word(own: dict[str, int]) -> None:
    hw = four_pixel_machine()
    one = _pass(hw, NormOp.QUARTER_MAX, 1, 0)
    bad = Instruction(engine=Engine.POST, opcode="run", params={**one.params, **own})
    assert "normalises quarters of words" in (illegal(bad, hw) or "")


@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("channels", [2, 8, 13, 24])
def test_norms_take_two_passes(channels: int, rms: bool) -> None:
    hw = norm_machine()
    blocks, idle = -(-channels // hw.word_channels), -channels % hw.word_channels
    rng = np.random.default_rng(channels)
    x = rng.integers(-128, 128, (ROWS * COLS, channels))
    mem, x_zero = _machine(x, hw, blocks), 5 if rms else 0
    gain, offset = rng.normal(1, 0.4, channels), rng.normal(0, 0.5, channels)
    mult, bias, shift = normalisation.channel_records(gain, offset, 2.0**-4)
    records = np.zeros((blocks, hw.word_channels), RECORD)
    flat = records.reshape(-1)[:channels]
    flat["gain"], flat["offset"], flat["gain_shift"] = mult, bias, shift
    words = records.view(np.uint8).reshape(blocks * RECORD.itemsize, hw.word_channels)
    mem.param[: len(words), : hw.word_channels] = words
    epsilon = normalisation.Epsilon.of(1e-5, 0.05, channels)
    factor = {"norm_scale": epsilon.mantissa, "norm_shift": epsilon.shift}
    op = NormOp.SQUARES if rms else NormOp.MOMENTS
    post.run(mem, _pass(hw, op, blocks, idle, norm_zero=x_zero, **factor).post)
    post.run(mem, _pass(hw, NormOp.NORMALISE, blocks, idle, norm_zero=3).post)
    squares = ((x - x_zero) ** 2).sum(-1, keepdims=True)
    total = x.sum(-1, keepdims=True)
    scaling = (
        normalisation.rms_scaling(channels, x_zero, squares, epsilon.value)
        if rms
        else normalisation.norm_scaling(channels, total, squares, epsilon.value)
    )
    expected = normalisation.normalise(x, scaling, mult=mult, bias=bias, shift=shift, zero_point=3)
    assert (_results(mem, channels, blocks) == expected).all()


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"norm_op": 6, "blocks": 3000}, "has 18000 words, norm sums up 131072 values of a map"),
        ({"norm_op": 12}, "has norm_op = 12, the last one is 11"),
        ({"norm_op": 8}, "normalises quarters, norm has no half words a cycle"),
        ({"norm_idle": 8}, "has norm_idle = 8, words have 8 lanes"),
        ({"out_rows": 300, "in_rows": 300}, "keeps statistics of"),
        ({"win_rows": 2, "in_rows": 4}, "normalises whole pixels"),
    ],
)
def test_passes_that_the_unit_cannot_do_are_illegal(own: dict[str, int], said: str) -> None:
    hw = norm_machine()
    one = _pass(hw, NormOp.MAX, 1, 0)
    bad = Instruction(engine=Engine.POST, opcode="run", params={**one.params, **own})
    assert said in (illegal(bad, hw) or "")
