"""Size limits of a network, so that a model which would take hours or exhaust memory is rejected.

`--budget` multiplies the limits. They apply to the elements of one value, of one constant and of
all values, to multiplications (of convolutions, dense layers, matrix products, windows of pools),
and to the instructions of a program. YOLOv3 with 416 rows uses a quarter of ALL_ELEMENTS and an
eighth of MULTIPLICATIONS. ResNet-50 on `opu-tiny` uses a quarter of INSTRUCTIONS.
"""

import functools
import math

import onnx_ir as ir

from opu_fuse.choices import option
from opu_fuse.errors import ModelError
from opu_fuse.frontend.editing import is_standard
from opu_fuse.model.effort import multiplications
from opu_fuse.model.operator_sets import POOLS

VALUE_ELEMENTS = 1 << 25
"""Elements of one result."""
CONSTANT_ELEMENTS = 1 << 27
"""Higher than for values: a dense layer of VGG-16 has 103 million weights."""
ALL_ELEMENTS = 1 << 29
MULTIPLICATIONS = 1 << 38
INSTRUCTIONS = 1 << 20
"""Instructions of compute and post, without loads and stores. Scheduling takes minutes then."""

_LARGE_BUDGET = 1 << 40
"""A network that needs a larger factor has wrong sizes."""


def check_budget(model: ir.Model, where: str, factor: float) -> None:
    """Raise ModelError, naming the node, if a network exceeds `factor` times the limits."""
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
        location = f"{where}: node {node.name!r} ({node.op_type})"
        usual = VALUE_ELEMENTS if _is_computed(node) else CONSTANT_ELEMENTS
        _require(location, largest, usual, factor)
        _require(location, elements, ALL_ELEMENTS, factor, "in all values up to here")
        _require(location, products, MULTIPLICATIONS, factor, "up to here", "multiplications")


def check_instructions(count: int, where: str, machine: str, factor: float) -> None:
    """Raise ModelError if a program exceeds `factor` times the limit of instructions.

    count: estimated instructions of compute and post on the machine.
    """
    where_counted, instead = f"estimated on {machine}", "a smaller network or a larger machine"
    _require(where, count, INSTRUCTIONS, factor, where_counted, "instructions", instead)


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
    """Time limit in seconds for ONNX Runtime to run `samples` samples on a slow, loaded machine."""
    elements, products = effort(model)
    return 10.0 + samples * (elements / 2e6 + products / 2e8)


def _products(node: ir.Node) -> int:
    """Multiplications of a node. An element of a pooling window counts as one."""
    if is_standard(node, *POOLS) and node.outputs:
        return _size(node.outputs[0]) * math.prod(node.attributes.get_ints("kernel_shape", ()))
    return multiplications(node)


def _size(value: ir.Value) -> int:
    """Elements of a value. An unknown dimension counts as 1; an unknown shape as 0 elements."""
    shape = value.shape
    return 0 if shape is None else _product(shape.dims)


@functools.lru_cache(maxsize=1024)
def _product(dims: tuple[int | ir.SymbolicDim, ...]) -> int:
    """Product of dimensions, cached since a network has few distinct shapes."""
    return math.prod([d if isinstance(d, int) else 1 for d in dims])


def _require(
    location: str,
    count: int,
    usual: int,
    factor: float,
    where_counted: str = "",
    what: str = "elements",
    instead: str = "a smaller network",
) -> None:
    """Raise ModelError if `count` exceeds `factor` times the limit `usual`."""
    if count <= usual * factor:
        return
    needed = math.ceil(count / usual)
    help_ = f"use {instead}, or raise the limit with {option('budget', needed)}"
    if needed > _LARGE_BUDGET:
        help_ = "check the sizes in the model"
    counted = f"{count:,} {what}{' ' if where_counted else ''}{where_counted}"
    raise ModelError(
        location, f"{counted} are more than the {int(usual * factor):,} allowed", help_
    )
