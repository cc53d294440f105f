"""The post-dominator tree: for every value, the first node that all its uses come together in.

Common ancestors are found with jump pointers (each node also points to an ancestor some power of
two further up), so that long skips, as in DenseNet or U-Net, cost a logarithm, not their length.
"""

from msgspec import Struct

from opu_fuse.fuse.strategies.pattern_kinds import FusionGraph, Pattern

ROOT = -1
"""Stands above all nodes whose value leaves the function."""


class PostDominators(Struct, frozen=True, kw_only=True):
    """parent: the node that post-dominates, ROOT for values needed outside; pattern: the kinds of
    all edges met on the way there, combined (opaque where the parent is ROOT by itself); depth: 1
    below ROOT.
    """

    parent: list[int]
    pattern: list[Pattern]
    depth: list[int]


def post_dominators(graph: FusionGraph) -> PostDominators:
    """In one walk over the nodes, users first."""
    tree = _Tree(len(graph.patterns))
    for index in reversed(range(len(graph.patterns))):
        if graph.extern[index] or not graph.users[index]:
            tree.put(index, ROOT, Pattern.OPAQUE)
            continue
        parent, pattern = graph.users[index][0]
        for user, edge in graph.users[index][1:]:
            parent, met = tree.common(parent, user)
            pattern = max(pattern, met, edge)
        tree.put(index, parent, pattern)
    return PostDominators(parent=tree.parent[:-1], pattern=tree.pattern[:-1], depth=tree.depth[:-1])


class _Tree:
    """Invariant: `jump[n]` is an ancestor of n; `over[n]` combines the patterns of n and of all
    nodes between; nodes of equal depth jump to equal depths. ROOT is the last element.
    """

    def __init__(self, size: int) -> None:
        self.parent = [ROOT] * (size + 1)
        self.jump = [ROOT] * (size + 1)
        self.pattern = [Pattern.ELEM_WISE] * (size + 1)
        self.over = [Pattern.ELEM_WISE] * (size + 1)
        self.depth = [0] * (size + 1)

    def put(self, node: int, parent: int, pattern: Pattern) -> None:
        """Adds a node below one that is there."""
        self.parent[node], self.pattern[node] = parent, pattern
        self.depth[node] = self.depth[parent] + 1
        far = self.jump[parent]
        # Two jumps of equal length in a row become one of twice the length.
        if self.depth[parent] - self.depth[far] == self.depth[far] - self.depth[self.jump[far]]:
            self.jump[node] = self.jump[far]
            self.over[node] = max(pattern, self.over[parent], self.over[far])
        else:
            self.jump[node], self.over[node] = parent, pattern

    def common(self, a: int, b: int) -> tuple[int, Pattern]:
        """(lowest common ancestor, all patterns on the way up to it combined)."""
        depth, jump, parent = self.depth, self.jump, self.parent
        met = Pattern.ELEM_WISE
        if depth[a] < depth[b]:
            a, b = b, a
        while depth[a] > depth[b]:
            far = depth[jump[a]] >= depth[b]
            met = max(met, self.over[a] if far else self.pattern[a])
            a = jump[a] if far else parent[a]
        while a != b:
            far = jump[a] != jump[b]
            table, up = (self.over, jump) if far else (self.pattern, parent)
            met = max(met, table[a], table[b])
            a, b = up[a], up[b]
        return a, met
