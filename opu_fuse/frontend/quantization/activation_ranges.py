"""What values occur: one pass over the calibration samples with every float tensor shown.

The extremes are exact; a regular subset of each tensor is kept, from which the error of any scale
can be estimated afterwards. ONNX Runtime works in a child process (`sandbox.py`); the subsets come
back through memory that both share.
"""

import mmap
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx
from msgspec import Struct

from opu_fuse.errors import ModelError
from opu_fuse.frontend.calibration import Sample
from opu_fuse.frontend.qdq_reference import session
from opu_fuse.frontend.weights import Weights, weights_as_inputs
from opu_fuse.process.sandbox import ForeignError, complaints, in_child

KEPT_PER_TENSOR = 1 << 17

Sizes = Mapping[str, tuple[int, ...]]


class Range(Struct, frozen=True, kw_only=True):
    """low, high: extremes over all samples; kept: float32 vector, a regular subset of the values;
    means, largest_of: of each channel (axis 1), the mean and the largest magnitude, where asked.
    """

    low: float
    high: float
    kept: np.ndarray
    means: np.ndarray | None = None
    largest_of: np.ndarray | None = None

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))


def collect(
    model: onnx.ModelProto,
    tensors: Sizes,
    samples: Sequence[Sample],
    weights: Weights | None = None,
    *,
    by_channel: Collection[str] = (),
    seconds: float,
) -> dict[str, Range]:
    """Ranges of the named float tensors (inputs and outputs of the model among them).

    tensors: their shapes. weights: those for which the model holds a stand-in (`weights.py`); they
    are read where they are. by_channel: those looked at channel by channel, too. seconds: how long
    ONNX Runtime may take. Raises ModelError, naming the tensor, when the float model computes NaN
    or infinity or another shape, and with what ONNX Runtime says when it cannot run the model.
    """
    share = max(KEPT_PER_TENSOR // max(len(samples), 1), 64)
    counts = [len(range(0, n, _step(n, share))) for n in map(_elements, tensors.values())]
    kept = _shared(sum(counts) * len(samples))
    ends = np.cumsum(np.multiply(counts, len(samples)))
    parts = dict(zip(tensors, np.split(kept, ends[:-1]), strict=True))
    channels = {name: _shared(2 * tensors[name][1]).reshape(2, -1) for name in by_channel}
    try:
        extremes = in_child(
            lambda: _measure(model, tensors, samples, weights or {}, parts, channels, share),
            seconds=seconds,
        )
    except ForeignError as error:
        # Names, shapes and types of the data fit (`calibration.py`): they are not to blame.
        raise ModelError(
            "model",
            f"ONNX Runtime cannot run the model ({error})",
            "try the file on these inputs in ONNX Runtime, with ORT_DISABLE_ALL",
        ) from error
    return {
        name: Range(
            low=low,
            high=high,
            kept=parts[name],
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
) -> dict[str, tuple[float, float]]:
    """Fills `parts` and `channels` (means, largest magnitudes); returns the extremes of each
    tensor.
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
            lows[name], highs[name] = min(lows[name], low), max(highs[name], high)
            flat = array.reshape(-1)[:: _step(array.size, share)]
            parts[name][index * len(flat) : (index + 1) * len(flat)] = flat
            if name in channels:
                axes, (means, largest) = (0, *range(2, array.ndim)), channels[name]
                means += array.mean(axes) / len(samples)
                np.maximum(largest, np.abs(array).max(axes), out=largest)
        del values, arrays  # before the next run makes as much again
    return {name: (lows[name], highs[name]) for name in tensors}


def _extremes(name: str, array: np.ndarray, shape: tuple[int, ...]) -> tuple[float, float]:
    if array.shape != shape:
        computed, expected = (
            "x".join(map(str, s)) or "a single number" for s in (array.shape, shape)
        )
        raise ModelError(
            f"tensor {name!r}",
            f"ONNX Runtime computes {computed} there, the model says {expected}",
            "let the exporter infer shapes again",
        )
    low, high = float(array.min()), float(array.max())
    if not np.isfinite(low) or not np.isfinite(high):
        raise ModelError(
            f"tensor {name!r}",
            "the float model computes NaN or infinity there",
            "check the weights, or calibrate with inputs that the network is for",
        )
    return low, high


def _shared(count: int) -> np.ndarray:
    """Numbers that a child process can write and this one read."""
    return np.frombuffer(mmap.mmap(-1, max(count, 1) * 4), np.float32)[:count]


def _elements(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _step(size: int, count: int) -> int:
    """About `count` elements at odd, hence unaligned, steps."""
    return max(size // count, 1) | 1 if size > count else 1
