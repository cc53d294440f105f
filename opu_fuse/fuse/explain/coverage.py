"""Offload coverage: a warning when the machine runs little of a network, or an unknown part."""

import logging
from collections import Counter
from collections.abc import Sequence

from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.partition import HostOp, Partition
from opu_fuse.fuse.rules.legality import listed
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.model.effort import effort

log = logging.getLogger(__name__)

LITTLE = 0.5
"""Share of all multiplications on the machine below which a user should be warned."""


def low_coverage(dfg: Dfg, hw: HwSpec, partition: Partition, *, reasons: bool = True) -> str | None:
    """A message about low offload coverage, None without anything to report.

    It names the operators with most multiplications on the host, why, and what would help, if the
    machine runs less than half of the multiplications. It also names host operators whose
    multiplications cannot be counted. reasons=False: reasons are omitted, for callers that print
    those of all host operators.
    """
    calls = (n for n in dfg.calls if n.owner is None)  # a bias counts with its owner
    products = {n.index: effort(n.ir_node) for n in calls if n.ir_node is not None}
    total = sum(count or 0 for count in products.values())
    on_host = {op.node: products.get(op.node, 0) or 0 for op in partition.host}
    on_machine = total - sum(on_host.values())
    unknown = [op for op in partition.host if products.get(op.node, 0) is None]
    parts = []
    if on_machine < LITTLE * total:
        largest, reason = _largest(dfg, hw, partition, on_host, on_machine, total)
        parts.append(f"{largest}: {reason}" if reasons else largest)
    elif unknown:
        share = f"{_percent(on_machine, total)} of" if total else "none of"
        parts.append(f"{share} the multiplications that can be counted run on {hw.name}")
    if unknown:
        names = _uncounted(dfg, unknown)
        parts.append(f"{names}: {unknown[0].reason}" if reasons else names)
    return "; ".join(parts) or None


def warn_of_low_coverage(dfg: Dfg, hw: HwSpec, partition: Partition) -> None:
    """Log what `low_coverage` says, as a warning."""
    if warning := low_coverage(dfg, hw, partition):
        log.warning("%s", warning)


def _largest(
    dfg: Dfg, hw: HwSpec, partition: Partition, on_host: dict[int, int], on_machine: int, total: int
) -> tuple[str, str]:
    """A message about the kind with most multiplications on the host, and the reason of its largest
    operator.
    """
    kinds: Counter[str] = Counter()
    for op in partition.host:
        kinds[_kind(dfg, op.node)] += on_host[op.node]
    kind, most = kinds.most_common(1)[0]
    same = [op for op in partition.host if _kind(dfg, op.node) == kind]
    op = max(same, key=lambda op: on_host[op.node])
    message = (
        f"only {_percent(on_machine, total)} of the multiplications run on {hw.name}; "
        f"{_percent(most, total)} are those of {kind} on the host, the largest "
        f"{dfg[op.node].name}"
    )
    return message, op.reason


def _uncounted(dfg: Dfg, unknown: Sequence[HostOp]) -> str:
    names = [f"{dfg[op.node].name} ({_kind(dfg, op.node)})" for op in unknown]
    return f"not counted is what the host computes in {listed(names)}"


def _kind(dfg: Dfg, index: int) -> str:
    return dfg[index].op.removeprefix("host:")


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %"
