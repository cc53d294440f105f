"""How large a network may be: what would take hours, or more memory than there is, ends at once.

The usual limits, which `--budget` multiplies: elements of one value, of one constant, of all
values, multiplications (of convolutions, dense layers, products of matrices, windows of pools), and
instructions of a program. YOLOv3 with 416 rows takes a quarter of the third and an eighth of the
fourth; ResNet-50 on `opu-tiny` a quarter of the last.
"""

import functools
import math

import onnx_ir as ir

from opu_fuse.errors import ModelError
from opu_fuse.frontend.editing import is_standard
from opu_fuse.model.effort import multiplications
from opu_fuse.model.operator_sets import POOLS

VALUE_ELEMENTS = 1 << 25
CONSTANT_ELEMENTS = 1 << 27
"""Weights of a dense layer may be larger than any map: VGG-16 has one of 103 million."""
ALL_ELEMENTS = 1 << 29
MULTIPLICATIONS = 1 << 38
INSTRUCTIONS = 1 << 20
"""Of compute and post; loads and stores come to them. Such a program takes minutes to make."""

_LARGE_BUDGET = 1 << 40


def check_budget(model: ir.Model, where: str, factor: float) -> None:
    """Raises ModelError, naming the node, where a network is larger than `factor` usual ones."""
    elements = products = 0
    for value in model.graph.inputs:
        _require(f"{where}: input {value.name!r}", _size(value), VALUE_ELEMENTS, factor)
        elements += _size(value)
    for node in model.graph:
        largest = 0
        for value in node.outputs:
            size = _size(value)
            elements += size
            largest = max(largest, size)
        products += _products(node)
        if (
            largest <= VALUE_ELEMENTS * factor
            and elements <= ALL_ELEMENTS * factor
            and products <= MULTIPLICATIONS * factor
        ):
            continue
        place = f"{where}: node {node.name!r} ({node.op_type})"
        usual = VALUE_ELEMENTS if _is_computed(node) else CONSTANT_ELEMENTS
        _require(place, largest, usual, factor)
        _require(place, elements, ALL_ELEMENTS, factor, "in all values up to here")
        _require(place, products, MULTIPLICATIONS, factor, "up to here", "multiplications")


def check_instructions(count: int, where: str, machine: str, factor: float) -> None:
    """Raises ModelError where the tiles of a network take more instructions of compute and post on
    a machine than `factor` usual programs have. count: at least so many.
    """
    scope, instead = f"or more on {machine}", "a smaller network or a larger machine"
    _require(where, count, INSTRUCTIONS, factor, scope, "instructions", instead)


def _is_computed(node: ir.Node) -> bool:
    """Whether a node's results depend on an input of the network."""
    stack, seen = [node], {node}
    while stack:
        for value in stack.pop().inputs:
            if value is not None and value.is_graph_input():
                return True
            producer = None if value is None else value.producer()
            if producer is not None and producer not in seen:
                seen.add(producer)
                stack.append(producer)
    return False


def effort(model: ir.Model) -> tuple[int, int]:
    """(elements of all results, multiplications) of one run."""
    results = (v for node in model.graph for v in node.outputs)
    return sum(map(_size, results)), sum(map(_products, model.graph))


def calibration_seconds(model: ir.Model, samples: int) -> float:
    """That ONNX Runtime may take for so many, even on a slow and busy machine."""
    elements, products = effort(model)
    return 10.0 + samples * (elements / 2e6 + products / 2e8)


def _products(node: ir.Node) -> int:
    """Multiplications, with those that the windows of pools stand for."""
    if is_standard(node, *POOLS) and node.outputs:
        return _size(node.outputs[0]) * math.prod(node.attributes.get_ints("kernel_shape", ()))
    return multiplications(node)


def _size(value: ir.Value) -> int:
    """Elements; a dimension that is not known counts as one."""
    shape = value.shape
    return 0 if shape is None else _product(shape.dims)


@functools.lru_cache(maxsize=1024)
def _product(dims: tuple[int | ir.SymbolicDim, ...]) -> int:
    """Networks repeat few of them often."""
    return math.prod([d if isinstance(d, int) else 1 for d in dims])


def _require(
    place: str,
    count: int,
    usual: int,
    factor: float,
    scope: str = "",
    what: str = "elements",
    instead: str = "a smaller network",
) -> None:
    if count <= usual * factor:
        return
    needed = math.ceil(count / usual)
    help_ = f"use {instead}, or raise the limit with --budget {needed}"
    if needed > _LARGE_BUDGET:
        help_ = "check the sizes in the model"
    counted = f"{count:,} {what}{' ' if scope else ''}{scope}"
    raise ModelError(place, f"{counted} are more than the {int(usual * factor):,} allowed", help_)
