"""Converts integer operators (QOperator format) to float operators between Q/DQ pairs.

ONNX Runtime's quantiser can write the QOperator format: QLinearConv, QGemm and the like, and
operators between them that move integers (Reshape, MaxPool). Brevitas adds a Clip of the integers
for fewer than eight bits. All are rewritten in QDQ form, which may round a tie the other way.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
from msgspec import Struct

from opu_fuse.frontend.editing import add_constant, constant, is_standard, operand, replace_value
from opu_fuse.frontend.qdq import DOMAINS, activation_params, is_quantize
from opu_fuse.model.operator_record import Moves
from opu_fuse.model.operator_sets import MOVES_VALUES, moving
from opu_fuse.model.operators import OPERATORS
from opu_fuse.quant import as_int8

_MOVERS = (MOVES_VALUES | moving(Moves.CLAMP)) - moving(Moves.JOIN, Moves.RECTIFY)
"""Operators that also move integers, if their limits and padding values are integers. Relu is not
among them: its zero is the zero point, not the integer 0."""


class Form(Struct, frozen=True, kw_only=True):
    """The float operator that an integer operator represents, and the positions of its operands.

    reals: positions of the quantised operands. Scale and zero point follow each of them. None: all
    operands from the third on, after scale and zero point of the result.
    result: position of the scale of the result. Its zero point follows.
    bias: position of an int32 bias, in units of the product of the operand scales.
    """

    op_type: str
    reals: tuple[int, ...] | None
    result: int
    bias: int | None = None


_FORMS: Mapping[str, Form] = {
    "QLinearConv": Form(op_type="Conv", reals=(0, 3), result=6, bias=8),
    "QLinearMatMul": Form(op_type="MatMul", reals=(0, 3), result=6),
    "QGemm": Form(op_type="Gemm", reals=(0, 3), result=7, bias=6),
    "QLinearAdd": Form(op_type="Add", reals=(0, 3), result=6),
    "QLinearMul": Form(op_type="Mul", reals=(0, 3), result=6),
    "QLinearConcat": Form(op_type="Concat", reals=None, result=0),
    "QLinearAveragePool": Form(op_type="AveragePool", reals=(0,), result=3),
    "QLinearGlobalAveragePool": Form(op_type="GlobalAveragePool", reals=(0,), result=3),
    "QLinearSigmoid": Form(op_type="Sigmoid", reals=(0,), result=3),
    "QLinearLeakyRelu": Form(op_type="LeakyRelu", reals=(0,), result=3),
    "QLinearSoftmax": Form(op_type="Softmax", reals=(0,), result=3),
}
_PER_AXIS = 13
"""Opset from which on a Softmax is over one axis. Before, it flattened all axes from one on."""


def has_integer_operators(model: ir.Model) -> bool:
    """Whether a model has integer operators that `convert_to_qdq` converts."""
    return any(_form(n) is not None or _moves_integers(n) for n in model.graph)


def convert_to_qdq(model: ir.Model) -> None:
    """Convert all integer operators to QDQ form (mutates the model).

    Shapes and names have to be inferred again afterwards. Unsupported variants (channels last, a
    computed bias) are not changed.
    """
    for node in list(model.graph):
        form = _form(node)
        if form is not None:
            _convert(model.graph, node, form)
        elif _moves_integers(node):
            _move_reals(node)


def _form(node: ir.Node) -> Form | None:
    """Form of an integer operator; None for other nodes and for unsupported variants."""
    form = _FORMS.get(node.op_type) if node.domain in DOMAINS else None
    if form is None or node.attributes.get_int("channels_last", 0):
        return None
    if form.op_type == "Softmax" and node.attributes.get_int("opset", 0) < _PER_AXIS:
        return None
    biased = form.bias is not None and operand(node, form.bias) is not None
    scale, zero = operand(node, form.result), operand(node, form.result + 1)
    if (biased and _step_of_products(node) is None) or (scale is None) != (zero is None):
        return None
    known = [operand(node, i + j) is not None for i in _indices(node, form) for j in (0, 1)]
    return form if known and all(known) else None


def _indices(node: ir.Node, form: Form) -> Sequence[int]:
    return range(2, len(node.inputs), 3) if form.reals is None else form.reals


def _step_of_products(node: ir.Node) -> np.ndarray | None:
    """Scale of the accumulator of a QLinearConv or QGemm, per tensor or per output channel.

    None if it is not constant.
    """
    x_scale, w_scale = constant(operand(node, 1)), constant(operand(node, 4))
    if x_scale is None or w_scale is None or x_scale.size != 1:
        return None
    return node.attributes.get_float("alpha", 1.0) * x_scale.reshape(()) * w_scale


def _convert(graph: ir.Graph, node: ir.Node, form: Form) -> None:
    """Convert one integer operator: DequantizeLinear, float operator, QuantizeLinear."""
    scale, zero = operand(node, form.result), operand(node, form.result + 1)
    weights = OPERATORS[form.op_type].weights
    axis = weights.axis if weights else 0
    if form.op_type == "Gemm" and not node.attributes.get_int("transB", 0):
        axis = 1
    reals = [
        _dequantised(node, *(operand(node, i + j) for j in range(3)), axis=axis)
        for i in _indices(node, form)
    ]
    bias = None if form.bias is None else operand(node, form.bias)
    if bias is not None:
        step = add_constant(graph, f"{node.name}/step", np.asarray(_step_of_products(node)))
        reals.append(_dequantised(node, bias, step, axis=-1))
    node.op_type, node.domain = form.op_type, ""
    for name in ("channels_last", "opset"):
        node.attributes.pop(name, None)
    node.resize_inputs(len(reals))
    for index, real in enumerate(reals):
        node.replace_input_with(index, real)
    if scale is not None:
        _quantise(node, 0, scale, zero)


def _moves_integers(node: ir.Node) -> bool:
    """Whether a node moves integers, the result of a QuantizeLinear, without computing."""
    source = node.inputs[0] if is_standard(node, *_MOVERS) and node.inputs else None
    quantise = None if source is None else source.producer()
    if quantise is None or not is_quantize(quantise):
        return False
    if node.op_type == "Resize":
        corner = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
        nearest = node.attributes.get_string("mode", "nearest") == "nearest"
        return nearest and corner != "tf_crop_and_resize"
    numbers = [constant(value) for _, value in _numbers(node)]
    if node.op_type == "Clip" or numbers:
        known = all(number is not None and number.ndim == 0 for number in numbers)
        return known and activation_params(quantise) is not None
    constant_pad = (
        node.op_type == "Pad" and node.attributes.get_string("mode", "constant") == "constant"
    )
    return not constant_pad and (len(node.outputs) == 1 or node.op_type == "Split")


def _numbers(node: ir.Node) -> list[tuple[int, ir.Value]]:
    """(operand index, value) of limits and padding values, quantised like the data."""
    positions = {"Clip": (1, 2), "Pad": (2,)}.get(node.op_type, ())
    return [(index, value) for index in positions if (value := operand(node, index)) is not None]


def _move_reals(node: ir.Node) -> None:
    """Put a node that moves integers between DequantizeLinear and QuantizeLinear."""
    source = node.inputs[0]
    quantise = None if source is None else source.producer()
    assert quantise is not None
    steps = [operand(quantise, 1), operand(quantise, 2)]
    _make_real(node, quantise)
    node.replace_input_with(0, _dequantised(node, source, *steps))
    for index in range(len(node.outputs)):
        _quantise(node, index, *steps)


def _make_real(node: ir.Node, quantise: ir.Node) -> None:
    """Dequantise the limits of a Clip and the padding value of a Pad."""
    quant, graph = activation_params(quantise), node.graph
    assert graph is not None
    for position, value in _numbers(node):
        number = constant(value)
        assert quant is not None
        assert number is not None
        steps = int(as_int8(number) if number.dtype == np.uint8 else number) - quant.zero_point
        real = steps * quant.per_tensor
        name = f"{value.name}/real"
        node.replace_input_with(position, add_constant(graph, name, np.asarray(real, np.float32)))


def _dequantised(node: ir.Node, *operands: ir.Value | None, axis: int = 0) -> ir.Value:
    """Insert a DequantizeLinear before `node`. operands: integers, scale, zero point."""
    integers = operands[0]
    assert integers is not None
    name = f"{node.name}/{integers.name}"
    new = ir.Node("", "DequantizeLinear", operands, [ir.AttrInt64("axis", axis)], name=name)
    real = new.outputs[0]
    real.name, real.dtype, real.shape = f"{name}/real", ir.DataType.FLOAT, integers.shape
    assert node.graph is not None
    node.graph.insert_before(node, new)
    return real


def _quantise(node: ir.Node, index: int, *steps: ir.Value | None) -> None:
    """Insert a QuantizeLinear after a result of `node`. It takes over the name and all readers."""
    real, graph = node.outputs[index], node.graph
    assert graph is not None
    name = real.name
    new = ir.Node("", "QuantizeLinear", [real, *steps], name=f"{node.name}/{name}")
    integers = new.outputs[0]
    replace_value(real, integers)
    new.replace_input_with(0, real)
    integers.name, integers.type, integers.shape = name, real.type, real.shape
    real.name, real.type = f"{name}/real", ir.TensorType(ir.DataType.FLOAT)
    graph.insert_after(node, new)
