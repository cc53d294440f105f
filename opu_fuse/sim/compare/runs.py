"""Compares a run with ONNX Runtime (`check`) or with another run (`compare`), tensor by tensor in
group order.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.bundle.manifest import damaged
from opu_fuse.bundle.program import Bundle
from opu_fuse.bundle.result import CheckResult, Difference, RunResult
from opu_fuse.model.operator_sets import NORM_OPERATORS
from opu_fuse.sim import ports
from opu_fuse.sim.compare.bounds import (
    EXACT,
    FLOAT_TOLERANCE,
    Allowed,
    allowed_differences,
    allowed_of_outputs,
)
from opu_fuse.sim.compare.ort_reference import NAME, Expected, Reference
from opu_fuse.sim.compare.tensor_sources import TensorSource, tensor_sources
from opu_fuse.sim.compare.writer import writer

DISTINCT_VALUES = 32
"""Distinct values below which a tensor is dull."""
SATURATED_SHARE = 0.05
"""Share of saturated elements from which on a tensor is dull."""
_COUNTED_AT_ONCE = 1 << 20
"""Elements compared at once: larger temporary arrays fill the memory."""


class Pair(Struct, frozen=True, kw_only=True):
    """A tensor as it should be and as it is, samples along the first axis.

    mask: bool array of one sample's shape, the elements that the machine computes; None: all;
    zero_point: None where the tensor is not quantised;
    allowed: largest difference of an element, in quantisation steps.
    """

    source: TensorSource
    expected: np.ndarray
    got: np.ndarray
    mask: np.ndarray | None = None
    zero_point: int | None = None
    allowed: Allowed = EXACT


def check(
    bundle: Bundle, inputs: Mapping[str, np.ndarray] | None, result: RunResult
) -> CheckResult:
    """Compare a captured run with ONNX Runtime on the quantised model, for the inputs of `run`.

    It compares every quantised tensor that the run shows, and every output. `mismatches` counts
    against a run of the whole model. If there are any, ONNX Runtime also computes each tensor from
    the run's own operands, so that no difference propagates: `first` is the first one that exceeds
    what `bounds` allows the operator alone. Raises ProgramError when the bundle holds no quantised
    model.
    """
    reference = Reference(bundle)
    samples, count = ports.samples_of(bundle, inputs)
    feeds = [{name: array[n, ...] for name, array in samples.items()} for n in range(count)]
    expected = [reference.run(feed) for feed in feeds]
    shapes = {name: array.shape for name, array in expected[0].tensors.items()}
    captured = [
        source
        for source in tensor_sources(bundle)
        if source.name in result.tensors and source.qdq_name in reference.zero_points
    ]
    shown = {source.qdq_name for source in captured}
    tables = {name for g in bundle.groups if g.ops[-1].op == "table" for name in g.outputs}
    looked_up = {source.qdq_name for source in captured if source.name in tables}
    norms = norms_of(bundle)
    allowed = allowed_differences(reference.model, shapes, shown, looked_up, norms=norms)
    pairs = [
        Pair(
            source=source,
            expected=_expected(expected, source),
            got=result.tensors[source.name],
            mask=result.masks.get(source.name),
            zero_point=reference.zero_points[source.qdq_name],
            allowed=allowed[source.qdq_name],
        )
        for source in captured
    ]
    # Where the machine does nothing, no run can show what the host rounds on its way.
    uncompared = tuple(n for n in reference.names if n not in shown) if bundle.groups else ()
    checked = _compare(bundle, NAME, pairs, uncompared)
    if checked.mismatches:
        operands = [_captured_sample(pairs, n) for n in range(count)]
        expected = [reference.from_operands(f, o) for f, o in zip(feeds, operands, strict=True)]
        alone = [replace(pair, expected=_expected(expected, pair.source)) for pair in pairs]
        checked = dataclasses.replace(checked, first=_compare(bundle, NAME, alone, ()).first)
    output_errors = allowed_of_outputs(reference.model, allowed, shown)
    return _with_outputs(checked, expected, result, allowed, output_errors)


def compare(bundle: Bundle, expected: RunResult, got: RunResult) -> CheckResult:
    """Compare two runs on the same inputs bit for bit: tensors that both captured, then outputs."""
    captured = [source for source in tensor_sources(bundle) if source.name in expected.tensors]
    pairs = [
        Pair(
            source=source,
            expected=expected.tensors[source.name],
            got=got.tensors[source.name],
            mask=expected.masks.get(source.name),
        )
        for source in captured
        if source.name in got.tensors
    ]
    for name, array in expected.outputs.items():
        source = TensorSource(name=name, qdq_name="", group=len(bundle.groups), stage=None)
        pairs.append(Pair(source=source, expected=_bits(array), got=_bits(got.outputs[name])))
    uncompared = tuple(source.name for source in captured if source.name not in got.tensors)
    result = _compare(bundle, f"{expected.engine} engine", pairs, uncompared)
    return dataclasses.replace(result, outputs=len(expected.outputs))


def _bits(array: np.ndarray) -> np.ndarray:
    """int8 as it is; other types as their bytes, so that equal means equal bits."""
    if array.dtype == np.int8:
        return np.atleast_1d(array)
    return np.ascontiguousarray(array).view(np.uint8)


def norms_of(bundle: Bundle) -> frozenset[str]:
    """ONNX operators of `model/norms.py` that groups compute."""
    ops = {op.op for group in bundle.groups for op in group.ops}
    return frozenset(name for name, op in NORM_OPERATORS.items() if op in ops)


def _expected(expected: Sequence[Expected], source: TensorSource) -> np.ndarray:
    return _samples([sample.tensors[source.qdq_name] for sample in expected])


def _samples(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Samples along a new first axis; a single one is not copied."""
    return arrays[0][np.newaxis] if len(arrays) == 1 else np.stack(arrays)


