"""The transforms: graphs before and after as ONNX text, and the same numbers from both."""

import inspect

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from opu_fuse.passes import SKIP_KEY, TRANSFORMS, PassContext, VerifyIR, lookup, registered
from opu_fuse.quant import META_KEY, QuantParams
from tests.passes.recorder import model_of

SOURCE_KEY = "opu_fuse.source"
STRICT = {"passes.check_word": True}


def apply(name, model):
    """Run a registered pass in verify mode; whether it changed the model."""
    with PassContext(config=STRICT, instruments=[VerifyIR()]):
        result = lookup(name)(model)
        assert result.model is model
        assert not lookup(name)(model).modified, "a second run finds nothing more to do"
    return result.modified


def shape_of(model):
    """Nodes as `result = Operator(operands)`, functions below their names, outputs last."""

    def lines(graph):
        for node in graph:
            operands = ", ".join("-" if v is None else v.name for v in node.inputs)
            yield f"{', '.join(v.name for v in node.outputs)} = {node.op_type}({operands})"
        yield f"return {', '.join(value.name for value in graph.outputs)}"

    found = list(lines(model.graph))
    for function in model.functions.values():
        found += [f"{function.name}:", *lines(function.graph)]
    return found


def run(model):
    proto = ir.to_proto(model)
    rng = np.random.default_rng(7)
    feeds = {
        value.name: rng.normal(size=tuple(value.shape)).astype(np.float32)
        for value in model.graph.inputs
    }
    return ReferenceEvaluator(proto).run(None, feeds)


def check(name, before, after):
    """The transform makes `after` of `before` (ONNX text), and the numbers stay."""
    model = model_of(before)
    numbers = run(model)
    changed = apply(name, model)
    assert shape_of(model) == after
    assert changed
    for got, expected in zip(run(model), numbers, strict=True):
        np.testing.assert_array_equal(got, expected)


def annotate(model, **scales):
    for node in model.graph:
        for value in node.outputs:
            if value.name in scales:
                value.meta[META_KEY] = QuantParams(scale=(scales[value.name],))


def test_every_transform_is_registered_under_the_name_of_its_file():
    files = {module.__name__.rsplit(".", 1)[-1]: module for module in TRANSFORMS}
    names = {file.title().replace("_", ""): module for file, module in files.items()}
    assert sorted(names) == [info.name for info in registered()]
    for name, module in names.items():
        assert (inspect.getdoc(module) or "").startswith(f"{name}: ")


def test_levels_are_those_the_field_is_used_to():
    assert {info.name: info.opt_level for info in registered()} == {
        "InferType": 0,
        "DeadCodeElimination": 1,
        "FoldConstant": 2,
        "EliminateCommonSubexpr": 3,
    }


# FoldConstant


def test_what_no_input_reaches_is_computed():
    check(
        "FoldConstant",
        """g (float[1,4] x) => (float[1,4] y)
        <float[4] w = {1, 2, 3, 4}, float[4] v = {5, 6, 7, 8}>
        { s = Add (w, v)  n = Neg (s)  y = Mul (x, n) }""",
        ["y = Mul(x, n)", "return y"],
    )


def test_shapes_of_static_values_are_constants():
    check(
        "FoldConstant",
        """g (float[2,3] x) => (float[3,2] y)
        <int64[2] order = {1, 0}, int64 axis = {0}>
        { s = Shape (x)  t = Gather <axis = 0> (s, order)  y = Reshape (x, t) }""",
        ["y = Reshape(x, t)", "return y"],
    )


def test_constant_nodes_become_initialisers():
    model = model_of(
        """g (float[1,4] x) => (float[1,4] y) {
          w = Constant <value = float[4] {1, 2, 3, 4}> ()  y = Mul (x, w) }"""
    )
    assert apply("FoldConstant", model)
    assert shape_of(model) == ["y = Mul(x, w)", "return y"]
    assert list(model.graph.initializers) == ["w"]


def test_nothing_is_folded_where_everything_depends_on_inputs():
    model = model_of("g (float[1,4] x) => (float[1,4] y) { a = Relu (x)  y = Neg (a) }")
    assert not apply("FoldConstant", model)


@pytest.mark.parametrize(("edge", "folded"), [(512, True), (513, False)])
def test_large_constants_are_not_made(edge, folded):
    model = model_of(
        f"""g (float[1,1] x) => (float[{edge},{edge}] y)
        <int64[2] size = {{{edge}, {edge}}}, float[1] one = {{1}}>
        {{ z = Expand (one, size)  y = Add (x, z) }}"""
    )
    assert apply("FoldConstant", model) is folded
    assert shape_of(model)[-2:] == ["y = Add(x, z)", "return y"]
    assert len(model.graph) == (1 if folded else 2)


