"""QDQ models of any make: the integers become annotations, and nothing else changes.

The `absorbed` fixture runs the canonical model with a rounding at every annotation; what it gives
must be what ONNX Runtime gives on the QDQ model.
"""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse.quant import META_KEY, QuantParams
from tests.some import some

Text = Callable[..., onnx.ModelProto]

RNG = np.random.default_rng(5)
SCALES = {"s": np.float32(0.0625), "t": np.float32(0.125), "z": np.int8(0)}


def qdq(name: str, scale: str = "s", zero: str = "z") -> str:
    """`name` rounded to `name`_r."""
    return (
        f"{name}_q = QuantizeLinear ({name}, {scale}, {zero}) "
        f"{name}_r = DequantizeLinear ({name}_q, {scale}, {zero}) "
    )


def text(nodes: str, x: str = "1, 4, 6, 6", y: str = "1, 4, 6, 6") -> str:
    return f"g (float[{x}] x) => (float[{y}] y) {{ {nodes} }}"


def scalars(**more: np.ndarray | np.generic) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in (SCALES | more).items()}


def weights(*shape: int) -> np.ndarray:
    return RNG.integers(-127, 128, shape).astype(np.int8)


def quant(model: ir.Model, name: str) -> QuantParams | None:
    values = ir.convenience.create_value_mapping(model.graph)
    return values[name].meta.get(META_KEY)


