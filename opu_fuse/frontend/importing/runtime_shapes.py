"""Shapes behind operators that onnx knows nothing of, as ONNX Runtime computes them.

Asked only where neither inference nor the file says anything. ONNX Runtime runs the float model
twice, on zeros and on noise, in a child process: a shape that differs depends on data, and stays
unknown, as does what it cannot run.
"""

import logging

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import static_shape
from opu_fuse.frontend.importing.shapes import is_known
from opu_fuse.frontend.importing.size_limits import calibration_seconds
from opu_fuse.model.opsets import STANDARD
from opu_fuse.process.sandbox import ForeignError, complaints, in_child

_log = logging.getLogger(__name__)
_RUNS = 2

Found = dict[str, tuple[str, tuple[int, ...]]]


def ask_shapes(model: ir.Model) -> bool:
    """Give results of operators of other domains the type and shape that ONNX Runtime computes, in
    place; whether there was one. What standard operators make of them is to be inferred.
    """
    asked = _to_ask(model)
    if not asked:
        return False
    names = [value.name or "" for value in asked]
    try:
        found = in_child(lambda: _computed(model, names), seconds=calibration_seconds(model, _RUNS))
    except ForeignError as error:
        _log.info("ONNX Runtime tells no shapes behind %s: %s", names[0], error)
        return False
    for value in asked:
        if value.name in found:
            kind, shape = found[value.name]
            value.type, value.shape = ir.TensorType(ir.DataType[kind]), ir.Shape(shape)
    return any(value.name in found for value in asked)


def _to_ask(model: ir.Model) -> list[ir.Value]:
    """Results of other domains' operators, but not behind a standard one whose result nobody can
    infer although its operands are known: that depends on data.
    """
    tainted: set[ir.Value] = set()
    asked: list[ir.Value] = []
    for node in model.graph:
        unknown = [v for v in node.outputs if v.name and not is_known(v)]
        if not unknown:
            continue
        read = [v for v in node.inputs if v is not None]
        behind = not tainted.isdisjoint(read)
        by_data = node.domain in STANDARD and all(_is_given(v) for v in read)
        if behind or by_data:
            tainted.update(unknown)
        elif node.domain not in STANDARD:
            asked += [v for v in unknown if v.uses() or v.is_graph_output()]
    return asked


def _is_given(value: ir.Value) -> bool:
    return value.const_value is not None or (
        value.dtype is not None and static_shape(value) is not None
    )


def _computed(model: ir.Model, names: list[str]) -> Found:
    """Element type and shape of values, where two runs agree."""
    from opu_fuse.frontend.calibration import noise_samples  # most models ask for nothing
    from opu_fuse.frontend.qdq_reference import session

    (noise, *_) = noise_samples(model)
    zeros = {name: np.zeros_like(array) for name, array in noise.items()}
    with complaints():
        proto = ir.to_proto(model)
        outputs = {output.name for output in proto.graph.output}
        run = session(proto, [name for name in names if name not in outputs])
        both = [run.run(names, sample) for sample in (zeros, noise)]
    return {
        name: (ir.DataType.from_numpy(first.dtype).name, first.shape)
        for name, first, second in zip(names, *both, strict=True)
        if isinstance(first, np.ndarray) and first.shape == np.shape(second)
    }
