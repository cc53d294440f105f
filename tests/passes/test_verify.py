"""Well-formedness after each pass, and who is blamed when it is lost."""

import numpy as np
import onnx_ir as ir
import pytest

from opu_fuse.errors import InternalError
from opu_fuse.passes import PassContext, Sequential, VerifyIR, module_pass
from opu_fuse.passes.verification import first_undefined
from tests.passes.recorder import model_of, recording

TEXT = """
g (float[1,4] x, bool c) => (float[1,4] y)
<float[4] w = {1, 2, 3, 4}>
{
  [first] a = Relu (x)
  [second] b = f.shift (a)
  [third] m = Mul (b, w)
  [choose] y = If (c) <
    then_branch = yes () => (float[1,4] t) { [inner] t = Neg (m) },
    else_branch = no () => (float[1,4] e) { e = Abs (a) }
  >
}
<domain: "f", opset_import: ["" : 17]>
shift (v) => (w) { [in_function] w = Relu (v) }
"""


@pytest.fixture
def model():
    return model_of(TEXT)


def node(model, name):
    functions = [f.graph for f in model.functions.values()]
    graphs = [model.graph, *functions]
    return next(n for graph in graphs for n in graph.all_nodes() if n.name == name)


def forget_producer(model):
    model.graph.remove(node(model, "first"))


def swap_nodes(model):
    first, third = node(model, "first"), node(model, "third")
    model.graph.remove(first)
    model.graph.insert_after(third, first)


def shadow(model):
    node(model, "third").replace_input_with(0, ir.Value(name="b"))


def name_twice(model):
    node(model, "second").outputs[0].name = "a"


def lose_constant(model):
    del model.graph.initializers["w"]


def lose_output(model):
    model.graph.outputs[0] = ir.Value(name="z")


def unname(model):
    node(model, "first").outputs[0].name = ""


def break_branch(model):
    node(model, "inner").replace_input_with(0, ir.Value(name="gone"))


def break_function(model):
    node(model, "in_function").replace_input_with(0, model.graph.inputs[0])


def unknown_operator(model):
    node(model, "first").op_type = "Rilu"


UNDEFINED = {
    forget_producer: "node 'second' (shift) reads 'a', which nothing defines",
    swap_nodes: "node 'second' (shift) reads 'a', which node 'first' (Relu) defines later or",
    shadow: "node 'third' (Mul) reads another value than the 'b' that is defined",
    name_twice: "value 'a' of node 'second' (shift) is defined twice",
    lose_constant: "node 'third' (Mul) reads 'w', which nothing defines",
    lose_output: "the graph returns 'z', which nothing defines",
    unname: "a value of node 'first' (Relu) has no name",
    break_branch: "node 'inner' (Neg) reads 'gone', which nothing defines in node 'choose' (If)",
    break_function: "node 'in_function' (Relu) reads 'x', which nothing defines in function f::sh",
}


def test_a_valid_model_with_functions_and_branches_is_found_valid(model):
    assert first_undefined(model) is None
    with PassContext(instruments=[VerifyIR()]):
        recording("p", [])(model)


@pytest.mark.parametrize("damage", UNDEFINED, ids=lambda damage: damage.__name__)
def test_every_value_must_be_defined_where_it_is_read(model, damage):
    damage(model)
    assert (first_undefined(model) or "").startswith(UNDEFINED[damage])


def breaking(damage):
    return module_pass(name="Breaks")(lambda model, _: damage(model) or (model, True))


@pytest.mark.parametrize("damage", [*UNDEFINED, unknown_operator], ids=lambda d: d.__name__)
def test_the_pass_that_broke_the_model_is_named_with_those_before_it(model, damage):
    passes = [recording("p", []), recording("q", []), breaking(damage), recording("r", log := [])]
    with (
        PassContext(instruments=[VerifyIR()]),
        pytest.raises(InternalError) as caught,
    ):
        Sequential(passes)(model)
    assert caught.value.stage == "pass Breaks"
    what = caught.value.what
    assert what.startswith("it left an invalid model (passes that ran before: p, q): ")
    assert UNDEFINED.get(damage, "Rilu") in what
    assert log == []


def test_the_first_pass_is_not_blamed_for_the_model_it_was_given(model):
    forget_producer(model)
    with (
        PassContext(instruments=[VerifyIR()]),
        pytest.raises(InternalError, match="the model is invalid before p, the first pass: node"),
    ):
        recording("p", [])(model)


def test_checking_leaves_the_model_as_it_is(model):
    large = ir.tensor(np.zeros(600, np.float32), name="a_large")
    model.graph.register_initializer(ir.Value(name="a_large", const_value=large))
    model.graph.initializers.add(model.graph.initializers.pop("w"))
    inputs = list(model.graph.inputs)
    with PassContext(config={"passes.check_word": True}, instruments=[VerifyIR()]):
        recording("p", [])(model)
        recording("q", [])(model)
    assert list(model.graph.inputs) == inputs
    assert list(model.graph.initializers) == ["a_large", "w"]


def test_a_context_entered_again_begins_with_an_empty_history(model):
    verify = VerifyIR()
    with PassContext(instruments=[verify]):
        recording("p", [])(model)
    with (
        PassContext(instruments=[verify]),
        pytest.raises(InternalError, match=r"passes that ran before: none\)"),
    ):
        breaking(forget_producer)(model)
