"""`--strategy`: every strategy there is, from file to text."""

import json

import pytest

from opu_fuse.fuse.names import StrategyName
from opu_fuse.fuse.strategies import STRATEGIES
from opu_fuse.pipeline import Program


def test_the_command_line_offers_every_strategy_there_is():
    assert list(STRATEGIES) == list(StrategyName)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_partition_and_json_and_explain_know_every_strategy(opu_fuse, model_file, strategy):
    base = ("partition", model_file, "--hw", "opu-tiny", "--strategy", strategy)
    document = json.loads(opu_fuse(*base, "--json").out)
    assert document["strategy"] == strategy
    assert ("search" in document) is (strategy == "optimal")
    named = document["groups"][0]["ops"][0]["name"]
    assert opu_fuse(*base, "--explain", named).out.startswith(f"{named} (")
    assert f"strategy {strategy}:" in opu_fuse(*base, "--explain").out


def test_compile_says_what_optimal_gained(opu_fuse, model_file, tmp_path):
    path = tmp_path / "net.opu"
    called = opu_fuse(
        "compile", model_file, "--hw", "opu-tiny", "--strategy", "optimal", "-o", path
    )
    assert called.code == 0
    assert "; matched " in called.out
    assert len(Program.load(path).bundle.groups) > 0


def test_an_unknown_strategy_is_wrong_usage(opu_fuse, model_file):
    called = opu_fuse("partition", model_file, "--hw", "opu-tiny", "--strategy", "fastest")
    assert called.code == 2
    assert "dominator" in called.err
