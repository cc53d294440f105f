"""A producer and a consumer that may become one generic operator, and what follows from them."""

from collections.abc import Iterable
from dataclasses import replace

from msgspec import Struct

from opu_fuse.affine import AffineMap, compose, covered_loops, inverse_permutation
from opu_fuse.host.kernel import GenericOp, Result


class Pair(Struct, frozen=True, kw_only=True):
    """operand: which operand of the consumer is to disappear, inputs first, then the results'
    inits. preserved: results of the producer that others than the consumer need.
    """

    producer: GenericOp
    consumer: GenericOp
    operand: int
    preserved: frozenset[str] = frozenset()

    @property
    def value(self) -> str | None:
        """Name of the tensor between the two; None where the operand is a result without init."""
        return operand_value(self.consumer, self.operand)

    @property
    def result(self) -> Result | None:
        """The producer's result that the operand reads."""
        return next((r for r in self.producer.results if r.value == self.value), None)

    @property
    def operand_map(self) -> AffineMap:
        """The consumer's map of the operand."""
        return (*self.consumer.inputs, *self.consumer.results)[self.operand].map


def operand_value(op: GenericOp, operand: int) -> str | None:
    """Name of an operand's tensor, inputs first, then the results' inits."""
    n = len(op.inputs)
    return op.inputs[operand].value if operand < n else op.results[operand - n].init


def producer_loops(pair: Pair) -> AffineMap:
    """Loops of the fused operator (the consumer's) -> loops of the producer."""
    assert pair.result is not None
    return compose(inverse_permutation(pair.result.map), pair.operand_map)


def replaced_inputs(pair: Pair) -> dict[int, int]:
    """Inputs of the consumer that disappear -> the producer's result each reads.

    Besides the operand itself these are inputs that read any result of the producer at the same
    iteration: they get the same computed element.
    """
    into = producer_loops(pair)
    results: dict[int, int] = {}
    for n, x in enumerate(pair.consumer.inputs):
        for k, r in enumerate(pair.producer.results):
            same = r.value == x.value and r.map.is_permutation
            if same and compose(inverse_permutation(r.map), x.map) == into:
                results[n] = k
    return results


def preserved_results(pair: Pair) -> tuple[int, ...]:
    """The producer's results that the fused operator has to write too.

    Case 1: the payload reads what the result held before. Case 2: without it (and the operand) no
    operand would bound some loop. Case 3: others than the consumer need it.
    """
    results = []
    for k, r in enumerate(pair.producer.results):
        own = pair.producer.reads_result(k)  # Case 1
        bounds = r is pair.result and unbounded_loops(pair)  # Case 2
        if own or bounds or r.value in pair.preserved:  # Case 3
            results.append(k)
    return tuple(results)


def unbounded_loops(pair: Pair) -> tuple[int, ...]:
    """Loops of the fused operator that no operand would have as an index by itself."""
    gone = replaced_inputs(pair)
    into = producer_loops(pair)
    maps = [x.map for n, x in enumerate(pair.consumer.inputs) if n not in gone]
    maps += [compose(x.map, into) for x in pair.producer.inputs]
    maps += [r.map for r in pair.consumer.results]
    return uncovered_loops(maps, len(pair.consumer.loops))


def uncovered_loops(maps: Iterable[AffineMap], loops: int) -> tuple[int, ...]:
    """Loops that are an index by themselves in none of the maps."""
    return tuple(sorted(set(range(loops)) - covered_loops(maps)))


def fused_result(result: Result, into: AffineMap) -> Result:
    """A preserved result in the loops of the fused operator."""
    return replace(result, map=compose(result.map, into))
