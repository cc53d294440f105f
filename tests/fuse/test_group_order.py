"""Execution order: after what is read, with few changes between machine and host."""

from opu_fuse.dfg.build import build_dfg
from opu_fuse.fuse.group_order import execution_order, producers
from opu_fuse.fuse.strategies.registry import partition
from tests.dfg import canonical
from tests.fuse.reading import machine, split
from tests.some import some

BRANCHES = """g (float[1,4,8,8] x) => (float[1,4,8,8] a, float[1,4,8,8] b, float[1,4,8,8] c) {
    [s1] p = Sigmoid(x)
    [r1] a = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(p)
    [s2] q = Sigmoid(x)
    [r2] b = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(q)
    [r3] c = Relu(x) }"""


def test_all_ready_groups_run_before_the_host_gets_its_turn():
    dfg = build_dfg(canonical.canonical(BRANCHES))
    result = partition(dfg, machine("opu-tiny"))
    names = []
    for step in execution_order(dfg, result):
        node = result.groups[step.group].matches[0].node if step.group is not None else step.node
        names.append(dfg[some(node)].name)
    assert names == ["r3", "s1", "s2", "r1", "r2"]
    assert [dfg[g.matches[0].node].name for g in result.groups] == ["r3", "r1", "r2"]


def test_a_group_runs_after_everything_it_reads():
    dfg, result = split("G5")
    done: set[int] = set()
    for step in execution_order(dfg, result):
        nodes = (
            [m.node for m in result.groups[step.group].matches]
            if step.group is not None
            else [some(step.node)]
        )
        for node in nodes:
            assert set(producers(dfg, some(node))) <= done | set(nodes)
        done |= set(nodes)
    assert len(done) == len(dfg.calls)
