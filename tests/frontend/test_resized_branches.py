"""1x1 convolutions around Resizes, in text; the `canonical` fixture compares the results too."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import opu_fuse
from opu_fuse.fuse.strategies.strategy_names import REWRITING, StrategyName
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import partition_model
from opu_fuse.sim.compare.runs import check
from tests.networks.attention_blocks import with_constants
from tests.some import some

LINEAR = 'Resize<mode="linear">(p, , by)'
CORNERS = 'Resize<mode="linear", coordinate_transformation_mode="align_corners">(p, , , to)'
NEAREST = 'Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(p, , by)'
TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,{channels},4,3] x, float[1,8,8,6] z) => (float[A,B,C,D] y{more}) {{
  a = Relu(x) b = Relu(z) {projection} [r] r = {resize} [q] q = Conv(b, wq)
  [j] j = Concat<axis={axis}>(q, r) [m] m = Conv(j, wm, bm) y = Relu(m) }}"""
PARTS = {
    "projection": "[p] p = Conv(a, wp, bp)",
    "resize": LINEAR,
    "axis": 1,
    "more": "",
}


def head(
    channels: int = 8, width: int = 16, kernel: int = 1, **parts: str | int
) -> onnx.ModelProto:
    """Maps of `channels` and 8 channels are projected to `width`, one is resized, both are mixed.

    parts: other texts than PARTS.
    """
    rng = np.random.default_rng(1)
    joined = 2 * width if parts.get("axis", 1) == 1 else width
    sizes = {
        "wp": (width, channels, 1, 1),
        "bp": (width,),
        "wq": (width, 8, 1, 1),
        "wm": (16, joined, kernel, kernel),
        "bm": (16,),
    }
    data = {name: rng.standard_normal(size) * 0.2 for name, size in sizes.items()}
    data |= {"by": np.array([1, 1, 2, 2], np.float32), "to": np.array([1, width, 8, 6])}
    return with_constants(TEXT.format(channels=channels, **{**PARTS, **parts}), data)


def products(model: ir.Model) -> list[tuple[int, ...]]:
    """Sizes of the weights of all 1x1 convolutions: results and channels."""
    layers = [n for n in model.graph if n.op_type == "Conv"]
    return [
        tuple(some(some(n.inputs[1]).shape).numpy()[:2])
        for n in layers
        if n.attributes.get_ints("kernel_shape") == (1, 1)
    ]


@pytest.mark.parametrize("resize", [LINEAR, CORNERS])
def test_projections_are_multiplied_into_the_layer_that_mixes(resize, canonical):
    model = canonical(head(resize=resize), rewriting=True)
    assert products(model) == [(16, 16)]
    (mixing,) = [n for n in model.graph if n.name == "m"]
    assert mixing.metadata_props["opu_fuse.source"].split(",") == ["m", "j", "q", "r", "p"]


@pytest.mark.parametrize("resize", [LINEAR, CORNERS])
def test_a_map_of_many_channels_is_mixed_at_its_own_size_and_added(resize, canonical):
    model = canonical(head(100, 128, resize=resize), rewriting=True)
    assert products(model) == [(16, 8), (16, 100)]
    assert [n.op_type for n in model.graph][-2:] == ["Add", "Relu"]


STAYS = {
    "the projection reduces channels": {"channels": 80},
    "pixels are repeated: machines store them several times": {"resize": NEAREST},
    "rows are joined": {"axis": 2},
    "windows see zeros around the map": {"kernel": 3},
    "a function is between": {"projection": "[p] t = Conv(a, wp, bp) [t] p = Tanh(t)"},
    "the whole is a result, too": {"more": ", float[1,32,8,6] j"},
}


@pytest.mark.parametrize("name", STAYS)
def test_it_stays_where(name, canonical):
    model = canonical(head(**STAYS[name]), rewriting=True)
    names = {n.name for n in model.graph if n.op_type == "Conv"}
    assert {"p", "q", "m"} <= names


def test_a_map_with_other_readers_is_resized_as_it_is(canonical):
    model = canonical(head(more=", float[1,16,8,6] r"), rewriting=True)
    assert [n.op_type for n in model.graph].count("Resize") == 1


@pytest.mark.parametrize("strategy", StrategyName)
def test_only_strategies_that_ask_for_it_get_it_and_it_is_reported(strategy):
    dfg, found = partition_model(head(), load_hw("opu-1024a"), strategy)
    layers = [n.name for n in dfg.calls if n.op == "conv"]
    if strategy in REWRITING:
        assert layers == ["m"]
        assert found.rewrites["m"].startswith("1x1 convolutions on both sides of Resizes")
    else:
        assert sorted(layers) == ["m", "p", "q"]


@pytest.mark.filterwarnings("ignore:no calibration data")
@pytest.mark.parametrize("machine", ["opu-1024a", "opu-light"])
@pytest.mark.parametrize("size", [(8, 16), (100, 128)])
def test_a_head_has_onnxruntimes_bits(size, machine):
    program = opu_fuse.compile(head(*size), machine)
    rng = np.random.default_rng(2)
    shapes = {"x": (1, size[0], 4, 3), "z": (1, 8, 8, 6)}
    inputs = {n: rng.standard_normal(s, np.float32) for n, s in shapes.items()}
    result = program.run(inputs, capture=True, shuffle=1)
    assert check(program.bundle, inputs, result).passed
    native = program.run(inputs, engine="native")
    np.testing.assert_array_equal(native.outputs["y"], result.outputs["y"])
