"""A rewrite of onnxscript that does not hold is not made; the others are."""

from types import SimpleNamespace

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from opu_fuse.model import checked_folding
from opu_fuse.model.checked_folding import fold, wrong_rewrite

SEQUENCE = "g (float[2,6] x) => (seq(float[2,3]) s) { k = Constant<value_int=%d>() s = %s }"


def folded(text: str, opset: int = 17) -> ir.Model:
    header = f'<ir_version: 8, opset_import: ["": {opset}]> '
    proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(header + text))
    model = ir.from_proto(proto)
    fold(model, largest_input=1000, largest_output=1000)
    return model


def kinds(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph if node.op_type != "Constant"]


def test_an_attribute_of_a_newer_set_is_not_written():
    text = SEQUENCE % (3, "SplitToSequence<axis=1>(x, k)")
    assert kinds(folded(text, 17)) == ["SplitToSequence"]
    assert kinds(folded(text, 18)) == ["Split", "SequenceConstruct"]


def test_a_rewrite_that_computes_something_else_is_not_made():
    """With lengths, `keepdims` does not count; the library squeezes all the same."""
    text = SEQUENCE % (3, "SplitToSequence<axis=1, keepdims=0>(x, k)")
    assert kinds(folded(text, 18)) == ["SplitToSequence"]


def test_a_rewrite_that_holds_is_made_beside_one_that_does_not():
    text = """g (float[2,6] x, int32[2,6] n) => (seq(float[2,3]) s, float[2,6] y) {
        k = Constant<value_int=3>() s = SplitToSequence<axis=1>(x, k)
        c = CastLike(n, x) y = Relu(c) }"""
    assert kinds(folded(text)) == ["SplitToSequence", "Cast", "Relu"]


def test_a_rewrite_that_fails_leaves_its_node():
    text = """g (float[2,6] x, int64 k) => (seq(float[2,3]) s) {
        s = SplitToSequence<axis=1>(x, k) }"""
    assert kinds(folded(text)) == ["SplitToSequence"]


def test_a_constant_of_another_shape_is_not_taken(monkeypatch: pytest.MonkeyPatch):
    made: list[str | None] = []

    def wrong(*arguments: object) -> str:
        made.append("asked")
        return "wrong"

    monkeypatch.setattr(checked_folding, "wrong_rewrite", wrong)
    text = "g (float[2] x) => (float[2] y) { k = Constant<value_floats=[1.0, 2.0]>() n = Neg(k) "
    model = folded(text + "y = Add(x, n) }")
    assert made
    assert kinds(model) == ["Neg", "Add"]
    assert not model.graph.initializers, "what was not taken is gone"


def value(name: str, dtype: ir.DataType, shape: tuple[int, ...]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))


def test_types_and_shapes_are_compared():
    x = value("x", ir.DataType.FLOAT, (2, 3))
    old = ir.node("Relu", [x])
    old.outputs[0].type, old.outputs[0].shape = x.type, x.shape
    opsets = {"": 17}
    same = value("a", ir.DataType.FLOAT, (2, 3))
    assert wrong_rewrite(old, (), [same], opsets) is None
    for other in (value("b", ir.DataType.INT64, (2, 3)), value("c", ir.DataType.FLOAT, (3, 2))):
        assert wrong_rewrite(old, (), [other], opsets) is not None


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (("Neg", {}), "it computes other numbers"),
        (("Softmax", {"axes": 1}), "Softmax has no axes"),
        (("Cast", {}), "Cast needs to"),
        (("Nothing", {}), "the set has no Nothing"),
        (("Abs", {}), "it computes other numbers"),
    ],
)
def test_new_nodes_are_held_against_the_old_one(new, why: str):
    x = value("x", ir.DataType.FLOAT, (4, 5))
    old = ir.node("Relu", [x])
    old.outputs[0].name = "y"
    node = ir.node(new[0], [x], attributes=new[1])
    node.outputs[0].name = "z"
    assert wrong_rewrite(old, [node], node.outputs, {"": 17}) == why
    right = ir.node("Max", [x, constant(0.0)])
    right.outputs[0].name = "r"
    assert wrong_rewrite(old, [right], right.outputs, {"": 17}) is None


def constant(number: float) -> ir.Value:
    tensor = ir.tensor(np.float32(number), name="zero")
    made = value("zero", ir.DataType.FLOAT, ())
    made.const_value = tensor
    return made


def test_a_branch_is_the_users_and_is_taken_as_it_is():
    assert wrong_rewrite(SimpleNamespace(op_type="If"), (), (), {}) is None  # type: ignore[arg-type]  # no more is looked at
