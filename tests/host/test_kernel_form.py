"""The JSON form of kernels: every bit survives, damage is refused with one line."""

import json

import numpy as np
import pytest
from hypothesis import given, settings

from opu_fuse.bundle.kernel_json import kernel_from_json, kernel_to_json
from opu_fuse.errors import InternalError, ProgramError
from opu_fuse.host.kernel import Kernel, literal, scalar
from tests.host.sketch import binary, generic, read, same_bits, write
from tests.host.test_random_chains import networks

ID2 = "(d0, d1) -> (d0, d1)"


def sample():
    op = generic(
        "scale:ü", "p4 p3",
        [read("x", (4, 3), ID2), read("w", (3,), "(d0, d1) -> (d1)")],
        [write("y", (4, 3), ID2)], binary("mul"),
    )  # fmt: skip
    return Kernel(op=op, constants={"w": np.array([1e-45, -0.0, np.nan], np.float32)})


@settings(max_examples=30)
@given(networks())
def test_a_kernel_survives_writing_and_reading(network):
    for op in network[0]:
        text = kernel_to_json(Kernel(op=op))
        assert kernel_from_json(text, "k") == Kernel(op=op)
        assert kernel_to_json(kernel_from_json(text, "k")) == text


def test_constants_keep_every_bit():
    found = kernel_from_json(kernel_to_json(sample()), "k")
    assert found.op == sample().op
    assert same_bits(found.constants["w"], sample().constants["w"])


@pytest.mark.parametrize("value", [0.1, -0.0, np.inf, -np.inf, 1e-45, 3.4e38, np.nan])
def test_literals_keep_every_bit(value):
    typed = np.float32(value)
    found = np.asarray(scalar(literal(typed), "float32"))
    assert same_bits(found, np.asarray(typed))


DAMAGE = [
    ("kernel_version", 2, "kernel of version 2, not 1"),
    ("loops", [["parallel", 0], ["parallel", 3]], "loop d0 has 0 iterations"),
    ("loops", [["parallel", 5], ["parallel", 3]], "is accessed at 0..4"),
    ("loops", [["diagonal", 4], ["parallel", 3]], "loops.0.0: Input should be"),
    ("body", [["mul", "float32", [0, 7], "", 0]], "mul takes 2 earlier values, got (0, 7)"),
    ("body", [["mul", "float32", [0], "", 0]], "mul takes 2 earlier values, got (0,)"),
    ("body", [["lt", "float32", [0, 1], "", 0]], "lt of ['float32', 'float32'] is no float32"),
    ("body", [["eval", "float32", [0, 1], "", 0]], "there is no 'eval'"),
    ("body", [["const", "float32", [], "one", 0]], "'one' is no float32"),
    ("yields", [9], "y: %9 is no float32"),
    ("yields", [2], "y is read, but starts from nothing"),
    ("yields", [3, 3], "2 values for 1 results"),
    ("extra", 1, "extra: "),
    ("constants", {"w": {"shape": [3], "dtype": "float32", "data": "AAAA"}}, "has 3 bytes"),
    ("constants", {"w": {"shape": [3], "dtype": "float32", "data": "?"}}, "base64"),
    ("constants", {"w": {"shape": [1], "dtype": "int8", "data": "AA=="}}, "int8[1], not float32"),
    ("constants", {"w": {"shape": [1], "dtype": "object", "data": "AA=="}}, "unknown dtype"),
]


@pytest.mark.parametrize(("key", "value", "message"), DAMAGE)
def test_damage_is_refused_with_one_line(key, value, message):
    tree = json.loads(kernel_to_json(sample()))
    tree[key] = value
    with pytest.raises(ProgramError) as caught:
        kernel_from_json(json.dumps(tree).encode(), "a.opu")
    text = str(caught.value)
    assert message.lower() in text.lower()
    assert text.startswith("a.opu: ")
    assert "\n" not in text


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("(d0, d1) -> (d1, d0)", "is accessed at 0..3"),
        ("(d0, d1) -> (d0, 0)", "is not written whole, once"),
        ("(d0, d1) -> (d0)", "does not fit its map"),
        ("(d0, d1) -> (d0, d1 + 1)", "is accessed at 1..3"),
        ("(d0, d1) -> (d0, d2)", "there is no loop d2"),
        ("(d0, d1) -> (d0, d1*2)", "cannot read"),
        ("d0 -> d0", "is not of the form"),
    ],
)
def test_maps_that_would_leave_the_tensor_are_refused(index, message):
    tree = json.loads(kernel_to_json(sample()))
    tree["results"][0]["map"] = index
    with pytest.raises(ProgramError, match=message.replace("(", r"\(")):
        kernel_from_json(json.dumps(tree).encode(), "a.opu")


def test_text_that_is_no_json_is_refused():
    with pytest.raises(ProgramError, match=r"a\.opu: the text: Invalid JSON"):
        kernel_from_json(b"\x00", "a.opu")


def test_a_kernel_with_a_wrong_constant_is_not_written():
    wrong = Kernel(op=sample().op, constants={"w": np.zeros(2, np.float32)})
    with pytest.raises(InternalError, match=r"constant w is float32\[2\], not float32"):
        kernel_to_json(wrong)
