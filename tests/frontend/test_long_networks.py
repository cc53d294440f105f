"""What a network of many nodes is spared: looking at the same thing for every node, passes that
have nothing to do.
"""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx_ir.passes import common

from opu_fuse.frontend import load, numbers, windowed
from opu_fuse.frontend.prepare import prepare

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

    windowed._mistake.cache_clear()
    monkeypatch.setattr(numbers, "in_range", noted)
    prepare(chain, quantised=False)
    assert (len(looked), windowed._mistake.cache_info().misses) == (1, 1)


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
