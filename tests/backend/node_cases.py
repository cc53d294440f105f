"""Run onnx's own single-operator cases through compiler and functional engine; write the results.

`python -m tests.backend.node_cases` runs them all, prints the totals and writes
docs/onnx-operators.md; tests/backend/test_node_cases.py holds the page against fresh runs.

A case is right when every output is what the case says, within the case's own tolerance where
nothing was rounded to int8. Where R values were rounded, an output may differ by R + 1 steps, each
2/127 of the largest number in it: power-of-two scales make the largest number 64 to 127 steps.
Where ONNX Runtime itself, given the case's model, says something else than the case, its word
counts: host operators are its business. Calibration data are the case's own inputs.
"""

import functools
import logging
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from opu_fuse.bundle.program import HostSegment
from opu_fuse.errors import UserError
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, Program, compile_model
from tests.some import some

PAGE = Path(__file__).resolve().parents[2] / "docs" / "onnx-operators.md"
MACHINE = "opu-light"
STEP = 2.0 / 127.0


class Where(StrEnum):
    """What runs a case."""

    MACHINE = "machine"
    HOST = "host"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a case.

    of_runtime: the outputs are those of ONNX Runtime, which differ from the case's.
    wrong: what is wrong with an output, or "".
    reason: the message of a refusal.
    """

    name: str
    where: Where
    reason: str = ""
    of_runtime: bool = False
    wrong: str = ""


KINDS: Mapping[str, tuple[str, ...]] = {
    "no implementation in ONNX Runtime": (
        *("cannot run it on the host", "ONNX Runtime cannot run the model"),
    ),
    "ONNX Runtime reports an error": ("cannot run it on these values",),
    "sequences and optionals": ("is a sequence", "is a optional", "SplitToSequence"),
    "strings": ("string",),
    "control flow": ("control flow",),
    "no static shape": ("no static shape", "is dynamic", "has no shape"),
    "NaN or infinity in a quantised tensor": ("NaN",),
    "operator set not supported": (
        *("imports no standard operators", "is older than", "is newer than"),
    ),
}
"""Kind of refusal -> what its messages contain."""


def kind_of(reason: str) -> str:
    """The kind of a refusal; its message if no kind matches."""
    return next((k for k, texts in KINDS.items() if any(t in reason for t in texts)), reason)


@functools.cache
def cases_by_operator() -> Mapping[str, tuple[Any, ...]]:
    """All cases with data, by their operator; expanded ones are listed with it."""
    from onnx.backend.test.case import node

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy, on onnx's own numbers
        found = node.collect_testcases(None)
    about = {c.name: _operator(some(c.model)) for c in found if "_expanded" not in c.name}
    groups: dict[str, list[Any]] = {}
    for case in found:
        base = case.name.split("_expanded")[0]
        groups.setdefault(about.get(base) or _operator(some(case.model)), []).append(case)
    return {name: tuple(groups[name]) for name in sorted(groups)}


def _operator(model: onnx.ModelProto) -> str:
    """The first operator of a model that is more than a constant."""
    nodes = [n for n in model.graph.node if n.op_type != "Constant"] or list(model.graph.node)
    return ".".join(filter(None, (nodes[0].domain, nodes[0].op_type)))


def outcome(case: Any) -> Outcome:
    """Compile, save, load, run, compare."""
    inputs, expected = _data(case)
    try:
        program, rounded = _compiled(case.model, inputs)
        found = program.run(inputs or None).outputs
    except UserError as error:
        return Outcome(name=case.name, where=Where.REFUSED, reason=str(error))
    machine = any(not isinstance(s, HostSegment) for s in program.bundle.segments)
    where = Where.MACHINE if machine else Where.HOST
    wrong = _difference(case, rounded, found, expected)
    theirs = _runtime(case.model, inputs) if wrong else None
    if theirs is not None and not _difference(case, rounded, found, theirs):
        return Outcome(name=case.name, where=where, of_runtime=True)
    return Outcome(name=case.name, where=where, wrong=wrong)


def _compiled(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> tuple[Program, int]:
    """The program as it is read from its file, and how many values it rounds.

    Inputs with NaN or infinity are no calibration data; that matters where something is rounded.
    """
    hw = load_hw(MACHINE)
    infinite = any(v.dtype.kind == "f" and not np.isfinite(v).all() for v in inputs.values())
    options = Options(calibration=None if infinite else inputs or None)
    done = compile_model(model, hw, options)
    rounded = sum(n.quant is not None and n.const is None for n in done.dfg.nodes)
    if infinite and rounded:
        done = compile_model(model, hw, Options(calibration=inputs))  # is refused
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.opu"
        Program(bundle=done.bundle, hw=hw).save(path)
        return Program.load(path), rounded


def _data(case: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Inputs and expected outputs by name; outputs without a name are not asked for."""
    graph = case.model.graph
    given, expected = case.data_sets[0] if case.data_sets else ((), ())
    inputs = zip([i.name for i in graph.input], given, strict=False)
    outputs = zip([o.name for o in graph.output], expected, strict=False)
    return {n: _array(v) for n, v in inputs}, {n: _array(v) for n, v in outputs}


