"""Shapes of the results of non-standard operators, observed in a run of ONNX Runtime.

This is a fallback where neither shape inference nor the file has a shape. ONNX Runtime runs the
float model twice in a child process, on zeros and on noise. A shape that differs between the runs
is data-dependent and remains unknown. So does the shape of any value that it cannot compute.
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
"""One on zeros, one on noise: a shape that differs depends on the data."""

Found = dict[str, tuple[str, tuple[int, ...]]]


def measure_shapes(model: ir.Model) -> bool:
    """Set types and shapes of results of non-standard operators from runs of ONNX Runtime.

    Returns whether any was set. Run shape inference afterwards for the standard operators
    that read these results.
    """
    values = _values_of_unknown_shape(model)
    if not values:
        return False
    names = [value.name or "" for value in values]
    try:
        computed = in_child(
            lambda: _computed(model, names), seconds=calibration_seconds(model, _RUNS)
        )
    except ForeignError as error:
        _log.info("ONNX Runtime gives no shapes after %s: %s", names[0], error)
        return False
    for value in values:
        if value.name in computed:
            kind, shape = computed[value.name]
            value.type, value.shape = ir.TensorType(ir.DataType[kind]), ir.Shape(shape)
    return any(value.name in computed for value in values)


def _values_of_unknown_shape(model: ir.Model) -> list[ir.Value]:
    """Results of non-standard operators with an unknown shape that is not data-dependent.

    A shape is data-dependent if a standard operator has known operand shapes, but its result cannot
    be inferred. All results that depend on such a result are excluded (`tainted`).
    """
    tainted: set[ir.Value] = set()
    asked: list[ir.Value] = []
    for node in model.graph:
        unknown = [v for v in node.outputs if v.name and not is_known(v)]
        if not unknown:
            continue
        read = [v for v in node.inputs if v is not None]
        after_tainted = not tainted.isdisjoint(read)
        data_dependent = node.domain in STANDARD and all(_is_known(v) for v in read)
        if after_tainted or data_dependent:
            tainted.update(unknown)
        elif node.domain not in STANDARD:
            asked += [v for v in unknown if v.uses() or v.is_graph_output()]
    return asked


def _is_known(value: ir.Value) -> bool:
    """Whether a value is constant, or has a known type and static shape."""
    return value.const_value is not None or (
        value.dtype is not None and static_shape(value) is not None
    )


def _computed(model: ir.Model, names: list[str]) -> Found:
    """Name of the element type, and shape, of each value on which two runs agree."""
    from opu_fuse.frontend.calibration import noise_samples  # slow to import, and rarely needed
    from opu_fuse.frontend.qdq_reference import session

    (noise, *_) = noise_samples(model)
    zeros = {name: np.zeros_like(array) for name, array in noise.items()}
    with complaints():
        proto = ir.to_proto(model)
        outputs = {output.name for output in proto.graph.output}
        run = session(proto, [name for name in names if name not in outputs])
        results = [run.run(names, sample) for sample in (zeros, noise)]
    return {
        name: (ir.DataType.from_numpy(first.dtype).name, first.shape)
        for name, first, second in zip(names, *results, strict=True)
        if isinstance(first, np.ndarray) and first.shape == np.shape(second)
    }
