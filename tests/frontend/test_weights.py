"""Large weights that the quantiser never sees are rounded as it would round them."""

import sys

import numpy as np
import onnx
import pytest

from opu_fuse import pipeline, zoo
from opu_fuse.frontend import weights
from opu_fuse.frontend.prepare import prepare
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim.compare.runs import check
from tests.frontend.conftest import parse
from tests.tiers import by_night


def qdq_bytes(monkeypatch, model, scales: str, from_bytes: int) -> bytes:
    monkeypatch.setattr(weights, "LARGE_BYTES", from_bytes)
    qdq = prepare(model, scales=scales).qdq
    assert qdq is not None
    return qdq.SerializeToString(deterministic=True)


@pytest.mark.parametrize("scales", ["pow2", "free"])
@pytest.mark.parametrize(
    "name", by_night(["tiny_residual", "tiny_odd", "shufflenet_v2"], ["shufflenet_v2"])
)
def test_stand_ins_make_the_model_that_the_quantiser_makes_of_whole_weights(
    monkeypatch, name, scales
):
    model = zoo.build(name, image=64 if name == "shufflenet_v2" else None)
    whole = qdq_bytes(monkeypatch, model, scales, sys.maxsize)
    assert qdq_bytes(monkeypatch, model, scales, 1) == whole


SHARED = """
net (float[1, 4, 8, 8] x) => (float[1, 6, 8, 8] y, float[1, 6, 8, 8] z, float[6, 4, 1, 1] v) {
  y = Conv(x, w)
  a = Relu(x)
  z = Conv(a, w)
  v = Sin(w)
}
"""


@pytest.mark.parametrize("scales", ["pow2", "free"])
def test_a_weight_of_several_readers_is_rounded_as_the_quantiser_does(monkeypatch, rng, scales):
    model = parse(SHARED, w=rng.standard_normal((6, 4, 1, 1)).astype(np.float32))
    whole = qdq_bytes(monkeypatch, model, scales, sys.maxsize)
    assert qdq_bytes(monkeypatch, model, scales, 1) == whole


def test_weights_beyond_the_ends_are_cut_and_halves_go_to_the_even_neighbour():
    data = np.array([[-1000.0, 1.0, 3.0, 1000.0], [-0.25, 0.25, 0.75, 1.25]], np.float32)
    found = weights._rounded(data, np.array([2.0, 0.5], np.float32))
    assert found.tolist() == [[-128, 0, 2, 127], [0, 0, 2, 2]]


def test_the_model_keeps_its_weights(rng):
    data = rng.standard_normal((128, 128, 3, 3)).astype(np.float32)
    model = parse(
        "net (float[1, 128, 8, 8] x) => (float[1, 128, 6, 6] y) { y = Conv(x, w) }", w=data
    )
    before = model.SerializeToString()
    prepare(model)
    assert model.SerializeToString() == before
    assert np.array_equal(onnx.numpy_helper.to_array(model.graph.initializer[0]), data)


@pytest.mark.parametrize("scales", ["pow2", "free"])
def test_a_weight_beside_a_large_bias_leaves_it_room_in_the_accumulator(scales, rng):
    w = rng.standard_normal((3, 4, 3, 3)).astype(np.float32)
    w[1] = rng.uniform(0.5, 1.0, size=w.shape[1:]) * 2.0**-11
    text = "net (float[1, 4, 8, 8] x) => (float[1, 3, 6, 6] y) { y = Conv(x, w, b) }"
    model = parse(text, w=w, b=np.array([0.5, 60.0, -1.0], np.float32))
    x = {"x": rng.uniform(size=(4, 4, 8, 8)).astype(np.float32)}
    program = pipeline.compile(model, load_hw("opu-tiny"), scales=scales, calibration=x)
    (found,) = program.run(x).outputs.values()
    assert abs(found[:, 1] - 60.0).max() < 0.5


@pytest.mark.parametrize("scales", ["pow2", "free"])
def test_a_channel_of_next_to_nothing_beside_one_that_needs_room(scales, rng):
    """Training leaves weights, and biases, below all that float32 divides by 127."""
    w = rng.standard_normal((3, 4, 3, 3)).astype(np.float32)
    w[1] *= 1e-44
    w[2] *= 2.0**-33
    text = "net (float[1, 4, 8, 8] x) => (float[1, 3, 6, 6] y) { y = Conv(x, w, b) }"
    model = parse(text, w=w, b=np.array([0.5, 1e-41, 6.0], np.float32))
    x = {"x": rng.uniform(size=(4, 4, 8, 8)).astype(np.float32)}
    program = pipeline.compile(model, load_hw("opu-tiny"), scales=scales, calibration=x)
    result = program.run(x, capture=True)
    assert check(program.bundle, x, result).passed
    assert abs(result.outputs["y"][:, 1:] - [[[0.0]], [[6.0]]]).max() < 0.1
