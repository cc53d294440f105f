"""The greedy driver: fuses producers into consumers until no rule and no control allows more.

Consumers are visited in order; each absorbs its producers, operand by operand, and then their
producers. Operators that are no generic ones (`Opaque`) are left as they are, and nothing is fused
across them that would depend on itself.
"""

import heapq
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from msgspec import Struct

from opu_fuse.errors import InternalError
from opu_fuse.host.build.linalg.control import Candidate, Control, one_use
from opu_fuse.host.build.linalg.fusion import fuse_pair
from opu_fuse.host.build.linalg.pair import Pair, operand_value
from opu_fuse.host.build.linalg.rewrites import (
    drop_results,
    fill_literal,
    fold_fill,
    fold_splats,
    simplify,
)
from opu_fuse.host.build.linalg.rules import Refusal, refusal
from opu_fuse.host.kernel import GenericOp
from opu_fuse.host.kernel_check import checked

SEARCH_LIMIT = 1000
"""Operators looked at for a path around a fusion; with more, it is refused."""


class Opaque(Struct, frozen=True, kw_only=True):
    """An operator that is not fused: what it reads and writes."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


Member = GenericOp | Opaque


class Fused(Struct, frozen=True, kw_only=True):
    """Result of the driver.

    members: operators in topological order
    origins: per member the positions of the operators that it replaces
    refusals: (producer, consumer, why not)
    """

    members: tuple[Member, ...]
    origins: tuple[tuple[int, ...], ...]
    refusals: tuple[tuple[str, str, Refusal], ...]


def fuse_greedily(
    members: Sequence[Member],
    outputs: Collection[str],
    *,
    control: Control = one_use,
    constants: Mapping[str, np.ndarray] | None = None,
) -> Fused:
    """Fuse operators in topological order.

    outputs: values needed outside; operators that lead to none of them go. constants: values known
    now; those of one value everywhere move into the payloads.
    """
    graph = _Graph(members, outputs)
    graph.drop_dead()
    for key in sorted(graph.members):
        member = graph.members[key]
        if isinstance(member, GenericOp):
            needed = [value for value in writes_of(member) if graph.is_needed(value)]
            graph.put(key, simplify(fold_splats(drop_results(member, needed), constants or {})))
            _absorb_producers(graph, key, control)
    order = graph.order()
    names = {graph.members[key].name for key in order}
    return Fused(
        members=tuple(graph.members[key] for key in order),
        origins=tuple(tuple(sorted(graph.origins[key])) for key in order),
        refusals=tuple(r for r in graph.refusals.values() if {r[0], r[1]} <= names),
    )


def reads_of(member: Member) -> tuple[str, ...]:
    """Values a member reads, each once."""
    if isinstance(member, Opaque):
        return tuple(dict.fromkeys(member.reads))
    names = [x.value for x in member.inputs]
    names += [r.init for r in member.results if r.init is not None]
    return tuple(dict.fromkeys(names))


def writes_of(member: Member) -> tuple[str, ...]:
    """Values a member writes."""
    if isinstance(member, Opaque):
        return member.writes
    return tuple(r.value for r in member.results)


class _Graph:
    """Operators by key, with an up-to-date producer and readers of every value."""

    def __init__(self, members: Sequence[Member], outputs: Collection[str]) -> None:
        self.members: dict[int, Member] = {}
        self.origins: dict[int, set[int]] = {}
        self.producer_of: dict[str, int] = {}
        self.readers: dict[str, set[int]] = {}
        self.outputs = frozenset(outputs)
        self.refusals: dict[tuple[str, str], tuple[str, str, Refusal]] = {}
        for key, member in enumerate(members):
            for value in writes_of(member):
                if value in self.producer_of or value in self.readers:
                    raise InternalError("linalg fusion", f"{value} is written twice or read before")
            self.origins[key] = {key}
            self.put(key, member)

    def put(self, key: int, member: Member) -> None:
        """Set or replace a member."""
        if key in self.members:
            self.remove(key)
        self.members[key] = member
        for value in reads_of(member):
            self.readers.setdefault(value, set()).add(key)
        for value in writes_of(member):
            self.producer_of[value] = key

    def remove(self, key: int) -> None:
        member = self.members.pop(key)
        for value in reads_of(member):
            self.readers[value].discard(key)
        for value in writes_of(member):
            if self.producer_of.get(value) == key:
                del self.producer_of[value]

    def drop_dead(self) -> None:
        """Members whose results nobody needs go."""
        for key in sorted(self.members, reverse=True):
            if not any(self.is_needed(value) for value in writes_of(self.members[key])):
                self.remove(key)

    def is_needed(self, value: str) -> bool:
        return value in self.outputs or bool(self.readers.get(value))

    def other_readers(self, value: str, key: int) -> set[int]:
        """Members other than `key` that read a value."""
        return self.readers.get(value, set()) - {key}

    def uses(self, member: Member) -> int:
        """Members that read a result of this one, and the outside if it does."""
        values = writes_of(member)
        readers = {r for v in values for r in self.readers.get(v, ())}
        return len(readers) + any(v in self.outputs for v in values)

    def refuse(self, producer: Member, consumer: Member, why: Refusal) -> None:
        self.refusals[producer.name, consumer.name] = (producer.name, consumer.name, why)

    def order(self) -> list[int]:
        """Keys in topological order; the original order where several are possible."""
        waiting = {
            key: len({self.producer_of[v] for v in reads_of(m) if v in self.producer_of})
            for key, m in self.members.items()
        }
        ready = [key for key, count in waiting.items() if count == 0]
        heapq.heapify(ready)
        results: list[int] = []
        while ready:
            key = heapq.heappop(ready)
            results.append(key)
            values = writes_of(self.members[key])
            for reader in {r for v in values for r in self.readers.get(v, ())}:
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    heapq.heappush(ready, reader)
        if len(results) != len(self.members):
            raise InternalError("linalg fusion", "operators wait for each other")
        return results


def _absorb_producers(graph: _Graph, key: int, control: Control) -> None:
    operand = 0
    while True:
        consumer = graph.members[key]
        assert isinstance(consumer, GenericOp)
        if operand >= len(consumer.inputs) + len(consumer.results):
            return
        operand = 0 if _try_to_fuse(graph, key, consumer, operand, control) else operand + 1


def _try_to_fuse(
    graph: _Graph, key: int, consumer: GenericOp, operand: int, control: Control
) -> bool:
    """True when the consumer has changed."""
    value = operand_value(consumer, operand)
    producer_key = graph.producer_of.get(value) if value is not None else None
    producer = graph.members[producer_key] if producer_key is not None else None
    if producer_key is None or not isinstance(producer, GenericOp):
        return False
    if fill_literal(producer) is not None:
        folded = fold_fill(consumer, producer)
        if folded != consumer:
            _replace(graph, key, producer_key, simplify(folded))
            return True
    preserved = frozenset(
        r.value
        for r in producer.results
        if r.value in graph.outputs or graph.other_readers(r.value, key)
    )
    pair = Pair(producer=producer, consumer=consumer, operand=operand, preserved=preserved)
    no = refusal(pair) or _waits_for_itself(graph, key, pair)
    if no is None:
        fused = checked(simplify(fuse_pair(pair)))
        candidate = Candidate(
            producer=producer, consumer=consumer, readers=graph.uses(producer), fused=fused
        )
        text = control(candidate)
        if text is None:
            _replace(graph, key, producer_key, fused)
            return True
        no = Refusal(rule="control", text=text)
    graph.refuse(producer, consumer, no)
    return False


def _replace(graph: _Graph, key: int, producer_key: int, fused: GenericOp) -> None:
    """Put what was fused; the producer shrinks to what is still read from it."""
    producer = graph.members[producer_key]
    assert isinstance(producer, GenericOp)
    made_now = {r.value for r in fused.results}
    graph.put(key, fused)
    graph.origins[key] |= graph.origins[producer_key]
    left = [
        r.value for r in producer.results if r.value not in made_now and graph.is_needed(r.value)
    ]
    if left:
        graph.put(producer_key, drop_results(producer, left))
    else:
        graph.remove(producer_key)


def _waits_for_itself(graph: _Graph, key: int, pair: Pair) -> Refusal | None:
    """A preserved result reaches the consumer through others: fused, that would be a circle."""
    stack = sorted({r for value in pair.preserved for r in graph.other_readers(value, key)})
    seen = set(stack)
    while stack:
        at = graph.members[stack.pop()]
        readers = {r for value in writes_of(at) for r in graph.readers.get(value, ())}
        if key in readers:
            text = f"{pair.consumer.name} needs {at.name}, which needs {pair.producer.name}"
            return Refusal(rule="waits_for_itself", text=f"{text}: fused, they would wait forever")
        stack += sorted(readers - seen)
        seen |= readers
        if len(seen) > SEARCH_LIMIT:
            text = f"more than {SEARCH_LIMIT} operators depend on {pair.producer.name}"
            return Refusal(rule="waits_for_itself", text=text)
    return None
