"""A max pool behind a concatenation, in text; the `canonical` fixture compares the results too."""

from collections.abc import Callable

import onnx
import onnx_ir as ir
import pytest

from opu_fuse.fuse.strategies.strategy_names import REWRITING, StrategyName
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import partition_model

NODES = "g (float[1, 4, 9, 8] x) => (float[A, B, C, D] y) {{ {} }}"
BRANCHES = "[a] u = Relu (x) [b] v = Neg (x) [j] w = Concat <axis = {}> (u, v) "
POOL = "dilations=[1, 1] kernel_shape=[3, 3] pads=[1, 1, 1, 1] strides=[2, 2]"

MOVED = BRANCHES.format(1) + (
    "[p] y = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (w)"
)
STAYS = {
    "somebody else reads a branch": (
        "[a] u = Relu (x) [b] v = Neg (x) [j] w = Concat <axis = 1> (u, v) "
        "[p] q = MaxPool <kernel_shape = [9, 8]> (w) [r] g = GlobalAveragePool (u) "
        "[t] y = Concat <axis = 1> (g, q)"
    ),
    "somebody else reads the whole": (
        BRANCHES.format(1) + "[p] q = MaxPool <kernel_shape = [9, 8]> (w) "
        "[r] g = GlobalAveragePool (w) [t] y = Concat <axis = 1> (g, q)"
    ),
    "rows are joined": BRANCHES.format(2) + "[p] y = MaxPool <kernel_shape = [3, 3]> (w)",
    "a branch is the input": (
        "[a] u = Relu (x) [j] w = Concat <axis = 1> (u, x) "
        "[p] y = MaxPool <kernel_shape = [3, 3]> (w)"
    ),
}


def test_it_goes_into_the_branches(
    onnx_text: Callable[..., onnx.ModelProto],
    canonical: Callable[..., ir.Model],
    print_nodes: Callable[[ir.Model], str],
):
    model = canonical(onnx_text(NODES.format(MOVED)), rewriting=True)
    assert print_nodes(model) == (
        "a: Relu(x) -> u [1x4x9x8]\n"
        "b: Neg(x) -> v [1x4x9x8]\n"
        f"p/0: MaxPool(u) -> p/0 [1x4x5x4] {POOL}\n"
        f"p/1: MaxPool(v) -> p/1 [1x4x5x4] {POOL}\n"
        "p: Concat(p/0, p/1) -> y [1x8x5x4] axis=1"
    )


@pytest.mark.parametrize("name", STAYS)
def test_it_stays_where(
    name: str,
    onnx_text: Callable[..., onnx.ModelProto],
    canonical: Callable[..., ir.Model],
):
    model = canonical(onnx_text(NODES.format(STAYS[name])), rewriting=True)
    (pool,) = (n for n in model.graph if n.op_type == "MaxPool")
    assert pool.inputs[0] is not None
    assert pool.inputs[0].name == "w"


def test_the_users_graph_keeps_its_pool(
    onnx_text: Callable[..., onnx.ModelProto],
    canonical: Callable[..., ir.Model],
    print_nodes: Callable[[ir.Model], str],
):
    model = canonical(onnx_text(NODES.format(MOVED)))
    assert print_nodes(model).endswith(
        f"j: Concat(u, v) -> w [1x8x9x8] axis=1\np: MaxPool(w) -> y [1x8x5x4] {POOL}"
    )


@pytest.mark.parametrize("strategy", StrategyName)
def test_only_strategies_that_ask_for_it_get_it_and_it_is_reported(
    strategy: StrategyName, onnx_text: Callable[..., onnx.ModelProto]
):
    dfg, found = partition_model(onnx_text(NODES.format(MOVED)), load_hw("opu-1024"), strategy)
    names = [n.name for n in dfg.calls]
    if strategy in REWRITING:
        assert names == ["a", "p/0", "b", "p/1", "p"]
        (reason,) = found.rewrites.values()
        assert reason == (
            "moved into the branches of j: each part can join the operator that makes its branch"
        )
    else:
        assert names == ["a", "b", "j", "p"]
        assert not found.rewrites