def _array(value: Any) -> np.ndarray:
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, np.ndarray | np.generic | float | int):
        return np.asarray(value)
    return np.empty(0, object)  # a sequence, an optional: refused before it is read


def _difference(
    case: Any, rounded: int, found: Mapping[str, np.ndarray], expected: Mapping[str, Any]
) -> str:
    """The mistake of the first wrong output; "" if all are right."""
    for name, right in expected.items():
        got = found[name]
        if (got.dtype, got.shape) != (right.dtype, right.shape):
            return f"{name} is {got.dtype}{got.shape}, not {right.dtype}{right.shape}"
        a, b = (_wide(array) for array in (got, right))
        largest = np.abs(b[np.isfinite(b)]).max(initial=0.0)
        steps = (rounded + 1) * STEP * largest if rounded else 0.0
        close = np.isclose(a, b, rtol=case.rtol, atol=case.atol + steps, equal_nan=True)
        if not close.all():
            return f"{name} differs by {np.abs(a - b)[~close].max()}, largest is {largest}"
    return ""


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32 if array.dtype.kind == "V" else np.float64).astype(np.float64)


def _runtime(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> dict[str, Any] | None:
    """Outputs of ONNX Runtime; None if it cannot run the case."""
    from opu_fuse.host.run.segment import session

    try:
        running = session(model.SerializeToString())
        names = [o.name for o in running.get_outputs()]
        return dict(zip(names, running.run(names, dict(inputs)), strict=True))
    except Exception:  # noqa: BLE001  ONNX Runtime raises classes of its own
        return None


def row(operator: str, outcomes: Sequence[Outcome]) -> str:
    """The row of an operator in the page."""
    count = Counter(o.where for o in outcomes)
    kinds = Counter(kind_of(o.reason) for o in outcomes if o.where is Where.REFUSED)
    why = "; ".join(f"{kind} ({n})" for kind, n in sorted(kinds.items()))
    cells = [str(count[where]) if count[where] else "–" for where in Where]
    return f"| {operator} | {len(outcomes)} | {' | '.join(cells)} | {why or '–'} |"


def page(found: Mapping[str, Sequence[Outcome]]) -> str:
    """docs/onnx-operators.md."""
    every = [o for outcomes in found.values() for o in outcomes]
    rows = [row(operator, outcomes) for operator, outcomes in found.items()]
    theirs = "\n".join(f"* `{name}`" for name in sorted(o.name for o in every if o.of_runtime))
    return "\n".join([*_head(every), *rows, "", _THEIRS, "", theirs or "None.", ""])


def _head(every: Sequence[Outcome]) -> Iterator[str]:
    where = Counter(o.where for o in every)
    kinds = Counter(kind_of(o.reason) for o in every if o.where is Where.REFUSED)
    yield _INTRO
    yield versions()
    yield ""
    runs = f"{where[Where.MACHINE]} run on the machine, {where[Where.HOST]} on the host alone"
    refused = f"{where[Where.REFUSED]} are refused with a message of one line"
    yield f"Of {len(every)} cases {runs}, {refused}:"
    yield ""
    yield "| refused because of | cases |"
    yield "|---|---|"
    yield from (f"| {kind} | {n} |" for kind, n in sorted(kinds.items()))
    yield ""
    yield "| operator | cases | machine | host | refused | refused because of (cases) |"
    yield "|---|---|---|---|---|---|"


def versions() -> str:
    """What the numbers depend on."""
    import onnxruntime

    return f"onnx {onnx.__version__}, ONNX Runtime {onnxruntime.__version__}, machine {MACHINE}."


_INTRO = """\
<!-- Generated by `python -m tests.backend.node_cases`; do not edit. -->

# ONNX operators, by onnx's own cases

The onnx package has test cases for every operator. A case is a model of one node (or of the nodes
of the operator's function body) with inputs and expected outputs. Each case is compiled, saved to a
program file, loaded and run on the functional engine.

**Few cases run on the machine, and that says little about networks.** Most cases have a batch, or
weights that are inputs instead of constants, so the host runs them. Conv and Relu are examples.
[Supported operators](operators.md) says what each machine runs.
"""
_THEIRS = """\
## Where ONNX Runtime differs

In these cases the output of ONNX Runtime differs from that of the onnx package.
Compiled programs agree with ONNX Runtime:"""


def main() -> int:
    """Run all, print the totals, write the page; 1 when a case is wrong."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    found = {name: [outcome(c) for c in cases] for name, cases in cases_by_operator().items()}
    every = [o for outcomes in found.values() for o in outcomes]
    PAGE.write_text(page(found), encoding="utf-8")
    wrong = [o for o in every if o.wrong]
    totals = Counter(str(o.where) for o in every)
    kinds = Counter(kind_of(o.reason) for o in every if o.where is Where.REFUSED)
    lines = [f"{n:5} {what}" for what, n in (*totals.items(), *kinds.most_common())]
    sys.stdout.write("\n".join([*lines, *(f"WRONG {o.name}: {o.wrong}" for o in wrong)]) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
