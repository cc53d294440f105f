"""onnxscript's constant folding, with every rewrite verified before it is applied.

The library writes operators in forms that the opset of the model lacks (Split with `num_outputs`),
and has other bugs. A node whose rewrite is wrong is left unchanged. Constants are compared by type
and shape. Other new nodes are rare: a child process checks them with onnx, evaluates them and the
old node on the same inputs, and compares the results.
"""

import functools
import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from opu_fuse.model.opsets import STANDARD
from opu_fuse.process.sandbox import ForeignError, complaints, in_child

_log = logging.getLogger(__name__)
_SECONDS = 20.0
"""Time limit of the library's folding in a child process."""
_MEMORY_BYTES = 4 << 30
_PLAIN = frozenset({"Constant", "Identity"})
"""Operators of new nodes for which a comparison of types and shapes suffices."""
_OF_ITS_OWN = "Error during constant folding"
"""Text in the library's error message if one of its own rewrites fails."""
_INLINED = "If"
"""Operator that is replaced by one of its branches. The nodes are moved, not new."""

ShouldFold = Callable[[ir.Node], bool | None]


def fold(
    model: ir.Model,
    *,
    largest_input: int,
    largest_output: int,
    should_fold: ShouldFold = lambda _: None,
) -> None:
    """Fold constants (mutates the model).

    largest_input, largest_output: size limits of the constants that are read and produced, in
    elements. should_fold: as onnxscript's. Raises what the library raises.
    """
    _folder()(
        shape_inference=False,
        input_size_limit=largest_input,
        output_size_limit=largest_output,
        should_fold=should_fold,
    )(model)


@functools.cache
def _folder() -> Any:
    """The library's pass with verified rewrites. Imported late, since the import is slow."""
    from onnxscript import optimizer

    library: Any = optimizer.constant_folding  # pyright: ignore[reportPrivateImportUsage]

    class CheckedFolding(library.FoldConstantsPass):
        def process_node(self, node: ir.Node, is_function: bool) -> Any:
            try:
                return super().process_node(node, is_function)
            except RuntimeError as error:
                # The library wraps errors of its partial evaluators only. Others propagate.
                if _OF_ITS_OWN not in str(error):
                    raise
                _log.debug("folding leaves %s (%s): %s", node.name, node.op_type, error.__cause__)
                return None

        def replace_node(self, node: ir.Node, replacement: Any, root: Any) -> None:
            why = wrong_rewrite(
                node, replacement.new_nodes, replacement.new_outputs, self._opset_imports
            )
            if why is None:
                super().replace_node(node, replacement, root)
                return
            _log.debug("folding leaves %s (%s): %s", node.name, node.op_type, why)
            for value in replacement.new_outputs:
                if value is not None and value.is_initializer() and not value.uses():
                    del value.graph.initializers[value.name]

    return CheckedFolding


def wrong_rewrite(
    old: ir.Node,
    nodes: Sequence[ir.Node],
    results: Sequence[ir.Value | None],
    opsets: Mapping[str, int],
) -> str | None:
    """Why new nodes and results are not equivalent to a node; None if they are."""
    if old.op_type == _INLINED:
        return None
    for before, after in zip(old.outputs, results, strict=False):
        if after is not None and (why := _differ(before, after)) is not None:
            return why
    for node in nodes:
        if (why := _against_schema(node, opsets)) is not None:
            return why
    if all(node.op_type in _PLAIN for node in nodes):
        return None
    return _compared(old, nodes, results, opsets)


def _differ(before: ir.Value, after: ir.Value) -> str | None:
    """How the known types or shapes of two values differ; None if they agree."""
    if before.dtype is not None and after.dtype is not None and before.dtype != after.dtype:
        return f"{after.dtype.name} for {before.dtype.name}"
    if before.shape is None or after.shape is None:
        return None
    pairs = [*zip(before.shape, after.shape, strict=False)]
    known = [(a, b) for a, b in pairs if isinstance(a, int) and isinstance(b, int)]
    if len(before.shape) != len(after.shape) or any(a != b for a, b in known):
        return f"shape {after.shape} for {before.shape}"
    return None


def _against_schema(node: ir.Node, opsets: Mapping[str, int]) -> str | None:
    """How a node violates the operator schema of its opset; None if it is valid."""
    if node.domain not in STANDARD:
        return None
    versions = [opsets[domain] for domain in STANDARD if domain in opsets]
    try:
        schema = onnx.defs.get_schema(node.op_type, max(versions, default=1), "")
    except onnx.defs.SchemaError:
        return f"the set has no {node.op_type}"
    if unknown := set(node.attributes) - set(schema.attributes):
        return f"{node.op_type} has no {', '.join(sorted(unknown))}"
    missing = [n for n, a in schema.attributes.items() if a.required and n not in node.attributes]
    if missing:
        return f"{node.op_type} needs {', '.join(missing)}"
    if not schema.min_input <= len(node.inputs) <= schema.max_input:
        return f"{node.op_type} with {len(node.inputs)} operands"
    return None


