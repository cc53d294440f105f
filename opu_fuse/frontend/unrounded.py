"""Keeps a float copy of inputs for readers that are not quantised.

A convolution reads an input rounded to int8. An operator that the quantiser leaves in floats reads
the original numbers of the same input. Nodes that only move an input and have readers of both types
are computed twice, once on int8 and once on floats.

Such an input is two values of the canonical model: the input itself, and `<input>/unrounded`, an
additional input whose annotation names the input of the user's model.
"""

from collections.abc import Collection, Mapping

import onnx
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    SOURCE_KEY,
    constant,
    is_standard,
    sources_of,
)
from opu_fuse.frontend.qdq import is_quantize
from opu_fuse.model.composites import PERMUTE, SHUFFLE, TABLE, Composite
from opu_fuse.model.operator_sets import PAIRS, QUANTISED, TRANSFERS
from opu_fuse.quant import FLOAT_KEY, NEEDLESS, UNROUNDED_KEY

_MOVERS = QUANTISED & TRANSFERS
"""Data movement that no module runs by itself. Without a neighbour to fuse with, the host CPU runs
it."""
_REPEATED = (TRANSFERS | {"Cast"}) - {"Gather"}
"""Operators that are cheap enough to compute twice. The Gather of an input is excluded, since the
input port of the program selects channels."""


def needless(
    graph: ir.Graph,
    touched: Collection[ir.Node],
    wholes: Mapping[ir.Node, Composite],
) -> set[ir.Node]:
    """Nodes that need no quantisation: they move data between float operators.

    No quantised operator computes their operands or reads their results, directly or through other
    data movement. touched: all nodes that would be quantised. wholes: composites.
    """
    tables = {n for whole in wholes.values() if whole.op == TABLE for n in whole.nodes}
    moving = {n for whole in wholes.values() if whole.op in {PERMUTE, SHUFFLE} for n in whole.nodes}
    movers = {n for n in touched if is_standard(n, *_MOVERS) or _selects(n)} - tables | moving
    if not movers:
        return set()
    nodes = [node for node in graph if node in touched]
    computed: set[ir.Node] = set()  # movers whose data a quantised operator computes
    for node in nodes:
        before = (v.producer() for v in node.inputs if v is not None)
        if node in movers and any(
            p in computed or (p in touched and p not in movers) for p in before
        ):
            computed.add(node)
    read: set[ir.Node] = set()  # movers whose data a quantised operator reads
    for node in reversed(nodes):
        after = (use.node for v in node.outputs for use in v.uses())
        if node in movers and any(
            n in read or n in computed or (n in touched and n not in movers) for n in after
        ):
            read.add(node)
    return movers - computed - read


def _selects(node: ir.Node) -> bool:
    """Whether a node is a MaxPool of single pixels: every n-th row and column."""
    ints = node.attributes.get_ints
    single = {*ints("kernel_shape", ())} == {1} and not any(ints("pads", ()))
    return is_standard(node, "MaxPool") and single


def _is_repeated(node: ir.Node) -> bool:
    return is_standard(node, *_REPEATED) or _selects(node)


def may_be_unrounded(value: ir.Value) -> bool:
    """Whether an input has several readers, itself or after nodes that only move it."""
    while True:
        readers = {use.node for use in value.uses()}
        if len(readers) + value.is_graph_output() != 1:
            return len(readers) > 0
        node = next(iter(readers), None)
        if node is None or not _is_repeated(node):
            return False
        if len(node.outputs) > 1:
            return True
        value = node.outputs[0]


def separate(graph: ir.Graph, touched: Collection[ir.Node], rounded: Collection[ir.Value]) -> None:
    """Let operators that are not quantised, and model outputs, read inputs in floats.

    Nodes that move an input and are quantised for other readers are duplicated.

    touched: the nodes that are quantised. rounded: the values that are quantised.
    """
    copies: dict[ir.Value, ir.Value] = {}
    for node in list(graph):
        for index, value in enumerate(() if node in touched else node.inputs):
            if value in rounded and moves_an_input(value):
                node.replace_input_with(index, _copied(value, copies))
    for value in [v for v in graph.outputs if v in rounded]:
        producer = value.producer()
        results = () if producer is None else producer.outputs
        if any(use.node in touched for v in results for use in v.uses()) and moves_an_input(value):
            _take_over(value, _copied(value, copies))


