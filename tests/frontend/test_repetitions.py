"""Networks repeat themselves: however often, the canonical form comes to rest in its few rounds.

A step that goes one operator further in each round would not. The `canonical` fixture compares the
outputs of both graphs.
"""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

Text = Callable[..., onnx.ModelProto]
Canonical = Callable[[onnx.ModelProto], ir.Model]

FIRST, LAST = "Transpose <perm = [0, 3, 1, 2]>", "Transpose <perm = [0, 2, 3, 1]>"
STEPS = {
    "halve": "{o} = Mul ({i}, half)",
    "curve": "{o} = Erf ({i})",
    "flip": "{o} = Transpose <perm = [0, 1, 3, 2]> ({i})",
    "channels last": f"{{i}}a = {LAST} ({{i}}) {{i}}b = Relu ({{i}}a) {{o}} = {FIRST} ({{i}}b)",
    "pad last": f"{{i}}a = {LAST} ({{i}}) {{i}}b = Pad ({{i}}a, row) {{o}} = {FIRST} ({{i}}b)",
    "flat": "{i}a = Flatten ({i}) {i}b = Relu ({i}a) {o} = Reshape ({i}b, small)",
    "gate": "{i}a = GlobalMaxPool ({i}) {i}b = Sigmoid ({i}a) {o} = Mul ({i}, {i}b)",
    "halves": "{i}a, {i}b = Split <axis = 1> ({i}) {o} = Concat <axis = 1> ({i}b, {i}a)",
    "window": "{o} = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> ({i})",
    "again": "{i}a = Relu ({i}) {o} = Add ({i}, {i}a)",
}
MOTIFS = [
    ("halve", "curve"),
    ("flip", "halve"),
    ("flip", "window"),
    ("channels last", "halves"),
    ("pad last", "flip"),
    ("flip", "pad last", "halve"),
    ("flat", "gate"),
    ("flat", "again"),
    ("channels last", "gate", "flip"),
    ("halves", "again", "flip", "curve"),
]
CONSTANTS = {
    "half": np.float32(0.5),
    "row": np.array((0, 1, 0, 0, 0, 0, 0, 0), np.int64),
    "small": np.array((1, 2, 3, 3), np.int64),
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("motif", MOTIFS, ids=" ".join)
def test_the_canonical_form_comes_to_rest(
    motif: tuple[str, ...], turned: bool, onnx_text: Text, canonical: Canonical
):
    steps = [STEPS[name] for name in motif] * 10
    body = [step.format(i=f"v{i}", o=f"v{i + 1}") for i, step in enumerate(steps)]
    body.insert(0, f"v0 = {FIRST} (x)" if turned else "v0 = Relu (x)")
    size = "1, 3, 3, 2" if turned else "1, 2, 3, 3"
    nodes = " ".join(body) + f" y = Relu (v{len(steps)})"
    used = {name: value for name, value in CONSTANTS.items() if f", {name})" in nodes}
    canonical(onnx_text(f"g (float[{size}] x) => (float[A, B, C, D] y) {{ {nodes} }}", **used))


def test_a_vector_moves_behind_however_many_operators(onnx_text: Text, canonical: Canonical):
    halved = " ".join(f"v{i + 1} = Mul (v{i}, s)" for i in range(20))
    model = onnx_text(
        "g (float[1,1,1,33] x) => (float[1,33,1,1] y) "
        f"{{ v0 = {FIRST} (x) {halved} y = Erf (v20) }}",
        s=np.float32(0.75),
    )
    assert [node.op_type for node in canonical(model).graph] == ["Mul"] * 20 + ["Erf", "Reshape"]


def test_a_vector_that_is_turned_again_and_again_stays(onnx_text: Text, canonical: Canonical):
    turned = "a{i} = Transpose <perm = [0, 1, 3, 2]> (v{i}) v{o} = Relu (a{i})"
    nodes = " ".join(turned.format(i=i, o=i + 1) for i in range(20))
    model = onnx_text(f"g (float[1,1,1,33] v0) => (float[1,1,1,33] v20) {{ {nodes} }}")
    assert {node.op_type for node in canonical(model).graph} == {"Relu"}
