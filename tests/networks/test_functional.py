"""Whole networks: the functional engine equals ONNX Runtime on every quantised tensor."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from opu_fuse import zoo
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, Program, compile_model
from opu_fuse.sim.compare.runs import check

LIGHT = onnx.__file__.replace("__init__.py", "backend/test/data/light/{}.onnx")


def compiled(model, machine="opu-1024", **options):
    hw = load_hw(machine)
    return Program(bundle=compile_model(model, hw, Options(**options)).bundle, hw=hw)


def random_inputs(program, rng, samples=1):
    return {
        p.name: rng.standard_normal((samples, *p.shape[1:])).astype(np.float32)
        for p in program.bundle.inputs
    }


@pytest.mark.slow
def test_resnet18_equals_onnxruntime_on_every_tensor_of_five_inputs(rng):
    program = compiled(zoo.build("resnet18"))
    inputs = random_inputs(program, rng, samples=5)
    found = check(program.bundle, inputs, program.run(inputs, capture=True))
    assert found.mismatches == 0, found.first
    assert found.tensors >= 49
    assert found.uncompared == ()
    assert found.dull == (), "too few distinct values, or too many saturated, to prove anything"


@pytest.mark.parametrize("strategy", ["none", "matched"])
@pytest.mark.parametrize("name", ["tiny_residual", "tiny_odd", "tiny_tiles"])
def test_small_networks_on_the_small_machine(name, strategy, rng):
    program = compiled(zoo.build(name), "opu-tiny", strategy=strategy)
    inputs = random_inputs(program, rng, samples=2)
    found = check(program.bundle, inputs, program.run(inputs, capture=True))
    assert found.passed, found.first
    assert found.uncompared == ()


def test_any_order_the_counters_allow_gives_the_same_bits(rng):
    program = compiled(zoo.build("tiny_residual"), "opu-tiny")
    inputs = random_inputs(program, rng)
    expected = program.run(inputs).outputs
    for seed in range(20):
        shuffled = program.run(inputs, shuffle=seed).outputs
        assert all(np.array_equal(expected[n], shuffled[n]) for n in expected), (
            f"shuffle seed {seed}"
        )


def test_equal_layers_in_reused_memory_are_told_apart(rng):
    """Twelve equal residual blocks: addresses repeat, so banks must not be known by address."""
    program = compiled(_chain(12, rng))
    inputs = random_inputs(program, rng)
    found = check(program.bundle, inputs, program.run(inputs, capture=True))
    assert found.passed, found.first


def _chain(blocks, rng):
    nodes, weights = [], []
    for i in range(blocks):
        weight = (rng.standard_normal((16, 16, 3, 3)) / 12).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{i}"))
        nodes.append(helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Add", [f"c{i}", f"x{i}"], [f"a{i}"]))
        nodes.append(helper.make_node("Relu", [f"a{i}"], [f"x{i + 1}"]))
    shape = (1, 16, 9, 9)
    ends = [
        helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape)
        for n in ("x0", f"x{blocks}")
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["light_resnet50", "light_vgg19"])
def test_models_of_the_onnx_package_compile_unchanged(name, rng):
    program = compiled(LIGHT.format(name))
    inputs = random_inputs(program, rng)
    result = program.run(inputs, capture=True)
    found = check(program.bundle, inputs, result)
    assert found.passed, found.first
    (output,) = result.outputs.values()
    assert output.shape[-1] == 1000
    assert np.isclose(output.sum(), 1.0, atol=1e-3), "the softmax on the host did not run"


def test_the_same_model_gives_the_same_bytes(tmp_path):
    paths = [tmp_path / "a.opu", tmp_path / "b.opu"]
    for path in paths:
        compiled(zoo.build("tiny_odd"), "opu-tiny").save(path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
