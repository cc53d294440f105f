"""Single passes: how they are made, what they may return, and that their word is checked."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir.passes import PassBase, PassManager, PassResult
from onnx_ir.passes.common import IdentityEliminationPass, RemoveUnusedNodesPass

from opu_fuse.errors import InternalError
from opu_fuse.passes import (
    SKIP_KEY,
    FunctionPass,
    ModulePass,
    Pass,
    PassClass,
    PassContext,
    PassInfo,
    Sequential,
    from_library,
    function_pass,
    module_pass,
)
from opu_fuse.quant import META_KEY, QuantParams
from tests.passes.recorder import Recorder, model_of

CALLS = """
g (float[1,4] x) => (float[1,4] y) {
  a = f.once (x)
  b = f.twice (a)
  y = Neg (b)
}
<domain: "f", opset_import: ["" : 17]>
once (x) => (y) { y = Relu (x) }
<domain: "f", opset_import: ["" : 17]>
twice (x) => (y) { t = Relu (x) y = Relu (t) }
"""


def rename_first(model, name="renamed"):
    next(iter(model.graph)).name = name


# Decorators


def test_a_function_becomes_a_module_pass(model):
    @module_pass(opt_level=2, name="Rename", required=["InferType"])
    def rename(model, context):
        assert context is PassContext.current()
        rename_first(model)
        return model, True

    assert isinstance(rename, ModulePass)
    assert rename.info == PassInfo(name="Rename", opt_level=2, required=("InferType",))
    result = rename(model)
    assert (result.model, result.modified) == (model, True)
    assert next(iter(model.graph)).name == "renamed"


def test_a_decorator_without_arguments_takes_the_name_and_level_zero(model):
    @module_pass
    def rename(model, _):
        return False

    @function_pass
    def touch(function, model, _):
        return False

    assert rename.info == PassInfo(name="rename", opt_level=0)
    assert touch.info == PassInfo(name="touch", opt_level=0)
    assert not Sequential([rename, touch])(model).modified


def test_a_class_becomes_a_pass_with_options(model):
    @module_pass(opt_level=1)
    @dataclass(frozen=True)
    class Rename:
        """Gives the first node another name."""

        name: str

        def transform_module(self, model, _):
            rename_first(model, self.name)
            return model, True

    assert isinstance(Rename, PassClass)
    assert Rename.__doc__ == "Gives the first node another name."
    made = Rename(name="one")
    assert isinstance(made, ModulePass)
    assert made.info == Rename.info == PassInfo(name="Rename", opt_level=1)
    assert vars(made.options) == {"name": "one"}
    made(model)
    assert next(iter(model.graph)).name == "one"


def test_a_class_with_transform_function_becomes_a_function_pass():
    @function_pass(name="Count")
    class Counter:
        def __init__(self):
            self.seen = []

        def transform_function(self, function, *_):
            self.seen.append((function.name, len(function)))
            return False

    counter = Counter()
    assert isinstance(counter, FunctionPass)
    counter(model_of(CALLS))
    assert vars(counter.options)["seen"] == [("once", 1), ("twice", 2), ("g", 3)]


@pytest.mark.parametrize(
    ("decorator", "method"),
    [(module_pass, "transform_module"), (function_pass, "transform_function")],
)
def test_a_class_without_the_method_is_refused_at_once(decorator, method):
    with pytest.raises(TypeError, match=f"class Empty has no method {method}"):

        @decorator(opt_level=1)
        class Empty:
            pass


# Function passes


def test_function_passes_see_the_main_graph_as_a_function():
    model = model_of(CALLS)
    mains = []

    @function_pass
    def look(function, model, _):
        assert isinstance(function, ir.Function)
        mains.append(function.graph is model.graph)
        return function, False

    look(model)
    assert mains == [False, False, True]


@pytest.mark.parametrize("skipped", ["once", "twice", "g"])
def test_functions_marked_to_be_skipped_are_passed_over(skipped):
    model = model_of(CALLS)
    graphs = {"g": model.graph} | {f.name: f for f in model.functions.values()}
    graphs[skipped].metadata_props[SKIP_KEY] = ""
    seen = []

    @function_pass
    def look(function, model, _):
        seen.append(function.name)
        return True

    assert look(model).modified
    assert seen == [name for name in ("once", "twice", "g") if name != skipped]


def test_a_function_pass_changed_something_if_any_function_changed():
    @function_pass
    def only_once(function, model, _):
        return function, function.name == "once"

    assert only_once(model_of(CALLS)).modified
    assert not only_once(model_of(CALLS.replace("once", "thrice"))).modified


def test_a_function_pass_may_return_another_function():
    model, other = model_of(CALLS), model_of(CALLS.replace("Neg", "Abs"))

    @function_pass
    def swap(function, model, _):
        if function.graph is model.graph:
            return ir.Function("", "g", graph=other.graph, attributes=()), True
        return other.functions[function.identifier()], True

    swap(model)
    assert [node.op_type for node in model.graph] == ["once", "twice", "Abs"]
    assert model.functions == other.functions


def test_a_function_pass_may_not_rename_a_function():
    @function_pass(name="Rename")
    def rename(function, model, _):
        return ir.Function("f", "other", graph=function.graph, attributes=()), True

    with pytest.raises(InternalError, match=r"pass Rename: .* returned \('f', 'other', ''\) for"):
        rename(model_of(CALLS))


# What passes return


def test_module_passes_may_return_a_result_a_pair_or_a_truth_value(model):
    for outcome in (PassResult(model, True), (model, True), True):
        result = module_pass(lambda _, __, outcome=outcome: outcome)(model)
        assert (result.model, result.modified) == (model, True)


@pytest.mark.parametrize("outcome", [None, "model", "pair", 1], ids=str)
def test_a_pass_must_say_whether_it_changed_anything(model, outcome):
    returned = {"model": model, "pair": (model, None)}.get(outcome, outcome)
    forgetful = module_pass(name="Forgetful")(lambda _, __: returned)
    message = f"pass Forgetful: returned {type(returned).__name__}, not .model, changed.,"
    with pytest.raises(InternalError, match=message):
        forgetful(model)


def test_a_function_pass_must_say_whether_it_changed_anything(model):
    returned: Any = None  # which the annotations do not allow
    with pytest.raises(InternalError, match=r"returned NoneType, not \(function, changed\)"):
        function_pass(lambda _, __, ___: returned)(model)


# Verify mode: is the word true?

CHECKING = {"passes.check_word": True}


def quantise_output(model):
    model.graph.outputs[0].meta[META_KEY] = QuantParams(scale=(0.5,))


def change_a_weight(model):
    data = model.graph.initializers["w"].const_value.numpy()
    data += 1


def add_an_attribute(model):
    next(iter(model.graph)).attributes.add(ir.AttrInt64("axis", 1))


CHANGES = {
    "a node is renamed": rename_first,
    "a node goes": lambda m: m.graph.remove(next(iter(m.graph.outputs)).producer()),
    "an operand changes": lambda m: (
        m.graph.outputs[0].producer().replace_input_with(0, m.graph.inputs[0])
    ),
    "an attribute comes": add_an_attribute,
    "a value in a function is renamed": lambda m: setattr(
        next(iter(m.functions.values())).inputs[0], "name", "z"
    ),
    "a shape is found": lambda m: setattr(
        next(iter(m.graph)).outputs[0], "shape", ir.Shape([1, 4])
    ),
    "a weight changes in place": change_a_weight,
    "an annotation comes": quantise_output,
    "an origin changes": lambda m: next(iter(m.graph)).metadata_props.update({"k": "v"}),
    "the opset changes": lambda m: m.graph.opset_imports.update({"": 18}),
}
WEIGHTED = """
g (float[1,4] x) => (float[1,4] y) {
  a = f.once (x)
  y = Mul (a, a)
}
<domain: "f", opset_import: ["" : 17]>
once (x) => (y) { y = Relu (x) }
"""


def weighted_model():
    model = model_of(WEIGHTED)
    weights = ir.tensor(np.arange(4, dtype=np.float32), name="w")
    model.graph.register_initializer(ir.Value(name="w", const_value=weights))
    return model


@pytest.mark.parametrize("change", CHANGES)
def test_a_pass_that_hides_a_change_is_caught_in_verify_mode(change):
    @module_pass(name="Liar")
    def liar(model, _):
        CHANGES[change](model)
        return model, False

    liar(weighted_model())  # trusted otherwise
    with (
        PassContext(config=CHECKING),
        pytest.raises(InternalError, match="pass Liar: says that it changed nothing, but"),
    ):
        liar(weighted_model())


@pytest.mark.parametrize("change", CHANGES)
def test_a_pass_that_admits_its_change_passes_verify_mode(change):
    @module_pass
    def honest(model, _):
        CHANGES[change](model)
        return model, True

    with PassContext(config=CHECKING):
        assert honest(weighted_model()).modified


def test_a_pass_that_boasts_is_caught_in_verify_mode(model):
    boaster = module_pass(name="Boaster")(lambda model, _: (model, True))
    assert boaster(model).modified
    with (
        PassContext(config=CHECKING),
        pytest.raises(InternalError, match="pass Boaster: says that it changed the model, which"),
    ):
        boaster(model)


def test_a_pass_that_is_not_in_place_must_leave_its_input_alone(model):
    @module_pass(name="Sloppy", in_place=False)
    def sloppy(model, _):
        copy = model.clone()
        rename_first(model)
        return copy, True

    with (
        PassContext(config=CHECKING),
        pytest.raises(InternalError, match="pass Sloppy: is not in place, but it changed"),
    ):
        sloppy(model)


def test_a_sequence_that_undoes_its_own_change_is_no_lie(model):
    def rename(name):
        return module_pass(lambda model, _: rename_first(model, name) or (model, True))

    with PassContext(config=CHECKING):
        assert Sequential([rename("other"), rename("first")])(model).modified


# The library's passes


IDENTITIES = """
g (float[1,4] x) => (float[1,4] y) {
  a = Identity (x)
  b = Relu (x)
  y = Neg (a)
}
"""


def operators(model):
    return [node.op_type for node in model.graph]


def test_a_library_pass_runs_as_one_of_ours():
    log, model = [], model_of(IDENTITIES)
    wrapped = from_library(IdentityEliminationPass(), name="NoIdentity", opt_level=1)
    with PassContext(instruments=[Recorder("i", log)]):
        result = Sequential([wrapped, RemoveUnusedNodesPass()])(model)
    assert result.modified
    assert operators(model) == ["Neg"]
    assert "i before NoIdentity" in log
    assert "i before RemoveUnusedNodesPass" in log


def test_our_passes_run_in_the_librarys_driver(model):
    @module_pass
    def once(model, _):
        changed = next(iter(model.graph)).name != "renamed"
        rename_first(model)
        return model, changed

    assert isinstance(once, PassBase)
    assert isinstance(once, Pass)
    assert PassManager([once, RemoveUnusedNodesPass()], steps=3)(model).modified
    assert not once(PassResult(model, True)).modified
