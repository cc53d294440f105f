"""Plans: what has no sense or no end is refused by its place, its value and what would help."""

import math

import pytest
from typer.testing import CliRunner

from opu_fuse.cli.main import app
from opu_fuse.errors import UserError
from opu_fuse.hw.spec.limits import MAX_LATENCY, MAX_SPEED, MIN_SPEED
from opu_fuse.model.grouped_softmax import of_groups
from opu_fuse.sweeping.plan import MOST_POINTS, read_plan
from opu_fuse.sweeping.point import points

PLAN = {
    "models": ["tiny_residual", "tiny_odd"],
    "specs": ["opu-tiny"],
    "memory": {"bytes_per_cycle": [4, 8]},
}
RANGE = {"start": 100, "stop": 200, "step": 50}


def refused(change):
    """What is said of a plan that is not read."""
    with pytest.raises(UserError) as told:
        read_plan({**PLAN, **change})
    assert "\n" not in str(told.value)
    return str(told.value)


def setting(**values):
    """The axis `specs` with values of two keys, clock_mhz and counter_bits."""
    return {"specs": ["opu-tiny", {"spec": "opu-tiny", "set": values}]}


WRITE = "; write a range as {start: 100, stop: 200, step: 50}"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (RANGE | {"step": 0}, ".step: Input should be greater than 0, not 0" + WRITE),
        (RANGE | {"step": -1}, ".step: Input should be greater than 0, not -1" + WRITE),
        (RANGE | {"start": "a"}, ".start: Input should be a valid number, not 'a'" + WRITE),
        (RANGE | {"start": math.nan}, ".start: Input should be a finite number, not nan" + WRITE),
        (RANGE | {"stop": math.inf}, ".stop: Input should be a finite number, not inf" + WRITE),
        ({"start": 1, "stop": 2}, ".step: is missing" + WRITE),
        (RANGE | {"by": 2}, ".by: there is no such key" + WRITE),
        (RANGE | {"stop": 99}, ": start 100 is more than stop 99; swap them"),
        ([], ": is empty; see docs/sweep.md for the axes"),
    ],
)
def test_a_range_that_is_none_is_told_by_its_place_its_value_and_what_to_write(given, told):
    assert refused(setting(clock_mhz=given)) == f"sweep: specs.1.set.clock_mhz{told}"


def test_a_plan_in_a_file_is_told_by_its_name(tmp_path):
    (tmp_path / "plan.yaml").write_text(
        "models: [tiny_odd]\n"
        "specs: [{spec: opu-tiny, set: {clock_mhz: {start: 1, stop: .inf, step: 1}}}]\n"
    )
    told = CliRunner().invoke(app, ["sweep", str(tmp_path / "plan.yaml"), "-o", str(tmp_path)])
    assert isinstance(told.exception, UserError)
    assert f"{tmp_path / 'plan.yaml'}: specs.0.set.clock_mhz.stop: Input" in str(told.exception)


@pytest.mark.parametrize(
    ("stop", "step", "values"),
    [
        (MOST_POINTS + 1, 1, "100,001"),
        (2_000_000_000, 0.001, "1,999,999,999,001"),
        (1.7e308, 1e-300, "1,000,000,000,000,001"),
    ],
)
def test_a_range_is_not_cut_but_refused_with_its_number_of_values(stop, step, values):
    told = refused(setting(clock_mhz={"start": 1, "stop": stop, "step": step}))
    most = "a sweep has at most 100,000 points; take a larger step"
    assert told == f"sweep: specs.1.set.clock_mhz: {values} values, and {most}"


def test_more_points_than_a_sweep_has_are_counted_and_not_made():
    thousand = {"start": 1, "stop": 1000, "step": 1}
    points = 2 * 2 * (1000 * 1000 + 1)  # models, settings of the memory, machines
    assert refused(setting(clock_mhz=thousand, counter_bits=thousand)) == (
        f"sweep: {points:,} points are more than the 100,000 of a sweep; "
        "make several sweeps of it, or take fewer values"
    )


LIMITS = "; bytes_per_cycle is 0.01 to 1024, latency 0 to 65535"


@pytest.mark.parametrize(
    ("memory", "told"),
    [
        (
            {"latency": [10**25]},
            f"latency.0: Input should be less than or equal to 65535, not {10**25}",
        ),
        (
            {"latency": [1, 65536]},
            "latency.1: Input should be less than or equal to 65535, not 65536",
        ),
        ({"latency": -1}, "latency.0: Input should be greater than or equal to 0, not -1"),
        (
            {"bytes_per_cycle": 0},
            "bytes_per_cycle.0: Input should be greater than or equal to 0.01, not 0",
        ),
        (
            {"bytes_per_cycle": [8, 1025]},
            "bytes_per_cycle.1: Input should be less than or equal to 1024, not 1025",
        ),
        (
            {"bytes_per_cycle": [math.nan]},
            "bytes_per_cycle.0: Input should be a finite number, not nan",
        ),
        ({"latency": []}, "latency: is empty"),
    ],
)
def test_a_memory_that_nobody_has_is_refused_with_the_limits(memory, told):
    assert refused({"memory": memory}) == f"sweep: memory.{told}{LIMITS}"


def test_memory_takes_single_values_and_all_that_are_in_its_limits():
    plan = {"models": ["tiny_odd"], "specs": ["opu-tiny"]}
    (task,) = read_plan(plan | {"memory": {"bytes_per_cycle": 8, "latency": 0}})
    assert task.settings == ((8, 0),)
    ends = {"bytes_per_cycle": [MIN_SPEED, MAX_SPEED], "latency": MAX_LATENCY}
    (task,) = read_plan(plan | {"memory": ends})
    assert task.settings == ((MIN_SPEED, MAX_LATENCY), (MAX_SPEED, MAX_LATENCY))
    (task,) = read_plan(plan | {"memory": {"latency": [None, 3]}})
    assert task.settings == ((None, None), (None, 3))


def test_a_file_has_no_image():
    told = refused({"models": [{"model": "my/net.onnx", "image": 96}]})
    why = "image 96 is for networks of the zoo, and this is a file"
    assert told == f"my/net.onnx: {why}; leave image out"


def test_a_model_is_prepared_for_the_lanes_of_its_point_not_of_the_base():
    lanes = [32, 64]  # half a word a cycle, which normalises quarters of it, and a whole one
    specs = [{"spec": "opu-1024a", "set": {"post.lanes": lanes}}]
    halves, whole = read_plan({"models": ["yolo11n"], "specs": specs})
    assert halves.norms - whole.norms == {of_groups(16)}
    assert halves.model_key != whole.model_key


def test_lanes_that_no_machine_has_are_told_by_their_row():
    specs = [{"spec": "opu-1024a", "set": {"post.lanes": [3]}}]
    (task,) = read_plan({"models": ["yolo11n"], "specs": specs})
    (row,) = points(task, task.settings, b"")
    assert "post.lanes" in row["error"]
