"""What is chosen from Python is checked as on the command line, before anything is computed."""

from typing import Any

import numpy as np
import onnx
import pytest

import opu_fuse
from opu_fuse.errors import RunError, UserError
from opu_fuse.passes import PassOptions, module_pass, register
from opu_fuse.pipeline import Options
from tests.passes.conftest import own_registry  # noqa: F401  a fixture

NET = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
net (float[1,4,6,6] image) => (float[1,4,2,2] y) {
    a = Relu(image)  y = MaxPool<kernel_shape=[3,3], strides=[3,3]>(a)
}""")


@pytest.fixture(scope="module")
def program() -> opu_fuse.Program:
    return opu_fuse.compile(NET, "opu-tiny")


def test_a_machine_may_be_given_by_name(program):
    assert program.hw == opu_fuse.load_hw("opu-tiny")
    assert opu_fuse.partition(NET, "opu-tiny") == opu_fuse.partition(NET, program.hw)
    found = opu_fuse.accuracy(NET, "opu-tiny", remedies=False)
    assert found.machine == "opu-tiny"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "magic"}, "strategy 'magic': there is no such choice; use one of none, gre"),
        ({"scales": "exact"}, "scales 'exact': there is no such choice; use one of pow2, "),
        ({"calibration_method": "x"}, "calibration method 'x': there is no such choice; use one"),
        ({"cascades": "x"}, "cascades 'x': there is no such choice; use one of auto, always, ne"),
        ({"keep_float": "conv1"}, "keep_float='conv1': is a text, not a tuple of names; write kee"),
        ({"print_after": "plan"}, "print_after='plan': is a text, not a tuple of names; write pri"),
    ],
)
def test_an_option_that_is_none_is_refused_before_the_work(options, message):
    with pytest.raises(UserError) as caught:
        Options(**options)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("option", ["disable", "require", "print_before", "print_after"])
def test_a_text_is_not_several_passes(option):
    text = (
        rf"^{option}='canonical': is a text, not a tuple of names; write {option}=\('canonical',\)$"
    )
    given: dict[str, Any] = {option: "canonical"}
    with pytest.raises(UserError, match=text):
        PassOptions(**given)


def test_an_engine_that_does_not_exist_is_refused(program):
    text = "^engine 'foo': there is no such choice; use one of functional, cycle, rtl$"
    with pytest.raises(UserError, match=text):
        program.run(engine="foo")


def test_inputs_that_are_no_dictionary_are_refused(program):
    with pytest.raises(RunError) as caught:
        program.run(np.zeros((1, 4, 6, 6), np.float32))
    assert str(caught.value) == (
        "inputs: are ndarray, not arrays by name; give a dictionary; "
        "the model has: image float32[1, 4, 6, 6]"
    )


def test_no_inputs_are_not_noise(program):
    with pytest.raises(RunError, match="input image: is missing; the model has: image float32"):
        program.run({})
    assert program.run().samples == 1


def _relu_pass(name):
    return register(module_pass(name=name)(lambda _model, _context: False))


@pytest.mark.usefixtures("own_registry")
def test_a_required_pass_that_compiling_does_not_run_is_refused():
    _relu_pass("MyPass")
    text = "^require MyPass: compiling did not run this pass; run it on the model yourself, and co"
    with pytest.raises(UserError, match=text):
        opu_fuse.compile(NET, "opu-tiny", passes=PassOptions(require=("MyPass",)))


def test_a_required_pass_that_runs_is_not_refused_unless_it_is_disabled():
    required = ("EliminateCommonSubexpr",)  # of a level above that of compiling
    assert opu_fuse.compile(NET, "opu-tiny", passes=PassOptions(require=required))
    both = PassOptions(require=required, disable=required)
    with pytest.raises(UserError, match="compiling did not run this pass; it is disabled, too"):
        opu_fuse.compile(NET, "opu-tiny", passes=both)
