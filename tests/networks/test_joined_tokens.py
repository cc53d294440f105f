"""Tokens and pixels that are joined, cut out and rolled, on a machine with norms.

Programs with the bits of ONNX Runtime: `test_attention_networks.py`; on the native engine:
`test_native_norm.py`; on the RTL: `test_norm_networks.py`.
"""

from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.attention_builder import Builder
from benchmarks.attention_networks import SMALL, vit
from opu_fuse.bundle.program import HostSegment
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Compilation, Options, compile_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise
from tests.networks.attention_blocks import rolled

MACHINE = "opu-1024a"


def pooler() -> onnx.ModelProto:
    """The pooler of BERT after a layer of tokens: the first one, a dense layer, Tanh."""
    b = Builder()
    x = b.layer_norm(b.encoder_layer(b.linear(b.input(1, 7, 12), 16), 2))
    x = b.linear(b.op("Gather", x, b.const(0, np.int64), shape=(1, 16), axis=1), 16)
    return b.model(b.op("Tanh", x))


def exported() -> onnx.ModelProto:
    """A class token as torch exports it: expanded, in front; cut out by Slice and Squeeze."""
    b = Builder()
    x = b.conv(b.input(1, 3, 6, 10), 12, 2, 2)
    x = b.transpose(b.reshape(x, 1, 12, 15), 0, 2, 1)
    token = b.op("Expand", b.normal(1, 1, 12), b.const([1, 1, 1], np.int64), shape=(1, 1, 12))
    x = b.op("Add", b.concat(1, token, x), b.normal(1, 16, 12, std=0.5))
    x = b.slice(b.layer_norm(b.encoder_layer(x, 2)), 1, 0, 1)
    return b.model(b.op("Squeeze", x, b.const([1], np.int64), shape=(1, 12)))


MODELS = {
    "vit": SMALL["vit_tiny"],
    "deit": SMALL["deit_small"],
    "pooler": pooler,
    "exported": exported,
    "rolled": lambda: rolled(7, 70, 3),
    "rolled back": lambda: rolled(6, 12, -1),
}


def on(machine: str, model: onnx.ModelProto, **options: Any) -> Compilation:
    return compile_model(model, load_hw(machine), Options(**options))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_nothing_between_the_ports_is_the_hosts(name: str, batch: int):
    program = on(MACHINE, MODELS[name](), batch=batch).bundle
    assert not any(isinstance(segment, HostSegment) for segment in program.segments)
    hw, inputs = load_hw(MACHINE), noise(program)
    for shuffle in (None, 1):
        result = run(program, hw, inputs, capture=True, shuffle=shuffle)
        assert check(program, inputs, result).passed


@pytest.mark.parametrize("strategy", ["matched", "optimal", "none"])
@pytest.mark.parametrize("machine", ["opu-tiny", "opu-classic", "opu-light"])
def test_machines_without_norms_have_the_same_bits(machine: str, strategy: str):
    program = on(machine, rolled(6, 12, 2), strategy=strategy).bundle
    inputs = noise(program)
    result = run(program, load_hw(machine), inputs, capture=True)
    assert check(program, inputs, result).passed


@pytest.mark.parametrize("model", [vit(48, 4, 64, 2, 1), rolled(28, 96, 3)], ids=["vit", "rolled"])
def test_cycles_are_predicted(model: onnx.ModelProto):
    program = on(MACHINE, model).bundle
    predicted = sum(group.cycles for group in program.groups)
    counted = run_cycle(program, load_hw(MACHINE)).counters["cycles"]
    assert predicted == pytest.approx(counted, rel=0.06)


def test_a_store_rolls_a_map():
    groups = [[op.op for op in g.ops] for g in on(MACHINE, rolled(6, 12, 2)).bundle.groups]
    assert groups == [["conv", "add", "layer_norm", "permute"], ["conv", "add"]]


def test_positions_and_class_token_are_one_constant():
    groups = [[op.op for op in g.ops] for g in on(MACHINE, vit(12, 4, 16, 2, 1)).bundle.groups]
    assert groups.count(["pad", "add"]) == 1
    assert ["add"] not in groups


def test_the_last_layer_computes_the_class_token_alone():
    dfg = on(MACHINE, vit(12, 4, 16, 2, 2)).dfg
    columns = [n.shape[3] for n in dfg.calls if n.op == "conv" and len(n.shape) == 4]
    # patches; Q, K and V, projection and MLP of the first layer; Q, K and V of the second; the rest
    assert columns == [3, 10, 10, 10, 10, 10, 1, 1, 1, 1]
