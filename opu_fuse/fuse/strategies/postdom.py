"""The post-dominator tree: for every value, the first node where all paths from it join.

Common ancestors are reached by jump pointers (each node also points to an ancestor some distance
further up). Long skip connections, as in DenseNet or U-Net, then cost the logarithm of their
length.
"""

from msgspec import Struct

from opu_fuse.fuse.strategies.pattern_kinds import FusionGraph, Pattern

ROOT = -1
"""Virtual root: parent of all nodes whose value leaves the function."""


class PostDominators(Struct, frozen=True, kw_only=True):
    """The post-dominator tree, by node.

    parent: immediate post-dominator, ROOT for values needed outside; pattern: maximum of the kinds
    of all edges on the paths to it (opaque for values that leave the function); depth: 1 for the
    children of ROOT.
    """

    parent: list[int]
    pattern: list[Pattern]
    depth: list[int]


def post_dominators(graph: FusionGraph) -> PostDominators:
    """Builds the post-dominator tree in one traversal, users first."""
    tree = _Tree(len(graph.patterns))
    for index in reversed(range(len(graph.patterns))):
        if graph.extern[index] or not graph.users[index]:
            tree.put(index, ROOT, Pattern.OPAQUE)
            continue
        parent, pattern = graph.users[index][0]
        for user, edge in graph.users[index][1:]:
            parent, path_pattern = tree.common(parent, user)
            pattern = max(pattern, path_pattern, edge)
        tree.put(index, parent, pattern)
    return PostDominators(parent=tree.parent[:-1], pattern=tree.pattern[:-1], depth=tree.depth[:-1])


class _Tree:
    """A tree with jump pointers, built from the root down.

    Invariant: `jump[n]` is an ancestor of n; `over[n]` is the maximum pattern of n and of all nodes
    between; nodes of equal depth jump to equal depths. ROOT is the last element.
    """

    def __init__(self, size: int) -> None:
        self.parent = [ROOT] * (size + 1)
        self.jump = [ROOT] * (size + 1)
        self.pattern = [Pattern.ELEM_WISE] * (size + 1)
        self.over = [Pattern.ELEM_WISE] * (size + 1)
        self.depth = [0] * (size + 1)

    def put(self, node: int, parent: int, pattern: Pattern) -> None:
        """Adds a node below an existing one."""
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
        """(lowest common ancestor, maximum of all patterns on the paths up to it)."""
        depth, jump, parent = self.depth, self.jump, self.parent
        combined = Pattern.ELEM_WISE
        if depth[a] < depth[b]:
            a, b = b, a
        while depth[a] > depth[b]:
            far = depth[jump[a]] >= depth[b]
            combined = max(combined, self.over[a] if far else self.pattern[a])
            a = jump[a] if far else parent[a]
        while a != b:
            far = jump[a] != jump[b]  # equal depths: jump both, or both go up one edge
            table, up = (self.over, jump) if far else (self.pattern, parent)
            combined = max(combined, table[a], table[b])
            a, b = up[a], up[b]
        return a, combined
