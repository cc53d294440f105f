"""Resize by weighted sums: one axis after the other, with ONNX Runtime's own weights."""

import logging
import math
from collections.abc import Mapping

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from opu_fuse.dfg.ort_operator import run_graph
from opu_fuse.host.build.linalg.payload import Payload
from opu_fuse.host.build.linalg.site import Site
from opu_fuse.host.build.steps.nest import Nest, Operand, copy, plain, row_major

log = logging.getLogger(__name__)

_SCALES, _SIZES = 2, 3
"""Operands of Resize."""
_FROM_WHOLE = frozenset({"axes", "keep_aspect_ratio_policy"})
"""Attributes that say what the result's shape says, too."""
_TAPS = 16
"""Elements that a sum takes at most; antialiasing by large factors has more."""


def interpolated(site: Site, opsets: Mapping[str, int]) -> list[Nest] | None:
    """Resize by `linear` and `cubic`; None where ONNX Runtime does not resize one axis alone."""
    crop = site.attribute("coordinate_transformation_mode") == b"tf_crop_and_resize"
    shape, result, dtype = site.shape(0), site.result_shape, site.result.dtype
    if dtype not in ("float32", "float64") or crop or len(shape) != len(result):
        return None
    source, nests, now = site.node.input[0], list[Nest](), list(shape)
    scales = _scales(site)
    if scales is None:
        return None
    axes = [n for n, scale in enumerate(scales) if scale != 1 or shape[n] != result[n]]
    for axis in axes:
        weights = _weights(site, opsets, shape[axis], result[axis], scales[axis])
        if weights is None:
            return None
        target = site.node.output[0] if axis == axes[-1] else f"{site.node.output[0]}:axis {axis}"
        nest = _summed(source, target, dtype, now, axis, weights)
        if nest is None:
            return None
        nests.append(nest)
        now[axis], source = result[axis], target
    return nests or [copy(source, site.node.output[0], dtype, math.prod(shape))]


def _scales(site: Site) -> list[float] | None:
    """Of each axis; None where they are not known. Of given sizes, their ratio."""
    rank, ratios = len(site.shape(0)), [
        new / old for old, new in zip(site.shape(0), site.result_shape, strict=True)
    ]  # fmt: skip
    if site.has(_SIZES):
        return ratios
    scales, axes = site.constant(_SCALES), site.attribute("axes")
    if scales is None or scales.size == 0:
        return None
    named = [int(n) % rank for n in axes] if isinstance(axes, list) else list(range(rank))
    found = [1.0] * rank
    for axis, scale in zip(named, scales.ravel(), strict=True):
        found[axis] = float(scale)
    return found


def _weights(
    site: Site, opsets: Mapping[str, int], old: int, new: int, scale: float
) -> np.ndarray | None:
    """(new, old): what ONNX Runtime makes of the rows of a unit matrix."""
    attributes = {
        a.name: helper.get_attribute_value(a)
        for a in site.node.attribute
        if a.name not in _FROM_WHOLE
    }
    sized = site.has(_SIZES)
    operands = ["x", "", "" if sized else "n", *(["n"] if sized else [])]
    number = np.array([new, old]) if sized else np.array([scale, 1], np.float32)
    node = helper.make_node("Resize", operands, ["y"], **attributes)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [old, old])
    graph = helper.make_graph(
        [node],
        "weights",
        [given],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(number, "n")],
    )
    try:
        (weights,) = run_graph(graph, opsets, {"x": np.eye(old, dtype=np.float32)})
    except Exception as error:  # noqa: BLE001  ONNX Runtime raises classes of its own
        log.info("%s: ONNX Runtime does not resize one axis: %s", site.node.name, error)
        return None
    return weights if weights.shape == (new, old) else None


def _summed(
    source: str, target: str, dtype: str, shape: list[int], axis: int, weights: np.ndarray
) -> Nest | None:
    """Each element of the result from those of the operand whose weight is not zero."""
    taps = max(1, int((weights != 0).sum(axis=1).max()))
    if taps > _TAPS:
        return None
    positions = np.argsort(weights == 0, axis=1, kind="stable")[:, :taps]
    factors = np.take_along_axis(weights, positions, axis=1).astype(dtype)
    result = [len(weights) if n == axis else size for n, size in enumerate(shape)]
    steps = list(row_major(shape))
    step, steps[axis] = steps[axis], 0
    along = tuple(int(n == axis) for n in range(len(shape)))
    inputs: list[Operand] = []
    constants: dict[str, np.ndarray] = {}
    body = Payload([dtype] * (2 * taps + 1))
    total = -1
    for tap in range(taps):
        table = tuple(int(x) * step for x in positions[:, tap])
        name = f"{target}:weights {tap}"
        constants[name] = np.ascontiguousarray(factors[:, tap])
        inputs += [
            Operand(value=source, dtype=dtype, strides=tuple(steps), tables={axis: table}),
            Operand(value=name, dtype=dtype, strides=along),
        ]
        part = body.emit("mul", 2 * tap, 2 * tap + 1)
        total = part if total < 0 else body.emit("add", total, part)
    return Nest(
        extents=tuple(result),
        inputs=tuple(inputs),
        results=(plain(target, dtype, result),),
        body=body.instructions,
        yields=(total,),
        constants=constants,
    )
