"""Roundings that the front end adds to a model that arrives quantised: told, and no further off.

`compile` says how many there are, and by how many steps what the model itself rounds may move. Here
ONNX Runtime computes both models, each of the model's own roundings from the integers that the
model as given has in front of it. So what is behind no added pair has the same bits, and the others
are compared in steps, before they are rounded.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from opu_fuse.model.operator_sets import NORMS
from tests.fuzz.onnxruntime_runs import Arrays, cut, roundings, run, showing

_PRINTED = 0.051
"""What a number with one digit behind the point hides, and float32."""
_FLOAT32 = 1e-6
"""Of floats that other operations compute: relative to the largest."""
_HALF_A_UNIT = 2.0**-23
"""Of a float32, relative to it, with room for the division."""
_SAYS = re.compile(r"(\d+|a) results? (?:is|are) rounded to int8, though the model rounds")
_MOVES = re.compile(r"the next rounded result may move by ([\d.]+) steps")


def added_roundings(
    given: onnx.ModelProto, qdq: onnx.ModelProto, inputs: Arrays, warnings: Sequence[str]
) -> Iterator[str]:
    """What is wrong with the reference of a model that arrives quantised. warnings: of compile."""
    before, after = roundings(given), roundings(qdq)
    own = [name for name in before if name in after]
    extra = set(after) - set(before)
    told = next((w for w in warnings if _SAYS.search(w)), "")
    count = _SAYS.search(told)
    said = int(count[1].replace("a", "1")) if count else 0
    if said > len(extra):
        yield f"{len(extra)} roundings are added, {said} are told of"
        return
    if not said:  # others say in two steps what the model rounds in one, and change no number
        expected, got = run(given, inputs), run(qdq, inputs)
        yield from _differ(expected, got, spelt=_norms(given) != _norms(qdq))
        return
    outputs = [o.name for o in given.graph.output]
    reals = {name: before[name].input[0] for name in own}
    first = run(showing(given, [*own, *reals.values()]), inputs, [*outputs, *own, *reals.values()])
    kept = {name: first[name] for name in own}
    behind = {name: after[name].input[0] for name in own}
    feeds = inputs | {f"{name}/machine": data for name, data in kept.items()}
    second = run(
        showing(cut(qdq, kept), [*own, *behind.values()]),
        feeds,
        [*outputs, *own, *behind.values()],
    )
    moved = _readers_of(qdq, extra, set(own))
    yield from _differ(
        {n: first[n] for n in (*outputs, *own) if n not in moved},
        {n: second[n] for n in (*outputs, *own) if n not in moved},
    )
    steps = _MOVES.search(told)
    allowed = float(steps[1]) if steps else 0.0
    numbers = {i.name: numpy_helper.to_array(i) for i in qdq.graph.initializer}
    for name in own:
        if name in moved:
            gap = _steps_apart(
                first[reals[name]], second[behind[name]], after[name], first[name].dtype, numbers
            )
            if gap > allowed + _PRINTED:
                yield f"added roundings move {name!r} by {gap:.2f} steps, {allowed:g} are told of"


def _readers_of(model: onnx.ModelProto, extra: set[str], own: set[str]) -> set[str]:
    """Values that come from added pairs, up to the model's own roundings."""
    found = set(extra)
    for node in model.graph.node:
        if any(name in found and name not in own for name in node.input):
            found |= set(node.output)
    return found


def _norms(model: onnx.ModelProto) -> int:
    return sum(node.op_type in NORMS for node in model.graph.node)


def _differ(
    expected: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray], *, spelt: bool = False
) -> Iterator[str]:
    """spelt: a norm that the model spells out is one operator in the reference, which sums in
    another order: floats are those of the model within float32.
    """
    for name, array in expected.items():
        if name not in got:
            yield f"the reference has no output {name!r}"
            continue
        real = array.dtype.kind == "f"
        equal = np.array_equal(array, got[name], equal_nan=real)
        if spelt and real and not equal:
            largest = np.max(np.abs(array), initial=0.0, where=np.isfinite(array))
            equal = np.allclose(
                array, got[name], rtol=_FLOAT32, atol=_FLOAT32 * largest, equal_nan=True
            )
        if not equal:
            yield f"the reference {name!r} is not the model's"


def _steps_apart(
    one: np.ndarray,
    other: np.ndarray,
    node: onnx.NodeProto,
    kind: np.dtype,
    numbers: Mapping[str, np.ndarray],
) -> float:
    """The largest gap in steps of a rounding, between the ends of its integers. Where the reference
    requantises an operand before the model's own rounding does, `other` is rounded already: such a
    gap counts from the integer that `one` becomes. Two things follow from how ONNX Runtime rounds:
    an integer times its scale is off by half a unit of float32, so the quotient of what is rounded
    already may be; and ties go to the even quotient, since the zero point is added after rounding.
    """
    scale = numbers[node.input[1]].max()
    zero = numbers[node.input[2]].astype(np.float64) if len(node.input) > 2 else 0.0
    low, high = np.iinfo(kind).min, np.iinfo(kind).max

    def steps(quotient: np.ndarray) -> np.ndarray:
        return np.clip(quotient.astype(np.float64) + zero, low, high)

    a, b = (v.astype(np.float64) / scale for v in (one, other))
    gap, whole = np.abs(steps(a) - steps(b)), np.rint(b)
    rounded = np.rint(one.astype(np.float32) / scale.astype(np.float32))
    among_integers = np.abs(steps(rounded) - steps(whole))
    is_whole = np.abs(b - whole) <= _HALF_A_UNIT * np.abs(whole)
    return float(np.where(is_whole, np.minimum(gap, among_integers), gap).max(initial=0.0))
