"""Distances as expected bins (YOLO): a Softmax for each map and side, on machines with one."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper
from onnxruntime import InferenceSession

from opu_fuse.frontend.prepare import prepare
from opu_fuse.fuse.norm_operators import norms_of
from opu_fuse.model.effort import multiplications
from tests.hw.norm_machine import norm_machine, quarter_norm_machine, split_norm_machine
from tests.networks import attention_blocks as blocks
from tests.networks.quantised_elsewhere import quantised_elsewhere
from tests.networks.test_attention import on_host, operators, run

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

X = np.random.default_rng(1).normal(size=(1, 8, 6, 4)).astype(np.float32)


def answers(model: onnx.ModelProto) -> list[np.ndarray]:
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(y) for y in session.run(None, {"x": X})]


def canonical(model: onnx.ModelProto, norms) -> ir.Model:
    return prepare(model, quantised=False, rewriting=True, norms=norms).canonical


def nodes(model: ir.Model, *op_types: str) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type in op_types]


@pytest.mark.parametrize("spelling", blocks.BOXES)
def test_onnxruntime_gives_the_same_distances_and_classes(spelling: str):
    model = blocks.distances(spelling)
    found = canonical(model, norms_of(split_norm_machine()))
    assert len(nodes(found, "Softmax")) == 2 * 4
    for mine, wanted in zip(answers(ir.to_proto(found)), answers(model), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("spelling", blocks.BOXES)
def test_the_multiplications_are_those_of_the_model(spelling: str):
    model = blocks.distances(spelling)
    plain, found = canonical(model, ()), canonical(model, norms_of(split_norm_machine()))
    assert len(nodes(plain, "Softmax")) == 1
    counts = [sum(map(multiplications, nodes(x, "Conv"))) for x in (plain, found)]
    assert counts[0] == counts[1]


def test_a_machine_that_joins_no_maps_has_one_softmax():
    found = canonical(blocks.distances("alone"), norms_of(norm_machine()))
    assert len(nodes(found, "Softmax")) == 1


@pytest.mark.parametrize("how", ["bins are last", "logits are read elsewhere", "two results"])
def test_other_forms_remain(how: str):
    model = blocks.distances("alone")
    if how == "bins are last":  # channel n is bin n // 4 of a side
        _set(model, "s4", np.array([1, 4, 4, 30]))
        transpose = next(n for n in model.graph.node if n.op_type == "Transpose")
        transpose.attribute[0].ints[:] = [0, 1, 2, 3]
    elif how == "logits are read elsewhere":
        model.graph.output.append(onnx.helper.make_tensor_value_info("b0", 1, (1, 16, 6, 4)))
    else:
        _set(model, "we", np.ones((2, 4, 1, 1), np.float32))
        _set(model, "s3", np.array([1, 8, 30]))
        model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 8
    found = canonical(model, norms_of(split_norm_machine()))
    assert len(nodes(found, "Softmax")) == 1


def _set(model: onnx.ModelProto, name: str, data: np.ndarray) -> None:
    tensor = next(t for t in model.graph.initializer if t.name == name)
    tensor.CopyFrom(numpy_helper.from_array(data, name))


@pytest.mark.parametrize("spelling", blocks.BOXES)
def test_sides_that_fill_quarters_of_a_word_remain_together(spelling: str):
    model = blocks.distances(spelling)
    found = canonical(model, norms_of(quarter_norm_machine()))
    assert len(nodes(found, "Softmax")) == 2
    for mine, wanted in zip(answers(ir.to_proto(found)), answers(model), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("sides", "bins"), [(4, 8), (3, 4), (2, 4)])
def test_sides_that_do_not_fill_quarters_have_a_softmax_each(sides: int, bins: int):
    model = blocks.distances("alone", sides=sides, bins=bins)
    program, _, checked = run(model, quarter_norm_machine())
    assert operators(program).count("softmax") == 2 * sides
    assert checked.passed


@pytest.mark.parametrize("scales", ["pow2", "free"])
@pytest.mark.parametrize("spelling", blocks.BOXES)
def test_quarters_give_onnxruntimes_bits_and_leave_views_to_the_host(spelling: str, scales: str):
    program, _, checked = run(blocks.distances(spelling), quarter_norm_machine(), scales=scales)
    assert operators(program).count("grouped_softmax") == 2
    assert checked.passed
    assert {op.op for op in on_host(program)} <= {"concat", "table"}


@pytest.mark.parametrize("scales", ["pow2", "free"])
@pytest.mark.parametrize("spelling", blocks.BOXES)
def test_machines_give_onnxruntimes_bits_and_leave_views_to_the_host(spelling: str, scales: str):
    program, _, checked = run(blocks.distances(spelling), split_norm_machine(), scales=scales)
    assert operators(program).count("softmax") == 2 * 4
    assert checked.passed
    assert {op.op for op in on_host(program)} <= {"concat", "table"}


@pytest.mark.parametrize("machine", [split_norm_machine, quarter_norm_machine])
@pytest.mark.parametrize("spelling", blocks.BOXES)
def test_what_follows_the_joined_maps_may_remain_in_floats(spelling: str, machine):
    model = blocks.distances(spelling)
    joined = [node for node in model.graph.node if node.op_type == "Concat"][-1]
    joined.name = "joined"
    program, _, checked = run(model, machine(), keep_float=["joined.."])
    assert checked.passed
    assert {"softmax", "grouped_softmax"}.isdisjoint(operators(program))
    assert operators(program).count("conv") >= 3


def test_a_network_that_came_quantised_has_one_softmax():
    """It rounds the joined maps to a scale that is not that of the logits."""
    model = ir.from_proto(blocks.distances("alone"))
    program, _, checked = run(
        ir.to_proto(quantised_elsewhere(model, {"x": X})), split_norm_machine()
    )
    assert operators(program).count("softmax") == 1
    assert checked.passed
