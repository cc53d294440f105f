"""A fact about QuantizeLinear and DequantizeLinear nodes."""

import onnx_ir as ir


def type_of_zero(node: ir.Node) -> ir.DataType | None:
    """The type of a zero point that is not written: that of what a DequantizeLinear reads, None
    where it is not known; for a QuantizeLinear uint8 unless it says otherwise.
    """
    if node.op_type == "QuantizeLinear":
        return ir.DataType(node.attributes.get_int("output_dtype", 0) or ir.DataType.UINT8)
    return None if node.inputs[0] is None else node.inputs[0].dtype
