"""A small network for each form of an ONNX operator that machines run, for docs/operators.md.

An operator stands between two convolutions, so that neither an input nor an output does its work.
In the texts `a` is the map before it (8 channels, 8 rows, 8 columns), `b` what the last convolution
reads. Inputs whose names begin with w, b or k are constants.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import onnx

from tests.dfg.canonical import float_model

OPSET = 17
LAYER = ("conv", "add")
"""Operators of the convolution before, and of the one after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """form: of the operator, in words; body: nodes; inputs: constants and maps, with their types;
    numbers: constants with values; channels: of `b`; others: operators of the body that the
    machine runs beside the one in question.
    """

    operator: str
    form: str
    body: str
    inputs: str = ""
    numbers: str = ""
    channels: int = 8
    others: tuple[str, ...] = ()
    opset: int = OPSET

    @property
    def neighbours(self) -> tuple[str, ...]:
        """What the machine runs for the rest of the network."""
        layers = sum(self._reads(name) for name in "ab")
        return (*LAYER * layers, *self.others)

    @property
    def model(self) -> onnx.ModelProto:
        """The network."""
        nodes, inputs = [self.body], [self.inputs] if self.inputs else []
        if self._reads("a"):
            nodes.insert(0, "[first] a = Conv (x, w1, b1)")
            inputs += ["float[1,8,8,8] x", "float[8,8,1,1] w1", "float[8] b1"]
        if self._reads("b"):
            nodes.append("[last] y = Conv (b, w2, b2)")
            inputs += [f"float[8,{self.channels},1,1] w2", "float[8] b2"]
        numbers = f"<{self.numbers}>" if self.numbers else ""
        text = f"g ({', '.join(inputs)}) => (float[] y) {numbers} {{ {' '.join(nodes)} }}"
        return float_model(text, opset=self.opset)

    def _reads(self, name: str) -> bool:
        return re.search(rf"\b{name}\b", self.body) is not None


def _of_one_value() -> Iterator[Probe]:
    """Functions of one value."""
    for name in (
        *("Abs", "Atan", "Ceil", "Celu", "Cos", "Elu", "Erf", "Exp", "Floor", "HardSigmoid"),
        *("HardSwish", "Log", "Neg", "Reciprocal", "Round", "Selu", "Sigmoid", "Sign", "Sin"),
        *("Softplus", "Softsign", "Sqrt", "Tanh", "ThresholdedRelu"),
    ):
        yield Probe(operator=name, form="any", body=f"b = {name} (a)")
    yield Probe(operator="Mish", form="any", body="b = Mish (a)", opset=18)
    yield Probe(operator="Gelu", form="any", body="b = Gelu (a)", opset=20)
    yield Probe(operator="Swish", form="any", body="b = Swish (a)", opset=24)


