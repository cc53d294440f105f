"""Strategy `optimal`: the best of all legal groupings, and what it says about it."""

import dataclasses

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opu_fuse.cost.groups import Cost
from opu_fuse.dfg.build import build_dfg
from opu_fuse.fuse.explain import explain
from opu_fuse.fuse.optimal import optimal
from opu_fuse.fuse.strategies import partition
from opu_fuse.hw.spec import HwSpec
from tests.dfg import canonical
from tests.dfg.chains import chain
from tests.fuse import networks
from tests.fuse.brute_force import BruteForce
from tests.fuse.random_graphs import graphs
from tests.fuse.reading import groups, machine, on_host, reasons, split
from tests.fuse.worked import GRAPHS


def changed(name: str, *, words: dict[str, int] | None = None, **modules: dict) -> HwSpec:
    """A machine with other buffer sizes and other fields of some modules."""
    hw = machine(name)
    flow, buffers = hw.dataflow, hw.buffers
    table = dict(flow.modules)
    for module, fields in modules.items():
        table[module] = dataclasses.replace(table[module], **fields)
    sizes = {b: dataclasses.replace(getattr(buffers, b), words=w) for b, w in (words or {}).items()}
    return dataclasses.replace(
        hw,
        dataflow=dataclasses.replace(flow, modules=table),
        buffers=dataclasses.replace(buffers, **sizes),
    )


MACHINES = {
    "opu-tiny": lambda: machine("opu-tiny"),
    "opu-1024": lambda: machine("opu-1024"),
    "opu-classic": lambda: machine("opu-classic"),
    "every stage twice": lambda: changed(
        "opu-tiny", compare={"uses": 2}, pool={"uses": 2}, res_add={"uses": 2}
    ),
    "only pools may end a group": lambda: changed(
        "opu-tiny", compare={"exit": False}, res_add={"exit": False}, add={"exit": False}
    ),
    "few partial sums": lambda: changed("opu-tiny", words={"psum": 16, "output": 16}),
    "few features": lambda: changed("opu-tiny", words={"feature": 16}),
}


@settings(max_examples=120, deadline=None)
@given(
    text=graphs(most=7),
    name=st.sampled_from(list(MACHINES)),
    size=st.sampled_from(["6,6", "23,17"]),
    data=st.data(),
)
def test_it_equals_brute_force_on_graphs_of_up_to_ten_operators(text, name, size, data):
    dfg = build_dfg(canonical.canonical(text.replace("6,6", size)))
    assume(len([n for n in dfg.calls if n.owner is None]) <= 10)
    hw = MACHINES[name]()
    plain = partition(dfg, hw)
    formed = [tuple(sorted(m.node for m in g.matches)) for g in plain.groups]
    forbid = frozenset(data.draw(st.sets(st.sampled_from(formed), max_size=2)) if formed else ())
    result = partition(dfg, hw, "optimal", forbid)
    assert result.violations == ()
    assert result.search.exact
    assert result.search.best == BruteForce(dfg, hw, forbid).best()
    assert result.search.best <= result.search.matched
    assert result.search.matched == (
        partition(dfg, hw, "optimal").search.matched if not forbid else result.search.matched
    )


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("hw", ["opu-tiny", "opu-classic"])
def test_the_worked_graphs_are_legal_and_never_worse(name, hw):
    _, result = split(name, hw, "optimal")
    assert result.legal
    assert result.search.exact
    assert result.search.best <= result.search.matched
