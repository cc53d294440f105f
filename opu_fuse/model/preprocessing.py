"""What a model does with the bytes of an image before its first layer.

A camera gives bytes, networks are trained on numbers around zero: models that hold their own
preprocessing begin with a Cast, divisions, a mean that is taken off, a Transpose to channels first,
channels in another order. All of it is a function of one byte, by channel: 256 numbers that a port
looks up while it packs the image. So no machine and no host computes it, and nothing is rounded
between.
"""

import onnx_ir as ir

from opu_fuse.model.known_values import const_array, known_shape
from opu_fuse.model.operator_sets import AFFINE, ELEMENT_WISE, REARRANGES
from opu_fuse.model.opsets import STANDARD
from opu_fuse.quant import FLOAT_KEY, META_KEY

_BYTES = frozenset((ir.DataType.UINT8, ir.DataType.INT8))
_REALS = frozenset((ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE))


def preprocessing(graph: ir.Graph) -> dict[ir.Value, tuple[ir.Node, ...]]:
    """For each input of bytes the nodes behind it, in order, up to the map of numbers that the
    network reads; without those where there is no such map, or it only changes places.

    Each reads constants and what the one before makes, for nobody else. Where a quantised model
    rounds what one of them makes, only moves follow.
    """
    given = [value for value in graph.inputs if value.dtype in _BYTES]
    found = {value: _behind(value) for value in given}
    return {value: nodes for value, nodes in found.items() if nodes}


def preprocessing_nodes(graph: ir.Graph) -> frozenset[ir.Node]:
    """All nodes of all inputs."""
    return frozenset(node for nodes in preprocessing(graph).values() for node in nodes)


def after_bytes(graph: ir.Graph) -> list[ir.Value]:
    """For each input of bytes the value behind all that its port could do."""
    given = [value for value in graph.inputs if value.dtype in _BYTES]
    chains = [_chain(value) for value in given]
    ends = zip(given, chains, strict=True)
    return [nodes[-1].outputs[0] if nodes else value for value, nodes in ends]


def _behind(given: ir.Value) -> tuple[ir.Node, ...]:
    nodes = _chain(given)
    while nodes and not _is_map(nodes[-1].outputs[0]):
        nodes.pop()
    return () if REARRANGES.issuperset([node.op_type for node in nodes]) else tuple(nodes)


def _chain(given: ir.Value) -> list[ir.Node]:
    nodes: list[ir.Node] = []
    value, rounded = given, None
    while (node := _reader(value)) is not None and _takes(node, value, rounded is None):
        value = node.outputs[0]
        own = value.meta.get(META_KEY)
        if rounded is not None and own not in {None, rounded}:
            break
        rounded = rounded or own
        nodes.append(node)
    return nodes


def _reader(value: ir.Value) -> ir.Node | None:
    """Who alone reads it."""
    uses = list(value.uses())
    if len(uses) != 1 or value.is_graph_output() or uses[0].node.graph is not value.graph:
        return None
    return uses[0].node


def _takes(node: ir.Node, value: ir.Value, computes: bool) -> bool:
    """Whether a node moves what it reads, or makes of each number another."""
    others = [v for v in node.inputs if v is not None and v is not value]
    known = all(const_array(v) is not None and META_KEY not in v.meta for v in others)
    if node.domain not in STANDARD or not known:
        return False
    shape = known_shape(node.outputs[0])
    if len(node.outputs) > 1 or not shape or 0 in shape or FLOAT_KEY in node.metadata_props:
        return False
    if node.op_type in REARRANGES:
        return True
    if not computes or shape != known_shape(value):
        return False
    if node.op_type == "Cast":
        return node.outputs[0].dtype in _REALS
    return node.op_type in ELEMENT_WISE | AFFINE


def _is_map(value: ir.Value) -> bool:
    shape = known_shape(value)
    real = value.dtype == ir.DataType.FLOAT and not value.is_graph_output()
    return real and len(shape) == 4 and shape[0] == 1
