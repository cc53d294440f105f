"""Selections and permutations of channels become one Gather, however the model spells them.

Exporters write them as chains of Reshape, Transpose, Gather, Slice, Squeeze and Split. Each chain
between two images is evaluated on element indices. If the result consists of whole channels, a
Gather of channels, which machines support, replaces the chain. An identity disappears.

A Reshape, Transpose, Reshape that interleaves groups does not change: it is a composite operator
(`model/composites.py`).
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.element_order import MOVES
from opu_fuse.frontend.canonical.norms import is_of_norm
from opu_fuse.frontend.editing import (
    add_constant,
    is_standard,
    merge_sources,
    operand,
    quant_of,
    rewrite,
    standard_nodes,
    static_shape,
)
from opu_fuse.model.composites import interleaving

LARGEST = 1 << 22
"""Largest number of elements of an image that is analysed."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    ends = standard_nodes(model.graph, "Gather", "Reshape", "Slice", "Transpose")
    changed = [_choose(model.graph, node) for node in ends]
    return any(changed)


def _choose(graph: ir.Graph, node: ir.Node) -> bool:
    target = static_shape(node.outputs[0])
    if target is None or len(target) != 4 or interleaving(node) is not None:
        return False
    chain = _chain(node, target)
    is_chain = len(chain) > 1
    source = chain[-1].inputs[0] if is_chain or (chain and node.op_type == "Gather") else None
    shape = static_shape(source)
    order = None if shape is None else _order(chain, shape)
    if source is None or order is None:
        return False
    if np.array_equal(order, np.arange(shape[1])):  # type: ignore[index]  # `order` came from it
        rewrite(node, "Identity", [source])
        return True
    if not is_chain:
        return False
    merge_sources(node, chain[1:])
    indices = add_constant(graph, f"{node.name}/order", order.astype(np.int64))
    rewrite(node, "Gather", [source, indices], {"axis": 1})
    return True


def _chain(node: ir.Node, target: tuple[int, ...]) -> list[ir.Node]:
    """The nodes from `node` back to the nearest image with as many rows and columns.

    All of them only move values. Empty if there is no such chain, or if it requantises.
    """
    chain, rounding = [node], quant_of(node.outputs[0])
    while is_standard(chain[-1], *MOVES) and not is_of_norm(chain[-1]):
        value = operand(chain[-1], 0)
        shape = static_shape(value)
        if value is None or shape is None or quant_of(value) not in {None, rounding}:
            return []
        if len(shape) == 4 and (shape[0], *shape[2:]) == (1, *target[2:]):
            return chain if rounding in {None, quant_of(value)} else []
        producer = value.producer()
        if producer is None:
            return []
        chain.append(producer)
    return []


def _order(chain: list[ir.Node], shape: tuple[int, ...]) -> np.ndarray | None:
    """Source channel of each result channel; None if the chain splits channels."""
    count = int(np.prod(shape))
    if count > LARGEST or 0 in shape:
        return None
    elements = np.arange(count).reshape(shape)
    values = [link.inputs[0] for link in chain[:-1]]
    for link, result in zip(reversed(chain), [*reversed(values), chain[0].outputs[0]], strict=True):
        permuted = MOVES[link.op_type](elements, link, result)  # type: ignore[arg-type]  # links read what they are linked by
        if permuted is None:
            return None
        elements = permuted
    order = elements[0, :, 0, 0] // (shape[2] * shape[3])
    expected = np.arange(count).reshape(shape)[:, order]
    return order if np.array_equal(elements, expected) else None
