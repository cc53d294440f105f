"""Finds the image preprocessing at the head of a model, from input bytes to the first layer.

A camera delivers bytes, and networks are trained on normalised values. A model that includes its
preprocessing begins with a Cast, divisions, a subtraction of the mean, a Transpose to channels
first, a permutation of the channels. All of it is a function of one byte and its channel: a table
of 256 values that an input port applies while it packs the image. Neither the machine nor the host
CPU computes these nodes, and no inner value is rounded.
"""

import onnx_ir as ir

from opu_fuse.model.known_values import const_array, known_shape
from opu_fuse.model.operator_sets import AFFINE, ELEMENT_WISE, NORMS, REARRANGES
from opu_fuse.model.opsets import STANDARD
from opu_fuse.quant import FLOAT_KEY, META_KEY

_BYTES = frozenset((ir.DataType.UINT8, ir.DataType.INT8))
_REALS = frozenset((ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE))


def preprocessing(graph: ir.Graph) -> dict[ir.Value, tuple[ir.Node, ...]]:
    """Preprocessing nodes of each 8-bit input, in order, up to the float map of the first layer.

    An input is omitted if there is no such map, or the nodes only move data. Each node reads
    constants and the result of its predecessor, which has no other reader. After a result that a
    quantised model rounds, only nodes that move data follow.
    """
    inputs = [value for value in graph.inputs if value.dtype in _BYTES]
    chains = {value: _trimmed_chain(value) for value in inputs}
    return {value: nodes for value, nodes in chains.items() if nodes}


def preprocessing_nodes(graph: ir.Graph) -> frozenset[ir.Node]:
    """Preprocessing nodes of all inputs."""
    return frozenset(node for nodes in preprocessing(graph).values() for node in nodes)


def after_bytes(graph: ir.Graph) -> list[ir.Value]:
    """For each 8-bit input the value after the longest chain that its port could compute."""
    inputs = [value for value in graph.inputs if value.dtype in _BYTES]
    chains = [_chain(value) for value in inputs]
    ends = zip(inputs, chains, strict=True)
    return [nodes[-1].outputs[0] if nodes else value for value, nodes in ends]


def _trimmed_chain(model_input: ir.Value) -> tuple[ir.Node, ...]:
    """Preprocessing nodes of an input: the chain up to its last float map."""
    nodes = _chain(model_input)
    while nodes and not _is_map(nodes[-1].outputs[0]):
        nodes.pop()
    return () if REARRANGES.issuperset([node.op_type for node in nodes]) else tuple(nodes)


def _chain(model_input: ir.Value) -> list[ir.Node]:
    """Longest chain of nodes after an input that a port could compute."""
    nodes: list[ir.Node] = []
    value, rounded = model_input, None
    while (node := _reader(value)) is not None and _takes(node, value, rounded is None):
        value = node.outputs[0]
        own = value.meta.get(META_KEY)
        if rounded is not None and own not in {None, rounded}:
            break
        rounded = rounded or own
        nodes.append(node)
    return nodes


def _reader(value: ir.Value) -> ir.Node | None:
    """Only reader of a value, in the same graph; else None."""
    uses = list(value.uses())
    if len(uses) != 1 or value.is_graph_output() or uses[0].node.graph is not value.graph:
        return None
    return uses[0].node


def _takes(node: ir.Node, value: ir.Value, computes: bool) -> bool:
    """Whether a port can compute a node that reads `value`.

    computes: whether element-wise functions are allowed, too, not only moves of data.
    """
    others = [v for v in node.inputs if v is not None and v is not value]
    known = all(const_array(v) is not None and META_KEY not in v.meta for v in others)
    if node.domain not in STANDARD or not known:
        return False
    shape = known_shape(node.outputs[0])
    if len(node.outputs) > 1 or not shape or 0 in shape or FLOAT_KEY in node.metadata_props:
        return False
    if node.op_type in REARRANGES:
        return not _is_of_norm(node)
    if not computes or shape != known_shape(value):
        return False
    if node.op_type == "Cast":
        return node.outputs[0].dtype in _REALS
    return node.op_type in ELEMENT_WISE | AFFINE


def _is_of_norm(node: ir.Node) -> bool:
    """Whether a normalisation of the channels reads the result: both are one operator."""
    reader = _reader(node.outputs[0]) if node.op_type == "Transpose" else None
    return reader is not None and reader.op_type in NORMS


def _is_map(value: ir.Value) -> bool:
    shape = known_shape(value)
    real = value.dtype == ir.DataType.FLOAT and not value.is_graph_output()
    return real and len(shape) == 4 and shape[0] == 1
