"""TVM's FuseOps: which nodes become one function, by pattern kinds and post-dominators alone.

Three passes over the nodes, operands first, each try to merge a node with its immediate
post-dominator and everything between: (0) conv-like anchors and broadcasts; (1) injective nodes and
tuples; (2) injective nodes into tuples that have been fused themselves. Groups are sets of a
union-find. A set takes the kind of its anchor, so the order of the passes matters, and a group has
at most one anchor.

A path is traversed only up to `max_fuse_depth` nodes, so time is near-linear.
"""

from typing import NamedTuple

from msgspec import Struct

from opu_fuse.fuse.strategies.pattern_kinds import FusionGraph, Pattern
from opu_fuse.fuse.strategies.postdom import ROOT, post_dominators

MAX_FUSE_DEPTH = 256
"""Most nodes of a group: TVM's default."""
NO_LIMIT = 0
"""Value of `Limits.max_function_args` that allows any number."""

ELEM_WISE, BROADCAST, INJECTIVE = Pattern.ELEM_WISE, Pattern.BROADCAST, Pattern.INJECTIVE
COMM_REDUCE, OUT_EWISE_FUSABLE = Pattern.COMM_REDUCE, Pattern.OUT_EWISE_FUSABLE
TUPLE, OPAQUE = Pattern.TUPLE, Pattern.OPAQUE


class Allowed(NamedTuple):
    """Largest kind of the groups on the paths (between) and of the post-dominator's (sink)."""

    between: Pattern
    sink: Pattern


BROADCASTS = Allowed(BROADCAST, BROADCAST)
INJECTIVES = Allowed(INJECTIVE, INJECTIVE)
INJECTIVES_TO_ANCHOR = Allowed(INJECTIVE, OUT_EWISE_FUSABLE)


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of a group.

    max_fuse_depth: most nodes; max_function_args: most distinct values read from outside, 0 for any
    number.
    """

    max_fuse_depth: int = MAX_FUSE_DEPTH
    max_function_args: int = NO_LIMIT


DEFAULT_LIMITS = Limits()


def fuse_ops(
    graph: FusionGraph, *, opt_level: int = 2, limits: Limits = DEFAULT_LIMITS
) -> list[int]:
    """By node, the root of its group (a member of it). opt_level 0: nothing is fused."""
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
    """The kinds allowed for fusing a node with its post-dominator in a phase, None to keep it.

    edge: combined pattern of the paths between the two.
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
    """Groups as a union-find.

    Invariant: `kind` and `count` of a root describe its group. Those of other nodes are outdated:
    they date from the merge.
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
        """The group's root, with path halving."""
        up = self.up
        while up[node] != node:
            up[node] = up[up[node]]
            node = up[node]
        return node

    def fuse(self, source: int, sink: int, allowed: Allowed) -> None:
        """Merges all nodes on all paths from source to sink, if kinds and limits allow it.

        The kind of source itself is not checked.
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
        """Nodes between source and sink, each once; None when the group would be too large."""
        users, count = self.graph.users, self.count
        room = self.limits.max_fuse_depth - count[self.find(sink)] - count[source]
        if room < 0:
            return None
        if len(users[source]) == 1 and users[source][0][0] == sink:
            return []
        seen = {source, sink}
        queue = [source]
        for node in queue:  # breadth-first queue: grows during the iteration
            for user, _ in users[node]:
                if user not in seen:
                    seen.add(user)
                    queue.append(user)
                    room -= count[user]
                    if room < 0:
                        return None
        return queue[1:]

    def _arguments(self, path: list[int]) -> int:
        """Distinct values that the merged group would read from outside."""
        roots = dict.fromkeys(self.find(n) for n in path)
        inside = {m for r in roots for m in self.members.get(r, [r])}
        reads = {o for m in inside for o in self.graph.operands[m]}
        return sum(self.graph.parameter[o] for o in reads - inside)
