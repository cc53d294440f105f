"""Rewrites other than fusion: they shrink an operator and never change a bit of its results."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from opu_fuse.host.build.linalg.pair import uncovered_loops
from opu_fuse.host.build.linalg.payload import Payload
from opu_fuse.host.kernel import GenericOp, Input, Instr, Result, literal
from opu_fuse.host.kernel_check import results_read

NOTHING: Mapping[int, Any] = MappingProxyType({})


def simplify(op: GenericOp) -> GenericOp:
    """Equal inputs folded, dead instructions, inputs and inits dropped."""
    return drop_unused_inits(drop_unused_inputs(fold_equal_inputs(op)))


def fold_equal_inputs(op: GenericOp) -> GenericOp:
    """Inputs that read one tensor by one map become one."""
    first: dict[tuple[str, object], int] = {}
    same = {n: first.setdefault((x.value, x.map), n) for n, x in enumerate(op.inputs)}
    gone = {n: to for n, to in same.items() if n != to}
    return _without_inputs(op, gone, {}) if gone else op


def fold_splats(op: GenericOp, constants: Mapping[str, np.ndarray]) -> GenericOp:
    """Inputs that are constants of one value everywhere become scalars of the payload.

    Not where the operator gathers: the constant's shape may be all that bounds a loop.
    """
    if op.gathering:
        return op
    results = {}
    for n, x in enumerate(op.inputs):
        text = splat(constants[x.value]) if x.value in constants else None
        if text is not None:
            results[n] = text
    return _without_inputs(op, {}, results) if results else op


def splat(data: np.ndarray) -> str | None:
    """The literal of a constant whose elements are all the same bits, else None."""
    if data.size == 0:
        return None
    flat = np.ascontiguousarray(data).reshape(-1)
    raw = flat.view(np.uint8).reshape(flat.size, -1)
    return literal(flat[0]) if bool((raw == raw[0]).all()) else None


def fill_literal(op: GenericOp) -> str | None:
    """The literal an operator fills its only result with; None for operators that do more."""
    if op.inputs or len(op.results) != 1 or op.yields[0] < op.first_instr:
        return None
    instruction = op.body[op.yields[0] - op.first_instr]
    return instruction.literal if instruction.op == "const" else None


def fold_fill(op: GenericOp, fill: GenericOp) -> GenericOp:
    """`op` reading the fill's literal instead of its result: inputs, unless a loop would lose its
    bounds, and inits.
    """
    text, value = fill_literal(fill), fill.results[0].value
    if text is None:
        return op
    collected = {n: text for n, x in enumerate(op.inputs) if x.value == value}
    if op.gathering and not _bounded(op, collected):
        collected = {}
    results = tuple(replace(r, init=None, fill=text) if r.init == value else r for r in op.results)
    return _without_inputs(replace(op, results=results), {}, collected)


def drop_unused_inits(op: GenericOp) -> GenericOp:
    """Results the payload does not read start from nothing."""
    results = tuple(
        r if op.reads_result(k) else replace(r, init=None, fill=None)
        for k, r in enumerate(op.results)
    )
    return replace(op, results=results)


def drop_unused_inputs(op: GenericOp) -> GenericOp:
    """Dead instructions go, then inputs nothing reads, unless they bound a gathering's loop."""
    results = range(len(op.results))
    if len(_live(op, results) - set(range(op.first_instr))) < len(op.body):
        op = _rebuilt(op, range(len(op.inputs)), results)
    used = {a for i in op.body for a in i.args} | set(op.yields)
    dead = [n for n in range(len(op.inputs)) if n not in used]
    while dead and op.gathering and not _bounded(op, dead):
        dead.pop()
    if not dead:
        return op
    return _rebuilt(op, [n for n in range(len(op.inputs)) if n not in dead], results)


def drop_results(op: GenericOp, needed: Collection[str]) -> GenericOp:
    """Without the results nobody needs, except one that bounds a gathering's loop."""
    remaining = [k for k, r in enumerate(op.results) if r.value in needed]
    if len(remaining) == len(op.results) or not remaining:
        return op
    maps = [x.map for x in (*op.inputs, *(op.results[k] for k in remaining))]
    if op.gathering and uncovered_loops(maps, len(op.loops)):
        return op
    reads = results_read(op)
    if any(reads[op.yields[k]] - set(remaining) for k in remaining):
        return op
    return simplify(_rebuilt(op, range(len(op.inputs)), remaining))


def _bounded(op: GenericOp, dropped: Collection[int]) -> bool:
    """True when the other operands still bound every loop."""
    others: list[Input | Result] = [x for n, x in enumerate(op.inputs) if n not in dropped]
    return not uncovered_loops([x.map for x in (*others, *op.results)], len(op.loops))


def _without_inputs(
    op: GenericOp, same: Mapping[int, int], literals: Mapping[int, str]
) -> GenericOp:
    """Inputs replaced: by another input (`same`), or by a literal."""
    inputs = [n for n in range(len(op.inputs)) if n not in same and n not in literals]
    return _rebuilt(op, inputs, range(len(op.results)), same, literals)


def _rebuilt(
    op: GenericOp,
    inputs: Sequence[int],
    results: Sequence[int],
    same: Mapping[int, int] = NOTHING,
    literals: Mapping[int, str] = NOTHING,
) -> GenericOp:
    """The operator with these inputs and results, and the instructions its results need."""
    new_inputs = tuple(op.inputs[n] for n in inputs)
    new_results = tuple(op.results[k] for k in results)
    payload = Payload([x.dtype for x in (*new_inputs, *new_results)])
    numbers = {n: at for at, n in enumerate(inputs)}
    numbers |= {n: numbers[to] for n, to in same.items()}
    numbers |= {len(op.inputs) + k: len(inputs) + at for at, k in enumerate(results)}
    for n, text in literals.items():
        const = Instr(op="const", dtype=op.inputs[n].dtype, literal=text)
        numbers[n] = payload.append(const)
    live = _live(op, results)
    for number, i in enumerate(op.body, op.first_instr):
        if number in live:
            args = tuple(numbers[a] for a in i.args)
            numbers[number] = payload.append(replace(i, args=args))
    return replace(
        op,
        inputs=new_inputs,
        results=new_results,
        body=payload.instructions,
        yields=tuple(numbers[op.yields[k]] for k in results),
    )


def _live(op: GenericOp, results: Sequence[int]) -> set[int]:
    live = {op.yields[k] for k in results}
    for number in range(op.first_instr + len(op.body) - 1, op.first_instr - 1, -1):
        if number in live:
            live.update(op.body[number - op.first_instr].args)
    return live
