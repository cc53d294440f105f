"""The data-flow graph as text, a line a node."""

from collections.abc import Iterator

from opu_fuse.dfg.graph import Access, Dfg, Kind, Node
from opu_fuse.quant import QuantParams


def dfg_lines(dfg: Dfg) -> Iterator[str]:
    """`%5 conv1: conv(%4, %1, %2) kernel=(3, 3) ... -> int8[1,8,12,12] scale 0.5`, nodes in order.

    Operands that are read with another access than FULL say so. A value without scale is not
    rounded. `for` is followed by nodes of the user's model, where these differ.
    """
    yield f"{dfg.name}: {len(dfg.nodes)} nodes, {'int8' if dfg.quantised else 'not quantised'}"
    for node in dfg.nodes:
        attrs = "".join(f" {name}={value}" for name, value in node.attrs.items())
        others = "" if node.source in ((), (node.name,)) else f" for {', '.join(node.source)}"
        yield f"%{node.index} {node.name}: {_definition(node)}{attrs} -> {_type(node)}{others}"
    yield f"outputs: {', '.join(f'%{index}' for index in dfg.outputs)}"


def _definition(node: Node) -> str:
    if node.kind in (Kind.VAR, Kind.CONST):
        return node.kind
    accesses = node.access or (Access.FULL,) * len(node.operands)
    operands = (
        f"%{index}{'' if access is Access.FULL else f' {access}'}"
        for index, access in zip(node.operands, accesses, strict=True)
    )
    return f"{node.op or node.kind}({', '.join(operands)})"


def _type(node: Node) -> str:
    shape = ",".join(str(size) for size in node.shape)
    if node.quant is not None:
        return f"int{node.quant.bits}[{shape}] {_scale(node.quant)}"
    dtype = "unknown" if node.type is None else node.type.dtype.name.lower()
    return f"{dtype}[{shape}]"


def _scale(quant: QuantParams) -> str:
    zero = f", zero point {quant.zero_point}" if quant.zero_point else ""
    if quant.axis is None:
        return f"scale {quant.per_tensor:g}{zero}"
    return f"scales {min(quant.scale):g} to {max(quant.scale):g} along axis {quant.axis}{zero}"
