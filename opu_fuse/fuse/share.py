"""How much of a network runs on the machine, in a line when it is little."""

from collections import Counter

from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.partition import Partition
from opu_fuse.hw.spec import HwSpec
from opu_fuse.model.effort import multiplications

LITTLE = 0.5
"""Of all multiplications: who compiles for a machine expects more on it."""


def little_on_machine(dfg: Dfg, hw: HwSpec, partition: Partition) -> str | None:
    """Which operators keep most multiplications on the host, why, and what would help; None where
    at least half run on the machine, or there are none.
    """
    counted = [(n.index, n.ir_node) for n in dfg.calls if n.owner is None]  # biases: with theirs
    products = {index: multiplications(node) for index, node in counted if node is not None}
    total = sum(products.values())
    left = {op.node: products.get(op.node, 0) for op in partition.host}
    here = total - sum(left.values())
    if here >= LITTLE * total:
        return None
    kinds: Counter[str] = Counter()
    for op in partition.host:
        kinds[_kind(dfg, op.node)] += left[op.node]
    kind, most = kinds.most_common(1)[0]
    same = [op for op in partition.host if _kind(dfg, op.node) == kind]
    op = max(same, key=lambda op: left[op.node])
    return (
        f"only {_percent(here, total)} of the multiplications run on {hw.name}; "
        f"{_percent(most, total)} are those of {kind} on the host, the largest "
        f"{dfg[op.node].name}: {op.reason}"
    )


def _kind(dfg: Dfg, index: int) -> str:
    return dfg[index].op.removeprefix("host:")


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %"