def _compared(
    old: ir.Node,
    nodes: Sequence[ir.Node],
    results: Sequence[ir.Value | None],
    opsets: Mapping[str, int],
) -> str | None:
    """How the results of new nodes differ from those of the old node on random operands.

    None if they agree, or if an operand's shape is not known. Only types and shapes are compared
    if the old node reads a sequence. A failure of the new nodes is a difference, too.
    """
    internal = {value for node in nodes for value in node.outputs}
    read = dict.fromkeys(
        v for node in nodes for v in node.inputs if v is not None and v not in internal
    )
    data_by_value = {
        value: _numbers(value, seed) for seed, value in enumerate({**read, **_read(old)})
    }
    if any(data_by_value[value] is None for value in read):
        return None
    arrays = {value.name or "": data for value, data in data_by_value.items() if data is not None}
    with _named(internal):
        rewritten = _alone(nodes, [v for v in results if v is not None], arrays, opsets)
    comparable = all(data_by_value[value] is not None for value in _read(old))
    before = _alone([old], old.outputs, arrays, opsets) if comparable else None
    sizes = [(v.dtype, None if v.shape is None else tuple(v.shape)) for v in old.outputs]
    try:
        return in_child(
            lambda: _different_results(before, rewritten, arrays, sizes),
            seconds=_SECONDS,
            memory_bytes=_MEMORY_BYTES,
        )
    except ForeignError as error:
        return str(error)


def _read(node: ir.Node) -> dict[ir.Value, None]:
    """The distinct operands of a node, in order."""
    return dict.fromkeys(value for value in node.inputs if value is not None)


@contextmanager
def _named(values: Iterable[ir.Value]) -> Generator[None]:
    """Give values without a name a temporary one inside the block."""
    nameless = [value for value in values if not value.name]
    for count, value in enumerate(nameless):
        value.name = f"rewrite/{count}"
    yield
    for value in nameless:
        value.name = None


def _numbers(value: ir.Value, seed: int) -> np.ndarray | None:
    """Test data for an operand: the data of a constant, else random numbers.

    None if type or shape are not known, and for a sequence.
    """
    if value.const_value is not None:
        return value.const_value.numpy()
    dims = [] if value.shape is None else list(value.shape)
    known = [d for d in dims if isinstance(d, int)]
    if value.shape is None or len(known) != len(dims) or not isinstance(value.type, ir.TensorType):
        return None
    drawn = np.random.default_rng(seed).uniform(-9.0, 9.0, known)
    return drawn.astype(value.type.dtype.numpy())


def _alone(
    nodes: Sequence[ir.Node],
    results: Sequence[ir.Value],
    operands: Mapping[str, np.ndarray],
    opsets: Mapping[str, int],
) -> onnx.ModelProto:
    """A model of these nodes alone, with their operands as graph inputs."""
    graph = onnx.helper.make_graph(
        [ir.to_proto(node) for node in nodes],
        "rewrite",
        [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(data.dtype), data.shape
            )
            for name, data in operands.items()
        ],
        [onnx.ValueInfoProto(name=value.name) for value in results],
    )
    imports = [onnx.helper.make_opsetid(*item) for item in opsets.items()]
    return onnx.helper.make_model(graph, opset_imports=imports)


def _different_results(
    before: onnx.ModelProto | None,
    new: onnx.ModelProto,
    operands: Mapping[str, np.ndarray],
    sizes: Sequence[tuple[ir.DataType | None, tuple[object, ...] | None]],
) -> str | None:
    """How two models differ on the operands `operands`; None if they agree.

    before: model of the old node, None if it cannot be evaluated; then the types and shapes are
    compared with `sizes`.
    """
    from onnx.reference import ReferenceEvaluator  # slow to import

    with complaints():
        onnx.shape_inference.infer_shapes(new, check_type=True, strict_mode=True)
        after = ReferenceEvaluator(new).run(None, dict(operands))
        if before is not None:
            wanted = ReferenceEvaluator(before).run(None, dict(operands))
            pairs = zip(wanted, after, strict=True)
            return None if all(_equal(a, b) for a, b in pairs) else "it computes other numbers"
    arrays: list[Any] = list(after)
    for data, (dtype, size) in zip(arrays, sizes, strict=False):
        if not isinstance(data, np.ndarray):  # a sequence
            continue
        if size is not None and all(isinstance(n, int) for n in size) and data.shape != size:
            return f"shape {data.shape} for {size}"
        if dtype is not None and data.dtype != dtype.numpy():
            return f"{data.dtype} for {dtype.name}"
    return None


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(_equal, a, b))
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=True)
