"""Where no addition is mapped, a convolution with a bias stays on the host, with the reason."""

import pytest

from opu_fuse import zoo
from opu_fuse.fuse.strategies.strategy_names import StrategyName
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model, partition_model


@pytest.fixture
def without_sums(tmp_path):
    path = tmp_path / "machine.yaml"
    path.write_text("extends: opu-tiny\nname: no-sums\ndataflow: {operators: {add: null}}\n")
    return load_hw(path)


@pytest.mark.parametrize("strategy", list(StrategyName))
def test_every_strategy_says_that_nothing_runs_the_bias(strategy, without_sums):
    dfg, found = partition_model(zoo.build("tiny_odd"), without_sums, strategy)
    told = {op.reason for op in found.host if dfg[op.node].op == "conv"}
    told |= {violation.text for violation in found.violations}  # the greedy one asks nothing before
    assert told
    assert all("add: no module of this machine runs it" in text for text in told), told


def test_the_rest_is_compiled(without_sums):
    done = compile_model(zoo.build("tiny_odd"), without_sums, Options())
    assert [op for op in done.partition.host if done.dfg[op.node].op == "conv"]