def types(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


Absorbed = Callable[[onnx.ModelProto], ir.Model]


def test_pairs_around_every_operator(onnx_text: Text, absorbed: Absorbed):
    model = absorbed(
        onnx_text(
            text(
                qdq("x")
                + "w_r = DequantizeLinear <axis = 0> (w, ws, wz) "
                + "b_r = DequantizeLinear <axis = 0> (b, bs) "
                + "[c] a = Conv <pads = [1, 1, 1, 1]> (x_r, w_r, b_r)"
                + qdq("a", "t")
                + "[r] d = Relu (a_r)"
                + qdq("d", "t")
                + "[p] e = Add (d_r, x_r)"
                + qdq("e")
                + "y = Identity (e_r)"
            ),
            **scalars(
                w=weights(4, 4, 3, 3),
                ws=np.array([0.5, 0.25, 1, 0.5], np.float32) / 64,
                wz=np.zeros(4, np.int8),
                b=np.asarray([5, -6, 700, 0], np.int32),
                bs=np.array([0.5, 0.25, 1, 0.5], np.float32) / 1024,
            ),
        )
    )
    assert types(model) == ["Conv", "Relu", "Add"]
    assert quant(model, "x") == quant(model, "y") == QuantParams(scale=(0.0625,))
    assert quant(model, "a") == quant(model, "d") == QuantParams(scale=(0.125,))
    weight, bias = model.graph[0].inputs[1:]
    assert some(weight).meta[META_KEY].scale == (0.5 / 64, 0.25 / 64, 1 / 64, 0.5 / 64)
    assert some(weight).meta[META_KEY].axis == 0
    assert some(some(bias).const_value).numpy().tolist() == [5, -6, 700, 0]
    assert some(bias).meta[META_KEY].bits == 32
    tensors = [v.meta.get("opu_fuse.tensor") for n in model.graph for v in n.outputs]
    assert tensors == ["a_q", "d_q", "e_q"]


def test_one_scale_for_all_weights_is_spelt_out_per_channel(onnx_text: Text, absorbed: Absorbed):
    model = absorbed(
        onnx_text(
            text(
                qdq("x")
                + "w_r = DequantizeLinear (w, s, z) a = Conv (x_r, w_r, b)"
                + qdq("a", "t")
                + "y = Identity (a_r)"
            ),
            **scalars(w=weights(4, 4, 1, 1), b=np.array([0.25, -1, 0.5, 3.0], np.float32)),
        )
    )
    weight, bias = model.graph[0].inputs[1:]
    assert some(weight).meta[META_KEY] == QuantParams(scale=(0.0625,) * 4, axis=0)
    assert some(bias).meta[META_KEY] == QuantParams(scale=(0.0625**2,) * 4, axis=0, bits=32)
    assert some(some(bias).const_value).numpy().tolist() == [64, -256, 128, 768]


def test_a_bias_whose_scale_is_no_number_is_left_to_the_host(onnx_text: Text, absorbed: Absorbed):
    nodes = "w_r = DequantizeLinear (w, s, z) b_r = DequantizeLinear (b, bs) "
    nodes += "a = Conv (x_r, w_r, b_r)" + qdq("a", "t") + "y = Identity (a_r)"
    constants = scalars(
        w=weights(4, 4, 1, 1), b=np.array([1, 2, 3, 4], np.int32), bs=np.float32(np.nan)
    )
    model = absorbed(onnx_text(text(qdq("x") + nodes), **constants))
    assert some(model.graph[0].inputs[2]).dtype == ir.DataType.FLOAT


def biased(absorbed: Absorbed, onnx_text: Text, scale: float, b: np.ndarray, bs: np.ndarray):
    """The bias of a convolution whose operands both have this scale, as absorbed."""
    nodes = "w_r = DequantizeLinear (w, u, z) b_r = DequantizeLinear <axis = 0> (b, bs) "
    nodes += "a = Conv (x_r, w_r, b_r)" + qdq("a", "t") + "y = Identity (a_r)"
    constants = scalars(w=weights(4, 4, 1, 1), u=np.float32(scale), b=b, bs=bs)
    return absorbed(onnx_text(text(qdq("x", "u") + nodes), **constants)).graph[0].inputs[2]


def test_a_bias_that_no_accumulator_holds_is_not_read_in_its_steps(
    onnx_text: Text, absorbed: Absorbed
):
    steps, scales = (
        np.array([5, -14, 160, 7], np.int32),
        np.array([2**-8, 6e28, 3e-26, 7e22], np.float32),
    )
    bias = biased(absorbed, onnx_text, 2**-4, steps, scales)
    assert some(bias).dtype == ir.DataType.FLOAT
    reals = steps.astype(np.float32) * scales
    np.testing.assert_array_equal(some(some(bias).const_value).numpy(), reals)


def test_tiny_scales_of_a_bias_are_told_apart(onnx_text: Text, absorbed: Absorbed):
    """Both are below 1e-8, what numpy takes for equal when it is not told otherwise."""
    steps, scales = np.array([5, -6, 7, 8], np.int32), np.full(4, 2**-27, np.float32)
    bias = biased(absorbed, onnx_text, 2**-14, steps, scales)
    assert some(some(bias).const_value).numpy().tolist() == [10, -12, 14, 16]


def test_uint8_activations_and_weights_are_moved_by_128(onnx_text: Text, absorbed: Absorbed):
    model = absorbed(
        onnx_text(
            text(
                qdq("x", zero="za")
                + "w_r = DequantizeLinear (w, s, zw) a = Conv (x_r, w_r)"
                + qdq("a", "t", "zb")
                + "y = Identity (a_r)"
            ),
            **scalars(
                w=RNG.integers(0, 256, (4, 4, 1, 1)).astype(np.uint8),
                za=np.uint8(114),
                zb=np.uint8(0),
                zw=np.uint8(128),
            ),
        )
    )
    assert quant(model, "x") == QuantParams(scale=(0.0625,), zero_point=-14)
    assert quant(model, "y") == QuantParams(scale=(0.125,), zero_point=-128)
    weight = model.graph[0].inputs[1]
    assert some(some(weight).const_value).dtype == ir.DataType.INT8
    assert some(weight).meta[META_KEY].zero_point == 0


@pytest.mark.parametrize(
    ("zero", "kind"),
    [
        (np.int8(7), np.int8),
        (np.int8(-128), np.int16),
        (np.array([0, 3, -2, 1], np.int8), np.int8),
        (np.array([0, 127, -128, 1], np.int8), np.int16),
    ],
    ids=["one, small", "one, at an end", "several, small", "several, at both ends"],
)
def test_weights_lose_their_zero_points_in_as_many_bits_as_it_takes(
    zero: np.ndarray, kind: type, onnx_text: Text, absorbed: Absorbed
):
    few = weights(4, 4, 1, 1) // 2
    pair = f"w_r = DequantizeLinear <axis = 0> (w, {'rows' if zero.ndim else 's'}, zw)"
    nodes = f"{qdq('x')} {pair} a = Conv (x_r, w_r) {qdq('a', 't')} y = Identity (a_r)"
    constants = scalars(w=few, zw=zero, rows=np.array([1, 2, 4, 8], np.float32))
    model = absorbed(onnx_text(text(nodes), **constants))
    weight = model.graph[0].inputs[1]
    plain = few.astype(int) - zero.astype(int).reshape(-1, 1, 1, 1)
    np.testing.assert_array_equal(some(some(weight).const_value).numpy(), plain)
    assert some(some(weight).const_value).numpy().dtype == kind
    assert some(weight).meta[META_KEY].zero_point == 0


@pytest.mark.parametrize(
    "behind", ["Relu (a)", "Clip (a, low, high)", "MaxPool <kernel_shape = [2, 2]> (a)"]
)
def test_rounding_once_behind_two_operators_is_rounding_behind_each(
    onnx_text: Text, absorbed: Absorbed, behind: str
):
    size = "1, 4, 5, 5" if "Pool" in behind else "1, 4, 6, 6"
    model = absorbed(
        onnx_text(
            text(
                qdq("x")
                + f"w_r = DequantizeLinear (w, s, z) a = Conv (x_r, w_r) d = {behind}"
                + qdq("d", "t")
                + "y = Identity (d_r)",
                y=size,
            ),
            **scalars(w=weights(4, 4, 1, 1) // 16, low=np.float32(-1.03), high=np.float32(5.7)),
        )
    )
    assert types(model)[0] == "Conv"
    assert quant(model, "a") == quant(model, "y") == QuantParams(scale=(0.125,))
    conv = model.graph[0].outputs[0]
    assert "opu_fuse.tensor" not in conv.meta


def test_a_sum_that_is_not_rounded_before_the_residual_stays_an_accumulator(
    onnx_text: Text, absorbed: Absorbed
):
    model = absorbed(
        onnx_text(
            text(
                qdq("x")
                + "w_r = DequantizeLinear (w, s, z) a = Conv (x_r, w_r) d = Add (a, x_r)"
                + "e = Relu (d)"
                + qdq("e", "t")
                + "y = Identity (e_r)"
            ),
            **scalars(w=weights(4, 4, 1, 1)),
        )
    )
    assert quant(model, "a") is None
    assert quant(model, "d") == quant(model, "y") == QuantParams(scale=(0.125,))


def test_selections_of_rounded_numbers_are_rounded(onnx_text: Text, absorbed: Absorbed):
    model = absorbed(
        onnx_text(
            text(
                qdq("x")
                + "a = Relu (x_r) d = MaxPool <kernel_shape = [2, 2]> (a) e = Flatten (d)"
                + "f = Abs (e)"
                + qdq("f", "t")
                + "y = Identity (f_r)",
                y="1, 100",
            ),
            **scalars(),
        )
    )
    assert [quant(model, v) for v in "ade"] == [QuantParams(scale=(0.0625,))] * 3


def test_a_pair_for_every_reader_is_one_rounding(onnx_text: Text, absorbed: Absorbed):
    model = absorbed(
        onnx_text(
            text(
                "a = Relu (x) p = QuantizeLinear (a, s, z) q = QuantizeLinear (a, s, z)"
                "b = DequantizeLinear (p, s, z) d = DequantizeLinear (q, s, z)"
                "e = Relu (b) f = Abs (d) h = Add (e, f)" + qdq("h") + "y = Identity (h_r)"
            ),
            **scalars(),
        )
    )
    assert types(model) == ["Relu", "Relu", "Abs", "Add"]


def test_two_scales_for_one_value_stay_two_values(onnx_text: Text, absorbed: Absorbed):
    model = absorbed(
        onnx_text(
            text(
                "a = Relu (x) p = QuantizeLinear (a, s, z) q = QuantizeLinear (a, t, z)"
                "b = DequantizeLinear (p, s, z) d = DequantizeLinear (q, t, z)"
                "h = Add (b, d)" + qdq("h") + "y = Identity (h_r)"
            ),
            **scalars(),
        )
    )
    assert types(model).count("QuantizeLinear") == 2
    assert quant(model, "a") is None
    assert {quant(model, "b"), quant(model, "d")} == {
        QuantParams(scale=(0.0625,)),
        QuantParams(scale=(0.125,)),
    }


def test_a_value_that_is_read_unrounded_too_is_not_rounded(onnx_text: Text, absorbed: Absorbed):
    model = absorbed(
        onnx_text(
            text("a = Abs (x)" + qdq("a") + "h = Add (a, a_r)" + qdq("h") + "y = Identity (h_r)"),
            **scalars(),
        )
    )
    assert quant(model, "a") is None
    assert types(model) == ["Abs", "QuantizeLinear", "DequantizeLinear", "Add"]


def test_an_int8_input_stays_int8(onnx_text: Text, absorbed: Absorbed):
    body = "g (int8[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y) { a = DequantizeLinear (x, s, z)"
    model = absorbed(
        onnx_text(body + "d = Relu (a)" + qdq("d") + "y = Identity (d_r) }", **scalars())
    )
    (x,) = model.graph.inputs
    assert x.dtype == ir.DataType.INT8
    assert x.meta[META_KEY] == QuantParams(scale=(0.0625,))
    assert types(model) == ["Relu"]


def test_a_uint8_input_is_converted_on_the_host(onnx_text: Text, absorbed: Absorbed):
    body = "g (uint8[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y) { a = DequantizeLinear (x, s, u)"
    model = absorbed(
        onnx_text(
            body + "d = Relu (a)" + qdq("d") + "y = Identity (d_r) }", **scalars(u=np.uint8(100))
        )
    )
    assert types(model) == ["DequantizeLinear", "Relu"]
    assert quant(model, "a") == QuantParams(scale=(0.0625,), zero_point=-28)


def test_an_int8_output_is_written_by_the_host(onnx_text: Text, absorbed: Absorbed):
    body = "g (float[1, 4, 6, 6] x) => (int8[1, 4, 6, 6] y) {"
    model = absorbed(
        onnx_text(body + qdq("x") + "a = Abs (x_r) y = QuantizeLinear (a, t, z) }", **scalars())
    )
    assert types(model) == ["Abs", "QuantizeLinear"]
    assert quant(model, "a") == QuantParams(scale=(0.125,))
    assert model.graph.outputs[0].dtype == ir.DataType.INT8


def test_a_quantised_matrix_product_becomes_dense(onnx_text: Text, absorbed: Absorbed):
    model = absorbed(
        onnx_text(
            text(
                qdq("x")
                + "w_r = DequantizeLinear <axis = 1> (w, ws, wz) b_r = DequantizeLinear (b, s, z)"
                "[m] a = MatMul (x_r, w_r) d = Add (a, b_r)" + qdq("d", "t") + "y = Identity (d_r)",
                x="1, 12",
                y="1, 3",
            ),
            **scalars(
                w=weights(12, 3),
                ws=np.array([0.5, 0.25, 1], np.float32) / 32,
                wz=np.zeros(3, np.int8),
                b=weights(3),
            ),
        )
    )
    assert types(model) == ["Gemm"]
    weight, bias = model.graph[0].inputs[1:]
    assert some(some(weight).const_value).numpy().shape == (3, 12)
    assert some(weight).meta[META_KEY] == QuantParams(scale=(0.5 / 32, 0.25 / 32, 1 / 32), axis=0)
    assert some(bias).meta[META_KEY].bits == 32


def test_weights_that_are_rounded_in_the_model_are_rounded_once(
    onnx_text: Text, absorbed: Absorbed
):
    model = absorbed(
        onnx_text(
            text(
                qdq("x") + qdq("w") + "a = Conv (x_r, w_r)" + qdq("a", "t") + "y = Identity (a_r)"
            ),
            **scalars(w=RNG.standard_normal((4, 4, 1, 1)).astype(np.float32)),
        )
    )
    assert types(model) == ["Conv"]
    assert some(some(model.graph[0].inputs[1]).const_value).dtype == ir.DataType.INT8


def test_sixteen_bits_are_left_to_the_host(onnx_text: Text, absorbed: Absorbed):
    model = absorbed(
        onnx_text(
            text(qdq("x", zero="zz") + "a = Relu (x_r)" + qdq("a") + "y = Identity (a_r)"),
            opset=21,
            **scalars(zz=np.int16(0)),
        )
    )
    assert types(model) == ["QuantizeLinear", "DequantizeLinear", "Relu"]
    assert quant(model, "x") is None


def test_scales_along_the_input_channels_of_a_square_weight(onnx_text: Text, absorbed: Absorbed):
    """They look like those of its output channels: opset 13 to 20 mean axis 1 without a word."""
    model = absorbed(
        onnx_text(
            text(
                qdq("x")
                + "w_r = DequantizeLinear (w, ws) c = Conv (x_r, w_r)"
                + qdq("c")
                + "y = Identity (c_r)"
            ),
            **scalars(w=weights(4, 4, 1, 1), ws=np.array([1, 2, 4, 8], np.float32) / 64),
        )
    )
    (conv,) = (node for node in model.graph if node.op_type == "Conv")
    assert META_KEY not in some(conv.inputs[1]).meta, "no machine takes it"
