"""The groups that write stored values last."""

from collections.abc import Iterator, Mapping

from opu_fuse.dfg.graph import Dfg, Kind
from opu_fuse.dfg.views import elements
from opu_fuse.schedule.plan import Plan

BEFORE = -1
"""Group number of instructions and values before the first group: prologue, host values, inputs."""


def last_writers(dfg: Dfg, plan: Plan, group_of: Mapping[int, int]) -> dict[int, int]:
    """DFG index of a stored value -> last group that writes any of it; host values have none."""
    outputs = [parts[0].layer.output for parts in plan.layers.values()]
    found = {output: group_of[output] for output in outputs}
    joined = plan.layout.joined
    for node in dfg.nodes:
        if node.kind is Kind.TUPLE_GET and node.operands[0] in joined:
            writers = [group_of.get(i, BEFORE) for i in _inside(dfg, plan, node.index)]
        elif node.op == "concat" and node.index in joined:
            writers = [found.get(dfg.base(i), BEFORE) for i in elements(dfg, node.index)]
        else:
            continue
        found[node.index] = max(writers, default=BEFORE)
    return found


def _inside(dfg: Dfg, plan: Plan, part: int) -> Iterator[int]:
    """Values that a part of joined ones consists of: those with words in common with it."""
    storage, stack = plan.uses[part].storage, [part]
    while stack:
        node = dfg[dfg.base(stack.pop())]
        if node.index in plan.uses and plan.uses[node.index].storage.overlaps(storage):
            yield node.index
            if node.kind is Kind.TUPLE_GET and node.operands[0] in plan.layout.joined:
                stack += dfg[node.operands[0]].operands
            elif node.op == "concat" and node.index in plan.layout.joined:
                stack += elements(dfg, node.index)
