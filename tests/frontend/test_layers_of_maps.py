"""Layers of tokens next to windows, in text; the `canonical` fixture compares the results too."""

from dataclasses import replace

import numpy as np
import onnx
import pytest

import opu_fuse
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.compare.runs import check
from tests.networks.attention_blocks import with_constants
from tests.schedule.planned import stacks

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,{c},1,{n}] x) => (float[A,B,C,D] y{more}) {{
  t = Relu(x) [p] p = Conv(t, wp) r = Reshape(p, {image})
  [d] d = Conv<group={wide}, kernel_shape=[{kernel},{kernel}], pads={pads}>(r, wd)
  f = {function}(d) [row] s = Reshape(f, row) [q] q = Conv(s, wq) [a] a = Add({sum})
  y = Tanh(a) }}"""
PARTS = {"more": "", "image": "image", "function": "Sigmoid", "sum": "q, t", "kernel": 3}


def mlp(c: int = 8, rows: int = 3, cols: int = 4, **parts: str | int) -> onnx.ModelProto:
    """The MLP of a block of SegFormer, with a residual sum. parts: other texts than PARTS."""
    rng, wide, n = np.random.default_rng(1), 4 * c, rows * cols
    kernel = int(parts.get("kernel", 3))
    sizes = {"wp": (wide, c, 1, 1), "wd": (wide, 1, kernel, kernel), "wq": (c, wide, 1, 1)}
    data = {name: rng.standard_normal(size) * 0.3 for name, size in sizes.items()}
    data |= {"image": np.array([1, wide, rows, cols]), "row": np.array([1, wide, 1, n])}
    pads = [kernel // 2] * 4
    text = TEXT.format(c=c, n=n, wide=wide, pads=pads, **{**PARTS, **parts})
    return with_constants(text, data)


def sizes(model) -> dict[str, tuple[int, ...]]:
    return {node.name: node.outputs[0].shape.numpy()[2:] for node in model.graph}


@pytest.mark.parametrize("order", ["q, t", "t, q"])
def test_the_layers_of_an_mlp_have_the_rows_of_its_windows(order, canonical):
    found = sizes(canonical(mlp(sum=order), rewriting=True))
    assert {found[name] for name in "pdqa"} == {(3, 4)}


STAYS = {
    "single pixels are convolved: they have no rows": ({"kernel": 1}, "pq"),
    "the row is a result, too": ({"more": ", float[1,32,1,12] s"}, "qa"),
    "the tokens before it are a result, too": ({"more": ", float[1,32,1,12] p"}, "p"),
    "the sum is of tokens": ({"more": ", float[1,8,1,12] q"}, "a"),
}


@pytest.mark.parametrize("name", STAYS)
def test_a_layer_keeps_its_tokens_where(name, canonical):
    parts, layers = STAYS[name]
    found = sizes(canonical(mlp(**parts), rewriting=True))
    assert {found[layer] for layer in layers} == {(1, 12)}


def test_the_published_strategies_see_the_users_graph(canonical):
    found = sizes(canonical(mlp()))
    assert {found[name] for name in "pqa"} == {(1, 12)}


@pytest.mark.filterwarnings("ignore:no calibration data")
@pytest.mark.parametrize("machine", ["opu-1024a", "opu-light"])
def test_an_mlp_has_onnxruntimes_bits(machine):
    program = opu_fuse.compile(mlp(32, 9, 7), machine)
    inputs = {"x": np.random.default_rng(2).standard_normal((1, 32, 1, 63), np.float32)}
    result = program.run(inputs, capture=True, shuffle=1)
    assert check(program.bundle, inputs, result).passed
    native = program.run(inputs, engine="native")
    np.testing.assert_array_equal(native.outputs["y"], result.outputs["y"])


@pytest.mark.filterwarnings("ignore:no calibration data")
def test_an_mlp_is_a_fused_stack_on_a_slow_memory():
    hw = load_hw("opu-1024a")
    hw = replace(hw, dram=replace(hw.dram, bytes_per_cycle=16))
    made = compile_model(mlp(32, 56, 56), hw)
    (stack,) = stacks(made.plan)
    nodes = {m.node for group in stack.groups for m in made.partition.groups[group].matches}
    assert {"p", "d", "q"} <= {made.dfg[node].name for node in nodes}
