"""Known networks: the group counts that were published, and sizes that must not hurt."""

import gc
import time

import pytest

from opu_fuse.dfg.build import build_dfg
from opu_fuse.fuse.strategies.registry import STRATEGIES, partition
from tests.dfg import canonical
from tests.dfg.chains import chain
from tests.fuse import networks
from tests.fuse.reading import groups, machine


@pytest.mark.parametrize("strategy", ["greedy", "matched"])
@pytest.mark.parametrize(("network", "count"), [("tiny_yolo", 9), ("resnet_20", 22)])
def test_published_group_counts(network, count, strategy):
    dfg = build_dfg(canonical.canonical(getattr(networks, network)()))
    result = partition(dfg, machine("opu-classic"), strategy)
    assert len(result.groups) == count
    assert result.host == ()
    assert result.legal


def test_the_average_pool_of_resnet_20_joins_the_last_residual_group():
    dfg = build_dfg(canonical.canonical(networks.resnet_20()))
    result = partition(dfg, machine("opu-classic"))
    assert groups(dfg, result)[-2].endswith("res_add relu_2_2:compare pool:pool flatten:-")


def test_float_and_quantised_form_are_partitioned_alike():
    text = networks.resnet_20()
    plain = partition(build_dfg(canonical.canonical(text)), machine("opu-tiny"))
    quantised = build_dfg(canonical.quantised(text, pow2=False).model)
    assert quantised.quantised
    result = partition(quantised, machine("opu-tiny"))
    assert result == plain


@pytest.fixture
def no_garbage_collection():
    """Half of the time for a graph of this size is the collector looking at nodes that all live."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.nightly
def test_g16_a_chain_of_100_000_operators(no_garbage_collection):
    dfg = build_dfg(chain(100_000, ("Relu", "MaxPool")))
    assert [n.name for n in dfg.calls[-2:]] == ["n99998", "n99999"]
    result = partition(dfg, machine("opu-tiny"))
    assert len(result.groups) == 50_000
    assert result.legal


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_deep_graph_needs_no_recursion(strategy):
    dfg = build_dfg(chain(2_000, ("Conv", "Relu", "Conv", "Add", "Relu")))
    result = partition(dfg, machine("opu-tiny"), strategy)
    assert sum(len(g.matches) for g in result.groups) == 2_800
    assert result.legal == (strategy != "greedy")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_time_grows_with_the_graph_not_with_its_square(strategy):
    def seconds(length: int) -> float:
        dfg = build_dfg(chain(length, ("Conv", "Relu", "Conv", "Add", "Relu")))
        start = time.process_time()
        partition(dfg, machine("opu-tiny"), strategy)
        return time.process_time() - start

    # 8 times the operators; a quadratic step would cost 64 times as much.
    assert min(seconds(2_000), seconds(2_000)) < 32 * max(seconds(250), 1e-3)
