"""What is chosen from Python is checked as on the command line, before anything is computed."""

import re
import sys
from typing import Any

import numpy as np
import onnx
import pytest

import opu_fuse
from opu_fuse.cli.main import main
from opu_fuse.errors import RunError, UserError
from opu_fuse.passes import PassOptions, module_pass, register
from opu_fuse.pipeline import Options
from tests.passes.conftest import own_registry  # noqa: F401  a fixture

NET = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
net (float[1,4,6,6] image) => (float[1,4,2,2] y) {
    a = Relu(image)  y = MaxPool<kernel_shape=[3,3], strides=[3,3]>(a)
}""")


TWO = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
two (float[1,4,6,6] a, float[1,4,6,6] b) => (float[1,4,6,6] y) { y = Add(a, b) }""")
IMAGE = np.zeros((1, 4, 6, 6), np.float32)


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
    text = "^engine 'foo': there is no such choice; use one of functional, native, cycle, rtl$"
    with pytest.raises(UserError, match=text):
        program.run(engine="foo")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "inputs: is int, not an array or arrays by name; give a dictionary of arrays: 'image'"),
        ("x.npy", "inputs: is str, not an array or arrays by name; give a dictionary of arrays"),
        ([], "inputs: holds nothing, not arrays; give numpy arrays, one a sample"),
        ([np.zeros(2), np.zeros(())], "inputs: holds arrays of shapes [2], []; give all in the i"),
        ([IMAGE, "x"], "inputs: holds str, not arrays; give numpy arrays, one a sample"),
        ([IMAGE, IMAGE[..., :3]], "inputs: holds arrays of shapes [1, 4, 6, 3], [1, 4, 6, 6]; g"),
        (IMAGE[0], "input image: has shape [4, 6, 6], expected [1, 4, 6, 6]; give [N, 4, 6, 6]"),
        ([IMAGE.T], "input image: has shape [6, 6, 4, 1], expected [1, 4, 6, 6]; give [N, 4, 6"),
        ({"picture": IMAGE}, "input picture: is no input of the model; it has: image float32[1,"),
    ],
)
def test_inputs_in_no_form_that_fits_are_refused(program, given, message):
    with pytest.raises(RunError) as caught:
        program.run(given)
    assert str(caught.value).startswith(message)


def test_one_input_needs_no_name(program, rng):
    images = rng.normal(size=(3, 4, 6, 6)).astype(np.float32)
    wanted = program.run({"image": images}, capture=True)
    for given in (images, [*images], [*images[:, None]], (images[:1], images[1:])):
        found = program.run(given, capture=True)
        np.testing.assert_array_equal(found.outputs["y"], wanted.outputs["y"])
        assert program.check(given, found) == program.check({"image": images}, wanted)


def test_an_array_without_a_name_feeds_no_two_inputs():
    program = opu_fuse.compile(TWO, "opu-tiny")
    for given, what in ((IMAGE, "one array"), ([IMAGE, IMAGE], "a list of arrays")):
        text = rf"^inputs: {what} cannot feed 2 inputs; give a dictionary of arrays: 'a', 'b'$"
        with pytest.raises(RunError, match=text):
            program.run(given)


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        ("cycle", {"inputs": IMAGE}, "the cycle engine has no data: `memory` is its only option"),
        ("cycle", {"shuffle": 1}, "the cycle engine has no data: `memory` is its only option"),
        ("functional", {"memory": opu_fuse.MemoryOptions()}, "memory belongs to the cycle engine"),
        ("functional", {"rtl": opu_fuse.RtlOptions()}, "rtl belongs to the RTL engine; leave out"),
        ("rtl", {"shuffle": 1}, "shuffle belongs to the functional engine; leave out shuffle"),
        ("rtl", {"memory": opu_fuse.MemoryOptions()}, "memory belongs to the cycle engine; the R"),
    ],
)
def test_an_option_of_another_engine_is_refused(program, engine, options, message):
    with pytest.raises(RunError) as caught:
        program.run(engine=engine, **options)
    assert str(caught.value).startswith(f"engine={engine}: {message}")


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


UNKNOWN_SIZE = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
net (float[1,4,side,side] image) => (float[1,4,side,side] y) { y = Relu(image) }""")


@pytest.mark.parametrize(
    ("model", "options", "python", "command"),
    [
        (NET, {"batch": 10**6}, "batch=1000000: ", "--batch 1000000: "),
        (
            UNKNOWN_SIZE,
            {},
            "with dims={'side': …} or shapes={'image': (1,4,",
            "with --dim side=… or",
        ),
        (NET, {"equalisation": True}, "pass calibration", "pass --calibration"),
    ],
)
def test_messages_call_options_as_the_caller_does(
    monkeypatch, capsys, tmp_path, model, options, python, command
):
    with pytest.raises(UserError) as caught:
        opu_fuse.compile(model, "opu-tiny", **options)
    assert python in str(caught.value)
    assert "--" not in str(caught.value)
    onnx.save(model, tmp_path / "net.onnx")
    paths = str(tmp_path / "net.onnx"), "-o", str(tmp_path / "net.opu")
    words = ["compile", *paths, "--hw", "opu-tiny"]
    for name, value in options.items():
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    monkeypatch.setattr(sys, "argv", ["opu-fuse", *words])
    with pytest.raises(SystemExit):
        main()
    assert command in capsys.readouterr().err
    with pytest.raises(UserError, match=re.escape(python)):  # the command has left no trace
        opu_fuse.compile(model, "opu-tiny", **options)
