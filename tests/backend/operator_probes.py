"""A small network for each form of an ONNX operator that machines run, for docs/operators.md.

An operator is between two convolutions, so that neither an input nor an output does its work.
In the texts `a` is the map before it (8 channels, 8 rows, 8 columns), `b` what the last convolution
reads. Inputs whose names begin with w, b or k are constants.
"""

from tests.backend.moving_probes import MOVING
from tests.backend.operator_probe import Probe, of_one_value

PROBES: tuple[Probe, ...] = (
    *of_one_value(),
    Probe("Relu", "any", "b = Relu (a)"),
    Probe("LeakyRelu", "any", "b = LeakyRelu <alpha = 0.1> (a)"),
    Probe("PRelu", "one constant slope", "b = PRelu (a, k)", numbers="float[1] k = {0.1}"),
    Probe("PRelu", "a constant slope per channel", "b = PRelu (a, k)", inputs="float[8,1,1] k"),
    Probe(
        "Clip",
        "constant limits",
        "l = Constant <value_float = 0.0> () h = Constant <value_float = 6.0> () "
        "b = Clip (a, l, h)",
    ),
    Probe("Max", "with the constant 0", "z = Constant <value_float = 0.0> () b = Max (a, z)"),
    Probe(
        "Max", "with another constant scalar", "z = Constant <value_float = 0.5> () b = Max (a, z)"
    ),
    Probe("Min", "with a constant scalar", "z = Constant <value_float = 0.5> () b = Min (a, z)"),
    Probe("Pow", "to a constant scalar", "z = Constant <value_float = 2.0> () b = Pow (a, z)"),
    Probe(
        "Where",
        "of one map, compared with constants",
        "z = Constant <value_float = 0.5> () c = Greater (a, z) n = Neg (a) b = Where (c, a, n)",
    ),
    Probe("Softmax", "over the channels of a pixel", "b = Softmax <axis = 1> (a)"),
    Probe(
        "LayerNormalization",
        "over the channels of a pixel, constant scale and bias",
        "t = Transpose <perm = [0, 2, 3, 1]> (a) n = LayerNormalization <axis = -1> (t, k, k1) "
        "b = Transpose <perm = [0, 3, 1, 2]> (n)",
        inputs="float[8] k, float[8] k1",
    ),
    Probe(
        "RMSNormalization",
        "over the channels of a pixel, constant scale",
        "t = Transpose <perm = [0, 2, 3, 1]> (a) n = RMSNormalization <axis = -1> (t, k) "
        "b = Transpose <perm = [0, 3, 1, 2]> (n)",
        inputs="float[8] k",
        opset=23,
    ),
    Probe(  # onnx infers no type of its result
        "GroupNormalization",
        "of one map, constant scale and bias",
        "n = GroupNormalization <num_groups = 1> (a, k, k1) c = Cast <to = 1> (n) "
        "s = Constant <value_ints = [1, 8, 8, 8]> () b = Reshape (c, s)",
        inputs="float[8] k, float[8] k1",
        opset=21,
    ),
    # Sums and products.
    Probe(
        "Add",
        "two maps of one shape (residual)",
        "c = Conv (a, w3) b = Add (a, c)",
        inputs="float[8,8,1,1] w3",
        others=("conv",),
    ),
    Probe(
        "Add", "a constant per channel, after a layer", "b = Add (a, k)", inputs="float[8,1,1] k"
    ),
    Probe(
        "Add",
        "a constant per channel, elsewhere",
        "p = Relu (a) b = Add (p, k)",
        inputs="float[8,1,1] k",
        others=("relu",),
    ),
    Probe("Add", "a constant map", "b = Add (a, k)", inputs="float[8,8,8] k"),
    Probe(
        "Sum",
        "maps of one shape",
        "c = Conv (a, w3) b = Sum (a, c)",
        inputs="float[8,8,1,1] w3",
        others=("conv",),
    ),
    Probe(
        "Sub",
        "two maps of one shape",
        "c = Conv (a, w3) b = Sub (a, c)",
        inputs="float[8,8,1,1] w3",
        others=("conv",),
    ),
    Probe(
        "Sub", "a constant per channel, after a layer", "b = Sub (a, k)", inputs="float[8,1,1] k"
    ),
    Probe(
        "Mul", "a constant per channel, after a layer", "b = Mul (a, k)", inputs="float[8,1,1] k"
    ),
    Probe(
        "Mul",
        "a constant per channel, elsewhere",
        "p = Relu (a) b = Mul (p, k)",
        inputs="float[8,1,1] k",
        others=("relu",),
    ),
    Probe(
        "Mul",
        "a computed value per channel (squeeze and excite)",
        "g = GlobalAveragePool (a) h = Conv (g, w3) b = Mul (a, h)",
        inputs="float[8,8,1,1] w3",
        others=("avg_pool", "conv"),
    ),
    Probe("Mul", "a map, computed or constant", "b = Mul (a, k)", inputs="float[8,8,8] k"),
    Probe(
        "Mul",
        "a computed channel (spatial attention)",
        "c = Conv (a, w3) b = Mul (a, c)",
        inputs="float[1,8,1,1] w3",
        others=("conv",),
    ),
    Probe(
        "Mul",
        "a computed value per channel and row (coordinate attention)",
        "m = ReduceMean <axes = [3]> (a) c = Conv (m, w3) b = Mul (a, c)",
        inputs="float[8,8,1,1] w3",
        others=("avg_pool", "conv"),
    ),
    Probe("Mul", "x · sigmoid(x) and its like", "s = Sigmoid (a) b = Mul (a, s)"),
    Probe("Div", "by a constant, after a layer", "b = Div (a, k)", inputs="float[8,1,1] k"),
    # Layers.
    Probe(
        "Conv",
        "constant weights; any kernel, stride, dilation, pads",
        "b = Conv <strides = [2, 2], pads = [0, 1, 3, 2], dilations = [2, 2]> (a, w3)",
        inputs="float[8,8,3,3] w3",
    ),
    Probe(
        "Conv",
        "depthwise and other groups",
        "b = Conv <group = 8, pads = [1, 1, 1, 1]> (a, w3)",
        inputs="float[8,1,3,3] w3",
    ),
    Probe(
        "Conv",
        "1-D: (1, c, l)",
        "c = Conv <pads = [1, 1]> (s, w1) r = Relu (c) y = Conv (r, w2)",
        inputs="float[1,8,32] s, float[8,8,3] w1, float[8,8,3] w2",
        others=("conv", "relu"),
    ),
    Probe(
        "ConvTranspose",
        "constant weights; any kernel, stride, groups",
        "b = ConvTranspose <strides = [2, 2]> (a, w3)",
        inputs="float[8,8,2,2] w3",
    ),
    Probe(
        "Gemm",
        "constant weights; an operand (1, n)",
        "p = GlobalAveragePool (a) f = Flatten (p) y = Gemm <transB = 1> (f, w3)",
        others=("avg_pool", "reshape"),
        inputs="float[4,8] w3",
    ),
    Probe(
        "MatMul",
        "constant weights; an operand (1, n)",
        "p = GlobalAveragePool (a) f = Flatten (p) y = MatMul (f, w3)",
        others=("avg_pool", "reshape"),
        inputs="float[8,4] w3",
    ),
    Probe(
        "MatMul",
        "constant weights; tokens (1, l, n)",
        "h = MatMul (s, w1) r = Relu (h) y = MatMul (r, w2)",
        inputs="float[1,16,8] s, float[8,8] w1, float[8,8] w2",
        others=("relu", "conv"),
    ),
    Probe(
        "MatMul",
        "two computed maps (attention), up to 256 heads",
        "h = MatMul (s, w4) q = MatMul (h, w5) k0 = MatMul (h, w6) "
        "t = Transpose <perm = [0, 2, 1]> (k0) p = MatMul (q, t) y = MatMul (p, w7)",
        inputs="float[1,64,64] s, float[64,64] w4, float[64,64] w5, float[64,64] w6, "
        "float[64,8] w7",
        others=("conv",) * 4,
    ),
    Probe(
        "Attention",
        "tokens or heads of known size; no cache, window or scores as a result",
        "h = MatMul (s, w4) q = MatMul (h, w5) k0 = MatMul (h, w6) "
        "p = Attention <q_num_heads = 1, kv_num_heads = 1, is_causal = 1> (q, k0, h) "
        "y = MatMul (p, w7)",
        inputs="float[1,64,64] s, float[64,64] w4, float[64,64] w5, float[64,64] w6, "
        "float[64,8] w7",
        others=("conv",) * 4,
        opset=23,
    ),
    Probe(
        "RotaryEmbedding",
        "constant positions, before products of heads",
        "h = MatMul (s, w4) q = MatMul (h, w5) "
        "r = RotaryEmbedding <num_heads = 1> (q, w6, w8) y = MatMul (r, w7)",
        inputs="float[1,64,64] s, float[64,64] w4, float[64,64] w5, float[1,64,32] w6, "
        "float[1,64,32] w8, float[64,8] w7",
        others=("conv",) * 3,
        opset=23,
    ),
    Probe(
        "Einsum",
        "one that is a layer, a product, a Transpose or a sum",
        'b = Einsum <equation = "nchw,oc->nohw"> (a, w3)',
        inputs="float[8,8] w3",
    ),
    Probe(
        "BatchNormalization",
        "after a layer",
        "b = BatchNormalization (a, k1, k2, k3, v)",
        inputs="float[8] k1, float[8] k2, float[8] k3",
        numbers="float[8] v = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}",
    ),
    Probe(
        "BatchNormalization",
        "elsewhere",
        "p = Relu (a) b = BatchNormalization (p, k1, k2, k3, v)",
        inputs="float[8] k1, float[8] k2, float[8] k3",
        numbers="float[8] v = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}",
        others=("relu",),
    ),
    # Pools, means and sums.
    Probe(
        "MaxPool",
        "window, stride, pads (1-D and 2-D)",
        "b = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (a)",
    ),
    Probe(
        "AveragePool",
        "window, stride, pads (1-D and 2-D)",
        "b = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (a)",
    ),
    Probe("GlobalMaxPool", "any", "b = GlobalMaxPool (a)"),
    Probe("GlobalAveragePool", "any", "b = GlobalAveragePool (a)"),
    Probe("ReduceMean", "over rows, columns or both", "b = ReduceMean <axes = [2, 3]> (a)"),
    Probe("ReduceMean", "over channels", "b = ReduceMean <axes = [1]> (a)", channels=1),
    Probe("ReduceMax", "over rows, columns or both", "b = ReduceMax <axes = [2, 3]> (a)"),
    Probe("ReduceMax", "over channels", "b = ReduceMax <axes = [1]> (a)", channels=1),
    Probe(
        "ReduceSum",
        "over channels, rows or columns",
        "b = ReduceSum (a, s)",
        numbers="int64[1] s = {1}",
        channels=1,
    ),
    *MOVING,
    # Of quantised models.
    *(
        Probe(
            name,
            "pairs of int8 or uint8 with one scale and zero point, around operators",
            "q = QuantizeLinear (s, c, z) d = DequantizeLinear (q, c, z) r = Relu (d) "
            "p = QuantizeLinear (r, c, z) y = DequantizeLinear (p, c, z)",
            inputs="float[1,8,8,8] s",
            numbers="float c = {0.03125}, int8 z = {0}",
            others=("relu",),
        )
        for name in ("DequantizeLinear", "QuantizeLinear")
    ),
    Probe(
        "QLinearConv",
        "constant weights",
        "q = QuantizeLinear (s, c, z) p = QLinearConv (q, c, z, v, c, z, c, z) "
        "y = DequantizeLinear (p, c, z)",
        inputs="float[1,1,8,8] s",
        numbers="float c = {0.03125}, int8 z = {0}, int8[2,1,1,1] v = {3, -5}",
    ),
    Probe(
        "QLinearMatMul",
        "constant weights; an operand (1, n)",
        "q = QuantizeLinear (s, c, z) p = QLinearMatMul (q, c, z, v, c, z, c, z) "
        "y = DequantizeLinear (p, c, z)",
        inputs="float[1,2] s",
        numbers="float c = {0.03125}, int8 z = {0}, int8[2,2] v = {3, -5, 2, 1}",
    ),
)
