"""Fusing a producer into a consumer through one operand (`fuse_elementwise`).

The fused operator runs the consumer's loops. A producer's operand is read by
`producer_map ∘ inverse(result_map) ∘ operand_map`. The order of operands is: the consumer's
inputs before the fused one, the producer's inputs, the consumer's other inputs; then the preserved
results of the producer, then the consumer's.
"""

from collections.abc import Collection
from dataclasses import replace

from opu_fuse.affine import AffineMap, compose
from opu_fuse.errors import InternalError
from opu_fuse.host.build.linalg.pair import (
    Pair,
    fused_result,
    preserved_results,
    producer_loops,
    replaced_inputs,
)
from opu_fuse.host.build.linalg.payload import Payload
from opu_fuse.host.build.linalg.rules import refusal
from opu_fuse.host.kernel import GenericOp
from opu_fuse.host.kernel_check import checked


def fuse_elementwise(
    producer: GenericOp, consumer: GenericOp, operand: int, *, preserved: Collection[str] = ()
) -> GenericOp:
    """One operator that computes what the two compute one after the other, with the same bits.

    operand, preserved: as in `Pair`. Raises InternalError where a rule forbids it: ask `refusal`
    first.
    """
    pair = Pair(
        producer=producer, consumer=consumer, operand=operand, preserved=frozenset(preserved)
    )
    no = refusal(pair)
    if no is not None:
        raise InternalError("linalg fusion", f"{no.rule}: {no.text}")
    return checked(fuse_pair(pair))


def fuse_pair(pair: Pair) -> GenericOp:
    """The fused operator of a pair that no rule refuses."""
    p, c = pair.producer, pair.consumer
    into = producer_loops(pair)
    gone = replaced_inputs(pair)
    preserved = preserved_results(pair)
    before = [n for n in range(pair.operand) if n not in gone]
    after = [n for n in range(pair.operand + 1, len(c.inputs)) if n not in gone]
    inputs = (
        *(c.inputs[n] for n in before),
        *(replace(x, map=compose(x.map, into)) for x in p.inputs),
        *(c.inputs[n] for n in after),
    )
    results = (*(fused_result(p.results[k], into) for k in preserved), *c.results)
    payload = Payload([x.dtype for x in (*inputs, *results)])

    first = len(inputs)
    of_p = {n: len(before) + n for n in range(len(p.inputs))}
    of_p |= {len(p.inputs) + k: first + at for at, k in enumerate(preserved)}
    of_p = _append(payload, p, of_p, into)

    of_c = {n: at for at, n in enumerate(before)}
    of_c |= {n: at for at, n in enumerate(after, len(before) + len(p.inputs))}
    of_c |= {n: of_p[p.yields[k]] for n, k in gone.items()}
    of_c |= {len(c.inputs) + k: first + len(preserved) + k for k in range(len(c.results))}
    of_c = _append(payload, c, of_c, None)

    yields = (*(of_p[p.yields[k]] for k in preserved), *(of_c[y] for y in c.yields))
    return GenericOp(
        name=f"{p.name}+{c.name}",
        loops=c.loops,
        inputs=inputs,
        results=results,
        body=payload.instructions,
        yields=yields,
    )


def _append(
    payload: Payload, op: GenericOp, numbers: dict[int, int], into: AffineMap | None
) -> dict[int, int]:
    """Append an operator's body; numbers: its operands' values in the payload. Returned: all its
    values in the payload. into: the fused loops -> its loops, None where they are the same.
    """
    numbers = dict(numbers)
    for number, i in enumerate(op.body, op.first_instr):
        if i.op == "index" and into is not None:
            numbers[number] = payload.affine(into.results[i.dim])
        else:
            args = tuple(numbers[a] for a in i.args)
            numbers[number] = payload.append(replace(i, args=args))
    return numbers
