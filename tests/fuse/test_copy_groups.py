"""Copies that the machine's memory wants come behind every strategy, and are told apart from the
user's operators.
"""

import dataclasses

import numpy as np
import onnxruntime as ort
import pytest

from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.concat_copies import insert_copies
from opu_fuse.errors import DoesNotFit
from opu_fuse.fuse.explain.partition_json import partition_to_json
from opu_fuse.fuse.explain.partition_text import explain
from opu_fuse.fuse.strategies.registry import STRATEGIES
from opu_fuse.pipeline import Options, compile_model, fuse_and_tile, partition_model
from opu_fuse.schedule.insert_copies import _of_the_graph, needed_copies
from opu_fuse.schedule.misfits import Misfit
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from tests.dfg import canonical
from tests.fuse.concat_graphs import concat_graph
from tests.fuse.reading import groups, machine

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

CONV = "Conv<kernel_shape=[1,1]>"
TWO_PLACES = f"""g (float[1,4,6,6] x, float[8,4,1,1] wa, float[13,4,1,1] wb, float[4,21,1,1] wl,
        float[4,21,1,1] wr) => (float[1,4,6,6] y, float[1,4,6,6] z) {{
    [a] va = {CONV}(x, wa)
    [b] vb = {CONV}(x, wb)
    [left] l = Concat<axis=1>(va, vb)
    [right] r = Concat<axis=1>(vb, va)
    [cl] y = {CONV}(l, wl)
    [cr] z = {CONV}(r, wr) }}"""
COPIES = ["left/copy0", "left/copy1"]
"""The later concatenation keeps its values."""
SAME = ("index", "kind", "op", "operands", "access", "shape", "type", "attrs", "owner")

LEGAL = [name for name in STRATEGIES if name != "greedy"]


def two_places():
    return canonical.float_model(TWO_PLACES)


def test_a_graph_with_copies_is_the_one_that_a_model_with_pools_gives():
    """Copies stand where a depth-first walk finds them; everything else keeps its fields."""
    pools = TWO_PLACES.replace(
        "[left] l = Concat<axis=1>(va, vb)",
        "[p] p = MaxPool<kernel_shape=[1,1]>(va) [q] q = MaxPool<kernel_shape=[1,1]>(vb) "
        "[left] l = Concat<axis=1>(p, q)",
    )
    dfg = build_dfg(canonical.canonical(TWO_PLACES))
    left = next(n.index for n in dfg.calls if n.name == "left")
    added = insert_copies(dfg, [(left, 0), (left, 1)])
    expected = build_dfg(canonical.canonical(pools))
    renamed = {"p": COPIES[0], "q": COPIES[1]}
    for got, wanted in zip(added.dfg.nodes, expected.nodes, strict=True):
        assert got.name == renamed.get(wanted.name, wanted.name)
        for name in SAME:
            assert getattr(got, name) == getattr(wanted, name), (got.name, name)
    assert added.dfg.users == expected.users
    assert (added.dfg.inputs, added.dfg.outputs) == (expected.inputs, expected.outputs)
    assert [added.dfg[c].name for c in added.copies] == COPIES
    assert [dfg.nodes[i].name for i in added.copies.values()] == ["left", "left"]
    for old, new in enumerate(added.moved):
        assert added.dfg[new].name == dfg[old].name


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_partition_names_the_copies_apart_from_its_groups(strategy):
    hw = machine("opu-classic")
    dfg, found = partition_model(two_places(), hw, strategy)
    tree = partition_to_json(dfg, hw, found)
    assert not any("copy" in text for text in groups(dfg, found))
    if not found.legal:
        assert "copies" not in tree
        return
    assert [c["name"] for c in tree["copies"]] == COPIES
    assert {c["reason"] for c in tree["copies"]} == {
        "a is part of another concatenation",
        "b is part of another concatenation",
    }
    assert [line for line in explain(dfg, hw, found) if line.startswith("copy: ")] == [
        f"copy: {c['name']}: {c['reason']}" for c in tree["copies"]
    ]


