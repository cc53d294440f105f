"""Looking whether anything is unused agrees with the library that removes it."""

import onnx
import onnx_ir as ir
import pytest
from onnx_ir.passes import common

from opu_fuse.frontend import canonical
from opu_fuse.model.unused import anything_unused

HEAD = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[1,4,6,6] x, bool c) => (float[1,4,6,6] y) '
)
IDLE = {
    "a chain": "{ a = Relu(x) y = Neg(a) }",
    "a constant that is read": "<float[1] k = {1.0}> { y = Add(x, k) }",
}
BUSY = {
    "a node": "{ a = Relu(x) y = Neg(x) }",
    "a constant": "<float[1] k = {1.0}> { y = Neg(x) }",
    "an optional result": "{ y, i = MaxPool<kernel_shape=[1,1]>(x) }",
    "an operand left out at the end": "{ y = Clip(x, , ) }",
    "a node in a subgraph": (
        "{ y = If(c) <then_branch = t () => (float[1,4,6,6] v) { u = Neg(x) v = Relu(x) },"
        " else_branch = e () => (float[1,4,6,6] w) { w = Neg(x) }> }"
    ),
}


def parsed(body):
    return ir.from_proto(onnx.parser.parse_model(HEAD + body))


def shape(model):
    nodes = [(len(n.inputs), len(n.outputs)) for n in model.graph.all_nodes()]
    return nodes, len(model.graph.initializers)


@pytest.mark.parametrize("name", IDLE)
def test_where_nothing_can_go_nothing_is_looked_for(name, monkeypatch):
    model = parsed(IDLE[name])
    before = shape(model)
    assert not anything_unused(model)
    common.RemoveUnusedNodesPass()(model)
    assert shape(model) == before
    monkeypatch.setattr(canonical.common, "RemoveUnusedNodesPass", None)
    assert not canonical._remove_unused(model)


@pytest.mark.parametrize("name", BUSY)
def test_where_something_goes_it_is_seen(name):
    model = parsed(BUSY[name])
    before = shape(model)
    assert anything_unused(model)
    common.RemoveUnusedNodesPass()(model)
    assert shape(model) != before
