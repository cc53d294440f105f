"""What the compiler knows of ONNX operators is in one place: each set has the members that are
written here, and no other file lists operators by what they have in common.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from opu_fuse.model import operator_sets
from opu_fuse.model.operators import OPERATORS

PACKAGE = Path(__file__).resolve().parents[2] / "opu_fuse"
STANDARD = {s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == ""}
SETS = {name for name, value in vars(operator_sets).items() if isinstance(value, frozenset)}

MEMBERS = {
    "QUANTISED": (
        "Add AveragePool Clip Concat Conv ConvTranspose Einsum Gemm GlobalAveragePool LeakyRelu "
        "MaxPool Mul Pad Relu Reshape Resize Split Sub Transpose"
    ),
    "BY_NUMBERS": "Clip Pad Reshape Resize Split",
    "REAL_CONSTANTS": "BatchNormalization PRelu",
    "OWN_SCALE": "GlobalAveragePool LeakyRelu PRelu",
    "DYNAMIC_SCALES": "ConvInteger DynamicQuantizeLinear MatMulInteger",
    "WEIGHTED": "Conv ConvTranspose Gemm MatMul",
    "LAYERS": "Conv ConvTranspose Gemm",
    "ROWS_FIRST": "Conv Gemm",
    "CONVOLUTIONS": "Conv ConvTranspose",
    "POOLS": "AveragePool LpPool MaxPool",
    "WINDOWS_OF_OPERAND": "AveragePool Conv MaxPool",
    "FUNCTIONS": (
        "Abs Atan Ceil Celu Cos Div Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu "
        "Log Max Min Mish Neg PRelu Pow Reciprocal Round Selu Sigmoid Sign Sin Softplus "
        "Softsign Sqrt Sub Swish Tanh ThresholdedRelu"
    ),
    "UNARY": (
        "Abs Atan Ceil Celu Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Mish "
        "Neg Reciprocal Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Swish Tanh "
        "ThresholdedRelu"
    ),
    "ELEMENT_WISE": (
        "Abs Add Atan Ceil Celu Clip Cos Div Elu Erf Exp Floor Gelu HardSigmoid HardSwish "
        "LeakyRelu Log Max Min Mish Mul Neg PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign "
        "Sin Softplus Softsign Sqrt Sub Swish Tanh ThresholdedRelu"
    ),
    "AFFINE": "Add BatchNormalization Div Mul Sub",
    "COMMUTATIVE": "Add Mul",
    "SUMS": "Add Sub",
    "NORMS": "LayerNormalization RMSNormalization",
    "SLOPES": "LeakyRelu PRelu",
    "HOMOGENEOUS": "AveragePool GlobalAveragePool GlobalMaxPool LeakyRelu MaxPool PRelu Relu",
    "TRUTHS": "And Equal Greater GreaterOrEqual Less LessOrEqual Not Or Xor",
    "VIEWS": "Flatten Reshape Squeeze Unsqueeze",
    "UNMOVED": "Dropout Flatten Identity Reshape Squeeze Unsqueeze",
    "PERMUTES": "DepthToSpace SpaceToDepth Transpose",
    "SELECTS": "Gather Slice Split",
    "ALONG_AXIS": "Concat Split",
    "REARRANGES": (
        "DepthToSpace Dropout Flatten Gather Identity Reshape Slice SpaceToDepth Split "
        "Squeeze Transpose Unsqueeze"
    ),
    "TRANSFERS": (
        "Concat DepthToSpace Dropout Flatten Gather Identity Reshape Slice SpaceToDepth Split "
        "Squeeze Transpose Unsqueeze"
    ),
    "MOVES_VALUES": (
        "Concat DepthToSpace Dropout Expand Flatten Gather GlobalMaxPool Identity MaxPool Pad "
        "ReduceMax Relu Reshape Resize Slice SpaceToDepth Split Squeeze Tile Transpose "
        "Unsqueeze"
    ),
    "KEEPS_NUMBERS": (
        "Concat DepthToSpace Dropout Expand Flatten Gather GlobalMaxPool Identity MaxPool "
        "ReduceMax Relu Reshape Resize Slice SpaceToDepth Split Squeeze Tile Transpose "
        "Unsqueeze"
    ),
    "MONOTONE": (
        "Clip Concat DepthToSpace Dropout Flatten GlobalMaxPool Identity MaxPool ReduceMax "
        "Relu Reshape SpaceToDepth Squeeze Transpose Unsqueeze"
    ),
    "AVERAGES": "AveragePool GlobalAveragePool ReduceMean",
    "WITHIN_RANGE": (
        "AveragePool Clip Concat DepthToSpace Dropout Expand Flatten Gather GlobalAveragePool "
        "GlobalMaxPool Identity MaxPool Pad ReduceMax ReduceMean Relu Reshape Resize Slice "
        "SpaceToDepth Split Squeeze Tile Transpose Unsqueeze"
    ),
    "NONEXPANSIVE": (
        "Add AveragePool Clip Concat DepthToSpace Dropout Expand Flatten Gather "
        "GlobalAveragePool GlobalMaxPool Identity MaxPool Pad ReduceMax ReduceMean Relu "
        "Reshape Resize Sigmoid Slice Softmax SpaceToDepth Split Squeeze Sub Sum Tanh Tile "
        "Transpose Unsqueeze"
    ),
    "TIES_SCALES": "AveragePool Clip Concat MaxPool Pad Relu Reshape Resize Split Transpose",
    "COMPUTES": (
        "Abs Add Atan AveragePool BatchNormalization Ceil Celu Conv ConvTranspose Cos Div "
        "Einsum Elu Erf Exp Floor Gelu Gemm GlobalAveragePool HardSigmoid HardSwish LeakyRelu Log "
        "Max Min Mish Mul Neg PRelu Pow Reciprocal Round Selu Sigmoid Sign Sin Softplus Softsign "
        "Sqrt Sub Swish Tanh ThresholdedRelu"
    ),
    "PAIRS": "DequantizeLinear QuantizeLinear",
    "CONVERTS": "Cast DequantizeLinear QuantizeLinear",
    "BODIES": "If Loop Scan SequenceMap",
    "RANDOM": (
        "Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform "
        "RandomUniformLike"
    ),
    "SIZED_BY_NUMBERS": (
        "AffineGrid BlackmanWindow CenterCropPad Col2Im ConstantOfShape DFT Expand EyeLike "
        "HammingWindow HannWindow MelWeightMatrix OneHot Pad Range Resize STFT Tile Upsample"
    ),
    "TRAPS": "Div Mod",
    "MAKES_SEQUENCES": (
        "SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SplitToSequence"
    ),
    "READS_SEQUENCES": "ConcatFromSequence SequenceAt SequenceLength",
}

RULE = "operator -> function that rewrites, lowers or computes it"
VALUE = "operator -> a value of its own"
EFFORT = "formula of its products, other domains included"
# (file, name of the table or its function) -> why it is no trait.
DISPATCH = {
    ("dfg/lower_node.py", "LOWERINGS"): RULE,
    ("frontend/importing/qoperator.py", "_FORMS"): RULE,
    ("frontend/importing/qoperator.py", "_numbers"): VALUE,
    ("frontend/importing/recognise_norms.py", "_OF_LENGTH"): "what exporters write in a quotient",
    ("frontend/importing/decompose/contrib.py", "MEANINGS"): RULE,
    ("frontend/importing/decompose/contrib.py", "OF_STANDARD"): RULE,
    ("frontend/importing/decompose/contrib.py", "_NEEDED"): VALUE,
    ("frontend/importing/decompose/fused.py", "_NUMBERS"): VALUE,
    ("frontend/importing/decompose/control_flow.py", "_FORMS"): RULE,
    (
        "frontend/importing/decompose/sequences.py",
        "_elements",
    ): "makers without a sequence before them",
    ("frontend/canonical/binned_distances.py", "run"): "what a machine has to run for its rule",
    ("frontend/canonical/convolutions.py", "run"): RULE,
    ("frontend/canonical/elementwise.py", "_RULES"): RULE,
    ("frontend/canonical/identities.py", "_NEUTRAL"): VALUE,
    ("frontend/canonical/identities.py", "_REDUCTIONS"): "what its rule removes",
    ("frontend/canonical/identities.py", "_WRAPPERS"): "what its rule removes",
    ("frontend/canonical/lift_1d.py", "_CHANNELS_FIRST"): "what its rule widens",
    ("frontend/canonical/lift_1d.py", "_OTHERS"): "what its rule widens",
    ("frontend/canonical/space_depth_as_conv.py", "_MOVED_BY_ATTENTION"): "views of tokens",
    ("frontend/canonical/space_depth_as_conv.py", "_RULES"): RULE,
    ("frontend/canonical/channel_convs.py", "_KEEP_PLACES"): "between convolutions along channels",
    ("frontend/canonical/stacked_maps.py", "_KINDS"): "what its rule rewrites",
    ("frontend/canonical/window_sums.py", "_NORMS"): "those that its rule moves",
    ("frontend/canonical/pools.py", "WHOLE_MAP"): VALUE,
    ("frontend/canonical/pools.py", "_POOLS"): "what its rule makes explicit",
    ("frontend/canonical/element_order.py", "MOVES"): RULE,
    ("frontend/canonical/products.py", "_MOVES"): "what its rule removes in a chain",
    ("frontend/canonical/sink_transposes.py", "_DEFAULT_AXIS"): VALUE,
    ("frontend/canonical/tokens.py", "_CASES"): "the operators of its cases",
    ("frontend/canonical/unfolds.py", "_CASES"): RULE,
    ("host/build/linalg/pointwise.py", "POINTWISE"): RULE,
    ("host/build/linalg/views.py", "VIEWS"): RULE,
    ("host/build/steps/bodies.py", "_SIZES"): "what shape inference answers",
    ("host/build/steps/indices.py", "looked_up"): RULE,
    ("host/build/steps/contractions.py", "CONTRACTIONS"): RULE,
    ("host/build/steps/elementwise.py", "ELEMENTWISE"): RULE,
    ("host/build/steps/lower.py", "_node"): RULE,
    ("host/build/steps/moves.py", "MOVES"): "what ONNX Runtime is asked to move",
    ("host/build/steps/moves.py", "moves"): "the moved ones that may interpolate",
    ("host/build/steps/operators.py", "OPERATORS"): RULE,
    ("host/build/steps/recurrent.py", "_ACTIVATIONS"): VALUE,
    ("host/build/steps/recurrent.py", "_CELLS"): RULE,
    ("host/build/steps/recurrent.py", "_GATES"): VALUE,
    ("host/build/steps/reductions.py", "REDUCTIONS"): RULE,
    ("model/checked_folding.py", "_PLAIN"): "what the folding library makes",
    ("model/composites.py", "_CHOOSERS"): RULE,
    ("model/composites.py", "interleaving"): "a chain of operators",
    ("model/composites.py", "permutation"): "a chain of operators",
    ("model/divisions.py", "_CHAIN"): "a chain of operators",
    ("model/grouped_softmax.py", "_CHAIN"): "a chain of operators",
    ("model/effort.py", "_FILTERS"): EFFORT,
    ("model/effort.py", "_FREE"): EFFORT,
    ("model/effort.py", "_PRODUCTS"): EFFORT,
    ("model/effort.py", "_RECURRENT"): EFFORT,
    ("model/effort.py", "_STANDARD"): RULE,
    ("model/folding.py", "EVALUATED"): "what the folding library evaluates",
    ("model/folding.py", "SHAPING"): "what the folding library evaluates",
    ("model/inference.py", "_NORMALISATIONS"): "what onnx does not infer",
    ("model/opsets.py", "_REWORDED"): "what the ONNX standard describes anew",
    ("sim/compare/users_model.py", "_KERNELS"): "beginnings of names",
    ("zoo/living.py", "run"): RULE,
}
HOMES = ("model/operators.py", "units/")  # a unit's record has the forms of its own operators


@pytest.mark.parametrize("name", MEMBERS)
def test_each_set_has_these_members(name: str):
    """A row or a query that changes, changes what the compiler does: it is written here, too."""
    assert getattr(operator_sets, name) == frozenset(MEMBERS[name].split())


def test_every_set_is_written_here():
    assert set(MEMBERS) == SETS


def test_rows_are_operators_of_the_standard_in_order():
    assert set(OPERATORS) <= STANDARD
    assert list(OPERATORS) == sorted(OPERATORS)


def lists(source: str) -> Iterator[tuple[str, list[str]]]:
    """(name of the table, or of the function around it; operators) of every tuple, list, set and
    dict with the names of two operators or more.
    """
    tree = ast.parse(source)
    parent = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        match node:
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                pass
            case ast.Dict(keys=items):
                pass
            case _:
                continue
        values = [item.value for item in items if isinstance(item, ast.Constant)]
        named = [value for value in values if isinstance(value, str) and value in STANDARD]
        if len(named) > 1:
            yield _owner(node, parent), named


def _owner(node: ast.AST, parent: dict[ast.AST, ast.AST]) -> str:
    name = ""
    while node in parent:
        node = parent[node]
        match node:
            case ast.FunctionDef(name=found):
                return found
            case ast.Assign(targets=[ast.Name(id=found)]):
                name = found
            case ast.AnnAssign(target=ast.Name(id=found)):
                name = found
            case _:
                pass
    return name


def test_no_other_file_lists_operators():
    found = {
        (str(path.relative_to(PACKAGE)), name)
        for path in PACKAGE.rglob("*.py")
        for name, _ in lists(path.read_text(encoding="utf-8"))
    }
    assert {entry for entry in found if not entry[0].startswith(HOMES)} == set(DISPATCH)


def test_a_list_of_operators_is_found():
    source = "_A = ('Relu', 'Clip')\ndef f(x):\n    return x in {'Add', 'Sub'}\nB = {'Mul': 1}\n"
    assert list(lists(source)) == [("_A", ["Relu", "Clip"]), ("f", ["Add", "Sub"])]
