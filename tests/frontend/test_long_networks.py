"""What a network of many nodes is spared: looking at the same thing for every node, passes that
have nothing to do.
"""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx_ir.passes import common

from opu_fuse.dfg import lower_node
from opu_fuse.dfg.build import build_dfg
from opu_fuse.frontend.canonical import convolutions
from opu_fuse.frontend.importing import load, onnx_checks, value_checks, window_checks
from opu_fuse.frontend.prepare import prepare
from opu_fuse.model.folding import holds_graphs
from opu_fuse.model.operator_sets import BODIES

Text = Callable[..., onnx.ModelProto]
LAYERS = 20


@pytest.fixture
def chain(onnx_text: Text) -> onnx.ModelProto:
    """Equal convolutions with one weight."""
    calls = [f"v{i + 1} = Conv(v{i}, w)" for i in range(LAYERS)]
    head = f"g (float[1,4,8,8] v0) => (float[1,4,8,8] v{LAYERS})"
    model = onnx_text(f"{head} {{ {' '.join(calls)} }}", w=np.ones((4, 4, 1, 1), np.float32))
    for i, node in enumerate(model.graph.node):
        node.name = f"n{i}"
    return model


def test_what_all_nodes_share_is_looked_at_once(chain, monkeypatch):
    looked: list[object] = []

    def noted(data):
        looked.append(data)
        return True

    caches = [window_checks._mistake, convolutions._explicit_attributes, lower_node._window]
    for cache in caches:
        cache.cache_clear()
    monkeypatch.setattr(value_checks, "in_range", noted)
    build_dfg(prepare(chain, quantised=False).canonical)
    assert len(looked) == 1
    assert [cache.cache_info().misses for cache in caches] == [1, 2, 1]  # explicit, and again


@pytest.mark.forks
def test_a_model_is_taken_over_while_its_shapes_are_inferred(chain, monkeypatch):
    infer, take_over = onnx_checks.infer, load._from_proto
    reader, writer = os.pipe()

    def begun(*args: Any) -> ir.Model:
        os.write(writer, b"x")
        return take_over(*args)

    monkeypatch.setattr(onnx_checks, "infer", lambda proto: os.read(reader, 1) and infer(proto))
    monkeypatch.setattr(onnx_checks, "patience", lambda _: 5.0)
    monkeypatch.setattr(load, "_from_proto", begun)
    assert load.load_model(chain).graph.outputs[0].shape == (1, 4, 8, 8)


def test_only_control_flow_holds_graphs():
    """Attributes of other standard operators are not looked at."""
    kinds = {onnx.defs.OpSchema.AttrType.GRAPH, onnx.defs.OpSchema.AttrType.GRAPHS}
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain == ""]
    holding = {s.name for s in schemas if kinds & {a.type for a in s.attributes.values()}}
    assert holding == BODIES
    inner = ir.Attr("body", ir.AttributeType.GRAPH, ir.Graph([], [], nodes=[]))
    for domain, kind, holds in (("", "Loop", True), ("other", "Relu", True), ("", "Relu", False)):
        assert holds_graphs(ir.Node(domain, kind, [], [inner])) is holds


def test_sizes_are_counted_once_where_nothing_is_computed(chain, monkeypatch):
    counted: list[object] = []
    monkeypatch.setattr(load, "check_budget", lambda *args: counted.append(args))
    load.load(chain)
    assert len(counted) == 1


@pytest.mark.parametrize("wrong", ["", "n0"])
def test_names_are_only_made_where_they_are_wanted(chain, monkeypatch, wrong):
    """No name, or one that stands twice: `name_everything` repairs nodes, the library values."""
    ran: list[object] = []
    monkeypatch.setattr(common.NameFixPass, "__call__", lambda _, model: ran.append(model))
    prepare(chain, quantised=False)
    assert not ran
    chain.graph.node[1].name = wrong
    names = [node.name for node in prepare(chain, quantised=False).canonical.graph]
    assert len(set(names)) == LAYERS
    assert all(names)
