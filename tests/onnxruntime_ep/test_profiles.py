"""Machine segments in the profiles of ONNX Runtime: their time, their device, their cycles."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from opu_fuse import zoo
from opu_fuse.bundle.program import HostSegment
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise
from tests.devices.register_model import CYCLES
from tests.devices.served import served_model, served_rtl
from tests.onnxruntime_ep.conftest import MACHINE, compiled, context

PROFILING, NOT_YET = ("1.25.0", "1.27.0"), "1.23.2"
"""Versions of ONNX Runtime with and without profilers of providers."""
SCRIPT = """
import sys, numpy as np, onnxruntime as ort
library, model, x = sys.argv[1:]
ort.register_execution_provider_library("P", library)
devices = [d for d in ort.get_ep_devices() if d.ep_name == "OpuFuseExecutionProvider"]
options = ort.SessionOptions()
options.enable_profiling = True
options.add_provider_for_devices(devices, {})
session = ort.InferenceSession(model, options)
session.run(None, {"input": np.load(x)})
print(session.end_profiling())
"""


@pytest.fixture(scope="module")
def two_segments(two_segments):
    """(compilation, inputs, outputs)."""
    x = noise(two_segments.bundle, seed=3)
    return two_segments, x, run(two_segments.bundle, load_hw(MACHINE), x).outputs


@pytest.fixture
def profiled(devices, two_segments, tmp_path):
    """Options of the provider -> the session after two runs, and what its profile says."""

    def profile(**options: str) -> tuple[Any, list[dict[str, Any]]]:
        done, x, expected = two_segments
        settings = ort.SessionOptions()
        settings.enable_profiling, settings.profile_file_prefix = True, str(tmp_path / "profile")
        settings.add_provider_for_devices(devices, options)
        session: Any = ort.InferenceSession(context(done).model.SerializeToString(), settings)
        for _ in range(2):
            got = session.run(None, x)
            assert all(np.array_equal(a, b) for a, b in zip(got, expected.values(), strict=True))
        return session, json.loads(Path(session.end_profiling()).read_text())

    return profile


def segments(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [e for e in events if e["cat"] == "Kernel" and e["name"].startswith("segment")]


def test_each_run_of_a_segment_is_an_event_with_the_cycles_of_its_groups(profiled, two_segments):
    _, events = profiled()
    done, _, _ = two_segments
    predicted = [
        sum(done.bundle.groups[g].cycles for g in {*segment.groups} - {-1})
        for segment in done.bundle.segments
        if not isinstance(segment, HostSegment)
    ]
    assert [(e["name"], e["args"]) for e in segments(events)] == 2 * [
        (name, {"device": "native", "predicted_cycles": str(cycles)})
        for name, cycles in zip(("segment0", "segment2"), predicted, strict=True)
    ]
    assert min(predicted) > 0


def test_events_are_inside_those_of_onnx_runtimes_nodes(profiled):
    _, events = profiled()
    nodes = [e for e in events if e["name"].endswith("_kernel_time")]
    for event in segments(events):
        around = [
            n
            for n in nodes
            if n["ts"] - 50 <= event["ts"]  # two clocks; microseconds
            and event["ts"] + event["dur"] <= n["ts"] + n["dur"] + 50
            and n["args"]["provider"] == "OpuFuseExecutionProvider"
        ]
        assert around, (event, nodes)
        assert (event["pid"], event["tid"]) == (around[0]["pid"], around[0]["tid"])


def test_events_of_a_machine_have_its_counted_cycles(profiled):
    with served_model(load_hw(MACHINE)) as (path, _, _):
        session, events = profiled(device=f"sim:{path}", timeout="60")
        del session
        gc.collect()
    assert [e["args"]["cycles"] for e in segments(events)] == 4 * [str(CYCLES)]
    assert {e["args"]["device"] for e in segments(events)} == {f"sim:{path}"}


def test_a_profile_ends_before_its_session(profiled, two_segments):
    session, events = profiled()
    _, x, expected = two_segments
    assert len(segments(events)) == 4
    got = session.run(None, x)
    assert all(np.array_equal(a, b) for a, b in zip(got, expected.values(), strict=True))


@pytest.mark.rtl
@pytest.mark.nightly
def test_the_rtl_has_the_bits_of_run_and_its_cycles_are_in_the_profile(profiled, two_segments):
    done, _, _ = two_segments
    with served_rtl(MACHINE) as (path, _):
        session, events = profiled(device=f"sim:{path}", timeout="600")
        del session
        gc.collect()
    counted = [int(e["args"]["cycles"]) for e in segments(events)]
    expected = run(done.bundle, load_hw(MACHINE), engine="cycle").counters
    assert counted[:2] == counted[2:]
    assert sum(counted[:2]) == expected["cycles"]


@pytest.mark.nightly
@pytest.mark.parametrize("version", [*PROFILING, NOT_YET])
def test_other_versions_of_onnx_runtime_have_the_events_or_none(version, library, tmp_path):
    done = compiled(zoo.build("tiny_residual"))
    context(done).save(tmp_path / "net_ctx.onnx")
    np.save(tmp_path / "x.npy", noise(done.bundle, seed=5)["input"])
    folder = tmp_path / "packages"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*install, str(folder), f"onnxruntime=={version}"], check=True)
    files = (str(library), str(tmp_path / "net_ctx.onnx"), str(tmp_path / "x.npy"))
    profile = subprocess.run(
        [sys.executable, "-c", SCRIPT, *files],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(folder)},
    ).stdout.strip()
    found = segments(json.loads((tmp_path / profile).read_text()))
    assert len(found) == (0 if version == NOT_YET else 1)
    assert all(int(e["args"]["predicted_cycles"]) > 0 for e in found)
