"""Boxes in pixels next to scores: one scale for both, or floats."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import opu_fuse
from opu_fuse.errors import ModelError
from opu_fuse.frontend.prepare import prepare
from opu_fuse.quant import FLOAT_KEY

HEAD = """
<ir_version: 10, opset_import: ["" : 17]>
head (float[1,8,4,4] features) => (float[1,6,1,16] output)
<int64[4] to_boxes = {1, 4, 1, 16}, int64[4] to_scores = {1, 2, 1, 16}> {
    [boxes] a = Conv (features, w)
    [lines] b = Reshape (a, to_boxes)
    stride = Constant <value = float {400.0}> ()
    [pixels] c = Mul (b, stride)
    [classes] d = Conv (features, v)
    [rows] e = Reshape (d, to_scores)
    [scores] f = Sigmoid (e)
    [join] output = Concat <axis = 1> (c, f)
}"""
IMAGES = np.random.default_rng(3).uniform(0, 1, (8, 8, 4, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def head() -> onnx.ModelProto:
    rng = np.random.default_rng(1)
    model = onnx.parser.parse_model(HEAD)
    for name, channels in {"w": 4, "v": 2}.items():
        weights = rng.uniform(-0.2, 0.3, (channels, 8, 1, 1)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    return model


def scores(model: onnx.ModelProto, keep_float: tuple[str, ...] = ()) -> np.ndarray:
    program = opu_fuse.compile(model, "opu-tiny", calibration=IMAGES, keep_float=keep_float)
    return program.run(IMAGES).outputs["output"][:, 4:]


def test_scores_that_a_common_scale_makes_zero_are_named(head, caplog):
    prepared = prepare(ir.from_proto(head), calibration=IMAGES)
    (warning,) = prepared.warnings
    assert warning.startswith("operand f of join becomes zero: its values are at most 0.")
    assert warning.endswith("give --keep-float join")
    assert warning in caplog.text
    assert not scores(head).any()


def test_the_operator_that_is_named_keeps_the_scores(head):
    prepared = prepare(ir.from_proto(head), calibration=IMAGES, keep_float=("join",))
    assert prepared.warnings == ()
    assert scores(head, keep_float=("join",)).min() > 0.3


def test_a_name_with_dots_keeps_all_that_depends_on_it(head):
    prepared = prepare(ir.from_proto(head), calibration=IMAGES, keep_float=("classes..",))
    kept = {n.name for n in prepared.canonical.graph if FLOAT_KEY in n.metadata_props}
    assert {"classes", "scores", "join"} <= kept
    assert "boxes" not in kept
    with pytest.raises(ModelError, match=r"node 'class': the model has no such .*'classes'"):
        prepare(ir.from_proto(head), calibration=IMAGES, keep_float=("class..",))
