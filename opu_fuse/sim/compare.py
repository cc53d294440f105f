"""Holding one run against another, or against ONNX Runtime, tensor by tensor in group order."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from opu_fuse.bundle.image import segment_words
from opu_fuse.bundle.program import Bundle, MachineSegment, StageTensor
from opu_fuse.bundle.result import CheckResult, Difference, RunResult
from opu_fuse.hw.encoding import decode
from opu_fuse.hw.isa import Engine, Stage, unpack_order
from opu_fuse.hw.layout import lanes_of
from opu_fuse.sim import ports
from opu_fuse.sim.reference import NAME, Reference

DISTINCT_VALUES = 32
SATURATED_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a quantised tensor comes from.

    stage: its StageTensor when it is made by a post chain, else None; group: -1 for inputs and host
    values.
    """

    name: str
    qdq_name: str
    group: int
    stage: StageTensor | None


def places(bundle: Bundle) -> tuple[Place, ...]:
    """Every quantised tensor of a program, each once, in the order in which they are made."""
    found: dict[str, Place] = {}
    for group in bundle.groups:
        for stage in group.stages:
            found[stage.name] = Place(
                name=stage.name, qdq_name=stage.qdq_name, group=group.index, stage=stage
            )
    for t in bundle.tensors:
        known = found.get(t.name)
        if known is None or not known.qdq_name:
            found[t.name] = Place(
                name=t.name,
                qdq_name=t.qdq_name,
                group=t.first_group,
                stage=known.stage if known else None,
            )

    made_after: dict[str, float] = {}
    last = -1
    for segment in bundle.segments:
        if isinstance(segment, MachineSegment):
            last = max((last, *segment.groups))
            continue
        for name, qdq_name in segment.rounded:
            made_after[name] = last + 0.5
            place = Place(name=name, qdq_name=qdq_name, group=-1, stage=None)
            found.setdefault(name, place)

    def order(place: Place) -> tuple[float, int]:
        stage = place.stage.stage if place.stage else 0
        return made_after.get(place.name, place.group), stage

    return tuple(sorted(found.values(), key=order))


def check(
    bundle: Bundle, inputs: Mapping[str, np.ndarray] | None, result: RunResult
) -> CheckResult:
    """A captured run against ONNX Runtime on the quantised model, for the inputs given to `run`.

    Raises ProgramError when the bundle holds no quantised model.
    """
    reference = Reference(bundle)
    samples, count = ports.samples_of(bundle, inputs)
    found: dict[str, list[np.ndarray]] = {name: [] for name in reference.names}
    for n in range(count):
        for name, array in reference.run({k: v[n] for k, v in samples.items()}).items():
            found[name].append(array)
    here = [p for p in places(bundle) if p.name in result.tensors and p.qdq_name in found]
    pairs = [(p, np.stack(found[p.qdq_name]), result.tensors[p.name]) for p in here]
    shown = {p.qdq_name for p in here}
    left = tuple(name for name in reference.names if name not in shown)
    return _compare(bundle, NAME, pairs, result.masks, left, reference.zero_points)


def compare(bundle: Bundle, expected: RunResult, got: RunResult) -> CheckResult:
    """Two runs on the same inputs: the tensors both captured, then the outputs, bit for bit."""
    both = [p for p in places(bundle) if p.name in expected.tensors and p.name in got.tensors]
    pairs = [(p, expected.tensors[p.name], got.tensors[p.name]) for p in both]
    for name, array in expected.outputs.items():
        place = Place(name=name, qdq_name="", group=len(bundle.groups), stage=None)
        pairs.append((place, _bits(array), _bits(got.outputs[name])))
    left = tuple(p.name for p in places(bundle) if p not in both and p.name in expected.tensors)
    return _compare(bundle, f"{expected.engine} engine", pairs, expected.masks, left)


def _bits(array: np.ndarray) -> np.ndarray:
    """int8 as it is; other types as their bytes, so that equal means equal bits."""
    if array.dtype == np.int8:
        return array
    return np.ascontiguousarray(array).view(np.uint8)


