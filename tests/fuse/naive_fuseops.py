"""FuseOps as plainly as it can be said: paths as sets of nodes, climbing step by step."""

from opu_fuse.fuse.strategies.pattern_kinds import FusionGraph, Pattern

Relation = tuple[int | None, Pattern]
"""(post-dominator, combined pattern)."""


def relations(graph: FusionGraph) -> list[Relation]:
    size = len(graph.patterns)
    parent: list[int | None] = [None] * size
    pattern = [Pattern.OPAQUE] * size
    depth = [1] * size
    for node in reversed(range(size)):
        if graph.extern[node] or not graph.users[node]:
            continue
        met = Pattern.ELEM_WISE
        common: int | None = graph.users[node][0][0]
        for user, edge in graph.users[node]:
            met = max(met, edge)
            other: int | None = user
            while common != other:
                if common is None or other is None:
                    common = None
                    break
                if depth[common] > depth[other]:
                    met, common = max(met, pattern[common]), parent[common]
                elif depth[other] > depth[common]:
                    met, other = max(met, pattern[other]), parent[other]
                else:
                    met = max(met, pattern[common], pattern[other])
                    common, other = parent[common], parent[other]
            if common is None:
                break
        parent[node], pattern[node] = common, met
        depth[node] = 1 if common is None else depth[common] + 1
    return list(zip(parent, pattern, strict=True))


def groups(graph: FusionGraph, max_fuse_depth: int = 256) -> set[frozenset[int]]:
    size = len(graph.patterns)
    of = list(range(size))  # representative: the group's sink
    kind, count = list(graph.patterns), [1] * size
    tree = relations(graph)

    def merge(nodes: list[int], root: int) -> None:
        for node in nodes:
            child = of[node]
            if child == root:
                continue
            of[:] = [root if o == child else o for o in of]
            count[root] += count[child]
            if kind[child] is Pattern.OUT_EWISE_FUSABLE:
                kind[root] = max(kind[root], kind[child])

    for phase in (0, 1, 2):
        for node, (sink, edge) in enumerate(tree):
            mine = kind[node]
            if sink is None or mine in (Pattern.OPAQUE, Pattern.COMM_REDUCE):
                continue
            path = behind(graph, node, sink)
            if count[of[sink]] + count[node] + sum(count[n] for n in path) > max_fuse_depth:
                continue
            inner = max((kind[of[n]] for n in path), default=Pattern.ELEM_WISE)
            last = kind[of[sink]]
            if phase == 2:
                fuse = mine <= Pattern.INJECTIVE and kind[sink] is Pattern.TUPLE
                fuse = fuse and max(last, inner) <= Pattern.INJECTIVE
            else:
                apart = of[node] != of[sink] and kind[sink] is not Pattern.TUPLE
                fuse = apart and early(phase, mine, edge, inner, last)
            if fuse:
                merge([node, *sorted(path)], of[sink])
    return {frozenset(n for n in range(size) if of[n] == root) for root in set(of)}


def early(phase: int, mine: Pattern, edge: Pattern, inner: Pattern, last: Pattern) -> bool:
    """Phases 0 and 1. inner: the largest kind between; last: the post-dominator's."""
    if mine is Pattern.OUT_EWISE_FUSABLE:
        element_wise = phase == 0 and edge is Pattern.ELEM_WISE
        return element_wise and max(last, inner) <= Pattern.BROADCAST
    if mine <= Pattern.BROADCAST:
        dominated = edge <= Pattern.INJECTIVE or edge is Pattern.COMM_REDUCE
        return dominated and inner <= Pattern.INJECTIVE and last <= Pattern.OUT_EWISE_FUSABLE
    return phase == 1 and max(last, inner) <= Pattern.INJECTIVE


def behind(graph: FusionGraph, source: int, sink: int) -> set[int]:
    found, todo = set(), [source]
    while todo:
        for user, _ in graph.users[todo.pop()]:
            if user != sink and user not in found:
                found.add(user)
                todo.append(user)
    return found
