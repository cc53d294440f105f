"""Softmax over groups of channels, as the canonical form writes it.

    (1, groups * size, h, w) -> Reshape (1, groups, size, h * w) -> Softmax of axis 2
    -> Reshape (1, groups * size, h, w)

Machines run it whose norm unit has a Softmax for each quarter of a word, of which a group fills
one. The rewrite that inserts it (`canonical/binned_distances.py`) marks the last Reshape with
`quant.GROUPED_KEY`.
"""

import onnx_ir as ir

from opu_fuse.quant import GROUPED_KEY

_CHAIN = ("Reshape", "Softmax", "Reshape")


def of_groups(size: int) -> str:
    """What a machine says that it runs: a Softmax over groups of so many channels, four of which
    fill a word.
    """
    return f"Softmax of {size}"


def grouped_softmax(last: ir.Node) -> tuple[ir.Node, ...] | None:
    """The nodes of the Softmax whose last one is `last`, in graph order; None for other nodes."""
    if GROUPED_KEY not in last.metadata_props:
        return None
    nodes = [last]
    while len(nodes) < len(_CHAIN):
        value = nodes[0].inputs[0]
        before = None if value is None else value.producer()
        if value is None or before is None or len(value.uses()) != 1 or value.is_graph_output():
            return None
        nodes.insert(0, before)
    return tuple(nodes) if tuple(node.op_type for node in nodes) == _CHAIN else None
