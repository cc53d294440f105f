"""The JSON objects have exactly the promised keys, and null where nothing was measured."""

import json
from dataclasses import replace

import pytest

from opu_fuse.bundle.result import Stall
from opu_fuse.report.json_trees import inspect_json, run_json
from opu_fuse.report.trace import trace_json
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from tests.bundle.sample import HW, sample_bundle, sample_input
from tests.report.test_tables import rtl_result


def plain(tree):
    """Through JSON text and back: only what JSON can hold survives."""
    assert json.loads(json.dumps(tree, allow_nan=False)) == tree
    return tree


def test_run_has_exactly_the_promised_keys():
    bundle = sample_bundle()
    result = run(bundle, HW, sample_input(), capture=True)
    tree = plain(run_json(bundle, HW, result, check(bundle, sample_input(), result)))
    assert list(tree) == [
        *("schema_version", "engine", "cycles", "macs", "mac_efficiency"),
        *("batch", "milliseconds", "images_per_second"),
        *("dram_bytes_read", "dram_bytes_written", "groups", "check"),
    ]
    (group,) = tree["groups"]
    assert list(group) == ["index", "name", "cycles", "macs", "mac_efficiency"]
    assert list(tree["check"]) == [
        *("reference", "max_abs_diff", "mismatches", "elements"),
        *("passed", "model"),
    ]
    assert tree["check"]["mismatches"] == 0
    assert tree["check"]["elements"] == 416


def test_an_engine_without_time_gives_null_not_a_prediction():
    bundle = sample_bundle()
    tree = plain(run_json(bundle, HW, run(bundle, HW, sample_input())))
    assert (tree["cycles"], tree["mac_efficiency"], tree["check"]) == (None, None, None)
    assert (tree["groups"][0]["cycles"], tree["groups"][0]["mac_efficiency"]) == (None, None)
    assert (tree["macs"], tree["dram_bytes_read"], tree["dram_bytes_written"]) == (9216, 768, 32)


def test_measured_numbers_are_per_sample():
    tree = plain(run_json(sample_bundle(), HW, rtl_result()))
    assert (tree["engine"], tree["cycles"]) == ("rtl", 780)
    assert tree["mac_efficiency"] == pytest.approx(9216 / (32 * 780))
    assert tree["groups"][0]["cycles"] == 720
    assert tree["milliseconds"] == pytest.approx(780 / HW.clock_mhz / 1000)
    assert tree["images_per_second"] == pytest.approx(1e6 * HW.clock_mhz / 780)
    assert tree["dram_bytes_read"] == 1000


def test_inspect_shows_groups_segments_and_reasons():
    tree = plain(inspect_json(sample_bundle()))
    assert tree["groups"][0]["predicted_cycles"] == 400
    assert tree["groups"][0]["ops"][0] == {"name": "conv", "op": "conv", "module": "ipa"}
    assert [s["kind"] for s in tree["segments"]] == ["machine", "host"]
    assert tree["segments"][1]["ops"][0]["reason"] == "no module of this machine runs it"
    assert tree["boundaries"][0]["from"] == "maxpool"
    kernel, model = tree["segments"][1]["pieces"]
    assert (kernel["member"], kernel["ops"]) == ("host/000.0.kernel.json", [])
    assert (model["inputs"], model["outputs"]) == (["f"], ["y"])
    assert model["ops"][0]["not_fused"] == "Softmax: kernels have no such operator"
    assert tree["segments"][1]["cuts"][0]["to"] == "softmax"
    assert "memory" not in tree


def test_inspect_with_memory_and_instructions():
    tree = plain(inspect_json(sample_bundle(), memory=True, asm=True))
    assert [t["name"] for t in tree["memory"]["tensors"]] == ["x", "pool"]
    assert tree["memory"]["program"]["offset"] == 832
    listing = tree["segments"][0]["listing"]
    assert listing[0]["text"].startswith("fetch.check hash=")
    assert [x["group"] for x in listing] == [-1, 0, 0, 0, 0, 0, 0, -1]


def test_the_trace_has_a_track_per_engine_and_real_times():
    bundle = sample_bundle()
    result = run(bundle, HW, sample_input())
    timed = tuple(replace(r, start=100 * i, end=100 * i + 50) for i, r in enumerate(result.trace))
    events = json.loads(trace_json(bundle, replace(result, trace=timed)))["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert list(tracks.values()) == ["fetch", "load", "compute", "post", "store", "groups"]
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == 8 + 1, "instructions and their group"
    (group,) = [e for e in slices if tracks[e["tid"]] == "groups"]
    assert (group["name"], group["ts"], group["dur"]) == ("conv", 0.0, 6.5), "to its last end"
    conv = next(e for e in slices if e["name"] == "conv conv")
    assert tracks[conv["tid"]] == "compute"
    assert (conv["ts"], conv["dur"]) == (4.0, 0.5), "opu-tiny runs at 100 MHz"
    assert conv["args"]["text"].startswith("compute.conv ")


def instructions(bundle, result):
    events = json.loads(trace_json(bundle, result))["traceEvents"]
    return [e for e in events if e["ph"] == "X" and "instruction" in e["args"]]


def test_segments_follow_each_other_in_the_trace():
    bundle = sample_bundle()
    again = replace(bundle, segments=(bundle.segments[0], bundle.segments[0]))
    trace = run(bundle, HW, sample_input()).trace
    both = [replace(r, start=20 * i, end=20 * i + 10) for i, r in enumerate(trace)]
    both += [replace(r, segment=1) for r in both]
    result = replace(run(bundle, HW, sample_input()), trace=tuple(both))
    first, second = instructions(again, result)[:8], instructions(again, result)[8:]
    assert [e["ts"] for e in second] == pytest.approx([e["ts"] + 1.5 for e in first])


def test_instructions_of_one_engine_do_not_overlap_in_the_trace():
    """The second one waits behind the first: its slice begins when that has retired."""
    bundle = sample_bundle()
    trace = [r for r in run(bundle, HW, sample_input()).trace if r.engine == "load"][:2]
    times = [(100, 300), (150, 340)]
    timed = [replace(r, start=a, end=b) for r, (a, b) in zip(trace, times, strict=True)]
    result = replace(run(bundle, HW, sample_input()), trace=tuple(timed))
    found = [(e["ts"], e["dur"], e["args"]["start_cycle"]) for e in instructions(bundle, result)]
    assert found == [(1.0, 2.0, 100), (3.0, 0.4, 150)]


def test_stalls_are_slices_that_name_what_the_engine_waits_for():
    bundle = sample_bundle()
    stall = Stall(segment=0, engine="compute", start=10, end=30, reason="load")
    result = replace(run(bundle, HW, sample_input()), stalls=(stall,))
    events = json.loads(trace_json(bundle, result))["traceEvents"]
    (found,) = [e for e in events if e.get("cat") == "stall"]
    assert (found["name"], found["tid"], found["ts"], found["dur"]) == (
        *("waits for load", 2),
        *(0.1, 0.2),
    )
