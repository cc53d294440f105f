"""`run --engine cycle`: cycles without data."""

import json
from itertools import pairwise

import pytest

from opu_fuse.pipeline import Program
from opu_fuse.report.trace import GROUPS, TRACKS
from opu_fuse.sim.cycle.run import MemoryOptions


def test_the_json_of_a_run_has_its_cycles(opu_fuse, program_file):
    called = opu_fuse("run", program_file, "--engine", "cycle", "--json", "--latency", "0")
    tree = json.loads(called.out)
    expected = (
        Program.load(program_file)
        .run(engine="cycle", memory=MemoryOptions(latency=0))
        .counters["cycles"]
    )
    assert (called.code, tree["engine"], tree["cycles"]) == (0, "cycle", expected)
    assert sum(g["cycles"] for g in tree["groups"]) == expected
    assert "noise" not in called.err


def test_the_trace_has_tracks_groups_and_stalls(opu_fuse, program_file, tmp_path):
    path = tmp_path / "t.json"
    assert opu_fuse("run", program_file, "--engine", "cycle", "--trace", path).code == 0
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    tracks = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name"}
    assert set(tracks) == {*TRACKS, GROUPS}
    slices = [e for e in events if e["ph"] == "X"]
    groups = [e["name"] for e in slices if e["tid"] == tracks[GROUPS]]
    assert groups == [g.name for g in Program.load(program_file).bundle.groups]
    assert any(e["cat"] == "stall" and e["name"] == "waits for load" for e in slices)
    for track in tracks.values():
        mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in slices if e["tid"] == track)
        late = [b[0] - a[1] for a, b in pairwise(mine)]
        assert min(late, default=0) > -1e-6, "slices of a track do not overlap"


DATA = ("--check", "--output=d", "--dump-tensors=d", "--input=input=x.npy")


@pytest.mark.parametrize("option", [*DATA, "--waves=w.fst", "--shuffle=1"])
def test_options_about_data_are_wrong_usage(opu_fuse, program_file, option):
    called = opu_fuse("run", program_file, "--engine", "cycle", option)
    assert called.code == 2
    name = option.partition("=")[0]
    assert f"{name}: not an option of the cycle engine" in called.err


def test_the_refusal_says_why(opu_fuse, program_file):
    called = opu_fuse("run", program_file, "--engine", "cycle", "--check")
    assert "it has no data" in " ".join(called.err.replace("│", " ").split())


@pytest.mark.parametrize(
    "option", ["--trace=t.json", "--latency=3", "--bytes-per-cycle=4", "--memory=ddr3-1600x64"]
)
def test_the_functional_engine_has_no_time(opu_fuse, program_file, option):
    called = opu_fuse("run", program_file, option)
    assert called.code == 2
    assert option.partition("=")[0] in called.err


def test_a_ddr_memory_has_a_name_and_its_own_bandwidth(opu_fuse, program_file):
    run = ("run", program_file, "--engine", "cycle")
    slow = opu_fuse(*run, "--memory", "ddr3-1600x16", "--latency", "200")
    assert slow.code == 0
    assert "cycles" in slow.out
    unknown = opu_fuse(*run, "--memory", "ddr5")
    assert unknown.code == 2
    assert "ddr3-1600x64" in unknown.err
    both = opu_fuse(*run, "--memory", "ddr3-1600x16", "--bytes-per-cycle", "8")
    assert both.code == 2
    assert "has a bandwidth of its own" in " ".join(both.err.replace("│", " ").split())