@pytest.mark.parametrize("strategy", LEGAL)
def test_compiling_adds_each_copy_as_a_group_and_leaves_the_others_as_they_are(strategy):
    hw = machine("opu-classic")
    dfg, plain = partition_model(two_places(), hw, strategy)
    done = compile_model(two_places(), hw, Options(strategy=strategy))
    found = groups(done.dfg, done.partition)
    assert sorted(found) == sorted([*groups(dfg, plain), *(f"{name}:pool" for name in COPIES)])
    assert done.partition.legal
    assert list(done.partition.copies) == COPIES
    assert done.partition.copies == plain.copies
    before = {(dfg[b.source].name, dfg[b.target].name): b.reason for b in plain.boundaries}
    after = {
        (done.dfg[b.source].name, done.dfg[b.target].name): b.reason
        for b in done.partition.boundaries
    }
    for value, copy in zip(("a", "b"), COPIES, strict=True):
        why = f"{value} is part of another concatenation"
        reason = f"{copy} copies {value}, which cannot be stored in left itself ({why})"
        assert after.pop((value, copy)) == after.pop((copy, "left")) == reason
        del before[value, "left"]
    assert after == before


def test_without_a_module_that_copies_the_concatenation_says_what_would_help():
    hw = machine("opu-classic")
    operators = {op: m for op, m in hw.dataflow.operators.items() if op != "max_pool"}
    flow = dataclasses.replace(hw.dataflow, operators=operators)
    hw = dataclasses.replace(hw, name="none", dataflow=flow)
    done = compile_model(two_places(), hw)
    dfg, found = partition_model(two_places(), hw)
    assert groups(dfg, found) == groups(done.dfg, done.partition)
    assert not done.partition.copies
    (host,) = done.partition.host
    assert "a must be copied for it, and no module can" in host.reason
    assert "set `dataflow.operators.max_pool` to [pool]" in host.reason


def test_what_does_not_fit_is_named_in_the_users_graph():
    """A copy stands for the concatenation that needs it."""
    dfg, found = partition_model(two_places(), hw := machine("opu-classic"), "matched")
    added = insert_copies(dfg, needed_copies(dfg, found, hw))
    error = DoesNotFit("somewhere", "it is too large", "make it smaller")

    def named(node):
        misfits = _of_the_graph(dfg, found, Misfit(nodes=(node,), error=error), added)
        assert all(misfit.error is error for misfit in misfits)
        return [misfit.nodes for misfit in misfits]

    for node in dfg.calls:
        assert named(added.moved[node.index]) == [(node.index,)]
    left, last = (n.index for n in dfg.calls if n.name in {"left", "cl"})
    assert [named(copy) for copy in added.copies] == [[(left,), (left, last)]] * 2


@pytest.mark.parametrize("strategy", LEGAL)
def test_random_networks_with_copies_give_what_onnx_runtime_gives(strategy, seed, rng):
    hw = machine("opu-1024")
    for number in range(seed * 1000, seed * 1000 + 4):
        done = compile_model(concat_graph(number), hw, Options(strategy=strategy))
        inputs = {p.name: rng.normal(size=p.shape).astype(np.float32) for p in done.bundle.inputs}
        result = run(done.bundle, hw, inputs, capture=True)
        assert check(done.bundle, inputs, result).passed, number
        session = ort.InferenceSession(done.bundle.qdq)
        names = [o.name for o in session.get_outputs()]
        for name, wanted in zip(names, session.run(names, inputs), strict=True):
            assert np.array_equal(result.outputs[name], np.asarray(wanted)), (number, name)


@pytest.mark.parametrize("strategy", LEGAL)
def test_concatenations_that_repeat_one_value_get_all_copies_at_once(strategy):
    """Without its copies the shorter one would lie in the longer one."""
    text = f"""g (float[1,4,6,6] x, float[4,4,1,1] w) => (float[1,8,6,6] y, float[1,12,6,6] z) {{
        [a] a = {CONV}(x, w)
        [short] y = Concat<axis=1>(a, a)
        [long] z = Concat<axis=1>(a, a, a) }}"""
    dfg = build_dfg(canonical.quantised(text).model)
    fitted = fuse_and_tile(dfg, machine("opu-classic"), strategy)
    assert not fitted.partition.host
    assert len(fitted.partition.copies) == 4


@pytest.mark.parametrize("strategy", LEGAL)
def test_where_no_module_makes_the_copy_the_concatenation_stays_on_the_host(strategy):
    """No edge of this machine leads to its pool."""
    hw = machine("opu-classic")
    edges = {
        source: tuple(target for target in targets if target != "pool")
        for source, targets in hw.dataflow.edges.items()
    }
    hw = dataclasses.replace(hw, dataflow=dataclasses.replace(hw.dataflow, edges=edges))
    dfg = build_dfg(canonical.quantised(TWO_PLACES).model)
    fitted = fuse_and_tile(dfg, hw, strategy)
    ((name, why),) = ((fitted.dfg[h.node].name, h.reason) for h in fitted.partition.host)
    assert name == "left"
    assert "must be copied for it, and no module can" in why
    assert not fitted.partition.copies
