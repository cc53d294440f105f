"""Tables of pandas have the figures of the JSON that the command prints."""

import sys

import numpy as np
import onnx
import pytest

import opu_fuse
from opu_fuse.report.json_trees import inspect_json, run_json
from tests.api.test_shown import exploration  # noqa: F401  a fixture


def test_groups_of_a_program_are_those_of_inspect(program):
    table, tree = program.to_frame(), inspect_json(program.bundle)["groups"]
    assert table.index.name == "group"
    assert [*table.index] == [group["index"] for group in tree]
    for column, key in {
        "name": "name",
        "macs": "macs",
        "predicted_cycles": "predicted_cycles",
        "mac_efficiency": "predicted_mac_efficiency",
        "dram_bytes": "dram_bytes",
    }.items():
        assert [*table[column]] == [group[key] for group in tree], column
    assert "cycles" not in table
    assert table["modules"][0].split(" > ")[0] == "ipa"


def test_groups_of_a_run_are_measured_where_the_engine_has_time(program, run, timed):
    tree = run_json(program.bundle, program.hw, timed)["groups"]
    table = timed.to_frame()
    assert [*table["cycles"]] == [group["cycles"] for group in tree]
    assert [*table["mac_efficiency"]] == [group["mac_efficiency"] for group in tree]
    assert table["cycles"].sum() == timed.counters["cycles"]
    assert "cycles" not in run.to_frame()
    moved = [g.dram_bytes_read + g.dram_bytes_written for g in run.groups]
    assert [*run.to_frame()["dram_bytes"]] == [m // run.runs for m in moved]


def test_tensors_are_those_of_inspect_memory(program):
    table = program.to_frame("tensors")
    tree = inspect_json(program.bundle, memory=True)["memory"]["tensors"]
    assert table.to_dict("records") == sorted(tree, key=lambda tensor: tensor["offset"])
    with pytest.raises(opu_fuse.UserError, match="of 'layers': there is no such choice; use one"):
        program.to_frame("layers")


def test_every_operator_of_a_partition_has_a_row(partition):
    table = partition.to_frame()
    assert len(table) == len(partition.host) + sum(len(g.matches) for g in partition.groups)
    (host,) = table[table["group"].isna()].to_dict("records")
    assert (host["operator"], host["reason"]) == ("table", partition.host[0].reason)
    assert table["group"].dropna().tolist() == [0, 0, 1]


def test_losses_are_rows(losses):
    table = losses.to_frame()
    assert [*table["ratio"]] == [tensor.ratio for tensor in losses.tensors]
    assert table["ratio"].is_monotonic_increasing


def test_an_exploration_ranks_the_best(exploration):  # noqa: F811  a fixture
    table = exploration.to_frame()
    assert table["rank"].fillna(0).tolist() == [0, 1, 0]
    assert table["shipped"].tolist() == [False, False, True]
    assert table["net ms"].tolist() == [3.0, 1.0, 2.0]
    assert table["mac_units"].tolist() == [32, 1024, 1024]
    assert exploration._repr_html_().count("<tr") == 4


def test_a_program_without_groups_has_empty_tables_with_their_columns():
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    net (float[1,4] x) => (float[1,4] y) { y = Sin(x) }""")
    calibration = np.ones((2, 1, 4), np.float32)
    calibration[1] = -1
    program = opu_fuse.compile(model, "opu-tiny", calibration=calibration)
    for table in (program.to_frame(), program.to_frame("tensors")):
        assert len(table) == 0
        assert "name" in table
    assert "0 groups" in repr(program)
    assert "all groups" in program._repr_html_()
    assert len(opu_fuse.partition(model, "opu-tiny").to_frame()) == 1


def test_without_pandas_or_bokeh_the_extra_is_named(program, timed, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    text = r"^to_frame: tables are those of pandas, which is not installed; pip install 'opu-fuse\["
    with pytest.raises(opu_fuse.UserError, match=text):
        program.to_frame()
    for name in [name for name in sys.modules if name.startswith("opu_fuse.report.page")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ["bokeh", *(name for name in sys.modules if name.startswith("bokeh."))]:
        monkeypatch.setitem(sys.modules, name, None)
    text = (
        r"^roofline: charts are drawn by bokeh.*, which is not installed; pip install 'opu-fuse\[no"
    )
    with pytest.raises(opu_fuse.UserError, match=text):
        timed.roofline()
