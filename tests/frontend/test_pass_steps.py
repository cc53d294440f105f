"""Steps of the front end as passes: seen, timed, named, and never left out."""

import onnx
import pytest

from opu_fuse import zoo
from opu_fuse.errors import UserError
from opu_fuse.frontend.pass_steps import NAMES
from opu_fuse.frontend.prepare import ALL_PASSES, prepare
from opu_fuse.passes import EVERY, PassContext, PassOptions, pass_context, registered

CANONICAL = ["optional", "canonical form", "names"]
INTEGER = ["absorb", *CANONICAL, "rounding", *CANONICAL]
INNER = {"FoldConstant", "DeadCodeElimination", *(p.name for p in ALL_PASSES if not p.always)}
OLD = """
<ir_version: 7, opset_import: ["" : 11]>
g (float[1,2,4,4] x) => (float[1,2,4,4] y) { c = Dropout (x)  y = Relu (c) }
"""
FUNCTIONS = """
<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
g (float[1,2,4,4] x) => (float[1,2,4,4] y) { c = f.twice (x)  y = Relu (c) }
<domain: "f", opset_import: ["" : 17]>
twice (v) => (w) { w = Add (v, v) }
"""


class Recorder:
    """Names of passes in the order in which they began; operators of the last model behind each."""

    def __init__(self):
        self.began, self.before, self.after = [], {}, {}

    def run_before_pass(self, model, info):
        self.began.append(info.name)
        self.before[info.name] = [node.op_type for node in model.graph]

    def run_after_pass(self, model, info):
        self.after[info.name] = [node.op_type for node in model.graph]


def prepared(model, **options):
    """What was seen while a model was prepared, each pass verified."""
    with pass_context(PassOptions(verify=True), write=print) as context:
        seen = Recorder()
        context.override_instruments([*context.instruments, seen])
        prepare(model, **options)
    assert set(seen.began) <= {p.name for p in (*registered(), *ALL_PASSES)}
    steps = [name for name in seen.began if name not in INNER - set(CANONICAL)]
    return steps, seen


def test_a_float_network_takes_these_steps():
    steps, seen = prepared(zoo.build("tiny_residual"))
    assert steps == ["load", "constants", *CANONICAL, "quantise", *INTEGER]
    assert seen.before["load"] == []
    assert "Conv" in seen.after["load"]
    assert "QuantizeLinear" not in seen.before["quantise"]
    assert "QuantizeLinear" in seen.after["quantise"]
    assert "QuantizeLinear" not in seen.after["absorb"]


def test_a_quantised_network_takes_these_steps():
    qdq = prepare(zoo.build("tiny_residual")).qdq
    steps = ["load", "constants", "requantise", "between", "unbake", *INTEGER]
    assert prepared(qdq)[0] == steps
    assert prepared(qdq, quantised=False)[0] == steps


def test_functions_are_a_step():
    steps, seen = prepared(onnx.parser.parse_model(FUNCTIONS), quantised=False)
    assert steps == ["load", "inline", "constants", *CANONICAL]
    assert seen.before["inline"] == ["twice", "Relu"]
    assert seen.after["inline"] == ["Add", "Relu"]


def test_an_old_operator_set_is_a_step():
    shown = []
    options = PassOptions(print_before=("upgrade",), print_after=("upgrade",), verify=True)
    with pass_context(options, write=shown.append, more=ALL_PASSES):
        prepare(onnx.parser.parse_model(OLD), quantised=False)
    assert ['"" : 11' in shown[0], '"" : 17' in shown[1]] == [True, True]


def test_no_instrument_leaves_a_step_out():
    class Never:
        def should_run(self, *_):
            return False

    with PassContext(instruments=[Never()]):
        assert prepare(zoo.build("tiny_residual")).qdq is not None


@pytest.mark.parametrize("name", [*NAMES, "canonical form"])
def test_a_step_cannot_be_disabled(name):
    with pytest.raises(UserError) as caught:
        pass_context(PassOptions(disable=(name,)), write=print, more=ALL_PASSES)
    assert str(caught.value) == (
        f"--disable-pass {name}: nothing compiles without it; see it with --print-ir-before and "
        "--print-ir-after, or leave out another pass"
    )


def test_all_steps_can_be_shown():
    options = PassOptions(print_before=NAMES, print_after=(*NAMES, EVERY))
    assert pass_context(options, write=print, more=ALL_PASSES).instruments


def test_the_optional_transforms_are_left_out_together():
    options = PassOptions(disable=("optional",))
    with pass_context(options, write=print, more=ALL_PASSES) as context:
        seen = Recorder()
        context.override_instruments([seen])
        prepare(zoo.build("tiny_residual"), quantised=False)
    assert not {"optional", "FoldConstant", "DeadCodeElimination"} & set(seen.began)
    assert "canonical form" in seen.began