def _compare(
    bundle: Bundle,
    reference: str,
    pairs: Iterable[tuple[Place, np.ndarray, np.ndarray]],
    masks: Mapping[str, np.ndarray],
    uncompared: tuple[str, ...],
    zero_points: Mapping[str, int] = MappingProxyType({}),
) -> CheckResult:
    tensors = elements = mismatches = worst = 0
    first: Difference | None = None
    dull: list[str] = []
    for place, expected, got in pairs:
        shape = got.shape
        wanted = expected.reshape(shape).astype(np.int16)
        gap = np.abs(got.astype(np.int16) - wanted)
        looked_at = got
        if place.name in masks:
            mask = np.broadcast_to(masks[place.name], shape)
            gap = gap * mask
            looked_at = got[mask]
        wrong = int(np.count_nonzero(gap))
        tensors, elements, mismatches = tensors + 1, elements + looked_at.size, mismatches + wrong
        worst = max(worst, int(gap.max(initial=0)))
        if place.qdq_name in zero_points and is_dull(looked_at, zero_points[place.qdq_name]):
            dull.append(place.name)
        if wrong and first is None:
            index = tuple(int(i) for i in np.argwhere(gap)[0])
            first = Difference(
                tensor=place.name,
                index=index,
                group=place.group if place.group < len(bundle.groups) else -1,
                instruction=writer(bundle, place, shape, index),
                expected=int(wanted[index]),
                got=int(got[index]),
                mismatches=wrong,
                elements=looked_at.size,
            )
    return CheckResult(
        reference=reference,
        tensors=tensors,
        elements=elements,
        mismatches=mismatches,
        max_abs_diff=worst,
        first=first,
        uncompared=uncompared,
        dull=tuple(dull),
    )


def is_dull(tensor: np.ndarray, zero_point: int) -> bool:
    """True when a tensor proves little: under 32 distinct values, or 5 % and more saturated.

    Of a tensor with fewer than 96 elements a third must be distinct, and one may be saturated. With
    zero point -128 the lower end stands for zero (behind a relu) and is no saturation.
    """
    values, counts = np.unique(tensor, return_counts=True)
    if len(values) < min(DISTINCT_VALUES, tensor.size // 3):
        return True
    ends = (values == 127) | ((values == -128) & (zero_point != -128))
    return int(counts[ends].sum()) >= max(SATURATED_SHARE * tensor.size, 2)


def writer(bundle: Bundle, place: Place, shape: tuple[int, ...], index: tuple[int, ...]) -> int:
    """C-type number of the last post.run that makes an element of a tensor; -1 if none does."""
    if place.group < 0 or place.group >= len(bundle.groups):
        return -1
    _, channels, rows, cols = _sizes(bundle, place, shape)
    flat = int(np.ravel_multi_index((0, *index[1:]), (1, *shape[1:])))
    channel, rest = divmod(flat, rows * cols)
    row, col = divmod(rest, cols)
    assert channel < channels
    for segment in bundle.segments:
        if isinstance(segment, MachineSegment) and place.group in segment.groups:
            return _writer(bundle, segment, place, (channel, row, col))
    return -1


def _sizes(bundle: Bundle, place: Place, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    if place.stage is not None:
        return 1, place.stage.channels, place.stage.rows, place.stage.cols
    for t in bundle.tensors:
        if t.name == place.name:
            return 1, t.layout.channels, t.layout.rows, t.layout.cols
    return 1, int(np.prod(shape[1:])), 1, 1


def _writer(bundle: Bundle, segment: MachineSegment, place: Place, at: tuple[int, int, int]) -> int:
    program = decode(segment_words(bundle, segment))
    lanes = next(t.layout.lanes for t in bundle.tensors)
    lane, px = _lane(bundle, place, at[0])
    in_tile = place.stage is not None and not place.stage.pooled and not place.stage.stored
    tiles = iter(segment.tiles)
    found = -1
    for number, instruction in enumerate(program):
        if instruction.engine is not Engine.POST:
            continue
        tile_row, tile_col, out_row, out_col, block = next(tiles)
        p = instruction.params
        if segment.groups[number] != place.group or not (0 <= lane // lanes - block < p["blocks"]):
            continue
        windowed = Stage.POOL in unpack_order(p["order"])
        if in_tile and windowed:
            rows, cols, row, col = p["in_rows"], p["in_cols"], tile_row, tile_col
        else:
            rows, cols, row, col = p["out_rows"], p["out_cols"], out_row, out_col
        if 0 <= at[1] - row < rows and 0 <= at[2] - col < cols * px:
            found = number
    return found


def _lane(bundle: Bundle, place: Place, channel: int) -> tuple[int, int]:
    """Lane of a channel, and the neighbouring pixels that a word of its post chain holds."""
    if place.stage is not None:
        return int(lanes_of(place.stage.pieces)[channel]), place.stage.px
    layout = next((t.layout for t in bundle.tensors if t.name == place.name), None)
    if layout is None:
        return channel, 1
    lane = int(lanes_of(layout.pieces)[channel]) if layout.pieces else channel
    return lane, layout.word // layout.slot
