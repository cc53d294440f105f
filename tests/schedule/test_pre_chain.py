"""What the modules in front of the array can do in one pass, and what ends a group there."""

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from opu_fuse import pipeline
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.schedule.segment_order import HostWork
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise
from tests.written import written


def machine(folder, first=(), **comparators):
    """opu-tiny with a comparator and, behind it, a multiplier in front of the array; first: names
    of multipliers in front of both; comparators: further ones behind the array.
    """
    tree: dict[str, Any] = load_hw("opu-tiny").to_tree() | {"name": "mine"}
    tree["buffers"]["pre"] = {"words": 64, "banks": 2}
    flow = tree["dataflow"]
    flow["modules"] |= {
        "pre_act": {"kind": "comparator", "bypass": True},
        **{
            name: {"kind": "multiplier", "operand": "per_channel", "bypass": True}
            for name in (*first, "pre_mul")
        },
    }
    flow["edges"] |= {a: [b] for a, b in pairwise(("concat", *first, "pre_act", "pre_mul", "pad"))}
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


BLOCKS = """<ir_version: 10, opset_import: ["" : 17]> g
    (float[1,72,6,6] x) => (float[1,24,4,4] y)
    <float[24,72,3,3] w, float[72] s, float[72] b, float[72] m, float[72] v>
    { q = Abs(v)  %s  y = Conv(last, w) }"""
ONE = "last = BatchNormalization(x, s, b, m, q)"
TWO = """norm = BatchNormalization(x, s, b, m, q)  act = Relu(norm)
    last = BatchNormalization(act, s, b, m, q)"""
CLAMPED = "act = Relu(x)  last = BatchNormalization(act, s, b, m, q)"


@pytest.mark.parametrize(
    ("norms", "units"),
    [
        (ONE, ["pre_mul"]),
        (TWO, ["first_mul", "pre_act", "pre_mul"]),
        (CLAMPED, ["pre_act", "pre_mul"]),
    ],
)
def test_every_block_of_channels_has_parameters_of_its_own(norms, units, tmp_path):
    """Weights of nine blocks do not come in one piece."""
    hw = machine(tmp_path, units[:-2])
    found = pipeline.compile_model(written(BLOCKS % norms, seed=3), hw)
    assert [[m.module for m in g.matches] for g in found.partition.groups] == [[*units, "ipa"]]
    inputs = noise(found.bundle)
    compared = check(found.bundle, inputs, run(found.bundle, hw, inputs, capture=True))
    assert compared.passed, compared.first


SEVERAL_RANGES = """<ir_version: 10, opset_import: ["" : 17]> g
    (float[1,8,4,4] x) => (float[1,64,4,4] y)
    <float[64,8,1,1] w, float[8] s, float[8] b, float[8] m, float[8] v>
    { q = Abs(v)  z = BatchNormalization(x, s, b, m, q)  y = Conv(z, w) }"""


def test_what_all_output_channels_read_is_loaded_once(tmp_path):
    found = pipeline.compile_model(written(SEVERAL_RANGES, seed=3), machine(tmp_path)).plan
    ((layer,),) = found.layers.values()
    assert layer.pieces > 1
    (program,) = found.segments
    assert not isinstance(program, HostWork)
    loads = Counter(x.opcode for x in program.instructions if x.engine is Engine.LOAD)
    assert (loads["feature"], loads["pre"]) == (1, 1)
