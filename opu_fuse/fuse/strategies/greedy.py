"""Strategy `greedy`: the published OPU algorithm, defects included; for study and comparison.

It follows the pipeline, not the data: the next operator of the depth-first traversal joins the
latest group if some module after the last match runs that kind of operator. The result is shown
with its violations (`verify.py`), and is never compiled.
"""

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.fuse.matching.context import MatchContext
from opu_fuse.fuse.matching.partial_group import NOTHING_FORBIDDEN, Forbid
from opu_fuse.fuse.partition import HostOp, Match
from opu_fuse.fuse.rules.refusal import Words, refuse
from opu_fuse.fuse.strategies.grouping import Grouping
from opu_fuse.hw.spec.hdfg import breadth_first, build_hdfg, kinds_for, module_of
from opu_fuse.hw.spec.hw_spec import HwSpec


def greedy(context: MatchContext, forbid: Forbid = NOTHING_FORBIDDEN) -> Grouping:
    """Groups of the published algorithm, in the order in which it opens them.

    The algorithm ignores `forbid`.
    """
    del forbid
    traversal = _Traversal(context.dfg, context.hw)
    traversal.run()
    groups = _merge_channel_pads(context.dfg, traversal.groups)
    return Grouping(groups=[group for group in groups if group], host=traversal.host)


def unreachable(words: Words) -> Words | None:
    """{op}: no module of this machine can be reached for it

    Change: add edges that lead to one in `dataflow.edges`
    """
    return words


class _Traversal:
    """The depth-first traversal of the graph.

    Invariant: `grouped[n]` is the group of every node taken so far, constants and inputs included.
    """

    def __init__(self, dfg: Dfg, hw: HwSpec) -> None:
        self.dfg = dfg
        self.hdfg = build_hdfg(hw)
        self.last: str | None = None
        self.groups: list[list[Match]] = []
        self.grouped: dict[int, int] = {}
        self.root = -1
        self.closed: set[int] = set()
        self.host: list[HostOp] = []

    def run(self) -> None:
        if not self.dfg.nodes:
            return
        visited: set[int] = set()
        stack = [0]
        while stack:
            index = stack.pop()
            if index in visited:
                continue
            visited.add(index)
            if self.dfg[index].kind is Kind.CALL:
                self._place(self.dfg[index])
            # Pushed by descending index: the nearest in topological order is visited first.
            stack.extend(sorted(self.dfg.users[index], reverse=True))

    def _place(self, node: Node) -> None:
        if node.index in self.grouped:  # a view that CollectInputs already took
            return
        known = bool(kinds_for(self.hdfg, node.op))
        if not known:
            self._add(node, None)
        elif self._find_match(node):
            self._add(node, self.last)
        else:
            self.last = None
            if self._find_match(node):
                self._open()
                self._add(node, self.last)
            else:
                why = refuse(unreachable, {"op": node.op})
                self.host.append(HostOp(node=node.index, why=why))

    def _find_match(self, node: Node) -> bool:
        kinds = kinds_for(self.hdfg, node.op)
        for name in breadth_first(self.hdfg, self.last):
            if module_of(self.hdfg, name).kind in kinds:
                self.last = name
                return True
        return False

    def _open(self) -> None:
        if self.groups:
            self.closed.add(self.root)
        self.groups.append([])

    def _add(self, node: Node, module: str | None) -> None:
        """AddToGroup: makes the node the root of the latest group, then collects its operands."""
        if not self.groups:
            self._open()
        self.groups[-1].append(Match(node=node.index, module=module))
        self.grouped[node.index] = len(self.groups) - 1
        self.root = node.index
        before = len(self.groups[-1]) - 1
        stack = list(reversed(node.operands))
        while stack:
            index = stack.pop()
            if self._collect(self.dfg[index], before):
                stack.extend(reversed(self.dfg[index].operands))

    def _collect(self, node: Node, before: int) -> bool:
        """CollectInputs: takes one node into the latest group; False ends the upward traversal."""
        partitioned = node.kind is Kind.CALL and bool(kinds_for(self.hdfg, node.op))
        if node.index in self.closed or node.index in self.grouped or partitioned:
            return False
        self.grouped[node.index] = len(self.groups) - 1
        if node.kind is Kind.CALL:
            self.groups[-1].insert(before, Match(node=node.index, module=None))
        return True


def _merge_channel_pads(dfg: Dfg, groups: list[list[Match]]) -> list[list[Match]]:
    """The final fix-up of the algorithm, for add(pad(x), y) with a pad that widens channels.

    The pad joins the add, and both join the group of y.
    """
    where = {match.node: g for g, group in enumerate(groups) for match in group}
    for add in [n for n in dfg.calls if n.op == "add" and n.owner is None and n.index in where]:
        pads = [
            i
            for i in add.operands
            if dfg[i].op == "pad" and any(dfg[i].attrs["channels"]) and i in where
        ]
        others = [i for i in add.operands if i not in pads and i in where]
        if not pads or not others:
            continue
        target = where[others[0]]
        pad_matches = [m for m in groups[where[pads[0]]] if m.node == pads[0]]
        groups[where[pads[0]]] = [m for m in groups[where[pads[0]]] if m.node != pads[0]]
        source = where[add.index]
        if source != target:
            groups[target], groups[source] = [*groups[target], *pad_matches, *groups[source]], []
        else:
            at = [m.node for m in groups[target]].index(add.index)
            groups[target][at:at] = pad_matches
        where.update({m.node: target for m in groups[target]})
    return groups
