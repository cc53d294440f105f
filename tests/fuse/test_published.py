"""`greedy` is the published algorithm, on the graph that the user gave; copies and rewrites come
behind the strategies, or only to those that want them.
"""

import onnx
import onnx.printer
import pytest
import yaml

from opu_fuse.fuse.strategies.registry import STRATEGIES
from opu_fuse.fuse.strategies.strategy_names import REWRITING
from opu_fuse.pipeline import partition_model
from opu_fuse.resources import hw_specs_dir
from tests.fuse.concat_graphs import concat_graph
from tests.fuse.published import DataFlow, Published
from tests.fuse.reading import machine
from tests.tiers import by_night

CHUNKS, PER_CHUNK = 20, 50
OFTEN = 1
"""Chunks that are looked at for every change, the others nightly."""


def dataflow(name):
    return yaml.safe_load((hw_specs_dir() / f"{name}.yaml").read_text("utf-8"))["dataflow"]


def shown(model, name):
    """What `greedy` makes of a model, as the oracle says it."""
    dfg, found = partition_model(model, machine(name), "greedy")
    groups = (sorted((dfg[m.node].name, m.module) for m in g.matches) for g in found.groups)
    return sorted(groups), sorted(dfg[h.node].name for h in found.host)


def first_seed(seed, chunk):
    return 1_000_000 * seed + PER_CHUNK * chunk


@pytest.mark.parametrize(
    "chunk", [pytest.param(n, marks=[pytest.mark.nightly] * (n >= OFTEN)) for n in range(CHUNKS)]
)
def test_greedy_is_the_published_algorithm_on_random_graphs_with_concats(chunk, seed):
    flows = {name: dataflow(name) for name in ("opu-classic", "opu-tiny")}
    start = first_seed(seed, chunk)
    for number in range(start, start + PER_CHUNK):
        model = concat_graph(number)
        # The second machine knows no concatenation: a view to the algorithm.
        name = "opu-tiny" if number % 5 == 0 else "opu-classic"
        expected = Published(model, flows[name]).named()
        assert shown(model, name) == expected, f"{number}\n{onnx.printer.to_text(model)}"


@pytest.mark.parametrize("strategy", by_night(STRATEGIES, ["none", "dominator", "optimal"]))
def test_strategies_see_the_users_operators_and_say_what_else_they_see(strategy, seed):
    start = first_seed(seed, CHUNKS)
    rewritten = 0
    for number in range(start, start + PER_CHUNK // 2):
        model = concat_graph(number)
        dfg, found = partition_model(model, machine("opu-1024"), strategy)
        given = {item.name for item in DataFlow(model).items if item.kind == "call"}
        seen = {node.name for node in dfg.calls}
        added = {name for name in seen - given if name.split("/")[0] in found.rewrites}
        assert seen - added <= given, number
        assert found.rewrites or seen == given, number
        rewritten += bool(found.rewrites)
    assert bool(rewritten) is (strategy in REWRITING)
