"""TVM's FuseOps: which nodes become one function, by pattern kinds and post-dominators alone.

Three walks over the nodes, operands first, each trying to merge a node with its immediate
post-dominator and everything between: (0) conv-like anchors and broadcasts; (1) injective nodes and
tuples; (2) injective nodes into tuples that have been fused themselves. Groups are sets of a
union-find; a set takes over the kind of its anchor, which is why the order matters and why a group
has one anchor at most.

Paths are walked only while they stay within `max_fuse_depth` nodes, so time is near-linear.
"""

from collections.abc import Callable
from dataclasses import dataclass

from opu_fuse.fuse.patterns import FusionGraph, Pattern
from opu_fuse.fuse.postdom import ROOT, post_dominators

MAX_FUSE_DEPTH = 256
NO_LIMIT = 0

Allowed = Callable[[Pattern, bool], bool]
"""(kind of the group a node on the path is in, whether the node is the path's end)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """max_fuse_depth: nodes of a group; max_function_args: distinct values it may read from outside,
    0: any number.
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
                if dominator != ROOT and _wanted(sets, phase, node, dominator, tree.pattern[node]):
                    sets.merge(node, dominator)
    return [sets.find(node) for node in range(len(graph.patterns))]


def _wanted(sets: "_Sets", phase: int, node: int, dominator: int, edge: Pattern) -> bool:
    """Whether a phase fuses a node with its post-dominator; edge: the pattern of this relation."""
    kind = sets.kind[node]
    if kind is Pattern.OPAQUE or kind is Pattern.COMM_REDUCE:
        return False
    if phase == 2:
        # A tuple that has become part of an injective group: its other fields follow.
        root = sets.kind[sets.find(dominator)]
        into_tuple = sets.kind[dominator] is Pattern.TUPLE and root <= Pattern.INJECTIVE
        return kind <= Pattern.INJECTIVE and into_tuple and sets.can(node, dominator, _injective)
    if sets.kind[dominator] is Pattern.TUPLE or sets.find(node) == sets.find(dominator):
        return False
    if kind is Pattern.OUT_EWISE_FUSABLE:
        fits = phase == 0 and edge is Pattern.ELEM_WISE
        return fits and sets.can(node, dominator, _broadcast)
    if kind <= Pattern.BROADCAST:
        fits = edge <= Pattern.INJECTIVE or edge is Pattern.COMM_REDUCE
        return fits and sets.can(node, dominator, _injective_to_anchor)
    return phase == 1 and sets.can(node, dominator, _injective)


def _broadcast(kind: Pattern, sink: bool) -> bool:  # noqa: ARG001
    return kind <= Pattern.BROADCAST


def _injective(kind: Pattern, sink: bool) -> bool:  # noqa: ARG001
    return kind <= Pattern.INJECTIVE


def _injective_to_anchor(kind: Pattern, sink: bool) -> bool:
    return kind <= (Pattern.OUT_EWISE_FUSABLE if sink else Pattern.INJECTIVE)


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

    def can(self, source: int, sink: int, allowed: Allowed) -> bool:
        """Within the limits, and every node on every path from source (left out) to sink is
        allowed.
        """
        path = self._between(source, sink)
        if path is None or not all(allowed(self.kind[self.find(n)], n == sink) for n in path):
            return False
        return self.limits.max_function_args == NO_LIMIT or (
            self._arguments([source, *path]) <= self.limits.max_function_args
        )

    def merge(self, source: int, sink: int) -> None:
        """All nodes on all paths from source to sink become one group."""
        path = self._between(source, sink)
        assert path is not None
        for node in (source, *path):
            child, root = self.find(node), self.find(sink)
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
        """Nodes behind source up to sink, each once; None when the group would grow too large."""
        room = self.limits.max_fuse_depth - self.count[self.find(sink)] - self.count[source]
        users = self.graph.users
        seen = {source, sink}
        found, at = [source], 0
        while at < len(found) and room >= 0:
            for user, _ in users[found[at]]:
                if user not in seen:
                    seen.add(user)
                    found.append(user)
                    room -= self.count[user]
                    if room < 0:
                        break
            at += 1
        return [*found[1:], sink] if room >= 0 else None

    def _arguments(self, path: list[int]) -> int:
        """Distinct values that the merged group would read from outside."""
        roots = dict.fromkeys(self.find(n) for n in path)
        inside = {m for r in roots for m in self.members.get(r, [r])}
        reads = {o for m in inside for o in self.graph.operands[m]}
        return sum(self.graph.parameter[o] for o in reads - inside)
