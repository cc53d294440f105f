"""Averages whose count is odd times a power of two become two, and so have ONNX Runtime's bits."""

import numpy as np
import onnx_ir as ir
import pytest

import opu_fuse
from opu_fuse.fixedpoint import average, multiplier
from opu_fuse.frontend.canonical.split_averages import LARGEST
from opu_fuse.frontend.prepare import prepare
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.quant import META_KEY
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from tests.some import some

GATED = """g (float[1, 8, ROWS, COLS] x) => (float[1, 8, ROWS, COLS] y) {
    a = Conv <pads = [1, 1, 1, 1]> (x, w) b = Relu (a) c = GlobalAveragePool (b)
    d = Conv (c, v) e = Sigmoid (d) f = Mul (b, e) y = Conv <pads = [1, 1, 1, 1]> (f, u)
}"""


@pytest.fixture
def gated(onnx_text, rng):
    def of(rows: int, cols: int):
        shapes = {"w": (8, 8, 3, 3), "v": (8, 8, 1, 1), "u": (8, 8, 3, 3)}
        weights = {k: rng.normal(scale=0.3, size=s).astype(np.float32) for k, s in shapes.items()}
        return onnx_text(GATED.replace("ROWS", str(rows)).replace("COLS", str(cols)), **weights)

    return of


@pytest.mark.parametrize(
    ("rows", "cols", "window"),
    [
        (14, 14, [2, 2]),
        (12, 10, [4, 2]),
        (9, 16, [1, 16]),
        (7, 7, None),  # odd: no halves
        (8, 16, None),  # a power of two: a shift
        (2, 257, None),  # further apart than a 16-bit multiplier tells
    ],
)
def test_what_is_parted(rows, cols, window, gated):
    model = prepare(gated(rows, cols), quantised=False, rewriting=True).canonical
    pools = [n for n in model.graph if n.op_type == "AveragePool"]
    assert [list(n.attributes.get_ints("kernel_shape") or ()) for n in pools] == [window] * bool(
        window
    )
    assert all(list(n.attributes.get_ints("strides") or ()) == window for n in pools)
    assert sum(n.op_type == "GlobalAveragePool" for n in model.graph) == 1
    plain = prepare(gated(rows, cols), quantised=False).canonical
    assert not [n for n in plain.graph if n.op_type == "AveragePool"]


def test_the_means_between_have_a_scale_of_their_own(gated, rng):
    """They are smaller than the map: rounded in its steps they would lose more than the result."""
    data = {"x": rng.normal(size=(4, 1, 8, 24, 24)).astype(np.float32)}
    model = prepare(gated(24, 24), calibration=data, rewriting=True).canonical
    scales = {v.name: v.meta[META_KEY].per_tensor for n in model.graph for v in n.outputs if v.meta}
    (means,) = (n.outputs[0].name for n in model.graph if n.op_type == "AveragePool")
    assert scales[means] < scales["b"]
    assert scales["c"] <= scales[means]


def test_gates_have_onnx_runtimes_bits(gated):
    """Without it a half of a mean falls to the other side, and every value of its channel with
    it: most of them were one or more steps off on a trained network for segmentation.
    """
    hw, model = opu_fuse.load_hw("opu-light"), gated(12, 12)
    off = {}
    for strategy in ("matched", "none"):
        made = compile_model(model, hw, Options(strategy=strategy))
        off[strategy] = 0
        for seed in range(12):
            rng = np.random.default_rng(seed)
            image = {"x": rng.integers(-8, 8, (1, 8, 12, 12)).astype(np.float32) / 4.0}
            found = check(made.bundle, image, run(made.bundle, hw, image, capture=True))
            assert found.passed
            off[strategy] += found.mismatches
    assert off["matched"] == 0
    assert off["none"] > 0, "a case that shows the difference"


@pytest.mark.parametrize("ratio", [1, 2, 8])
def test_odd_counts_have_no_halves(ratio):
    """All sums: the multiplier's product rounds as the quotient does."""
    for count in (*range(3, 64, 2), 81, 121, 169, 225, LARGEST):
        reach = 127 * count // ratio
        totals = np.arange(-reach, reach + 1)
        m = multiplier(ratio / count, 16)
        ours = average(totals, mult=m.mult, shift=m.shift, y_zero=0)
        theirs = np.rint(totals.astype(np.float32) / np.float32(count) * ratio)
        assert np.array_equal(ours, theirs), count


def test_a_quantised_average_stays_one(gated):
    qdq = prepare(gated(12, 12)).qdq
    model = prepare(some(qdq), rewriting=True).canonical
    assert not [n for n in model.graph if n.op_type == "AveragePool"]
    assert isinstance(model, ir.Model)
