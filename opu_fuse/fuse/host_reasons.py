"""Why no machine runs an operator of ONNX, whatever its data flow: in words, for messages and
docs/operators.md.

What machines run in some form only is in `operator_rules.FORMS`.
"""

from collections.abc import Mapping

_FAMILIES: Mapping[str, tuple[str, ...]] = {
    "puts single values elsewhere: a machine reads and writes words of all channels of a pixel, "
    "and takes channels as a whole": (
        *("CenterCropPad", "Col2Im", "DepthToSpace", "Expand", "Gather", "ReverseSequence"),
        *("Slice", "SpaceToDepth", "Tile", "Transpose", "Trilu"),
    ),
    "reads or writes at places that are computed: a machine walks through memory by strides that "
    "are known when the network is compiled": (
        *("AffineGrid", "Compress", "DeformConv", "GatherElements", "GatherND", "GridSample"),
        *("MaxRoiPool", "MaxUnpool", "NonMaxSuppression", "NonZero", "OneHot", "RoiAlign"),
        *("Scatter", "ScatterElements", "ScatterND", "TensorScatter", "TopK", "Unique"),
    ),
    "needs a sum, an order or the largest of values of several channels or of a whole map, most "
    "also a division by it: behind the array each channel goes its own way": (
        *("ArgMax", "ArgMin", "CumProd", "CumSum", "Det", "GlobalLpPool", "GroupNormalization"),
        *("Hardmax", "InstanceNormalization", "LRN", "LayerNormalization", "LogSoftmax", "LpPool"),
        *("LpNormalization", "MeanVarianceNormalization", "NegativeLogLikelihoodLoss"),
        *("RMSNormalization", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"),
        *("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
        *("Softmax", "SoftmaxCrossEntropyLoss"),
    ),
    "multiplies values by others that are computed: the array's second operand are weights, laid "
    "out in memory when the network is compiled": (
        *("Attention", "Einsum", "LinearAttention", "RotaryEmbedding"),
    ),
    "reads in each step what the step before made, or goes another way by what it reads: a program "
    "has neither loops nor branches": (
        *("CausalConvWithState", "GRU", "If", "LSTM", "Loop", "RNN", "Scan"),
    ),
    "works on integers, truth values or bits, or tells them from numbers: a machine's values are "
    "int8 that stand for real numbers, with scales known when the network is compiled": (
        *("And", "BitCast", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"),
        *("Cast", "CastLike", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less"),
        *("LessOrEqual", "Mod", "Not", "Or", "Where", "Xor"),
        *("ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger"),
        *("QLinearConv", "QLinearMatMul", "QuantizeLinear"),
    ),
    "makes numbers of a shape or of nothing, which happens when the network is compiled; left is "
    "what depends on data or chance": (
        *("Bernoulli", "BlackmanWindow", "Constant", "ConstantOfShape", "EyeLike", "HammingWindow"),
        *("HannWindow", "MelWeightMatrix", "Multinomial", "RandomNormal", "RandomNormalLike"),
        *("RandomUniform", "RandomUniformLike", "Range", "Shape", "Size"),
    ),
    "is a transform with complex numbers": ("DFT", "STFT"),
    "combines two computed maps: these a machine adds or subtracts, or multiplies one by a number "
    "for each channel of the other": ("Div", "Max", "Mean", "Min", "Pow", "SwiGLU"),
    "is a function without value in places or without bound, or one that networks hardly use: no "
    "table is made for it": (
        *("Acos", "Acosh", "Asin", "Asinh", "Atanh", "Cosh", "Shrink", "Sinh", "Tan"),
    ),
    "handles sequences, texts or files, which a network's tensors are not": (
        *("ConcatFromSequence", "ImageDecoder", "Optional", "OptionalGetElement"),
        *("OptionalHasElement", "RegexFullMatch", "SequenceAt", "SequenceConstruct"),
        *("SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap"),
        *("SplitToSequence", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
    ),
}
HOST_REASONS: Mapping[str, str] = {op: why for why, ops in _FAMILIES.items() for op in ops}
"""By operator of the ONNX standard."""


def families() -> Mapping[str, tuple[str, ...]]:
    """The operators of each reason, by name."""
    return {why: tuple(sorted(ops)) for why, ops in _FAMILIES.items()}