def test_integers_that_stand_for_reals_are_not_computed_with():
    model = model_of(
        """g (float[1,4] x) => (float[1,4] y)
        <float[4] w = {1, 2, 3, 4}>
        { n = Neg (w)  y = Mul (x, n) }"""
    )
    model.graph.initializers["w"].meta[META_KEY] = QuantParams(scale=(0.5,))
    assert not apply("FoldConstant", model)
    assert shape_of(model) == ["n = Neg(w)", "y = Mul(x, n)", "return y"]


def test_a_rounding_identity_is_not_folded_away():
    model = model_of(
        "g (float[1,4] x) => (float[1,4] y) { a = Relu (x)  r = Identity (a)  y = Neg (r) }"
    )
    annotate(model, r=0.5)
    assert not apply("FoldConstant", model)


def test_functions_marked_to_be_skipped_keep_their_nodes():
    text = """g (float[1,4] x) => (float[1,4] y) { y = f.shift (x) }
    <domain: "f", opset_import: ["" : 17]>
    shift (v) => (w) {
      a = Constant <value_floats = [1.0, 2.0, 3.0, 4.0]> ()
      b = Neg (a)
      w = Add (v, b)
    }"""
    model = model_of(text)
    next(iter(model.functions.values())).metadata_props[SKIP_KEY] = "1"
    assert not apply("FoldConstant", model)
    model = model_of(text)
    assert apply("FoldConstant", model)
    assert not any("Neg" in line for line in shape_of(model))


# EliminateCommonSubexpr

TWICE = "g (float[1,4] x) => (float[1,4] y) { a = Relu (x)  b = Relu (x)  y = Add (a, b) }"


def test_the_same_operator_on_the_same_values_is_computed_once():
    check("EliminateCommonSubexpr", TWICE, ["a = Relu(x)", "y = Add(a, a)", "return y"])


def test_equal_chains_become_one():
    check(
        "EliminateCommonSubexpr",
        """g (float[1,4] x) => (float[1,4] y) {
          a = Relu (x)  b = Relu (x)  c = Neg (a)  d = Neg (b)  y = Add (c, d) }""",
        ["a = Relu(x)", "c = Neg(a)", "y = Add(c, c)", "return y"],
    )


def test_other_attributes_or_other_operand_orders_are_other_values():
    model = model_of(
        """g (float[1,4] x, float[1,4] z) => (float[1,4] y) {
          a = LeakyRelu <alpha = 0.5> (x)  b = LeakyRelu <alpha = 0.25> (x)
          c = Sub (x, z)  d = Sub (z, x)  y = Sum (a, b, c, d) }"""
    )
    assert not apply("EliminateCommonSubexpr", model)


def test_functions_are_looked_into_one_by_one():
    check(
        "EliminateCommonSubexpr",
        """g (float[1,4] x) => (float[1,4] y) { a = Relu (x)  y = f.both (a) }
        <domain: "f", opset_import: ["" : 17]>
        both (v) => (w) { a = Relu (v)  b = Relu (v)  w = Add (a, b) }""",
        [
            *("a = Relu(x)", "y = both(a)", "return y"),
            *("both:", "a = Relu(v)", "w = Add(a, a)", "return w"),
        ],
    )


def test_two_outputs_of_one_value_keep_their_names():
    check(
        "EliminateCommonSubexpr",
        "g (float[1,4] x) => (float[1,4] y, float[1,4] z) { y = Relu (x)  z = Relu (x) }",
        ["y = Relu(x)", "z = Identity(y)", "return y, z"],
    )


@pytest.mark.parametrize(
    ("scales", "merged"),
    [({"a": 0.5, "b": 0.5}, True), ({"a": 0.5, "b": 0.25}, False), ({"a": 0.5}, False)],
    ids=["rounded alike", "rounded differently", "one not rounded"],
)
def test_values_rounded_differently_are_different(scales, merged):
    model = model_of(TWICE)
    annotate(model, **scales)
    assert apply("EliminateCommonSubexpr", model) is merged
    assert len(model.graph) == (2 if merged else 3)
    assert all(node.domain == "" for node in model.graph)


def test_an_output_that_was_rounded_stays_rounded():
    model = model_of(
        "g (float[1,4] x) => (float[1,4] y, float[1,4] z) { y = Relu (x)  z = Relu (x) }"
    )
    annotate(model, y=0.5, z=0.5)
    assert apply("EliminateCommonSubexpr", model)
    assert [v.meta[META_KEY].scale for v in model.graph.outputs] == [(0.5,), (0.5,)]


RANDOM = {
    "an operator": "a = RandomNormalLike (x)  b = RandomNormalLike (x)",
    "one the library forgot": "a = Bernoulli (x)  b = Bernoulli (x)",
    "a function that draws": "a = f.draw (x)  b = f.draw (x)",
    "a function that calls one": "a = f.outer (x)  b = f.outer (x)",
}


