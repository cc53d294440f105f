"""Whether a compiled network computes what ONNX Runtime computes, everywhere.

The reference is the QDQ model in the program file, run by ONNX Runtime alone. Its int8 tensors are
compared with what the functional engine leaves in the memory window (read by `layout.py`), and with
what the engine shows of its post chain. Twice:

* tensor by tensor: every tensor that the machine shows is put into the QDQ model in place of its
  own, and what ONNX Runtime makes of it one operator further is compared with the machine's. So a
  difference is the fault of one operator, and the bound is that operator's (`bounds.py`).
* as a whole: the same without putting in anything, within the sum of all bounds.

The native engine runs the program, too: it leaves the bytes of the functional engine in the window.

The product's own `--check` is asked as well: it must not fail where nothing is wrong, nor pass
where something is.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from opu_fuse import pipeline
from opu_fuse.bundle import file as program_file
from opu_fuse.bundle.program import Bundle, HostSegment
from opu_fuse.bundle.result import RunResult
from opu_fuse.errors import RunError, UserError
from opu_fuse.frontend.choice_names import Scales
from opu_fuse.frontend.prepare import Prepared
from opu_fuse.fuse.norm_operators import norms_of
from opu_fuse.fuse.strategies.strategy_names import REWRITING, StrategyName
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.pipeline import Compilation, Options
from opu_fuse.schedule.choice_names import FusedStackChoice
from opu_fuse.sim import engine
from opu_fuse.sim.compare import runs
from opu_fuse.sim.native.library import available as native_available
from opu_fuse.sim.native.runner import NativeRunner
from tests.fuzz import canonical, layout
from tests.fuzz.added import added_roundings
from tests.fuzz.bounds import Bounds
from tests.fuzz.network_case import NetworkCase
from tests.fuzz.onnxruntime_runs import Arrays, cut, roundings, run, showing, standard
from tests.fuzz.users_model import wrong_beside
from tests.fuzz.writing import misread

_SLACK = 1e-4
"""Of floats that were computed by other operations: relative to the largest."""
_FLOAT32 = 1e-5
"""Of floats that are sums, in whatever order."""


def judge(case: NetworkCase, hw: HwSpec) -> str | None:
    """None, or what is wrong. Raises what compiling and running raise."""
    return judge_compiled(case, hw, compiled(case, hw))


def judge_compiled(case: NetworkCase, hw: HwSpec, made: Compilation) -> str | None:
    """None, or what is wrong with what `compiled` gave: a refusal, too. Raises what compiling a
    batch raises.
    """
    several = options_of(case, batch=case.batch)
    many = case.batch > 1
    together = pipeline.compile_prepared(made.prepared, hw, several).bundle if many else None
    try:
        return "; ".join(_wrong(case, hw, made, together)[:3]) or None
    except UserError as error:
        return f"compiles, but: {error}"


def _wrong(case: NetworkCase, hw: HwSpec, made: Compilation, together: Bundle | None) -> list[str]:
    """What differs from what it should be. together: of a batch. Raises what running raises."""
    bundle = made.bundle
    if case.file:
        bundle = _through_a_file(bundle)
    inputs = case.inputs()
    result, window = _run(bundle, hw, inputs)
    seen = _seen(bundle, result, None if case.reuse_memory else window)
    wrong = list(_differences(case, bundle, inputs, seen, result))
    if case.writing and hw.name == case.machines[0]:
        wrong += misread(case.given(), inputs)
    if case.quantised:  # it is the reference, but for what is told
        qdq = onnx.load_from_string(bundle.qdq)
        wrong += added_roundings(case.proto(), qdq, inputs, made.prepared.warnings)
    wrong += _check_disagrees(bundle, inputs, result, wrong)
    wrong += wrong_beside(case.proto(), bundle, inputs, result)
    wrong.sort(key=lambda line: not line.startswith(("output", "--check")))  # what users see first
    wrong += native_differs(bundle, hw, inputs, result, window)
    wrong += _other_runs(case, bundle, hw, inputs, result)
    if together is not None:
        wrong += _batched(case, hw, bundle, together)
    if case.canonical and hw.name == case.machines[0]:
        wrong += canonical.differences(case, inputs)
    if case.canonical and case.quantised:
        wrong += _groups_differ(case, hw, made)
    return wrong


_kept: dict[tuple[bytes, str, str, bool, frozenset[str]], Prepared] = {}
"""The last model, quantised, for the next machine or strategy: by its bytes, its writing, its
scales, and whether it may be rewritten.
"""


def compiled(case: NetworkCase, hw: HwSpec) -> Compilation:
    """The program of a case. Raises what compiling raises."""
    options = options_of(case)
    rewriting = case.strategy in REWRITING
    key = (case.model, case.writing, case.scales, rewriting, norms_of(hw))
    if key in _kept:
        return pipeline.compile_prepared(_kept[key], hw, options)
    found = pipeline.compile_model(_ir(case), hw, options)
    for other in [k for k in _kept if k[:3] != key[:3]]:
        del _kept[other]
    _kept[key] = found.prepared
    return found


def options_of(case: NetworkCase, *, batch: int = 1) -> Options:
    return Options(
        strategy=StrategyName(case.strategy),
        scales=Scales(case.scales),
        reuse_memory=case.reuse_memory,
        cascades=FusedStackChoice(case.cascades),
        calibration=None if case.quantised else case.inputs(salt=1),
        batch=batch,
    )


def _ir(case: NetworkCase) -> Any:
    return case.given()


def _through_a_file(bundle: Bundle) -> Bundle:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.opu"
        program_file.save(bundle, path)
        return program_file.load(path)


class _Watched(engine.FunctionalRunner):
    """Keeps the memory window of the last run."""

    last: np.ndarray

    def close(self) -> None:
        _Watched.last = self.window
        super().close()


def _run(bundle: Bundle, hw: HwSpec, inputs: Arrays) -> tuple[RunResult, np.ndarray]:
    engine.FunctionalRunner = _Watched
    result = engine.run(bundle, hw, inputs, capture=True)
    return result, _Watched.last


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tensor:
    """An int8 tensor of the machine or its host. where: it was read. mask: of what was made."""

    name: str
    qdq_name: str
    where: str
    data: np.ndarray
    mask: np.ndarray | None = None


def _seen(bundle: Bundle, result: RunResult, window: np.ndarray | None) -> list[_Tensor]:
    """Everything that can be looked at; window: None where tensors share their bytes."""
    named = {t.name: t.qdq_name for t in bundle.tensors}
    for group in bundle.groups:
        for stage in group.stages:
            if not named.get(stage.name):
                named[stage.name] = stage.qdq_name
    for segment in bundle.segments:
        if isinstance(segment, HostSegment):
            for value, qdq_name in segment.rounded:
                named.setdefault(value, qdq_name)
    found = []
    if window is not None and bundle.groups:
        found += [
            _Tensor(
                name=t.name, qdq_name=named[t.name], where="memory", data=layout.read(window, t)
            )
            for t in bundle.tensors
        ]
    found += [
        _Tensor(
            name=name,
            qdq_name=named.get(name, ""),
            where="captured",
            data=data,
            mask=result.masks.get(name),
        )
        for name, data in result.tensors.items()
    ]
    return [t for t in found if t.qdq_name]


def _differences(
    case: NetworkCase, bundle: Bundle, inputs: Arrays, seen: list[_Tensor], result: RunResult
) -> Iterator[str]:
    qdq = onnx.load_from_string(bundle.qdq)
    names = list(roundings(qdq))
    outputs = [o.name for o in qdq.graph.output]
    whole = run(showing(qdq, names), inputs, [*outputs, *names])
    shapes = _shapes(qdq)
    given: Arrays = {}
    for tensor in seen:
        if tensor.qdq_name in names and tensor.mask is None and tensor.qdq_name not in given:
            like = whole[tensor.qdq_name]
            if like.size == tensor.data.size:
                given[tensor.qdq_name] = _as(like.dtype, tensor.data).reshape(like.shape)
    local_model = cut(qdq, given)
    feeds = inputs | {f"{name}/machine": data for name, data in given.items()}
    local = run(showing(local_model, names), feeds, [*outputs, *names])
    own = not case.quantised
    near = Bounds(model=qdq, shapes=shapes, given=frozenset(given), own=own)
    far = Bounds(model=qdq, shapes=shapes, given=frozenset(), own=own)
    for how, expected, bounds in (("one operator", local, near), ("whole network", whole, far)):
        for tensor in seen:
            if tensor.qdq_name in names:
                bound = bounds.steps.get(tensor.qdq_name, np.inf)
                yield from _compared(how, tensor, expected[tensor.qdq_name], bound)
        for name, got in result.outputs.items():
            bound = bounds.real.get(name, bounds.steps.get(name, 0.0))
            yield from _outputs(how, name, expected[name], got, bound, bounds.is_rough(name))


def _as(dtype: np.dtype, data: np.ndarray) -> np.ndarray:
    """The machine has int8; a uint8 tensor of the model is 128 more."""
    return (data.astype(np.int16) + 128).astype(np.uint8) if dtype == np.uint8 else data


def _compared(how: str, tensor: _Tensor, expected: np.ndarray, bound: float) -> Iterator[str]:
    where = f"{tensor.where} {tensor.name!r} ({how})"
    if expected.size != tensor.data.size:
        yield f"{where}: {tensor.data.shape} instead of {expected.shape}"
        return
    got = _as(expected.dtype, tensor.data).astype(np.int16).reshape(expected.shape)
    gap = np.abs(got - expected.astype(np.int16))
    if tensor.mask is not None:
        gap = gap * tensor.mask.reshape(expected.shape)
    if gap.max(initial=0) > bound:
        count = int((gap > bound).sum())
        yield (
            f"{where}: {count} of {gap.size} values differ, by up to {gap.max()} "
            f"where {bound:g} is allowed"
        )


def _outputs(
    how: str, name: str, expected: np.ndarray, got: np.ndarray, bound: float, rough: bool
) -> Iterator[str]:
    where = f"output {name!r} ({how})"
    if expected.shape != got.shape or expected.dtype != got.dtype:
        yield f"{where}: {got.dtype}{got.shape} instead of {expected.dtype}{expected.shape}"
        return
    gap = np.abs(expected.astype(np.float64) - got)
    if expected.dtype.kind not in "f":
        if (gap > bound).any():
            yield f"{where}: {np.count_nonzero(gap > bound)} of {got.size} values differ"
    else:
        share = _SLACK if bound else _FLOAT32 if rough else 0.0
        allowed = bound + share * float(np.abs(expected).max(initial=0.0))
        if not (gap <= allowed).all() and not np.array_equal(expected, got, equal_nan=True):
            yield (
                f"{where}: {int((gap > allowed).sum())} of {got.size} values differ, by up to "
                f"{gap.max():g} where {allowed:g} is allowed"
            )


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    bare.graph.ClearField("value_info")
    standard(bare)
    graph = onnx.shape_inference.infer_shapes(bare).graph
    return {
        v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
        for v in (*graph.input, *graph.output, *graph.value_info)
    }


def _check_disagrees(
    bundle: Bundle, inputs: Arrays, result: RunResult, wrong: list[str]
) -> list[str]:
    found = runs.check(bundle, inputs, result)
    if wrong:
        return ["--check passes all the same"] if found.passed else []
    if found.passed or not found.tensors:
        return []
    return [f"--check fails where nothing is wrong: {found.first}"]


def _groups_differ(case: NetworkCase, hw: HwSpec, made: Compilation) -> list[str]:
    """`partition` groups what arrives quantised as `compile` does. It does not name packed copies,
    which may cut a group in two.
    """
    if case.strategy == "greedy":  # shown as published
        return []
    dfg, found = pipeline.partition_model(_ir(case), hw, case.strategy)
    known = [
        [[d.nodes[m.node].name for m in group.matches] for group in p.groups]
        for d, p in ((dfg, found), (made.dfg, made.partition))
    ]
    packed = made.partition.rewrites.keys() - found.rewrites.keys()
    copies = packed | made.partition.copies.keys()
    neighbours = {name for group in known[1] if packed & set(group) for name in group}
    cut = [set(group) for group in known[0] if neighbours & set(group)]
    extra = [
        group
        for group in known[1]
        if group not in known[0]
        and not copies >= set(group)
        and not any(set(group) - packed < whole for whole in cut)
    ]
    return [f"compile has a group {extra[0]} that partition has not"] if extra else []


def native_differs(
    bundle: Bundle, hw: HwSpec, inputs: Arrays, result: RunResult, window: np.ndarray
) -> list[str]:
    """The native engine leaves other bytes, counts or results than the functional one."""
    if not native_available():
        return []
    runner = NativeRunner(bundle, hw)
    native = engine.run_on(runner, bundle, inputs, engine="native")
    wrong = [
        f"native run differs from the functional one in output {name!r}"
        for name, array in result.outputs.items()
        if not np.array_equal(array, native.outputs[name], equal_nan=True)
    ]
    if not np.array_equal(runner.window, window):
        count = np.count_nonzero(runner.window != window)
        wrong.append(f"native run leaves {count} other bytes in the memory window")
    if (native.counters, native.groups) != (result.counters, result.groups):
        wrong.append("native run counts otherwise than the functional one")
    return wrong


def _other_runs(
    case: NetworkCase, bundle: Bundle, hw: HwSpec, inputs: Arrays, result: RunResult
) -> list[str]:
    """Another order, the cycle engine, the RTL: the same bits and cycles, or no error."""
    wrong = []
    runs = {}
    if case.shuffle is not None:
        runs["shuffled"] = engine.run(bundle, hw, inputs, shuffle=case.shuffle)
    if case.rtl:
        runs["RTL"] = engine.run(bundle, hw, inputs, engine="rtl")
    for how, other in runs.items():
        for name, array in result.outputs.items():
            if not np.array_equal(array, other.outputs[name], equal_nan=True):
                wrong.append(f"{how} run differs from the plain one in output {name!r}")
    if case.cycle or case.rtl:
        cycles = engine.run(bundle, hw, engine="cycle").counters.get("cycles")
        if case.rtl and cycles != runs["RTL"].counters.get("cycles"):
            wrong.append(f"{cycles} cycles, RTL {runs['RTL'].counters.get('cycles')}")
    return wrong


def _batched(case: NetworkCase, hw: HwSpec, bundle: Bundle, together: Bundle) -> list[str]:
    """Several images together: the bits of as many runs one by one, also where one is missing."""
    if case.file:
        together = _through_a_file(together)
    images = case.images(2 * case.batch - 1)
    try:
        expected = engine.run(bundle, hw, images, capture=True)
    except RunError:
        return []  # outputs whose shapes depend on the values
    if case.cycle:
        engine.run(together, hw, engine="cycle")
    got = engine.run(together, hw, images, capture=True, shuffle=case.shuffle)
    found = runs.compare(bundle, expected, got)
    return [f"batch of {case.batch}: {found.first}"] if found.first else []
