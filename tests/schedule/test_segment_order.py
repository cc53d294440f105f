"""Segments are as few as the dependencies allow, whatever side they begin on."""

from itertools import groupby, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from opu_fuse.dfg.build import build_dfg
from opu_fuse.fuse.group_order import execution_order, producers
from opu_fuse.fuse.strategies.registry import partition
from opu_fuse.schedule.segment_order import HostWork, order_segments
from tests.dfg import canonical
from tests.fuse.reading import machine

HOST_FIRST = """g (float[1,4,8,8] x) => (float[1,4,8,8] a, float[1,4,8,8] b) {
    [r1] a = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(x)
    [s1] p = Sigmoid(x)
    [r2] b = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(p) }"""

CROSSED = """g (float[1,4,8,8] x) => (float[1,4,8,8] a, float[1,4,8,8] b) {
    [r1] p = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(x)
    [s1] a = Sigmoid(p)
    [s2] q = Sigmoid(x)
    [r2] r = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(q)
    [s3] b = Sigmoid(r) }"""


def ordered(text, free=()):
    """(DFG, partition, names by segment, sides)."""
    dfg = build_dfg(canonical.canonical(text))
    found = partition(dfg, machine("opu-tiny"))
    free = {n.index for n in dfg.calls if n.name in free}
    segments = order_segments(dfg, found, free)
    names = [[dfg[n].name for n in nodes(found, segment)] for segment in segments]
    return dfg, found, names, [not isinstance(segment, HostWork) for segment in segments]


def nodes(found, segment):
    if isinstance(segment, HostWork):
        return segment.nodes
    return [m.node for group in segment for m in found.groups[group].matches]


def test_a_program_begins_on_the_host_where_that_saves_a_segment():
    dfg, found, names, sides = ordered(HOST_FIRST)
    assert names == [["s1"], ["r1", "r2"]]
    assert sides == [False, True]
    naive = groupby(execution_order(dfg, found), key=lambda step: step.group is not None)
    assert len(list(naive)) == 3, "the naive order is as good: this graph shows nothing"


def test_operators_of_one_side_wait_for_each_other_to_share_a_segment():
    """In the order of the graph: machine, host, machine, host."""
    _, _, names, sides = ordered(CROSSED)
    assert names == [["s2"], ["r1", "r2"], ["s1", "s3"]]
    assert sides == [False, True, False]


MACHINE_FIRST = """g (float[1,4,8,8] x) => (float[1,4,8,8] a, float[1,4,8,8] b) {
    [s1] a = Sigmoid(x)
    [r1] p = Relu(x)
    [s2] b = Sigmoid(p) }"""

EITHER = """g (float[1,4,8,8] x) => (float[1,4,8,8] a, float[1,4,8,8] b) {
    [s1] a = Sigmoid(x)
    [r1] b = Relu(x) }"""


def test_a_program_begins_on_the_machine_where_that_saves_a_segment_or_costs_none():
    assert ordered(MACHINE_FIRST)[2:] == ([["r1"], ["s1", "s2"]], [True, False])
    assert ordered(EITHER)[2:] == ([["r1"], ["s1"]], [True, False])


VIEW = """g (float[1,4,8,8] x) => (float[1,256] a, float[1,4,8,8] c) {
    [r1] p = Relu(x)
    [s1] q = Sigmoid(p)
    [v1] f = Flatten(q)
    [t1] a = Softmax(f)
    [r2] c = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(q) }"""


def test_a_view_that_nobody_runs_makes_no_segment():
    _, _, names, _ = ordered(VIEW, free={"s1"})
    assert [name for segment in names for name in segment].count("s1") == 0
    assert names == [["r1", "r2"], ["v1", "t1"]]


@st.composite
def graphs(draw):
    """Relu, Add (machine) and Sigmoid (host) over random operands."""
    values, lines = ["x"], []
    for i in range(draw(st.integers(1, 8))):
        op = draw(st.sampled_from(["Relu", "Sigmoid", "Add"]))
        read = [draw(st.sampled_from(values)) for _ in range(1 + (op == "Add"))]
        lines.append(f"[n{i}] v{i} = {op}({', '.join(read)})")
        values.append(f"v{i}")
    outputs = ", ".join(f"float[1,4,2,2] {v}" for v in values[1:])
    return f"g (float[1,4,2,2] x) => ({outputs}) {{ {' '.join(lines)} }}"


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_no_order_has_fewer_segments(text):
    dfg, found, names, sides = ordered(text)
    index = {n.name: n.index for n in dfg.calls}
    done = set()
    for segment in names:
        for name in segment:
            assert set(producers(dfg, index[name])) <= done
            done.add(index[name])
    assert len(done) == len(dfg.calls)
    assert all(a != b for a, b in pairwise(sides))
    assert len(sides) == fewest(dfg, found)


def fewest(dfg, found):
    """By trying everything: shortest path over sets of what is done, a whole segment a step."""
    host = {op.node for op in found.host}
    units = [frozenset(m.node for m in g.matches) for g in found.groups]
    units += [frozenset({n}) for n in host]
    reads = {u: {p for n in u for p in producers(dfg, n)} - u for u in units}
    level, seen, count = {(frozenset(), side) for side in (True, False)}, set(), 0
    while True:
        for done, _ in level:
            if len(done) == len(dfg.calls):
                return count
        seen |= level
        level = {
            (after, not side)
            for done, side in level
            for after in reachable(done, side, units, reads, host)
        } - seen
        count += 1


def reachable(done, machine_side, units, reads, host):
    """Every set of what can be done after one more segment of a side."""
    found, stack = set(), [done]
    while stack:
        now = stack.pop()
        for unit in units:
            if not unit <= now and reads[unit] <= now and (unit.isdisjoint(host)) == machine_side:
                after = now | unit
                if after not in found:
                    found.add(after)
                    stack.append(after)
    return found