@pytest.mark.parametrize("drawn", RANDOM)
def test_two_draws_are_two_values(drawn):
    model = model_of(
        f"g (float[1,4] x) => (float[1,4] y) {{ {RANDOM[drawn]}  y = Sub (a, b) }}"
        """
        <domain: "f", opset_import: ["" : 17]>
        draw (v) => (w) { w = Bernoulli (v) }
        <domain: "f", opset_import: ["" : 17, "f" : 1]>
        outer (v) => (w) { w = f.draw (v) }"""
    )
    assert not apply("EliminateCommonSubexpr", model)


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        (TWICE, {"a": "a,b", "y": "y"}),
        (
            """g (float[1,4] x) => (float[1,4] y) {
              a = Relu (x)  b = Relu (x)  c = Neg (a)  d = Neg (b)  y = Add (c, d) }""",
            {"a": "a,b", "c": "c,d", "y": "y"},
        ),
        (
            "g (float[1,4] x) => (float[1,4] y, float[1,4] z) { y = Relu (x)  z = Relu (x) }",
            {"y": "y,z", "z": ""},
        ),
        (
            """g (float[1,4] x) => (float[1,4] y, float[1,4] z) {
              a = Relu (x)  y = Neg (a)  z = Relu (x) }""",
            {"z": "a,z", "y": "y"},
        ),
    ],
    ids=["pair", "chains", "two outputs", "an inner one and an output"],
)
def test_the_node_that_stays_stands_for_those_that_went(text, origins):
    model = model_of(text)
    for node in model.graph:
        node.metadata_props[SOURCE_KEY] = str(node.outputs[0].name)
    assert apply("EliminateCommonSubexpr", model)
    assert {
        node.outputs[0].name: node.metadata_props.get(SOURCE_KEY, "") for node in model.graph
    } == origins


# DeadCodeElimination


def test_what_no_output_needs_goes_with_its_constants_and_functions():
    model = model_of(
        """g (float[1,4] x) => (float[1,4] y)
        <float[4] w = {1, 2, 3, 4}, float[4] v = {1, 2, 3, 4}>
        { a = Mul (x, w)  b = f.unused (a)  y = Mul (x, v) }
        <domain: "f", opset_import: ["" : 17]>
        unused (v) => (w) { w = Relu (v) }"""
    )
    assert apply("DeadCodeElimination", model)
    assert shape_of(model) == ["y = Mul(x, v)", "return y"]
    assert list(model.graph.initializers) == ["v"]
    assert not model.functions


def test_dead_nodes_of_functions_go_unless_the_function_is_to_be_skipped():
    text = """g (float[1,4] x) => (float[1,4] y) { y = f.half (x) }
    <domain: "f", opset_import: ["" : 17]>
    half (v) => (w) { a = Neg (v)  w = Relu (v) }"""
    check(
        "DeadCodeElimination",
        text,
        ["y = half(x)", "return y", "half:", "w = Relu(v)", "return w"],
    )
    model = model_of(text)
    next(iter(model.functions.values())).metadata_props[SKIP_KEY] = "1"
    assert not apply("DeadCodeElimination", model)


def test_dropping_an_unread_result_is_a_change_too():
    model = model_of(
        """g (float[1,1,4,4] x) => (float[1,1,2,2] y) {
          y, index = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }"""
    )
    assert apply("DeadCodeElimination", model)
    assert shape_of(model) == ["y = MaxPool(x)", "return y"]


def test_inputs_nobody_reads_stay():
    model = model_of("g (float[1,4] x, float[1,4] z) => (float[1,4] y) { y = Relu (x) }")
    assert not apply("DeadCodeElimination", model)
    assert [value.name for value in model.graph.inputs] == ["x", "z"]


# InferType


def test_types_and_shapes_follow_from_those_of_the_inputs():
    model = model_of(
        """g (float[1,2,8,8] x) => (float[1,2,4,4] y) {
          c = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)  s = Shape (c)
          r = Reshape (c, s)  p = Relu (r)  y = Neg (p) }"""
    )
    assert apply("InferType", model)
    found = {v.name: (v.dtype, v.shape) for node in model.graph for v in node.outputs}
    assert found["c"] == (ir.DataType.FLOAT, ir.Shape([1, 2, 4, 4]))
    assert found["s"] == (ir.DataType.INT64, ir.Shape([4]))
    assert found["p"] == (ir.DataType.FLOAT, ir.Shape([1, 2, 4, 4]))


def test_constants_stay_in_their_order_large_ones_too():
    model = model_of(
        """g (float[1,600] x) => (float[1,600] y)
        { a = Mul (x, x)  y = Neg (a) }"""
    )
    for name, size in (("large", 600), ("small", 1), ("middle", 300)):
        data = ir.tensor(np.zeros(size, np.float32), name=name)
        model.graph.register_initializer(ir.Value(name=name, const_value=data))
    assert apply("InferType", model)
    assert list(model.graph.initializers) == ["large", "small", "middle"]
