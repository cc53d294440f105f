"""Operators with little to compute between operators of the host stay on the host."""

import pytest

from opu_fuse.fuse.strategies.registry import partition
from tests.fuse.reading import groups, machine
from tests.fuse.rule_cases import CONV, graph

TINY = "opu-tiny"
ALONE = "[s] a = Softmax<axis=1>(x) [r] b = Relu(a) [t] c = Tanh(b) [e] y = Softmax<axis=1>(c)"


def test_operators_between_operators_of_the_host_are_in_no_group():
    dfg = graph(ALONE)
    result = partition(dfg, machine("opu-light"))
    assert result.legal
    assert groups(dfg, result) == []
    assert {h.why.rule for h in result.host if dfg[h.node].name in "rt"} == {"round_trip"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"[s] a = Sin(x) [r] b = Relu(a) [c] y = {CONV}(b, w1)", ["r:compare", "c:ipa"]),
        (f"[c] a = {CONV}(x, w1) [r] b = Relu(a) [s] y = Sin(b)", ["c:ipa r:compare"]),
        ("[r] a = Relu(x) [s] y = Sin(a)", ["r:compare"]),
        ("[s] a = Sin(x) [r] y = Relu(a)", ["r:compare"]),
        ("[s] a = Sin(x) [p] y = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(a)", ["p:pool"]),
        ("[s] a = Sin(x) [t] y = Add(a, z)", ["t:res_add"]),
    ],
    ids=["machine-reads", "machine-computes", "input", "output", "window", "other-operand"],
)
def test_the_machine_keeps_what_reads_or_feeds_it(body, expected):
    dfg = graph(body)
    assert groups(dfg, partition(dfg, machine(TINY))) == expected
