"""TVM's FuseOps: which nodes become one function, by pattern kinds and post-dominators alone.

Three walks over the nodes, operands first, each trying to merge a node with its immediate
post-dominator and everything between: (0) conv-like anchors and broadcasts; (1) injective nodes and
tuples; (2) injective nodes into tuples that have been fused themselves. Groups are sets of a
union-find; a set takes over the kind of its anchor, which is why the order matters and why a group
has one anchor at most.

Paths are walked only while they stay within `max_fuse_depth` nodes, so time is near-linear.
"""

from typing import NamedTuple

from msgspec import Struct

from opu_fuse.fuse.strategies.pattern_kinds import FusionGraph, Pattern
from opu_fuse.fuse.strategies.postdom import ROOT, post_dominators

MAX_FUSE_DEPTH = 256
NO_LIMIT = 0

ELEM_WISE, BROADCAST, INJECTIVE = Pattern.ELEM_WISE, Pattern.BROADCAST, Pattern.INJECTIVE
COMM_REDUCE, OUT_EWISE_FUSABLE = Pattern.COMM_REDUCE, Pattern.OUT_EWISE_FUSABLE
TUPLE, OPAQUE = Pattern.TUPLE, Pattern.OPAQUE


class Allowed(NamedTuple):
    """Largest kind of the groups on the way to the post-dominator (between), and of its own."""

    between: Pattern
    sink: Pattern


BROADCASTS = Allowed(BROADCAST, BROADCAST)
INJECTIVES = Allowed(INJECTIVE, INJECTIVE)
INJECTIVES_TO_ANCHOR = Allowed(INJECTIVE, OUT_EWISE_FUSABLE)


class Limits(Struct, frozen=True, kw_only=True):
    """max_fuse_depth: nodes of a group; max_function_args: distinct values it may read from
    outside, 0: any number.
    """

    max_fuse_depth: int = MAX_FUSE_DEPTH
    max_function_args: int = NO_LIMIT


DEFAULT_LIMITS = Limits()


def fuse_ops(
    graph: FusionGraph, *, opt_level: int = 2, limits: Limits = DEFAULT_LIMITS
) -> list[int]:
    """For every node the root of its group (a member of it). opt_level 0: nothing is fused."""
    sets = _Sets(graph, limits)
    if opt_level > 0:
        tree = post_dominators(graph)
        for phase in (0, 1, 2):
            for node, dominator in enumerate(tree.parent):
                if dominator == ROOT:
                    continue
                allowed = _condition(sets, phase, node, dominator, tree.pattern[node])
                if allowed is not None:
                    sets.fuse(node, dominator, allowed)
    return [sets.find(node) for node in range(len(graph.patterns))]


def _condition(
    sets: "_Sets", phase: int, node: int, dominator: int, edge: Pattern
) -> Allowed | None:
    """What must hold on the paths for a phase to fuse a node with its post-dominator; None when it
    does not. edge: the pattern of this relation.
    """
    kind = sets.kind[node]
    if kind in (OPAQUE, COMM_REDUCE):
        return None
    if phase == 2:
        # A tuple that has become part of an injective group: its other fields follow.
        if kind > INJECTIVE or sets.kind[dominator] != TUPLE:
            return None
        return INJECTIVES if sets.kind[sets.find(dominator)] <= INJECTIVE else None
    if sets.kind[dominator] == TUPLE or sets.find(node) == sets.find(dominator):
        return None
    if kind == OUT_EWISE_FUSABLE:
        return BROADCASTS if phase == 0 and edge == ELEM_WISE else None
    if kind <= BROADCAST:
        return INJECTIVES_TO_ANCHOR if edge <= INJECTIVE or edge == COMM_REDUCE else None
    return INJECTIVES if phase == 1 else None


class _Sets:
    """Groups. Invariant: `kind` and `count` of a root hold for its group; those of other nodes are
    what they were when they were merged.
    """

    def __init__(self, graph: FusionGraph, limits: Limits) -> None:
        self.graph = graph
        self.limits = limits
        self.up = list(range(len(graph.patterns)))
        self.kind = list(graph.patterns)
        self.count = [1] * len(graph.patterns)
        self.anchored = [p is Pattern.OUT_EWISE_FUSABLE for p in graph.patterns]
        self.members: dict[int, list[int]] = {}

    def find(self, node: int) -> int:
        """The group's root, with the way there shortened."""
        up = self.up
        while up[node] != node:
            up[node] = up[up[node]]
            node = up[node]
        return node

    def fuse(self, source: int, sink: int, allowed: Allowed) -> None:
        """All nodes on all paths from source to sink become one group, if they are allowed (source
        itself is not asked) and the group keeps within the limits.
        """
        path = self._between(source, sink)
        if path is None or self.kind[self.find(sink)] > allowed.sink:
            return
        if any(self.kind[self.find(n)] > allowed.between for n in path):
            return
        merged = [source, *path, sink]
        most = self.limits.max_function_args
        if most == NO_LIMIT or self._arguments(merged) <= most:
            self._merge(merged, self.find(sink))

    def _merge(self, nodes: list[int], root: int) -> None:
        for node in nodes:
            child = self.find(node)
            if child == root:
                continue
            self.count[root] += self.count[child]
            self.up[child] = root
            if self.limits.max_function_args != NO_LIMIT:
                self.members.setdefault(root, [root]).extend(self.members.pop(child, [child]))
            if self.anchored[child]:
                assert not self.anchored[root]
                self.anchored[root] = True
                self.kind[root] = max(self.kind[root], self.kind[child])

    def _between(self, source: int, sink: int) -> list[int] | None:
        """Nodes behind source and before sink, each once; None when the group would grow too
        large.
        """
        users, count = self.graph.users, self.count
        room = self.limits.max_fuse_depth - count[self.find(sink)] - count[source]
        if room < 0:
            return None
        if len(users[source]) == 1 and users[source][0][0] == sink:
            return []
        seen = {source, sink}
        found = [source]
        for node in found:  # grows while it is walked
            for user, _ in users[node]:
                if user not in seen:
                    seen.add(user)
                    found.append(user)
                    room -= count[user]
                    if room < 0:
                        return None
        return found[1:]

    def _arguments(self, path: list[int]) -> int:
        """Distinct values that the merged group would read from outside."""
        roots = dict.fromkeys(self.find(n) for n in path)
        inside = {m for r in roots for m in self.members.get(r, [r])}
        reads = {o for m in inside for o in self.graph.operands[m]}
        return sum(self.graph.parameter[o] for o in reads - inside)
