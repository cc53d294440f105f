"""What `report` says of a program: the engine's figures, the program's groups, the edges."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from opu_fuse import zoo
from opu_fuse.fuse.strategies.strategy_names import StrategyName
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.overview import overview
from opu_fuse.pipeline import Program
from opu_fuse.pipeline import compile as compile_program
from opu_fuse.report import timeline
from opu_fuse.report.page.document import document


@pytest.fixture(scope="module")
def program():
    """With an operator on the host, between two segments of the machine."""
    return compile_program(
        zoo.build("tiny_residual"), load_hw("opu-tiny"), keep_float=("block2.conv1",)
    )


@pytest.fixture(scope="module")
def tree(program):
    return overview(program)


def test_figures_are_those_of_the_cycle_engine(program, tree):
    run = program.run(engine="cycle")
    found = tree["summary"]
    for key in ("cycles", "dram_bytes_read", "dram_bytes_written"):
        assert found[key] == run.counters[key]
    assert found["milliseconds"] == run.counters["cycles"] / program.hw.clock_mhz / 1000
    assert found["clock"] == program.hw.clock
    assert [g["cycles"] for g in tree["groups"]] == [g.cycles for g in run.groups]
    busy = {e: sum(g["busy"][e] for g in tree["groups"]) for e in ("load", "compute", "post")}
    assert busy == {e: run.counters[f"busy_{e}"] for e in busy}
    assert sum(g["dram_bytes"] for g in tree["groups"]) == sum(
        g.dram_bytes_read + g.dram_bytes_written for g in run.groups
    )


def test_every_operator_is_there_once_with_its_group_or_the_reason_for_the_host(program, tree):
    groups = {o.name: g.index for g in program.bundle.groups for o in g.ops}
    names = [o["name"] for o in tree["operators"]]
    assert len(names) == len(set(names)) == tree["summary"]["operators"]
    on_host = [o for o in tree["operators"] if o["group"] is None]
    assert 0 < len(on_host) == tree["summary"]["host_operators"]
    assert all(o["host"] for o in on_host)
    assert {o["name"]: o["group"] for o in tree["operators"] if o["group"] is not None} == groups


def test_edges_lead_forward_and_reach_every_operator(tree):
    order = {o["name"]: i for i, o in enumerate(tree["operators"])}
    assert all(order[source] < order[target] for source, target in tree["edges"])
    assert len({target for _, target in tree["edges"]}) >= len(order) - 1  # all but the first


def test_boundaries_are_the_programs(program, tree):
    told = {(o["name"], b["to"], b["reason"]) for o in tree["operators"] for b in o["boundaries"]}
    assert told == set(program.bundle.boundaries)


def test_tiles_are_as_many_as_the_program_computes(program, tree):
    counted = sum(len(s.tiles) for s in program.bundle.segments if hasattr(s, "tiles"))
    assert sum(g["tile"]["count"] for g in tree["groups"]) == counted


def test_the_module_that_bounds_is_the_one_whose_engine_works_longest(tree):
    (bounding,) = [m for m in tree["modules"] if m["bounds"]]
    assert bounding["busy_cycles"] == max(m["busy_cycles"] for m in tree["modules"])
    assert bounding["name"] == "ipa"


def test_all_strategies_are_compared_and_the_programs_own_is_known(tree):
    assert [s["strategy"] for s in tree["strategies"]] == [s.value for s in StrategyName]
    own = {s["strategy"] for s in tree["strategies"] if s.get("this")}
    assert "matched" in own
    assert "none" not in own
    for s in tree["strategies"]:
        assert not s["this"] or s["groups"] == len(tree["groups"])


def test_the_tree_is_json_and_the_page_holds_no_markup_of_names(tree):
    assert json.loads(json.dumps(tree)) == tree
    evil = "<script>alert(1)</script>"
    first, *others = tree["operators"]
    edges = [[evil if n == first["name"] else n for n in edge] for edge in tree["edges"]]
    page = document([{**tree, "operators": [{**first, "name": evil}, *others], "edges": edges}])
    assert evil not in page


def test_of_too_many_instructions_those_of_a_group_are_one_bar(program, tree, monkeypatch):
    assert tree["timeline"]["whole"]
    monkeypatch.setattr(timeline, "MOST_SLICES", 100)
    found = overview(program)["timeline"]
    assert not found["whole"]
    assert len(found["from"]) < len(tree["timeline"]["from"]) / 2
    assert max(found["to"]) == max(tree["timeline"]["to"])
    bars = list(zip(found["track"], found["group"], strict=True))
    for track in ("load", "compute", "post", "store"):
        mine = [group for t, group in bars if t == track]
        assert all(a != b for a, b in pairwise(mine)), track


def test_without_the_quantised_model_the_rest_is_still_told(program):
    bare = Program(bundle=replace(program.bundle, qdq=b""), hw=program.hw)
    tree = overview(bare)
    assert tree["strategies"] == []
    assert tree["summary"]["dram_bound_bytes"] is None
    assert document([tree])
