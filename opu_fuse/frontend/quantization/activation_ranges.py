"""Activation range observers: one pass over the calibration samples observes all float tensors.

The extremes are exact. A regular subset of each tensor is recorded, from which the error of any
scale can be estimated later. ONNX Runtime runs in a child process (`sandbox.py`), which returns the
subsets in shared memory.
"""

import mmap
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from msgspec import Struct

from opu_fuse.errors import ModelError
from opu_fuse.frontend.calibration import Sample
from opu_fuse.frontend.editing import static_shape
from opu_fuse.frontend.importing.size_limits import calibration_seconds
from opu_fuse.frontend.qdq_reference import session
from opu_fuse.frontend.weights import Weights, lean_proto, weights_as_inputs
from opu_fuse.process.progress import report
from opu_fuse.process.sandbox import ForeignError, complaints, in_child

VALUES_PER_TENSOR = 1 << 17
"""Values of a tensor that are stored over all samples: half a megabyte as float32."""
CALIBRATION_SHARE = 0.6
"""Of the time of quantising, roughly; the rest is for choosing scales."""

Sizes = Mapping[str, tuple[int, ...]]


class Range(Struct, frozen=True, kw_only=True):
    """Observed values of a tensor.

    low, high: extremes over all samples; NaN if a value is.
    samples: float32 vector, a regular subset of the values.
    means, largest_of: mean and largest magnitude per channel (axis 1), if requested.
    """

    low: float
    high: float
    samples: np.ndarray
    means: np.ndarray | None = None
    largest_of: np.ndarray | None = None

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def is_finite(self) -> bool:
        return bool(np.isfinite(self.low))


def measure(
    model: ir.Model,
    values: Iterable[ir.Value],
    samples: Sequence[Sample],
    *,
    by_channel: bool = False,
) -> dict[str, Range]:
    """`collect` for values of a float model, which is not modified."""
    proto, weights = lean_proto(model, list(model.graph))
    sizes = {value.name or "": static_shape(value) or () for value in values}
    seconds = calibration_seconds(model, len(samples))
    channels = sizes if by_channel else ()
    ranges = collect(proto, sizes, samples, weights, by_channel=channels, seconds=seconds)
    for name in (name for name, r in ranges.items() if not r.is_finite):
        raise not_finite(name)
    return ranges


def collect(
    model: onnx.ModelProto,
    tensors: Sizes,
    samples: Sequence[Sample],
    weights: Weights | None = None,
    *,
    by_channel: Collection[str] = (),
    seconds: float,
) -> dict[str, Range]:
    """Ranges of the named float tensors, model inputs and outputs included.

    tensors: their shapes.
    weights: arrays for which the model has placeholders (`weights.py`); they are not copied.
    by_channel: tensors that are observed per channel, too.
    seconds: time limit for ONNX Runtime.

    A tensor with NaN, or with minus infinity among finite numbers as masks have it, is not
    `is_finite`. Raises ModelError, naming the tensor, if the float model computes other infinities
    or another shape; and with ONNX Runtime's message if it cannot run the model.
    """
    share = max(VALUES_PER_TENSOR // max(len(samples), 1), 64)
    counts = [len(range(0, n, _step(n, share))) for n in map(_elements, tensors.values())]
    subsets = _shared(sum(counts) * len(samples))
    ends = np.cumsum(np.multiply(counts, len(samples)))
    parts = dict(zip(tensors, np.split(subsets, ends[:-1]), strict=True))
    channels = {name: _shared(2 * tensors[name][1]).reshape(2, -1) for name in by_channel}
    done = _shared(1)  # samples that the child has run
    try:
        extremes = in_child(
            lambda: _measure(model, tensors, samples, weights or {}, parts, channels, share, done),
            seconds=seconds,
            watch=lambda: _report(int(done[0]), len(samples)),
        )
    except ForeignError as error:
        # `calibration.py` has checked names, shapes and types of the data: the model is at fault.
        raise ModelError(
            "model",
            f"ONNX Runtime cannot run the model ({error})",
            "try the file on these inputs in ONNX Runtime, with ORT_DISABLE_ALL",
        ) from error
    return {
        name: Range(
            low=low,
            high=high,
            samples=parts[name],
            means=channels[name][0] if name in channels else None,
            largest_of=channels[name][1] if name in channels else None,
        )
        for name, (low, high) in extremes.items()
    }


def _measure(
    model: onnx.ModelProto,
    tensors: Sizes,
    samples: Sequence[Sample],
    weights: Weights,
    parts: Mapping[str, np.ndarray],
    channels: Mapping[str, np.ndarray],
    share: int,
    done: np.ndarray,
) -> dict[str, tuple[float, float]]:
    """Fill `parts` and `channels` (means, largest magnitudes); return the extremes per tensor.

    Runs in the child process: `parts`, `channels` and `done` are in shared memory.
    """
    inputs = {i.name for i in model.graph.input}
    outputs = {o.name for o in model.graph.output}
    computed = [t for t in tensors if t not in inputs]
    with complaints():
        model = weights_as_inputs(model, weights)
        run = session(model, [t for t in computed if t not in outputs])
    lows = dict.fromkeys(tensors, np.inf)
    highs = dict.fromkeys(tensors, -np.inf)
    for index, sample in enumerate(samples):
        with complaints():
            values = run.run(computed, sample | weights) if computed else []
        arrays = sample | dict(zip(computed, values, strict=True))
        for name, shape in tensors.items():
            array = np.asarray(arrays[name])
            low, high = _extremes(name, array, shape)
            lows[name] = float(np.minimum(lows[name], low))  # of NaN, too
            highs[name] = max(highs[name], high)
            flat = array.reshape(-1)[:: _step(array.size, share)]
            parts[name][index * len(flat) : (index + 1) * len(flat)] = flat
            if name in channels:
                axes, (means, largest) = (0, *range(2, array.ndim)), channels[name]
                means += array.mean(axes) / len(samples)
                np.maximum(largest, np.abs(array).max(axes), out=largest)
        done[0] = index + 1
        del values, arrays  # before the next run allocates as much again
    return {name: (lows[name], highs[name]) for name in tensors}


def _report(done: int, samples: int) -> None:
    share = CALIBRATION_SHARE * done / samples
    report(f"calibrate: sample {min(done + 1, samples)} of {samples}", share)


def _extremes(name: str, array: np.ndarray, shape: tuple[int, ...]) -> tuple[float, float]:
    if array.shape != shape:
        computed, expected = (
            "x".join(map(str, s)) or "a single number" for s in (array.shape, shape)
        )
        raise ModelError(
            f"tensor {name!r}",
            f"ONNX Runtime computes {computed} for it, the model says {expected}",
            "let the exporter infer shapes again",
        )
    low, high = float(array.min()), float(array.max())
    if np.isinf(high):
        raise not_finite(name)
    return low, high


def not_finite(name: str) -> ModelError:
    """The message for a tensor that no scale holds."""
    return ModelError(
        f"tensor {name!r}",
        "the float model computes NaN or infinity for it",
        "check the weights, or calibrate with inputs that the network is for",
    )


def _shared(count: int) -> np.ndarray:
    """A float32 vector in memory that a child process shares with this one."""
    return np.frombuffer(mmap.mmap(-1, max(count, 1) * 4), np.float32)[:count]


def _elements(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _step(size: int, count: int) -> int:
    """Stride that selects about `count` elements; odd, so that it is not aligned with axes."""
    return max(size // count, 1) | 1 if size > count else 1