def _captured_sample(pairs: Sequence[Pair], sample: int) -> dict[str, np.ndarray]:
    """The run's tensors of one sample by their names in the quantised model, in its shapes.

    Elements that the machine does not compute, which nothing reads, are the reference's.
    """
    results = {}
    for pair in pairs:
        wanted, got = pair.expected[sample, ...], pair.got[sample, ...]
        if pair.mask is not None:
            got = np.where(pair.mask.reshape(got.shape), got, wanted.reshape(got.shape))
        results[pair.source.qdq_name] = got.reshape(wanted.shape)
    return results


def _with_outputs(
    whole: CheckResult,
    expected: Sequence[Expected],
    result: RunResult,
    allowed: Mapping[str, Allowed],
    output_errors: Mapping[str, float],
) -> CheckResult:
    """Add a comparison of the model's outputs with ONNX Runtime's.

    output_errors: by name, error that a float output may have besides `FLOAT_TOLERANCE`.
    """
    first = whole.first
    for name, array in result.outputs.items():
        wanted = _samples([sample.outputs[name] for sample in expected]).reshape(array.shape)
        if first is None:
            steps = allowed.get(name, EXACT).steps
            first = _output_difference(name, wanted, array, steps, output_errors.get(name, 0.0))
    return dataclasses.replace(whole, first=first, outputs=len(result.outputs))


def _output_difference(
    name: str, wanted: np.ndarray, got: np.ndarray, steps: int, error: float
) -> Difference | None:
    near = _near(wanted, got, steps, error)
    if np.all(near):
        return None
    index = tuple(int(i) for i in np.argwhere(~near)[0])
    return Difference(
        tensor=f"output {name}",
        index=index,
        group=-1,
        instruction=-1,
        expected=wanted[index].item(),
        got=got[index].item(),
        mismatches=int(np.count_nonzero(~near)),
        elements=near.size,
    )


