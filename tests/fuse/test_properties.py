"""Over random graphs and machines: what every partition of a legal strategy promises."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.graph import Dfg, Kind
from opu_fuse.dfg.interpret import evaluate, interpret
from opu_fuse.fuse.group_order import execution_order
from opu_fuse.fuse.partition import Partition
from opu_fuse.fuse.strategies.registry import STRATEGIES, partition
from opu_fuse.hw.spec.hw_spec import Numeric
from tests.dfg import canonical
from tests.fuse.random_graphs import graphs
from tests.fuse.random_machines import machines
from tests.fuse.reading import machine
from tests.some import some

NUMERIC = Numeric(multiplier_bits=16, average_bits=16)
MACHINES = st.one_of(st.sampled_from(["opu-tiny", "opu-classic"]).map(machine), machines())
LEGAL = st.sampled_from([s for s in STRATEGIES if s != "greedy"])


def run_groups(dfg: Dfg, result: Partition, inputs: dict[str, np.ndarray]) -> dict[int, np.ndarray]:
    """Runs group by group; a group sees its inputs and constants only, and leaves only its outputs
    behind.
    """
    host = frozenset(h.node for h in result.host)
    given_inputs = {
        n.index for n in dfg.nodes if n.kind is not Kind.CALL and n.kind is not Kind.TUPLE_GET
    }
    memory = {i: v for i, v in interpret(dfg, inputs, NUMERIC, host).items() if i in given_inputs}
    for step in execution_order(dfg, result):
        if step.node is not None:
            memory |= evaluate(dfg, step.node, memory, NUMERIC, host)
            continue
        group = result.groups[some(step.group)]
        seen = {i: memory[i] for i in (*group.inputs, *group.constants)}
        for match in group.matches:
            seen |= evaluate(dfg, match.node, seen, NUMERIC, host)
        memory |= {i: seen[i] for i in group.outputs}
    return memory


@settings(max_examples=60)
@given(graphs(), MACHINES, LEGAL)
def test_the_verifier_finds_nothing_and_every_operator_has_its_place(text, hw, strategy):
    dfg = build_dfg(canonical.canonical(text))
    result = partition(dfg, hw, strategy)
    assert result.violations == ()
    placed = [m.node for g in result.groups for m in g.matches] + [h.node for h in result.host]
    assert sorted(placed) == [n.index for n in dfg.calls]
    assert result == partition(dfg, hw, strategy)


@settings(max_examples=25)
@given(graphs(most=8), MACHINES, LEGAL, st.booleans())
def test_running_the_groups_in_order_is_running_the_graph(text, hw, strategy, zero_points):
    quantised = canonical.quantised(text, zero_points=zero_points)
    dfg = build_dfg(quantised.model)
    result = partition(dfg, hw, strategy)
    inputs = canonical.user_inputs(quantised.qdq, np.random.default_rng(0))
    whole = interpret(dfg, inputs, NUMERIC, frozenset(h.node for h in result.host))
    pieces = run_groups(dfg, result, inputs)
    for output in dfg.outputs:
        np.testing.assert_array_equal(pieces[output], whole[output])


@settings(max_examples=25)
@given(graphs(), MACHINES)
def test_scales_do_not_change_the_partition(text, hw):
    plain = build_dfg(canonical.canonical(text))
    shifts = not hw.numeric.multiplier_bits  # which has no other quantised form
    quantised = build_dfg(canonical.quantised(text, pow2=shifts).model)
    ours, theirs = partition(plain, hw), partition(quantised, hw)
    assert ours == theirs


@settings(max_examples=25)
@given(graphs(), MACHINES)
def test_matched_never_makes_more_groups_than_none(text, hw):
    dfg = build_dfg(canonical.canonical(text))
    assert len(partition(dfg, hw).groups) <= len(partition(dfg, hw, "none").groups)


@settings(max_examples=40)
@given(graphs(), MACHINES)
def test_greedy_always_ends_and_its_groups_are_described(text, hw):
    dfg = build_dfg(canonical.canonical(text))
    result = partition(dfg, hw, "greedy")
    placed = [m.node for g in result.groups for m in g.matches]
    assert len(placed) == len(set(placed))


@settings(max_examples=40)
@given(graphs(), MACHINES)
def test_every_edge_between_groups_has_a_reason(text, hw):
    dfg = build_dfg(canonical.canonical(text))
    result = partition(dfg, hw)
    place = {m.node: g.index for g in result.groups for m in g.matches}
    explained = {(b.source, b.target) for b in result.boundaries}
    for node in dfg.calls:
        for operand in node.operands:
            if operand in place and node.index in place and place[operand] != place[node.index]:
                assert (operand, node.index) in explained
    assert all(b.reason and "{" not in b.reason for b in result.boundaries)
