"""What the modules in front of the array can do in one pass, and what ends a group there."""

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from opu_fuse import pipeline
from opu_fuse.hw.load import load_hw
from opu_fuse.sim.compare import check
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise


def machine(folder, **comparators):
    """opu-tiny with a comparator and, behind it, a multiplier in front of the array; comparators:
    further ones behind it.
    """
    tree = load_hw("opu-tiny").to_tree() | {"name": "mine"}
    tree["buffers"]["pre"] = {"words": 32, "banks": 2}
    flow = tree["dataflow"]
    flow["modules"] |= {
        "pre_act": {"kind": "comparator", "bypass": True},
        "pre_mul": {"kind": "multiplier", "operand": "per_channel", "bypass": True},
    }
    flow["edges"] |= {"concat": ["pre_act"], "pre_act": ["pre_mul"], "pre_mul": ["pad"]}
    flow["operators"]["batch_norm"] = ["multiplier"]
    flow["modules"] |= {n: {"kind": "comparator"} | more for n, more in comparators.items()}
    flow["edges"]["add"] = [*comparators, *flow["edges"]["add"]]
    flow["edges"] |= {name: ["pool"] for name in comparators}
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    return load_hw(path)


def modules(nodes, values, folder, **comparators):
    """On what each group of a network of one input runs."""
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8, 6, 6]) for n in "xy"]
    constants = [numpy_helper.from_array(np.full(8, v, np.float32), n) for n, v in values.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    found = pipeline.compile_model(model, machine(folder, **comparators))
    return [[m.module for m in group.matches] for group in found.partition.groups]


def test_a_batch_norm_behind_an_activation_begins_another_group(tmp_path):
    values = {"scale": 0.5, "bias": 0.25, "mean": 0.125, "variance": 1.0}
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("BatchNormalization", ["a", *values], ["y"]),
    ]
    assert modules(nodes, values, tmp_path)[-1] == ["pre_mul"]


@pytest.mark.parametrize("wrong", [{}, {"domain_in": "acc", "exit": True}])
def test_an_activation_alone_runs_behind_the_array_where_its_group_can_end(wrong, tmp_path):
    relu = helper.make_node("Relu", ["x"], ["y"])
    assert modules([relu], {}, tmp_path, early=wrong) == [["compare"]]


def test_every_block_of_channels_has_parameters_of_its_own(tmp_path):
    """Weights of nine blocks do not come in one piece."""
    rng = np.random.default_rng(3)
    values = {n: rng.uniform(0.5, 2, 72).astype(np.float32) for n in ("s", "b", "m", "v")}
    values["w"] = rng.normal(size=(24, 72, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("BatchNormalization", ["x", *"sbmv"], ["a"]),
        helper.make_node("Conv", ["a", "w"], ["y"]),
    ]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, size, size])
        for name, channels, size in (("x", 72, 6), ("y", 24, 4))
    ]
    constants = [numpy_helper.from_array(v, n) for n, v in values.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    hw = machine(tmp_path)
    found = pipeline.compile_model(model, hw)
    assert [[m.module for m in g.matches] for g in found.partition.groups] == [["pre_mul", "ipa"]]
    inputs = noise(found.bundle)
    compared = check(found.bundle, inputs, run(found.bundle, hw, inputs, capture=True))
    assert compared.passed, compared.first