def _near(wanted: np.ndarray, got: np.ndarray, steps: int, error: float) -> np.ndarray:
    """Bool array: whether an element of an output is near enough to the wanted one.

    steps: of integers; error: of floats, in addition to `FLOAT_TOLERANCE`. It works part by part,
    since temporary arrays of large outputs fill the memory.
    """
    largest = 0.0
    if wanted.dtype.kind == "f":
        parts = _parts(wanted)
        largest = max(float(np.abs(p).max(initial=0, where=np.isfinite(p))) for p in parts)
    near = np.empty(wanted.shape, bool)
    for close, wanted_piece, got_piece in zip(
        _parts(near), _parts(wanted), _parts(got), strict=True
    ):
        if wanted.dtype.kind == "f":
            tolerance = FLOAT_TOLERANCE * largest + error
            with np.errstate(over="ignore"):  # an infinite tolerance or gap is one
                close[...] = np.isclose(
                    got_piece, wanted_piece, rtol=0, atol=tolerance, equal_nan=True
                )
        elif steps:
            close[...] = np.abs(got_piece.astype(np.int64) - wanted_piece.astype(np.int64)) <= steps
        else:
            close[...] = got_piece == wanted_piece
    return near


def _parts(array: np.ndarray) -> list[np.ndarray]:
    """An array cut into parts of about `_COUNTED_AT_ONCE` elements; views if it is contiguous."""
    return np.array_split(array.reshape(-1), 1 + array.size // _COUNTED_AT_ONCE)


def _compare(
    bundle: Bundle, reference: str, pairs: Iterable[Pair], uncompared: tuple[str, ...]
) -> CheckResult:
    """Counts over all pairs, and the first difference beyond what its pair allows."""
    tensors = elements = mismatches = worst = 0
    first: Difference | None = None
    dull: list[str] = []
    loose: Counter[str] = Counter()
    for pair in pairs:
        got, shape = pair.got, pair.got.shape
        if pair.expected.size != got.size:
            what = f"{pair.source.name} has {got.size} values, {reference} makes "
            raise damaged(bundle.model, f"{what}{pair.expected.size}")
        gap = np.subtract(got, pair.expected.reshape(shape), dtype=np.int16)
        np.abs(gap, out=gap)
        if pair.mask is not None:
            mask = np.broadcast_to(pair.mask, shape)
            gap, got = gap * mask, got[mask]
        tensors, elements = tensors + 1, elements + got.size
        mismatches += int(np.count_nonzero(gap))
        worst = max(worst, int(gap.max(initial=0)))
        if pair.zero_point is not None and is_dull(got, pair.zero_point):
            dull.append(pair.source.name)
        if pair.allowed.steps:
            loose[pair.allowed.why] += 1
        beyond = gap > pair.allowed.steps
        if first is None and beyond.any():
            first = _difference(bundle, pair, beyond, got.size)
    return CheckResult(
        reference=reference,
        tensors=tensors,
        elements=elements,
        mismatches=mismatches,
        max_abs_diff=worst,
        first=first,
        uncompared=uncompared,
        dull=tuple(dull),
        loose=dict(loose),
    )


def _difference(bundle: Bundle, pair: Pair, beyond: np.ndarray, elements: int) -> Difference:
    """The first element of a pair that differs by more than allowed. beyond: all of these."""
    index = tuple(int(i) for i in np.argwhere(beyond)[0])
    source = pair.source
    return Difference(
        tensor=source.name,
        index=index,
        group=source.group if source.group < len(bundle.groups) else -1,
        instruction=writer(bundle, source, beyond.shape, index),
        expected=int(pair.expected.reshape(beyond.shape)[index]),
        got=int(pair.got[index]),
        mismatches=int(np.count_nonzero(beyond)),
        elements=elements,
    )


def is_dull(tensor: np.ndarray, zero_point: int) -> bool:
    """True when a tensor proves little: under 32 distinct values, or 5 % and more saturated.

    A tensor with fewer than 96 elements needs a third of them distinct, and one may be saturated.
    With zero point -128 the lower end is zero (after a relu) and no saturation.
    """
    flat = tensor.view(np.uint8).reshape(-1)
    parts = np.array_split(flat, 1 + flat.size // _COUNTED_AT_ONCE)
    counts = np.sum([np.bincount(part, minlength=256) for part in parts], axis=0)
    if np.count_nonzero(counts) < min(DISTINCT_VALUES, tensor.size // 3):
        return True
    saturated = counts[127] + (counts[128] if zero_point != -128 else 0)  # 128 is -128
    return int(saturated) >= max(SATURATED_SHARE * tensor.size, 2)
