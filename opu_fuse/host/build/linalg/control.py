"""Control functions: whether a pair that may be fused also should be.

A control function gets a `Candidate` and answers yes (None) or no (a sentence).
"""

from collections.abc import Callable

from msgspec import Struct

from opu_fuse.host.kernel import GenericOp


class Candidate(Struct, frozen=True, kw_only=True):
    """A legal fusion. readers: operators (and the outside, as one) that read a result of the
    producer; fused: what it would become.
    """

    producer: GenericOp
    consumer: GenericOp
    readers: int
    fused: GenericOp


Control = Callable[[Candidate], str | None]


def one_use(candidate: Candidate) -> str | None:
    """The default: nobody but the consumer reads the producer."""
    if candidate.readers == 1:
        return None
    return f"{candidate.producer.name} has {candidate.readers} readers"


def always(candidate: Candidate) -> str | None:  # noqa: ARG001  as every control function
    """Whatever is legal."""
    return None


def at_most_ops(limit: int) -> Control:
    """Whatever keeps the payload at `limit` instructions or below; constants do not count."""

    def control(candidate: Candidate) -> str | None:
        count = sum(i.op != "const" for i in candidate.fused.body)
        if count <= limit:
            return None
        return f"the payload would have {count} instructions, the limit is {limit}"

    return control


def at_most_live_values(limit: int) -> Control:
    """Whatever needs `limit` values or fewer at the same time."""

    def control(candidate: Candidate) -> str | None:
        count = live_values(candidate.fused)
        if count <= limit:
            return None
        return f"{count} values would be alive at once, the limit is {limit}"

    return control


def live_values(op: GenericOp) -> int:
    """Most values of the payload alive at once: an operand from its first use to its last, an
    instruction's value from its definition on; a yielded value, to the end. Constants do not count.
    """
    end = len(op.body)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, i in enumerate(op.body):
        for n in i.args:
            first.setdefault(n, at)
            last[n] = at
        if i.op != "const":
            first[op.first_instr + at] = at
    for n in op.yields:
        first.setdefault(n, end)
        last[n] = end
    alive = [0] * (end + 2)
    for n, start in first.items():
        if n >= op.first_instr and op.body[n - op.first_instr].op == "const":
            continue
        alive[start] += 1
        alive[last.get(n, start) + 1] -= 1
    most = total = 0
    for change in alive:
        total += change
        most = max(most, total)
    return most
