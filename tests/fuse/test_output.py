"""What people and programs read: the JSON object and the explanations, held as goldens."""

import json

import pytest

from opu_fuse.errors import PartitionError
from opu_fuse.fuse.explain.partition_json import partition_to_json
from opu_fuse.fuse.explain.partition_text import explain
from tests.fuse.reading import machine, split


@pytest.mark.parametrize(
    ("name", "strategy"), [("G5", "matched"), ("G4_se", "matched"), ("G5", "greedy")]
)
def test_the_json_object_has_the_agreed_form(name, strategy, golden):
    dfg, result = split(name, "opu-classic", strategy)
    text = json.dumps(partition_to_json(dfg, machine("opu-classic"), result), indent=1)
    golden("partition.json", text)


def test_json_keys_are_those_of_the_interface():
    dfg, result = split("G4_se")
    document = partition_to_json(dfg, machine("opu-tiny"), result)
    assert list(document) == [
        "schema_version", "model", "hw", "strategy", "legal", "violations", "groups", "host",
        "boundaries",
    ]  # fmt: skip
    assert list(document["groups"][0]) == ["index", "ops", "inputs", "outputs"]
    assert document["groups"][0]["ops"][1] == {"name": "conv/bias", "op": "add", "module": "add"}
    assert document["groups"][1]["ops"][1] == {"name": "flatten", "op": "reshape", "module": None}
    assert document["host"][0] == {
        "name": "sigmoid",
        "op": "table",
        "reason": "Sigmoid: no module of this machine runs it; add a module of kind table "
        "(`domain: act, exit: true`) after add to `dataflow.modules` and `dataflow.edges`, "
        "`buffers.table` of 512 words and 2 banks and map table to it in `dataflow.operators`",
    }
    assert document["boundaries"][0] == {
        "from": "relu",
        "to": "gap",
        "reason": "relu is also read by scale, so its value is needed in memory; compute relu once "
        "for each of its readers",
    }


@pytest.mark.parametrize("strategy", ["matched", "greedy"])
def test_the_whole_partition_in_words(strategy, golden):
    dfg, result = split("G4", "opu-classic", strategy)
    golden("explain.txt", "\n".join(explain(dfg, machine("opu-classic"), result)))


def test_an_unknown_operator_name_offers_near_ones():
    dfg, result = split("G1")
    with pytest.raises(
        PartitionError, match="no operator is named 'pool_3'; did you mean pool_2, pool_1"
    ):
        explain(dfg, machine("opu-tiny"), result, "pool_3")
