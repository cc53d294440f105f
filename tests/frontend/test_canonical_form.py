"""Before and after, in text: what every operator looks like in canonical form.
The `canonical` fixture also runs both graphs and compares the outputs."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

Text = Callable[..., onnx.ModelProto]
Canonical = Callable[[onnx.ModelProto], ir.Model]
Print = Callable[[ir.Model], str]

RNG = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def graph(nodes: str, x: str = "1, 4, 9, 8", y: str = "A, B, C, D") -> str:
    return f"g (float[{x}] x) => (float[{y}] y) {{ {nodes} }}"


POOL = "kernel_shape=[3, 3] pads={pads} strides=[2, 2]"
CONV = "dilations={d} group=1 kernel_shape=[3, 3] pads={p} strides={s}"

CASES: dict[str, tuple[str, dict[str, np.ndarray], str]] = {
    "conv gets all its attributes": (
        graph("[c] y = Conv (x, w)"),
        {"w": normal(5, 4, 3, 3)},
        "c: Conv(x, const 5x4x3x3) -> y [1x5x7x6] "
        + CONV.format(d="[1, 1]", p="[0, 0, 0, 0]", s="[1, 1]"),
    ),
    "automatic padding, extra at the end": (
        graph('[c] y = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, w)'),
        {"w": normal(5, 4, 3, 3)},
        "c: Conv(x, const 5x4x3x3) -> y [1x5x5x4] "
        + CONV.format(d="[1, 1]", p="[1, 0, 1, 1]", s="[2, 2]"),
    ),
    "automatic padding, extra at the start": (
        graph('[c] y = Conv <auto_pad = "SAME_LOWER", strides = [2, 2]> (x, w)'),
        {"w": normal(5, 4, 3, 3)},
        "c: Conv(x, const 5x4x3x3) -> y [1x5x5x4] "
        + CONV.format(d="[1, 1]", p="[1, 1, 1, 0]", s="[2, 2]"),
    ),
    "one-dimensional convolution": (
        graph("[c] y = Conv <pads = [2, 1], strides = [2]> (x, w, b)", "1, 4, 9", "A, B, C"),
        {"w": normal(6, 4, 3), "b": normal(6)},
        (
            "c/wide: Reshape(x, [1, 4, 1, 9]) -> c/wide [1x4x1x9]\n"
            "c/conv: Conv(c/wide, const 6x4x1x3, const 6) -> c/conv [1x6x1x5] dilations=[1, 1] "
            "group=1 kernel_shape=[1, 3] pads=[0, 2, 0, 1] strides=[1, 2]\n"
            "c: Reshape(c/conv, [1, 6, 5]) -> y [1x6x5]"
        ),
    ),
    "batch norm, per-channel factor and offset go into the convolution": (
        graph(
            "[c] a = Conv (x, w) [n] b = BatchNormalization (a, s, t, t, v) [m] d = Mul (b, f) "
            "[p] y = Add (o, d)"
        ),
        {
            "w": normal(5, 4, 3, 3),
            "s": normal(5),
            "t": normal(5),
            "v": np.abs(normal(5)) + 0.5,
            "f": normal(5, 1, 1),
            "o": normal(1, 5, 1, 1),
        },
        "c: Conv(x, const 5x4x3x3, const 5) -> y [1x5x7x6] "
        + CONV.format(d="[1, 1]", p="[0, 0, 0, 0]", s="[1, 1]"),
    ),
    "batch norm elsewhere keeps a factor and an offset": (
        graph("[n] a = BatchNormalization (x, s, t, t, v) [r] y = Relu (a)"),
        {"s": normal(4), "t": normal(4), "v": np.abs(normal(4)) + 0.5},
        (
            "n: BatchNormalization(x, const 4, const 4, const 4, const 4) -> a [1x4x9x8] "
            "epsilon=0.0\nr: Relu(a) -> y [1x4x9x8]"
        ),
    ),
    "factor, offset and batch norm in a row become one": (
        graph(
            "[m] a = Mul (x, f) [p] b = Add (a, o) [n] d = BatchNormalization (b, s, t, t, v) "
            "[r] y = Relu (d)"
        ),
        {
            "f": normal(4, 1, 1),
            "o": normal(1, 4, 1, 1),
            "s": normal(4),
            "t": normal(4),
            "v": np.abs(normal(4)) + 0.5,
        },
        (
            "n: BatchNormalization(x, const 4, const 4, const 4, const 4) -> d [1x4x9x8] "
            "epsilon=0.0\nr: Relu(d) -> y [1x4x9x8]"
        ),
    ),
    "a product that others read stays": (
        graph("[m] a = Mul (x, f) [p] b = Add (a, o) [q] y = Add (a, b)"),
        {"f": normal(4, 1, 1), "o": normal(4, 1, 1)},
        (
            "m: Mul(x, const 4x1x1) -> a [1x4x9x8]\np: Add(a, const 4x1x1) -> b [1x4x9x8]\n"
            "q: Add(a, b) -> y [1x4x9x8]"
        ),
    ),
    "batch norm behind a transposed convolution": (
        graph(
            "[c] a = ConvTranspose <strides = [2, 2]> (x, w) "
            "[n] y = BatchNormalization (a, s, t, t, v)"
        ),
        {"w": normal(4, 5, 3, 3), "s": normal(5), "t": normal(5), "v": np.abs(normal(5)) + 0.5},
        (
            "c: ConvTranspose(x, const 4x5x3x3, const 5) -> y [1x5x19x17] dilations=[1, 1] group=1 "
            "kernel_shape=[3, 3] output_padding=[0, 0] pads=[0, 0, 0, 0] strides=[2, 2]"
        ),
    ),
    "batch norm behind a depthwise transposed convolution": (
        graph(
            "[c] a = ConvTranspose <group = 4> (x, w) [n] y = BatchNormalization (a, s, t, t, v)"
        ),
        {"w": normal(4, 1, 2, 2), "s": normal(4), "t": normal(4), "v": np.abs(normal(4)) + 0.5},
        (
            "c: ConvTranspose(x, const 4x1x2x2, const 4) -> y [1x4x10x9] dilations=[1, 1] group=4 "
            "kernel_shape=[2, 2] output_padding=[0, 0] pads=[0, 0, 0, 0] strides=[1, 1]"
        ),
    ),
    "automatic padding of a transposed convolution": (
        graph('[c] y = ConvTranspose <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, w)'),
        {"w": normal(4, 5, 3, 3)},
        (
            "c: ConvTranspose(x, const 4x5x3x3) -> y [1x5x18x16] dilations=[1, 1] group=1 "
            "kernel_shape=[3, 3] output_padding=[0, 0] pads=[0, 0, 1, 1] strides=[2, 2]"
        ),
    ),
    "a transposed convolution that names its result's size": (
        graph("[c] y = ConvTranspose <output_shape = [16, 17], strides = [2, 2]> (x, w)"),
        {"w": normal(4, 5, 3, 3)},
        (
            "c: ConvTranspose(x, const 4x5x3x3) -> y [1x5x16x17] dilations=[1, 1] group=1 "
            "kernel_shape=[3, 3] output_padding=[0, 0] pads=[2, 0, 1, 0] strides=[2, 2]"
        ),
    ),
    "an offset that varies inside a map is not folded": (
        graph("[c] a = Conv (x, w) [p] y = Add (a, o)"),
        {"w": normal(5, 4, 1, 1), "o": normal(5, 9, 8)},
        (
            "c: Conv(x, const 5x4x1x1) -> a [1x5x9x8] dilations=[1, 1] group=1 kernel_shape=[1, 1] "
            "pads=[0, 0, 0, 0] strides=[1, 1]\n"
            "p: Add(a, const 1x5x9x8) -> y [1x5x9x8]"
        ),
    ),
    "a convolution read twice keeps its batch norm outside": (
        graph("[c] a = Conv (x, w) [n] b = BatchNormalization (a, s, t, t, v) [p] y = Add (a, b)"),
        {"w": normal(4, 4, 1, 1), "s": normal(4), "t": normal(4), "v": np.abs(normal(4)) + 0.5},
        (
            "c: Conv(x, const 4x4x1x1) -> a [1x4x9x8] dilations=[1, 1] group=1 kernel_shape=[1, 1] "
            "pads=[0, 0, 0, 0] strides=[1, 1]\n"
            "n: BatchNormalization(a, const 4, const 4, const 4, const 4) -> b [1x4x9x8] "
            "epsilon=0.0\np: Add(a, b) -> y [1x4x9x8]"
        ),
    ),
    "matrix product and its offset": (
        graph("[f] a = Flatten (x) [m] b = MatMul (a, w) [p] y = Add (b, o)", "1, 4, 3, 2", "A, B"),
        {"w": normal(24, 7), "o": normal(7)},
        (
            "f: Reshape(x, [1, 24]) -> a [1x24]\n"
            "m: Gemm(a, const 7x24, const 7) -> y [1x7] alpha=1.0 beta=1.0 transA=0 transB=1"
        ),
    ),
    "gemm with factors": (
        graph("[g] y = Gemm <alpha = 0.5, beta = 2.0> (x, w, o)", "1, 24", "A, B"),
        {"w": normal(24, 7), "o": normal(1, 7)},
        "g: Gemm(x, const 7x24, const 7) -> y [1x7] alpha=1.0 beta=1.0 transA=0 transB=1",
    ),
    "matrix product of several rows": (
        graph("[m] y = MatMul (x, w)", "5, 24", "A, B"),
        {"w": normal(24, 7)},
        (
            "m/image: Reshape(x, [1, 1, 5, 24]) -> m/image [1x1x5x24]\n"
            "m/channels: Transpose(m/image) -> m/channels [1x24x1x5] perm=[0, 3, 1, 2]\n"
            "m: Conv(m/channels, const 7x24x1x1) -> y/Reshape/Transpose [1x7x1x5] dilations=[1, 1] "
            "group=1 kernel_shape=[1, 1] pads=[0, 0, 0, 0] strides=[1, 1]\n"
            "m/last: Transpose(y/Reshape/Transpose) -> y/Reshape [1x1x5x7] perm=[0, 2, 3, 1]\n"
            "m/rows: Reshape(y/Reshape, [5, 7]) -> y [5x7]"
        ),
    ),
    "chain of views": (
        graph(
            "[s] a = Squeeze (x, axes) [u] b = Unsqueeze (a, axes) [f] y = Flatten (b)",
            "1, 4, 1, 8",
            "A, B",
        ),
        {"axes": np.asarray([2], np.int64)},
        "f: Reshape(x, [1, 32]) -> y [1x32]",
    ),
    "views that cancel disappear": (
        graph(
            "[r] a = Relu (x) [s] b = Squeeze (a, axes) [u] c = Unsqueeze (b, axes) "
            "[q] y = Relu (c)",
            "1, 4, 1, 8",
        ),
        {"axes": np.asarray([2], np.int64)},
        "r: Relu(x) -> a [1x4x1x8]\nq: Relu(a) -> y [1x4x1x8]",
    ),
    "a transpose of single rows is a view": (
        graph("[t] y = Transpose <perm = [0, 2, 3, 1]> (x)", "1, 4, 1, 1"),
        {},
        "t: Reshape(x, [1, 1, 1, 4]) -> y [1x1x1x4]",
    ),
    "a true transpose stays": (
        graph("[t] y = Transpose <perm = [0, 2, 3, 1]> (x)"),
        {},
        "t: Transpose(x) -> y [1x9x8x4] perm=[0, 2, 3, 1]",
    ),
    "sum of three": (
        graph("[r] a = Relu (x) [c] b = Abs (x) [s] y = Sum (x, a, b)"),
        {},
        (
            "r: Relu(x) -> a [1x4x9x8]\nc: Abs(x) -> b [1x4x9x8]\n"
            "s/1: Add(x, a) -> s/1 [1x4x9x8]\ns: Add(s/1, b) -> y [1x4x9x8]"
        ),
    ),
    "differences and quotients by constants": (
        graph("[s] a = Sub (x, c) [d] y = Div (a, c)"),
        {"c": np.asarray(4.0, np.float32)},
        "s: Add(x, -4) -> a [1x4x9x8]\nd: Mul(a, 0.25) -> y [1x4x9x8]",
    ),
    "clip at zero only is a relu": (
        graph("[c] y = Clip (x, zero)"),
        {"zero": np.asarray(0.0, np.float32)},
        "c: Relu(x) -> y [1x4x9x8]",
    ),
    "clip with both limits stays": (
        graph("[c] y = Clip (x, zero, six)"),
        {"zero": np.asarray(0.0, np.float32), "six": np.asarray(6.0, np.float32)},
        "c: Clip(x, 0, 6) -> y [1x4x9x8]",
    ),
    "maximum with zero is a relu": (
        graph("[m] y = Max (zero, x)"),
        {"zero": np.asarray(0.0, np.float32)},
        "m: Relu(x) -> y [1x4x9x8]",
    ),
    "one slope for all channels": (
        graph("[p] y = PRelu (x, s)"),
        {"s": np.full((4, 1, 1), 0.125, np.float32)},
        "p: LeakyRelu(x) -> y [1x4x9x8] alpha=0.125",
    ),
    "pooling rounded up becomes larger padding": (
        graph("[p] y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (x)"),
        {},
        "p: MaxPool(x) -> y [1x4x4x4] dilations=[1, 1] " + POOL.format(pads="[0, 0, 0, 1]"),
    ),
    "a window that would start in the padding is dropped": (
        graph(
            "[p] a = MaxPool <kernel_shape = [2, 2], strides = [2, 2], pads = [1, 1, 1, 1],"
            " ceil_mode = 1> (x) [f] y = Flatten (a)",
            "1, 4, 7, 8",
            "A, B",
        ),
        {},
        (
            "p: MaxPool(x) -> a [1x4x4x5] dilations=[1, 1] kernel_shape=[2, 2] pads=[1, 1, 1, 1] "
            "strides=[2, 2]\n"
            "f: Reshape(a, [1, 80]) -> y [1x80]"
        ),
    ),
    "average rounded up, padding not counted": (
        graph("[p] y = AveragePool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (x)"),
        {},
        "p: AveragePool(x) -> y [1x4x4x4] count_include_pad=0 " + POOL.format(pads="[0, 0, 0, 1]"),
    ),
    "automatic padding of a pooling": (
        graph('[p] y = MaxPool <kernel_shape = [2, 2], auto_pad = "SAME_UPPER"> (x)'),
        {},
        (
            "p: MaxPool(x) -> y [1x4x9x8] dilations=[1, 1] kernel_shape=[2, 2] pads=[0, 0, 1, 1] "
            "strides=[1, 1]"
        ),
    ),
    "mean over rows and columns": (
        graph("[m] y = ReduceMean <axes = [-1, 2], keepdims = 0> (x)", y="A, B"),
        {},
        "m/pool: GlobalAveragePool(x) -> m/pool [1x4x1x1]\nm: Reshape(m/pool, [1, 4]) -> y [1x4]",
    ),
    "mean over rows and columns, dimensions kept": (
        graph("[m] y = ReduceMean <axes = [2, 3]> (x)"),
        {},
        "m: GlobalAveragePool(x) -> y [1x4x1x1]",
    ),
    "average over a window of the map's size": (
        graph("[m] y = AveragePool <kernel_shape = [9, 8]> (x)"),
        {},
        "m: GlobalAveragePool(x) -> y [1x4x1x1]",
    ),
    "mean over channels stays": (
        graph("[m] y = ReduceMean <axes = [1]> (x)"),
        {},
        "m: ReduceMean(x) -> y [1x1x9x8] axes=[1]",
    ),
    "maximum over the whole map": (
        graph("[m] y = GlobalMaxPool (x)"),
        {},
        (
            "m: MaxPool(x) -> y [1x4x1x1] dilations=[1, 1] kernel_shape=[9, 8] pads=[0, 0, 0, 0] "
            "strides=[1, 1]"
        ),
    ),
    "zeros before a convolution go into its padding": (
        graph("[p] a = Pad (x, pads) [c] y = Conv <pads = [1, 0, 1, 0]> (a, w)"),
        {"pads": np.asarray([0, 0, 1, 2, 0, 0, 0, 3], np.int64), "w": normal(5, 4, 3, 3)},
        "c: Conv(x, const 5x4x3x3) -> y [1x5x10x11] "
        + CONV.format(d="[1, 1]", p="[2, 2, 1, 3]", s="[1, 1]"),
    ),
    "other numbers before a convolution stay": (
        graph("[p] a = Pad (x, pads, one) [c] y = Conv (a, w)"),
        {
            "pads": np.asarray([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
            "one": np.asarray(1.0, np.float32),
            "w": normal(5, 4, 3, 3),
        },
        "p: Pad(x, [0, 0, 1, 1, 0, 0, 1, 1], 1) -> a [1x4x11x10]\n"
        "c: Conv(a, const 5x4x3x3) -> y [1x5x9x8] "
        + CONV.format(d="[1, 1]", p="[0, 0, 0, 0]", s="[1, 1]"),
    ),
    "zeros before a max pooling stay where values may be negative": (
        graph(
            "[p] a = Pad (x, pads) [m] y = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (a)"
        ),
        {"pads": np.asarray([0, 0, 1, 1, 0, 0, 1, 1], np.int64)},
        "p: Pad(x, [0, 0, 1, 1, 0, 0, 1, 1]) -> a [1x4x11x10]\n"
        "m: MaxPool(a) -> y [1x4x5x4] dilations=[1, 1] " + POOL.format(pads="[0, 0, 0, 0]"),
    ),
    "zeros before a max pooling of what is never negative": (
        graph(
            "[r] b = Relu (x) [p] a = Pad (b, pads) "
            "[m] y = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (a)"
        ),
        {"pads": np.asarray([0, 0, 1, 1, 0, 0, 1, 1], np.int64)},
        "r: Relu(x) -> b [1x4x9x8]\n"
        "m: MaxPool(b) -> y [1x4x5x4] dilations=[1, 1] " + POOL.format(pads="[1, 1, 1, 1]"),
    ),
    "zeros before an average are counted": (
        graph(
            "[p] a = Pad (x, pads) "
            "[m] y = AveragePool <kernel_shape = [3, 3], strides = [2, 2]> (a)"
        ),
        {"pads": np.asarray([0, 0, 1, 1, 0, 0, 1, 1], np.int64)},
        "m: AveragePool(x) -> y [1x4x5x4] count_include_pad=1 " + POOL.format(pads="[1, 1, 1, 1]"),
    ),
    "identity, dropout and padding by nothing": (
        graph("[r] a = Relu (x) [i] b = Identity (a) [p] c = Pad (b, none) [d] y = Dropout (c)"),
        {"none": np.zeros(8, np.int64)},
        "r: Relu(x) -> y [1x4x9x8]",
    ),
    "an output that is an input stays an identity": (
        graph("[i] y = Identity (x)"),
        {},
        "i: Identity(x) -> y [1x4x9x8]",
    ),
    "what no machine knows is left alone": (
        graph("[r] a = Relu (x) [s] y = Softmax <axis = 1> (a)"),
        {},
        "r: Relu(x) -> a [1x4x9x8]\ns: Softmax(a) -> y [1x4x9x8] axis=1",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_form(name: str, onnx_text: Text, canonical: Canonical, print_nodes: Print):
    text, weights, expected = CASES[name]
    assert print_nodes(canonical(onnx_text(text, **weights))) == expected


def test_a_folded_node_is_remembered_as_origin(onnx_text: Text, canonical: Canonical):
    text, weights, _ = CASES["batch norm, per-channel factor and offset go into the convolution"]
    (conv,) = canonical(onnx_text(text, **weights)).graph
    assert conv.metadata_props["opu_fuse.source"] == "c,n,m,p"


def test_axes_of_a_pad_that_stays_are_spelt_out(
    onnx_text: Text, canonical: Canonical, print_nodes: Print
):
    model = onnx_text(
        graph("[p] a = Pad (x, pads, , axes) [q] y = Relu (a)"),
        opset=18,
        pads=np.asarray([1, 2], np.int64),
        axes=np.asarray([3], np.int64),
    )
    assert print_nodes(canonical(model)) == (
        "p: Pad(x, [0, 0, 0, 1, 0, 0, 0, 2]) -> a [1x4x9x11] mode=constant\n"
        "q: Relu(a) -> y [1x4x9x11]"
    )


def test_the_canonical_form_of_a_canonical_form_is_itself(
    onnx_text: Text, canonical: Canonical, print_nodes: Print
):
    for text, weights, expected in CASES.values():
        once = ir.to_proto(canonical(onnx_text(text, **weights)))
        assert print_nodes(canonical(once)) == expected
