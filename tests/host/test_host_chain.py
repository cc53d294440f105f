"""Host segments: kernels and ONNX Runtime together give what ONNX Runtime alone gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from opu_fuse.host.build.linalg.chain import KernelStep, RuntimeStep, fuse_host_chain
from opu_fuse.host.build.linalg.control import always, one_use
from opu_fuse.host.build.linalg.site import constants_of, types_of
from opu_fuse.host.build.linalg.split import split_host_model
from opu_fuse.host.run.generic import run_kernel
from tests.host.runtime import model_of, run_model
from tests.host.sketch import same_bits

QUANT = {
    "s": np.array(0.0371, np.float32),
    "z": np.array(3, np.int8),
    "c": np.array([0.5, -2.0, 1.25], np.float32).reshape(3, 1, 1),
    "three": np.array(3, np.float32),
}


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs.split(), [output], name=output, **attributes)


def plan_of(nodes, values, outputs, **options):
    model = model_of(nodes, values, outputs, QUANT)
    return fuse_host_chain(
        model.graph.node,
        types=types_of(model),
        constants=constants_of(model.graph),
        outputs=outputs,
        **options,
    )


def run_pieces(pieces, values):
    known = dict(values)
    for piece in pieces:
        assert set(piece.inputs) <= set(known), "a piece runs before what it needs"
        if piece.kernel is not None:
            known |= run_kernel(piece.kernel, known)
        else:
            known |= run_model(piece.model, known)
    return known


def shape_of(plan):
    """What runs, in order: names of the nodes each step stands for."""
    return [("kernel" if isinstance(s, KernelStep) else "runtime", s.nodes) for s in plan.steps]


def int8(*shape):
    return np.random.default_rng(7).integers(-128, 128, shape).astype(np.int8)


SWISH = [
    node("DequantizeLinear", "q s z", "x"),
    node("HardSigmoid", "x", "gate"),
    node("Mul", "x gate", "swish"),
    node("QuantizeLinear", "swish s z", "y"),
]


def test_an_int8_island_becomes_one_kernel_that_reads_and_writes_int8():
    values = {"q": int8(1, 3, 4, 5)}
    plan = plan_of(SWISH, values, ["y"])
    assert shape_of(plan) == [("kernel", (0, 1, 2, 3))]
    (step,) = plan.steps
    assert isinstance(step, KernelStep)
    assert step.reads == ("q",)
    assert step.writes == ("y",)
    assert [x.dtype for x in step.kernel.op.inputs] == ["int8"], "scales are in the payload"
    pieces, _ = split_host_model(model_of(SWISH, values, ["y"], QUANT))
    expected = run_model(model_of(SWISH, values, ["y"], QUANT), values)["y"]
    assert same_bits(run_pieces(pieces, values)["y"], expected)
    assert len(np.unique(expected)) >= 32


def test_one_use_takes_in_a_value_whose_readers_have_become_one():
    plan = plan_of(SWISH, {"q": int8(1, 3, 4, 5)}, ["y"], control=one_use)
    assert shape_of(plan) == [("kernel", (0, 1, 2, 3))]


def test_one_use_leaves_a_value_with_two_readers_and_says_so():
    nodes = [
        node("DequantizeLinear", "q s z", "x"),
        node("Relu", "x", "r"),
        node("QuantizeLinear", "r s z", "y"),
        node("Neg", "x", "n"),
        node("QuantizeLinear", "n s z", "w"),
    ]
    values = {"q": int8(1, 3, 4, 5)}
    plan = plan_of(nodes, values, ["y", "w"], control=one_use)
    assert shape_of(plan) == [("runtime", (0,)), ("kernel", (1, 2)), ("kernel", (3, 4))]
    texts = {(p, c): why.text for p, c, why in plan.refusals}
    assert texts == {("x", "r+y"): "x has 2 readers", ("x", "n+w"): "x has 2 readers"}
    alone = plan_of(nodes, values, ["y", "w"], control=one_use, min_nodes=1)
    assert shape_of(alone) == [("kernel", (0,)), ("kernel", (1, 2)), ("kernel", (3, 4))]
    assert alone.refusals == plan.refusals
    plan = plan_of(nodes, values, ["y", "w"])
    assert shape_of(plan) == [("kernel", (0, 1, 2, 3, 4))], "one kernel with two results"


def test_an_operator_of_onnx_runtime_in_between_is_not_fused_across():
    nodes = [
        node("DequantizeLinear", "q s z", "x"),
        node("Sigmoid", "x", "gate"),
        node("Mul", "x gate", "swish"),
        node("QuantizeLinear", "swish s z", "y"),
    ]
    values = {"q": int8(1, 3, 4, 5)}
    plan = plan_of(nodes, values, ["y"])
    assert shape_of(plan) == [("runtime", (0, 1)), ("kernel", (2, 3))]
    ((_, _, why),) = plan.refusals
    assert why.rule == "waits_for_itself"
    assert why.text == "swish+y needs gate, which needs x: fused, they would wait forever"
    assert [s.nodes for s in plan_of(nodes, values, ["y"], exact=False).steps] == [(0, 1, 2, 3)]


def test_a_value_needed_outside_is_written_by_the_kernel_that_swallowed_its_maker():
    values = {"q": int8(1, 3, 4, 5)}
    plan = plan_of(SWISH, values, ["y", "x"])
    (step,) = plan.steps
    assert isinstance(step, KernelStep)
    assert set(step.writes) == {"x", "y"}
    model = model_of(SWISH, values, ["y", "x"], QUANT)
    got = run_pieces(split_host_model(model)[0], values)
    assert all(same_bits(got[n], x) for n, x in run_model(model, values).items())


def test_a_transpose_in_a_chain_becomes_a_map():
    nodes = [
        node("Mul", "x c", "m"),
        node("Transpose", "m", "t", perm=[0, 2, 3, 1]),
        node("Relu", "t", "y"),
    ]
    values = {"x": np.random.default_rng(1).normal(size=(1, 3, 4, 5)).astype(np.float32)}
    (step,) = plan_of(nodes, values, ["y"]).steps
    assert isinstance(step, KernelStep)
    maps = {x.value: str(x.map) for x in step.kernel.op.inputs}
    assert maps["x"] == "(d0, d1, d2, d3) -> (d0, d3, d1, d2)"
    assert maps["c"] == "(d0, d1, d2, d3) -> (d3, 0, 0)"
    model = model_of(nodes, values, ["y"], QUANT)
    got = run_pieces(split_host_model(model)[0], values)["y"]
    assert same_bits(got, run_model(model, values)["y"])


def test_nodes_of_onnx_runtime_are_gathered_into_few_steps():
    nodes = [
        node("Softmax", "x", "a"),
        node("Relu", "x", "r1"),
        node("Neg", "r1", "r2"),
        node("Erf", "x", "b"),
        node("Softmax", "r2", "d"),
        node("Erf", "a", "e"),
    ]
    values = {"x": np.ones((2, 3), np.float32)}
    plan = plan_of(nodes, values, ["b", "d", "e"])
    assert shape_of(plan) == [("kernel", (1, 2)), ("runtime", (0, 3, 4, 5))]
    (_, runtime) = plan.steps
    assert runtime == RuntimeStep(nodes=(0, 3, 4, 5), reads=("x", "r2"), writes=("b", "d", "e"))


def test_values_captured_by_a_subgraph_are_kept():
    t, e = (helper.make_tensor_value_info(n, 1, [2]) for n in "te")
    then = helper.make_graph([helper.make_node("Identity", ["m"], ["t"])], "then", [], [t])
    otherwise = helper.make_graph([helper.make_node("Neg", ["x"], ["e"])], "else", [], [e])
    nodes = [
        node("Mul", "x three", "m"),
        node("Relu", "m", "r"),
        helper.make_node("If", ["flag"], ["y"], name="if", then_branch=then, else_branch=otherwise),
        node("Add", "y r", "out"),
    ]
    values = {"x": np.array([1, -2], np.float32), "flag": np.array(True)}
    model = model_of(nodes, values, ["out"], QUANT)
    pieces, _ = split_host_model(model)
    assert [p.nodes for p in pieces] == [("m", "r"), ("if", "out")]
    assert same_bits(run_pieces(pieces, values)["out"], run_model(model, values)["out"])


def test_a_segment_without_a_chain_comes_back_as_it_is():
    nodes = [node("Softmax", "x", "a"), node("Relu", "a", "b"), node("Softmax", "b", "y")]
    model = model_of(nodes, {"x": np.ones((2, 3), np.float32)}, ["y"])
    (piece,), _ = split_host_model(model)
    assert piece.model is model
    assert piece.kernel is None
    assert (piece.inputs, piece.outputs) == (("x",), ("y",))


def test_a_long_chain_is_cut_where_the_payload_would_grow_too_long():
    count = 400
    names = ["x", *(f"v{i}" for i in range(count))]
    nodes = [node("Neg" if i % 2 else "Abs", names[i], names[i + 1]) for i in range(count)]
    values = {"x": np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)}
    plan = plan_of(nodes, values, [names[-1]])
    assert all(isinstance(s, KernelStep) for s in plan.steps)
    assert [len(s.nodes) for s in plan.steps] == [64] * 6 + [16]
    assert "the payload would have 128 instructions, the limit is 64" in plan.refusals[0][2].text


@st.composite
def segments(draw):
    """(nodes, values, outputs): element-wise operators, views and operators of ONNX Runtime."""
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    shapes = {"x": (1, 3, rows, columns), "w": (1, 3, rows, columns), "q": (1, 3, rows, columns)}
    kinds = {"x": "float", "w": "float", "q": "int8"}
    nodes = []
    for i in range(draw(st.integers(2, 12))):
        floats = [n for n, kind in kinds.items() if kind == "float"]
        integers = [n for n, kind in kinds.items() if kind == "int8"]
        op = draw(st.sampled_from(OPERATORS))
        name = f"v{i}"
        a = draw(st.sampled_from(integers if op == "DequantizeLinear" else floats))
        match op:
            case "Add" | "Sub" | "Mul" | "Div":
                same = [n for n in floats if shapes[n] == shapes[a]]
                operands = f"{a} {draw(st.sampled_from(same))}"
            case "QuantizeLinear" | "DequantizeLinear":
                operands = f"{a} s z"
            case "Max" | "Pow":
                operands = f"{a} three"
            case _:
                operands = a
        attributes = {"perm": [0, 1, 3, 2]} if op == "Transpose" else {}
        nodes.append(node(op, operands, name, **attributes))
        shape = shapes[a]
        shapes[name] = (*shape[:2], shape[3], shape[2]) if op == "Transpose" else shape
        kinds[name] = "int8" if op == "QuantizeLinear" else "float"
    made = [n.output[0] for n in nodes]
    outputs = sorted({made[-1], *draw(st.sets(st.sampled_from(made), max_size=3))})
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    values: dict[str, np.ndarray] = {
        n: (rng.normal(size=shapes[n]) * 3).astype(np.float32) for n in "xw"
    }
    values["q"] = rng.integers(-128, 128, shapes["q"]).astype(np.int8)
    return nodes, values, outputs


OPERATORS = (
    *("Add", "Sub", "Mul", "Div", "Relu", "HardSwish", "Neg", "Abs", "Sqrt", "Max", "Pow"),
    *("QuantizeLinear", "DequantizeLinear", "DequantizeLinear", "Transpose", "Softmax", "Sigmoid"),
)


@settings(max_examples=60)
@given(segments(), st.sampled_from([None, one_use, always]), st.integers(1, 3))
def test_pieces_give_the_bits_of_onnx_runtime_on_random_segments(segment, control, min_nodes):
    nodes, values, outputs = segment
    model = model_of(nodes, values, outputs, QUANT)
    expected = run_model(model, values)
    pieces, _ = split_host_model(model, control=control, min_nodes=min_nodes)
    got = run_pieces(pieces, values)
    for name in outputs:
        assert same_bits(got[name], expected[name]), name
    assert all(len(p.nodes) >= min_nodes for p in pieces if p.kernel is not None)


@pytest.mark.parametrize("control", [one_use, always])
def test_plans_are_deterministic(control):
    values = {"q": int8(1, 3, 4, 5)}
    assert plan_of(SWISH, values, ["y"], control=control) == plan_of(
        SWISH, values, ["y"], control=control
    )