def split_inputs(graph: ir.Graph, touched: Collection[ir.Node] | None = None) -> None:
    """Give inputs with both quantised and float readers a second value for the float readers.

    touched: nodes that read quantised values. None: the QuantizeLinear nodes are meant.
    """
    for value in list(graph.inputs):
        readers = {use.node for use in value.uses()}
        quantised = {n for n in readers if (is_quantize(n) if touched is None else n in touched)}
        copies = {n for n in readers if is_copy(n)}
        if not quantised:
            quantised = readers - copies
        others = readers - quantised
        if quantised and (others or value.is_graph_output()):
            _split(graph, value, others)


def join_inputs(graph: ir.Graph) -> None:
    """Undo `split_inputs`: all readers read the input itself again."""
    for value in [v for v in graph.inputs if UNROUNDED_KEY in v.meta]:
        original = next(v for v in graph.inputs if v.name == value.meta[UNROUNDED_KEY])
        ir.convenience.replace_all_uses_with(value, original, replace_graph_outputs=True)
        graph.inputs.remove(value)


def is_copy(node: ir.Node) -> bool:
    """Whether a node is an Identity that copies a value to a model output."""
    return is_standard(node, "Identity") and node.outputs[0].is_graph_output()


def unround(graph: onnx.GraphProto, touched: Collection[str]) -> None:
    """Let float operators of a QDQ model bypass the Q/DQ pairs of inputs.

    touched: names of the nodes that are quantised.
    """
    inputs = {value.name for value in graph.input}
    rounded = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "QuantizeLinear"}
    pairs = {
        n.output[0]: source
        for n in graph.node
        if n.op_type == "DequantizeLinear" and (source := rounded.get(n.input[0])) in inputs
    }
    for node in graph.node:
        if node.name not in touched and node.op_type not in PAIRS:
            node.input[:] = [pairs.get(name) or name for name in node.input]


def moves_an_input(value: ir.Value | None) -> bool:
    """Whether only nodes that move or convert data compute a value from the inputs.

    False for inputs and constants themselves.
    """
    stack, repeats = [value], False
    while stack:
        producer = None if (value := stack.pop()) is None else value.producer()
        if producer is None or constant(value) is not None:
            continue
        if not _is_repeated(producer):
            return False
        repeats = True
        stack.extend(producer.inputs)
    return repeats


def is_passed_on(value: ir.Value) -> bool:
    """Whether a model output is a value that only moves inputs, or only moves the value further."""
    stack = [value] if moves_an_input(value) else []
    seen = set(stack)
    while stack:
        value = stack.pop()
        if value.is_graph_output():
            return True
        further = {v for use in value.uses() for v in use.node.outputs if moves_an_input(v)}
        stack += further - seen
        seen |= further
    return False


def _copied(value: ir.Value | None, copies: dict[ir.Value, ir.Value]) -> ir.Value | None:
    """A duplicate of a value, whose producers are duplicated back to the inputs.

    copies: duplicates so far, which this extends.
    """
    producer = None if value is None else value.producer()
    if value is None or producer is None:
        return value
    if value not in copies:
        inputs = [_copied(v, copies) for v in producer.inputs]
        new = ir.Node(
            producer.domain,
            producer.op_type,
            inputs,
            producer.attributes.values(),
            num_outputs=len(producer.outputs),
            name=f"{producer.name}/unrounded",
        )
        new.metadata_props[SOURCE_KEY] = ",".join(sources_of(producer))
        new.metadata_props[FLOAT_KEY] = NEEDLESS
        for old, copy in zip(producer.outputs, new.outputs, strict=True):
            copy.name, copy.type, copy.shape = f"{old.name}/unrounded", old.type, old.shape
            copies[old] = copy
        graph = producer.graph
        assert graph is not None
        graph.insert_after(producer, new)
    return copies[value]


def _take_over(value: ir.Value, copy: ir.Value | None) -> None:
    """Replace a model output by a copy, which takes over its name."""
    graph, name = value.graph, value.name
    assert graph is not None
    assert copy is not None
    graph.outputs[list(graph.outputs).index(value)] = copy
    value.name = f"{name}/rounded"
    copy.name = name


def _split(graph: ir.Graph, value: ir.Value, others: Collection[ir.Node]) -> None:
    """Add a second input for `value`. `others` and model outputs read it."""
    taken = {v.name for v in graph.inputs} | graph.initializers.keys()
    taken |= {v.name for n in graph for v in n.outputs}
    name = f"{value.name}/unrounded"
    while name in taken:
        name += "'"
    second = ir.Value(name=name, type=value.type, shape=value.shape)
    second.meta[UNROUNDED_KEY] = value.name
    for use in list(value.uses()):
        if use.node in others:
            use.node.replace_input_with(use.idx, second)
    for index, output in enumerate(graph.outputs):
        if output is value:
            graph.outputs[index] = second
    graph.inputs.append(second)