PROBES: tuple[Probe, ...] = (
    *_of_one_value(),
    Probe(operator="Relu", form="any", body="b = Relu (a)"),
    Probe(operator="LeakyRelu", form="any", body="b = LeakyRelu <alpha = 0.1> (a)"),
    Probe(
        operator="PRelu",
        form="one constant slope",
        body="b = PRelu (a, k)",
        numbers="float[1] k = {0.1}",
    ),
    Probe(
        operator="PRelu",
        form="a constant slope per channel",
        body="b = PRelu (a, k)",
        inputs="float[8,1,1] k",
    ),
    Probe(
        operator="Clip",
        form="constant limits",
        body="l = Constant <value_float = 0.0> () h = Constant <value_float = 6.0> () "
        "b = Clip (a, l, h)",
    ),
    Probe(
        operator="Max",
        form="with the constant 0",
        body="z = Constant <value_float = 0.0> () b = Max (a, z)",
    ),
    Probe(
        operator="Max",
        form="with another constant scalar",
        body="z = Constant <value_float = 0.5> () b = Max (a, z)",
    ),
    Probe(
        operator="Min",
        form="with a constant scalar",
        body="z = Constant <value_float = 0.5> () b = Min (a, z)",
    ),
    Probe(
        operator="Pow",
        form="to a constant scalar",
        body="z = Constant <value_float = 2.0> () b = Pow (a, z)",
    ),
    Probe(
        operator="Where",
        form="of one map, compared with constants",
        body="z = Constant <value_float = 0.5> () c = Greater (a, z) n = Neg (a) "
        "b = Where (c, a, n)",
    ),
    # Sums and products.
    Probe(
        operator="Add",
        form="two maps of one shape (residual)",
        body="c = Conv (a, w3) b = Add (a, c)",
        inputs="float[8,8,1,1] w3",
        others=("conv",),
    ),
    Probe(
        operator="Add",
        form="a constant per channel, after a layer",
        body="b = Add (a, k)",
        inputs="float[8,1,1] k",
    ),
    Probe(
        operator="Add",
        form="a constant per channel, elsewhere",
        body="p = Relu (a) b = Add (p, k)",
        inputs="float[8,1,1] k",
        others=("relu",),
    ),
    Probe(
        operator="Add",
        form="a constant map",
        body="b = Add (a, k)",
        inputs="float[8,8,8] k",
    ),
    Probe(
        operator="Sum",
        form="maps of one shape",
        body="c = Conv (a, w3) b = Sum (a, c)",
        inputs="float[8,8,1,1] w3",
        others=("conv",),
    ),
    Probe(
        operator="Sub",
        form="two maps of one shape",
        body="c = Conv (a, w3) b = Sub (a, c)",
        inputs="float[8,8,1,1] w3",
        others=("conv",),
    ),
    Probe(
        operator="Sub",
        form="a constant per channel, after a layer",
        body="b = Sub (a, k)",
        inputs="float[8,1,1] k",
    ),
    Probe(
        operator="Mul",
        form="a constant per channel, after a layer",
        body="b = Mul (a, k)",
        inputs="float[8,1,1] k",
    ),
    Probe(
        operator="Mul",
        form="a constant per channel, elsewhere",
        body="p = Relu (a) b = Mul (p, k)",
        inputs="float[8,1,1] k",
        others=("relu",),
    ),
    Probe(
        operator="Mul",
        form="a computed value per channel (squeeze and excite)",
        body="g = GlobalAveragePool (a) h = Conv (g, w3) b = Mul (a, h)",
        inputs="float[8,8,1,1] w3",
        others=("avg_pool", "conv"),
    ),
    Probe(
        operator="Mul",
        form="x · sigmoid(x) and its like",
        body="s = Sigmoid (a) b = Mul (a, s)",
    ),
    Probe(
        operator="Div",
        form="by a constant, after a layer",
        body="b = Div (a, k)",
        inputs="float[8,1,1] k",
    ),
    # Layers.
    Probe(
        operator="Conv",
        form="constant weights; any kernel, stride, dilation, pads",
        body="b = Conv <strides = [2, 2], pads = [0, 1, 3, 2], dilations = [2, 2]> (a, w3)",
        inputs="float[8,8,3,3] w3",
    ),
    Probe(
        operator="Conv",
        form="depthwise and other groups",
        body="b = Conv <group = 8, pads = [1, 1, 1, 1]> (a, w3)",
        inputs="float[8,1,3,3] w3",
    ),
    Probe(
        operator="Conv",
        form="1-D: (1, c, l)",
        body="c = Conv <pads = [1, 1]> (s, w1) r = Relu (c) y = Conv (r, w2)",
        inputs="float[1,8,32] s, float[8,8,3] w1, float[8,8,3] w2",
        others=("conv", "relu"),
    ),
    Probe(
        operator="ConvTranspose",
        form="constant weights; any kernel, stride, groups",
        body="b = ConvTranspose <strides = [2, 2]> (a, w3)",
        inputs="float[8,8,2,2] w3",
    ),
    Probe(
        operator="Gemm",
        form="constant weights; an operand (1, n)",
        body="p = GlobalAveragePool (a) f = Flatten (p) y = Gemm <transB = 1> (f, w3)",
        others=("avg_pool", "reshape"),
        inputs="float[4,8] w3",
    ),
    Probe(
        operator="MatMul",
        form="constant weights; an operand (1, n)",
        body="p = GlobalAveragePool (a) f = Flatten (p) y = MatMul (f, w3)",
        others=("avg_pool", "reshape"),
        inputs="float[8,4] w3",
    ),
    Probe(
        operator="MatMul",
        form="constant weights; tokens (1, l, n)",
        body="h = MatMul (s, w1) r = Relu (h) y = MatMul (r, w2)",
        inputs="float[1,16,8] s, float[8,8] w1, float[8,8] w2",
        others=("relu", "conv"),
    ),
    Probe(
        operator="MatMul",
        form="two computed maps (attention), up to 256 heads",
        body="h = MatMul (s, w4) q = MatMul (h, w5) k0 = MatMul (h, w6) "
        "t = Transpose <perm = [0, 2, 1]> (k0) p = MatMul (q, t) y = MatMul (p, w7)",
        inputs="float[1,64,64] s, float[64,64] w4, float[64,64] w5, float[64,64] w6, "
        "float[64,8] w7",
        others=("conv",) * 4,
    ),
    Probe(
        operator="Einsum",
        form="one that is a layer, a product, a Transpose or a sum",
        body='b = Einsum <equation = "nchw,oc->nohw"> (a, w3)',
        inputs="float[8,8] w3",
    ),
    Probe(
        operator="BatchNormalization",
        form="after a layer",
        body="b = BatchNormalization (a, k1, k2, k3, v)",
        inputs="float[8] k1, float[8] k2, float[8] k3",
        numbers="float[8] v = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}",
    ),
    Probe(
        operator="BatchNormalization",
        form="elsewhere",
        body="p = Relu (a) b = BatchNormalization (p, k1, k2, k3, v)",
        inputs="float[8] k1, float[8] k2, float[8] k3",
        numbers="float[8] v = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}",
        others=("relu",),
    ),
    # Pools, means and sums.
    Probe(
        operator="MaxPool",
        form="window, stride, pads (1-D and 2-D)",
        body="b = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (a)",
    ),
    Probe(
        operator="AveragePool",
        form="window, stride, pads (1-D and 2-D)",
        body="b = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (a)",
    ),
    Probe(operator="GlobalMaxPool", form="any", body="b = GlobalMaxPool (a)"),
    Probe(operator="GlobalAveragePool", form="any", body="b = GlobalAveragePool (a)"),
    Probe(
        operator="ReduceMean",
        form="over rows, columns or both",
        body="b = ReduceMean <axes = [2, 3]> (a)",
    ),
    Probe(
        operator="ReduceMean",
        form="over channels",
        body="b = ReduceMean <axes = [1]> (a)",
        channels=1,
    ),
    Probe(
        operator="ReduceMax",
        form="over rows, columns or both",
        body="b = ReduceMax <axes = [2, 3]> (a)",
    ),
    Probe(
        operator="ReduceSum",
        form="over channels, rows or columns",
        body="b = ReduceSum (a, s)",
        numbers="int64[1] s = {1}",
        channels=1,
    ),
    # Channels and pixels.
    Probe(
        operator="Concat",
        form="of channels",
        body="c = Conv (a, w3) b = Concat <axis = 1> (a, c)",
        inputs="float[8,8,1,1] w3",
        others=("conv",),
        channels=16,
    ),
    Probe(
        operator="Concat",
        form="of rows or columns",
        body="c = Conv (a, w3) b = Concat <axis = 2> (a, c)",
        inputs="float[8,8,1,1] w3",
        others=("conv",),
    ),
    Probe(
        operator="Split",
        form="of channels",
        body="c = Conv (a, w3) p, q = Split <axis = 1> (c, s) d = Conv (p, w4) e = Conv (q, w5) "
        "b = Concat <axis = 1> (d, e)",
        inputs="float[16,8,1,1] w3, float[4,8,1,1] w4, float[4,8,1,1] w5",
        numbers="int64[2] s = {8, 8}",
        others=("conv", "conv", "conv", "concat"),
    ),
    Probe(
        operator="Slice",
        form="of channels",
        body="b = Slice (a, s, e, i)",
        numbers="int64[1] s = {0}, int64[1] e = {4}, int64[1] i = {1}",
        channels=4,
    ),
    Probe(
        operator="Slice",
        form="of rows and columns",
        body="r = Relu (a) b = Slice (r, s, e, i)",
        others=("relu",),
        numbers="int64[2] s = {1, 1}, int64[2] e = {7, 6}, int64[2] i = {2, 3}",
    ),
    Probe(
        operator="Slice",
        form="every n-th row and column",
        body="b = Slice (a, s, e, i, d)",
        numbers="int64[2] s = {0, 0}, int64[2] e = {8, 8}, int64[2] i = {2, 3}, "
        "int64[2] d = {2, 2}",
    ),
    Probe(
        operator="Gather",
        form="of channels, constant indices",
        body="b = Gather <axis = 1> (a, s)",
        numbers="int64[8] s = {7, 6, 5, 4, 3, 2, 1, 0}",
    ),
    Probe(
        operator="Transpose",
        form="channels last and back, around pointwise operators",
        body="t = Transpose <perm = [0, 2, 3, 1]> (a) r = Relu (t) "
        "b = Transpose <perm = [0, 3, 1, 2]> (r)",
        others=("relu",),
    ),
    Probe(
        operator="Reshape",
        form="another rank; channels and pixels unchanged",
        body="p = GlobalAveragePool (a) f = Reshape (p, s) y = Gemm <transB = 1> (f, w3)",
        inputs="float[4,8] w3",
        numbers="int64[2] s = {1, 8}",
        others=("avg_pool", "dense"),
    ),
    Probe(
        operator="Reshape",
        form="with a Transpose between: channel shuffle",
        body="p = Reshape (a, s) t = Transpose <perm = [0, 2, 1, 3, 4]> (p) b = Reshape (t, e)",
        numbers="int64[5] s = {1, 2, 4, 8, 8}, int64[4] e = {1, 8, 8, 8}",
    ),
    Probe(
        operator="Flatten",
        form="before a dense layer",
        body="f = Flatten (a) y = Gemm <transB = 1> (f, w3)",
        inputs="float[4,512] w3",
        others=("dense",),
    ),
    Probe(
        operator="Squeeze",
        form="before a dense layer",
        body="p = GlobalAveragePool (a) f = Squeeze (p, s) y = Gemm <transB = 1> (f, w3)",
        inputs="float[4,8] w3",
        others=("avg_pool", "dense"),
        numbers="int64[2] s = {2, 3}",
    ),
    Probe(
        operator="Unsqueeze",
        form="a row to a map (1, c, 1, 1)",
        body="p = GlobalAveragePool (a) f = Flatten (p) h = Gemm <transB = 1> (f, w3) "
        "b = Unsqueeze (h, s)",
        others=("avg_pool", "reshape", "dense"),
        inputs="float[8,8] w3",
        numbers="int64[2] s = {2, 3}",
    ),
    Probe(operator="Identity", form="any", body="b = Identity (a)"),
    Probe(operator="Dropout", form="not in training", body="b = Dropout (a)"),
    Probe(
        operator="Pad",
        form="rows and columns by a constant",
        body="b = Pad (a, s)",
        numbers="int64[8] s = {0, 0, 1, 1, 0, 0, 1, 1}",
    ),
    Probe(
        operator="DepthToSpace",
        form="blocks up to 4",
        body="b = DepthToSpace <blocksize = 2> (a)",
        channels=2,
    ),
    Probe(
        operator="SpaceToDepth",
        form="blocks up to 4",
        body="b = SpaceToDepth <blocksize = 2> (a)",
        channels=32,
    ),
    Probe(
        operator="Resize",
        form="nearest, whole factors",
        body='b = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", '
        'nearest_mode = "floor"> (a, , k)',
        numbers="float[4] k = {1.0, 1.0, 2.0, 2.0}",
    ),
    Probe(
        operator="Resize",
        form="linear, whole factors",
        body='b = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (a, , k)',
        numbers="float[4] k = {1.0, 1.0, 2.0, 2.0}",
    ),
    Probe(
        operator="Resize",
        form="to a half, third or quarter",
        body='b = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (a, , k)',
        numbers="float[4] k = {1.0, 1.0, 0.5, 0.5}",
    ),
    Probe(
        operator="Tile",
        form="of channels",
        body="b = Tile (a, s)",
        numbers="int64[4] s = {1, 2, 1, 1}",
        channels=16,
    ),
    Probe(
        operator="Tile",
        form="of the one row or column",
        body="p = GlobalAveragePool (a) b = Tile (p, s)",
        others=("avg_pool",),
        numbers="int64[4] s = {1, 1, 8, 8}",
    ),
    Probe(
        operator="Expand",
        form="of the one row or column",
        body="p = GlobalAveragePool (a) b = Expand (p, s)",
        others=("avg_pool",),
        numbers="int64[4] s = {1, 8, 8, 8}",
    ),
    Probe(
        operator="Upsample",
        form="nearest, whole factors",
        body='b = Upsample <mode = "nearest"> (a, k)',
        numbers="float[4] k = {1.0, 1.0, 2.0, 2.0}",
        opset=9,
    ),
    # Of quantised models.
    *(
        Probe(
            operator=name,
            form="pairs of int8 or uint8 with one scale and zero point, around operators",
            body="q = QuantizeLinear (s, c, z) d = DequantizeLinear (q, c, z) r = Relu (d) "
            "p = QuantizeLinear (r, c, z) y = DequantizeLinear (p, c, z)",
            inputs="float[1,8,8,8] s",
            numbers="float c = {0.03125}, int8 z = {0}",
            others=("relu",),
        )
        for name in ("DequantizeLinear", "QuantizeLinear")
    ),
    Probe(
        operator="QLinearConv",
        form="constant weights",
        body="q = QuantizeLinear (s, c, z) p = QLinearConv (q, c, z, v, c, z, c, z) "
        "y = DequantizeLinear (p, c, z)",
        inputs="float[1,1,8,8] s",
        numbers="float c = {0.03125}, int8 z = {0}, int8[2,1,1,1] v = {3, -5}",
    ),
    Probe(
        operator="QLinearMatMul",
        form="constant weights; an operand (1, n)",
        body="q = QuantizeLinear (s, c, z) p = QLinearMatMul (q, c, z, v, c, z, c, z) "
        "y = DequantizeLinear (p, c, z)",
        inputs="float[1,2] s",
        numbers="float c = {0.03125}, int8 z = {0}, int8[2,2] v = {3, -5, 2, 1}",
    ),
)
