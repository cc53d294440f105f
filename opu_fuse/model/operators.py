"""Table of ONNX operator traits, one row each: the only file with facts by operator name.

`operator_record.py` documents the fields, and `operator_sets.py` has the queries. An operator
without a row has no traits: it is opaque and runs on the host CPU.
"""

from collections.abc import Mapping

from opu_fuse.model.operator_record import (
    HostReason,
    Moves,
    Operator,
    Pattern,
    Trait,
    Weights,
    Window,
)

OPERATORS: Mapping[str, Operator] = {
    "Abs": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "Acos": Operator(host=HostReason.UNBOUNDED),
    "Acosh": Operator(host=HostReason.UNBOUNDED),
    "Add": Operator(
        pattern=Pattern.BROADCAST,
        traits=Trait.QUANTISED | Trait.PART | Trait.AFFINE | Trait.NONEXPANSIVE,
    ),
    "AffineGrid": Operator(traits=Trait.SIZED_BY_NUMBERS, host=HostReason.COMPUTED_ADDRESSES),
    "And": Operator(pattern=Pattern.BROADCAST, traits=Trait.TRUTH, host=HostReason.NOT_REAL),
    "ArgMax": Operator(pattern=Pattern.COMM_REDUCE, host=HostReason.ACROSS_CHANNELS),
    "ArgMin": Operator(pattern=Pattern.COMM_REDUCE, host=HostReason.ACROSS_CHANNELS),
    "Asin": Operator(host=HostReason.UNBOUNDED),
    "Asinh": Operator(host=HostReason.UNBOUNDED),
    "Atan": Operator(traits=Trait.FUNCTION),
    "Atanh": Operator(host=HostReason.UNBOUNDED),
    "Attention": Operator(host=HostReason.COMPUTED_FACTORS),
    "AveragePool": Operator(
        pattern=Pattern.OUT_EWISE_FUSABLE,
        window=Window.GATHERS,
        traits=Trait.QUANTISED | Trait.HOMOGENEOUS | Trait.AVERAGES,
    ),
    "BatchNormalization": Operator(traits=Trait.REAL_CONSTANTS | Trait.AFFINE),
    "Bernoulli": Operator(traits=Trait.RANDOM, host=HostReason.MAKES_NUMBERS),
    "BitCast": Operator(host=HostReason.NOT_REAL),
    "BitShift": Operator(host=HostReason.NOT_REAL),
    "BitwiseAnd": Operator(host=HostReason.NOT_REAL),
    "BitwiseNot": Operator(host=HostReason.NOT_REAL),
    "BitwiseOr": Operator(host=HostReason.NOT_REAL),
    "BitwiseXor": Operator(host=HostReason.NOT_REAL),
    "BlackmanWindow": Operator(traits=Trait.SIZED_BY_NUMBERS, host=HostReason.MAKES_NUMBERS),
    "Cast": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.CONVERTS, host=HostReason.NOT_REAL),
    "CastLike": Operator(host=HostReason.NOT_REAL),
    "CausalConvWithState": Operator(host=HostReason.CONTROL_FLOW),
    "Ceil": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "Celu": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "CenterCropPad": Operator(traits=Trait.SIZED_BY_NUMBERS, host=HostReason.MOVES_CHANNELS),
    "Clip": Operator(
        pattern=Pattern.ELEM_WISE,
        moves=Moves.CLAMP,
        traits=Trait.QUANTISED | Trait.NUMBERS | Trait.PART,
    ),
    "Col2Im": Operator(traits=Trait.SIZED_BY_NUMBERS, host=HostReason.MOVES_CHANNELS),
    "Compress": Operator(host=HostReason.COMPUTED_ADDRESSES),
    "Concat": Operator(pattern=Pattern.INJECTIVE, moves=Moves.JOIN, traits=Trait.QUANTISED),
    "ConcatFromSequence": Operator(traits=Trait.READS_SEQUENCE, host=HostReason.NOT_TENSORS),
    "Constant": Operator(host=HostReason.MAKES_NUMBERS),
    "ConstantOfShape": Operator(traits=Trait.SIZED_BY_NUMBERS, host=HostReason.MAKES_NUMBERS),
    "Conv": Operator(
        pattern=Pattern.OUT_EWISE_FUSABLE,
        weights=Weights(axis=0, bias=2),
        window=Window.GATHERS,
        traits=Trait.QUANTISED,
    ),
    "ConvInteger": Operator(traits=Trait.DYNAMIC_SCALES, host=HostReason.NOT_REAL),
    "ConvTranspose": Operator(
        pattern=Pattern.OUT_EWISE_FUSABLE,
        weights=Weights(axis=1, bias=2),
        window=Window.SCATTERS,
        traits=Trait.QUANTISED,
    ),
    "Cos": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "Cosh": Operator(host=HostReason.UNBOUNDED),
    "CumProd": Operator(host=HostReason.ACROSS_CHANNELS),
    "CumSum": Operator(host=HostReason.ACROSS_CHANNELS),
    "DFT": Operator(traits=Trait.SIZED_BY_NUMBERS, host=HostReason.COMPLEX),
    "DeformConv": Operator(host=HostReason.COMPUTED_ADDRESSES),
    "DepthToSpace": Operator(
        pattern=Pattern.INJECTIVE, moves=Moves.PIXELS, host=HostReason.MOVES_CHANNELS
    ),
    "DequantizeLinear": Operator(traits=Trait.CONVERTS | Trait.PAIR, host=HostReason.NOT_REAL),
    "Det": Operator(host=HostReason.ACROSS_CHANNELS),
    "Div": Operator(
        pattern=Pattern.BROADCAST,
        traits=Trait.FUNCTION | Trait.AFFINE | Trait.TRAPS,
        host=HostReason.TWO_MAPS,
        norm="divide",
    ),
    "Dropout": Operator(moves=Moves.COPY, traits=Trait.RANDOM),
    "DynamicQuantizeLinear": Operator(traits=Trait.DYNAMIC_SCALES, host=HostReason.NOT_REAL),
    "Einsum": Operator(
        pattern=Pattern.OUT_EWISE_FUSABLE,
        traits=Trait.QUANTISED,
        host=HostReason.COMPUTED_FACTORS,
    ),
    "Elu": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "Equal": Operator(pattern=Pattern.BROADCAST, traits=Trait.TRUTH, host=HostReason.NOT_REAL),
    "Erf": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "Exp": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "Expand": Operator(
        pattern=Pattern.BROADCAST,
        moves=Moves.REPEAT,
        traits=Trait.SIZED_BY_NUMBERS,
        host=HostReason.MOVES_CHANNELS,
    ),
    "EyeLike": Operator(traits=Trait.SIZED_BY_NUMBERS, host=HostReason.MAKES_NUMBERS),
    "Flatten": Operator(pattern=Pattern.INJECTIVE, moves=Moves.VIEW),
    "Floor": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "GRU": Operator(host=HostReason.CONTROL_FLOW),
    "Gather": Operator(
        pattern=Pattern.INJECTIVE, moves=Moves.SELECT, host=HostReason.MOVES_CHANNELS
    ),
    "GatherElements": Operator(host=HostReason.COMPUTED_ADDRESSES),
    "GatherND": Operator(host=HostReason.COMPUTED_ADDRESSES),
    "Gelu": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "Gemm": Operator(
        pattern=Pattern.OUT_EWISE_FUSABLE, weights=Weights(axis=0, bias=2), traits=Trait.QUANTISED
    ),
    "GlobalAveragePool": Operator(
        pattern=Pattern.OUT_EWISE_FUSABLE,
        traits=Trait.QUANTISED | Trait.HOMOGENEOUS | Trait.OWN_SCALE | Trait.AVERAGES,
    ),
    "GlobalLpPool": Operator(host=HostReason.ACROSS_CHANNELS),
    "GlobalMaxPool": Operator(
        pattern=Pattern.OUT_EWISE_FUSABLE, moves=Moves.LARGEST, traits=Trait.HOMOGENEOUS
    ),
    "Greater": Operator(pattern=Pattern.BROADCAST, traits=Trait.TRUTH, host=HostReason.NOT_REAL),
    "GreaterOrEqual": Operator(
        pattern=Pattern.BROADCAST, traits=Trait.TRUTH, host=HostReason.NOT_REAL
    ),
    "GridSample": Operator(host=HostReason.COMPUTED_ADDRESSES),
    "GroupNormalization": Operator(host=HostReason.ACROSS_CHANNELS, norm="group_norm"),
    "HammingWindow": Operator(traits=Trait.SIZED_BY_NUMBERS, host=HostReason.MAKES_NUMBERS),
    "HannWindow": Operator(traits=Trait.SIZED_BY_NUMBERS, host=HostReason.MAKES_NUMBERS),
    "HardSigmoid": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "HardSwish": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "Hardmax": Operator(host=HostReason.ACROSS_CHANNELS),
    "Identity": Operator(pattern=Pattern.ELEM_WISE, moves=Moves.COPY),
    "If": Operator(traits=Trait.BODIES, host=HostReason.CONTROL_FLOW),
    "ImageDecoder": Operator(host=HostReason.NOT_TENSORS),
    "InstanceNormalization": Operator(host=HostReason.ACROSS_CHANNELS),
    "IsInf": Operator(host=HostReason.NOT_REAL),
    "IsNaN": Operator(host=HostReason.NOT_REAL),
    "LRN": Operator(host=HostReason.ACROSS_CHANNELS),
    "LSTM": Operator(host=HostReason.CONTROL_FLOW),
    "LayerNormalization": Operator(
        traits=Trait.NORM, host=HostReason.ACROSS_CHANNELS, norm="layer_norm"
    ),
    "LeakyRelu": Operator(
        pattern=Pattern.ELEM_WISE,
        traits=Trait.QUANTISED
        | Trait.FUNCTION
        | Trait.SLOPES
        | Trait.HOMOGENEOUS
        | Trait.OWN_SCALE,
    ),
    "Less": Operator(pattern=Pattern.BROADCAST, traits=Trait.TRUTH, host=HostReason.NOT_REAL),
    "LessOrEqual": Operator(
        pattern=Pattern.BROADCAST, traits=Trait.TRUTH, host=HostReason.NOT_REAL
    ),
    "LinearAttention": Operator(host=HostReason.COMPUTED_FACTORS),
    "Log": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "LogSoftmax": Operator(host=HostReason.ACROSS_CHANNELS),
    "Loop": Operator(traits=Trait.BODIES, host=HostReason.CONTROL_FLOW),
    "LpNormalization": Operator(host=HostReason.ACROSS_CHANNELS),
    "LpPool": Operator(window=Window.GATHERS, host=HostReason.ACROSS_CHANNELS),
    "MatMul": Operator(pattern=Pattern.OUT_EWISE_FUSABLE, weights=Weights(axis=-1)),
    "MatMulInteger": Operator(traits=Trait.DYNAMIC_SCALES, host=HostReason.NOT_REAL),
    "Max": Operator(pattern=Pattern.BROADCAST, traits=Trait.FUNCTION, host=HostReason.TWO_MAPS),
    "MaxPool": Operator(
        pattern=Pattern.OUT_EWISE_FUSABLE,
        moves=Moves.LARGEST,
        window=Window.GATHERS,
        traits=Trait.QUANTISED | Trait.HOMOGENEOUS,
    ),
    "MaxRoiPool": Operator(host=HostReason.COMPUTED_ADDRESSES),
    "MaxUnpool": Operator(host=HostReason.COMPUTED_ADDRESSES),
    "Mean": Operator(pattern=Pattern.BROADCAST, host=HostReason.TWO_MAPS),
    "MeanVarianceNormalization": Operator(host=HostReason.ACROSS_CHANNELS),
    "MelWeightMatrix": Operator(traits=Trait.SIZED_BY_NUMBERS, host=HostReason.MAKES_NUMBERS),
    "Min": Operator(pattern=Pattern.BROADCAST, traits=Trait.FUNCTION, host=HostReason.TWO_MAPS),
    "Mish": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "Mod": Operator(pattern=Pattern.BROADCAST, traits=Trait.TRAPS, host=HostReason.NOT_REAL),
    "Mul": Operator(pattern=Pattern.BROADCAST, traits=Trait.QUANTISED | Trait.PART | Trait.AFFINE),
    "Multinomial": Operator(traits=Trait.RANDOM, host=HostReason.MAKES_NUMBERS),
    "Neg": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "NegativeLogLikelihoodLoss": Operator(host=HostReason.ACROSS_CHANNELS),
    "NonMaxSuppression": Operator(host=HostReason.COMPUTED_ADDRESSES),
    "NonZero": Operator(host=HostReason.COMPUTED_ADDRESSES),
    "Not": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.TRUTH, host=HostReason.NOT_REAL),
    "OneHot": Operator(traits=Trait.SIZED_BY_NUMBERS, host=HostReason.COMPUTED_ADDRESSES),
    "Optional": Operator(host=HostReason.NOT_TENSORS),
    "OptionalGetElement": Operator(host=HostReason.NOT_TENSORS),
    "OptionalHasElement": Operator(host=HostReason.NOT_TENSORS),
    "Or": Operator(pattern=Pattern.BROADCAST, traits=Trait.TRUTH, host=HostReason.NOT_REAL),
    "PRelu": Operator(
        pattern=Pattern.BROADCAST,
        traits=Trait.REAL_CONSTANTS
        | Trait.FUNCTION
        | Trait.SLOPES
        | Trait.HOMOGENEOUS
        | Trait.OWN_SCALE,
    ),
    "Pad": Operator(
        pattern=Pattern.INJECTIVE,
        moves=Moves.PAD,
        traits=Trait.QUANTISED | Trait.NUMBERS | Trait.SIZED_BY_NUMBERS,
    ),
    "Pow": Operator(pattern=Pattern.BROADCAST, traits=Trait.FUNCTION, host=HostReason.TWO_MAPS),
    "QLinearConv": Operator(host=HostReason.NOT_REAL),
    "QLinearMatMul": Operator(host=HostReason.NOT_REAL),
    "QuantizeLinear": Operator(traits=Trait.CONVERTS | Trait.PAIR, host=HostReason.NOT_REAL),
    "RMSNormalization": Operator(
        traits=Trait.NORM, host=HostReason.ACROSS_CHANNELS, norm="rms_norm"
    ),
    "RNN": Operator(host=HostReason.CONTROL_FLOW),
    "RandomNormal": Operator(traits=Trait.RANDOM, host=HostReason.MAKES_NUMBERS),
    "RandomNormalLike": Operator(traits=Trait.RANDOM, host=HostReason.MAKES_NUMBERS),
    "RandomUniform": Operator(traits=Trait.RANDOM, host=HostReason.MAKES_NUMBERS),
    "RandomUniformLike": Operator(traits=Trait.RANDOM, host=HostReason.MAKES_NUMBERS),
    "Range": Operator(traits=Trait.SIZED_BY_NUMBERS, host=HostReason.MAKES_NUMBERS),
    "Reciprocal": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "ReduceL1": Operator(pattern=Pattern.COMM_REDUCE, host=HostReason.ACROSS_CHANNELS),
    "ReduceL2": Operator(pattern=Pattern.COMM_REDUCE, host=HostReason.ACROSS_CHANNELS),
    "ReduceLogSum": Operator(host=HostReason.ACROSS_CHANNELS),
    "ReduceLogSumExp": Operator(host=HostReason.ACROSS_CHANNELS),
    "ReduceMax": Operator(
        pattern=Pattern.COMM_REDUCE, moves=Moves.LARGEST, host=HostReason.ACROSS_CHANNELS
    ),
    "ReduceMean": Operator(
        pattern=Pattern.COMM_REDUCE, traits=Trait.AVERAGES, host=HostReason.ACROSS_CHANNELS
    ),
    "ReduceMin": Operator(pattern=Pattern.COMM_REDUCE, host=HostReason.ACROSS_CHANNELS),
    "ReduceProd": Operator(pattern=Pattern.COMM_REDUCE, host=HostReason.ACROSS_CHANNELS),
    "ReduceSum": Operator(pattern=Pattern.COMM_REDUCE, host=HostReason.ACROSS_CHANNELS),
    "ReduceSumSquare": Operator(host=HostReason.ACROSS_CHANNELS),
    "RegexFullMatch": Operator(host=HostReason.NOT_TENSORS),
    "Relu": Operator(
        pattern=Pattern.ELEM_WISE,
        moves=Moves.RECTIFY,
        traits=Trait.QUANTISED | Trait.PART | Trait.HOMOGENEOUS,
    ),
    "Reshape": Operator(
        pattern=Pattern.INJECTIVE, moves=Moves.VIEW, traits=Trait.QUANTISED | Trait.NUMBERS
    ),
    "Resize": Operator(
        pattern=Pattern.INJECTIVE,
        moves=Moves.REPEAT,
        traits=Trait.QUANTISED | Trait.NUMBERS | Trait.SIZED_BY_NUMBERS,
    ),
    "ReverseSequence": Operator(host=HostReason.MOVES_CHANNELS),
    "RoiAlign": Operator(host=HostReason.COMPUTED_ADDRESSES),
    "RotaryEmbedding": Operator(host=HostReason.COMPUTED_FACTORS),
    "Round": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "STFT": Operator(traits=Trait.SIZED_BY_NUMBERS, host=HostReason.COMPLEX),
    "Scan": Operator(traits=Trait.BODIES, host=HostReason.CONTROL_FLOW),
    "Scatter": Operator(host=HostReason.COMPUTED_ADDRESSES),
    "ScatterElements": Operator(host=HostReason.COMPUTED_ADDRESSES),
    "ScatterND": Operator(host=HostReason.COMPUTED_ADDRESSES),
    "Selu": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "SequenceAt": Operator(traits=Trait.READS_SEQUENCE, host=HostReason.NOT_TENSORS),
    "SequenceConstruct": Operator(traits=Trait.MAKES_SEQUENCE, host=HostReason.NOT_TENSORS),
    "SequenceEmpty": Operator(traits=Trait.MAKES_SEQUENCE, host=HostReason.NOT_TENSORS),
    "SequenceErase": Operator(traits=Trait.MAKES_SEQUENCE, host=HostReason.NOT_TENSORS),
    "SequenceInsert": Operator(traits=Trait.MAKES_SEQUENCE, host=HostReason.NOT_TENSORS),
    "SequenceLength": Operator(traits=Trait.READS_SEQUENCE, host=HostReason.NOT_TENSORS),
    "SequenceMap": Operator(traits=Trait.BODIES, host=HostReason.NOT_TENSORS),
    "Shape": Operator(host=HostReason.MAKES_NUMBERS),
    "Shrink": Operator(host=HostReason.UNBOUNDED),
    "Sigmoid": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION | Trait.NONEXPANSIVE),
    "Sign": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "Sin": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "Sinh": Operator(host=HostReason.UNBOUNDED),
    "Size": Operator(host=HostReason.MAKES_NUMBERS),
    "Slice": Operator(
        pattern=Pattern.INJECTIVE, moves=Moves.SELECT, host=HostReason.MOVES_CHANNELS
    ),
    "Softmax": Operator(traits=Trait.NONEXPANSIVE, host=HostReason.ACROSS_CHANNELS, norm="softmax"),
    "SoftmaxCrossEntropyLoss": Operator(host=HostReason.ACROSS_CHANNELS),
    "Softplus": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "Softsign": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "SpaceToDepth": Operator(
        pattern=Pattern.INJECTIVE, moves=Moves.PIXELS, host=HostReason.MOVES_CHANNELS
    ),
    "Split": Operator(
        pattern=Pattern.INJECTIVE, moves=Moves.SELECT, traits=Trait.QUANTISED | Trait.NUMBERS
    ),
    "SplitToSequence": Operator(traits=Trait.MAKES_SEQUENCE, host=HostReason.NOT_TENSORS),
    "Sqrt": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "Squeeze": Operator(pattern=Pattern.INJECTIVE, moves=Moves.VIEW),
    "StringConcat": Operator(host=HostReason.NOT_TENSORS),
    "StringNormalizer": Operator(host=HostReason.NOT_TENSORS),
    "StringSplit": Operator(host=HostReason.NOT_TENSORS),
    "Sub": Operator(
        pattern=Pattern.BROADCAST,
        traits=Trait.QUANTISED | Trait.FUNCTION | Trait.AFFINE | Trait.NONEXPANSIVE,
    ),
    "Sum": Operator(pattern=Pattern.BROADCAST, traits=Trait.NONEXPANSIVE),
    "SwiGLU": Operator(host=HostReason.TWO_MAPS),
    "Swish": Operator(traits=Trait.FUNCTION),
    "Tan": Operator(host=HostReason.UNBOUNDED),
    "Tanh": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION | Trait.NONEXPANSIVE),
    "TensorScatter": Operator(host=HostReason.COMPUTED_ADDRESSES),
    "TfIdfVectorizer": Operator(host=HostReason.NOT_TENSORS),
    "ThresholdedRelu": Operator(pattern=Pattern.ELEM_WISE, traits=Trait.FUNCTION),
    "Tile": Operator(
        pattern=Pattern.INJECTIVE,
        moves=Moves.REPEAT,
        traits=Trait.SIZED_BY_NUMBERS,
        host=HostReason.MOVES_CHANNELS,
    ),
    "TopK": Operator(host=HostReason.COMPUTED_ADDRESSES),
    "Transpose": Operator(
        pattern=Pattern.INJECTIVE,
        moves=Moves.PERMUTE,
        traits=Trait.QUANTISED,
        host=HostReason.MOVES_CHANNELS,
    ),
    "Trilu": Operator(host=HostReason.MOVES_CHANNELS),
    "Unique": Operator(host=HostReason.COMPUTED_ADDRESSES),
    "Unsqueeze": Operator(pattern=Pattern.INJECTIVE, moves=Moves.VIEW),
    "Upsample": Operator(pattern=Pattern.INJECTIVE, traits=Trait.SIZED_BY_NUMBERS),
    "Where": Operator(pattern=Pattern.BROADCAST, host=HostReason.NOT_REAL),
    "Xor": Operator(pattern=Pattern.BROADCAST, traits=Trait.TRUTH, host=HostReason.NOT_REAL),
}
