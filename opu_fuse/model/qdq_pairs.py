"""Zero point type of QuantizeLinear and DequantizeLinear nodes."""

import onnx_ir as ir


def type_of_zero(node: ir.Node) -> ir.DataType | None:
    """Type of an omitted zero point.

    DequantizeLinear: the type of its operand, None if unknown. QuantizeLinear: `output_dtype`,
    uint8 by default.
    """
    if node.op_type == "QuantizeLinear":
        return ir.DataType(node.attributes.get_int("output_dtype", 0) or ir.DataType.UINT8)
    return None if node.inputs[0] is None else node.inputs[0].dtype
