"""Sweeps: rows are those of single compilations, failures are rows, nothing is computed twice and
nothing is lost when client or workers are killed.
"""

import json
import os
import signal
import subprocess
import sys
import time

import onnx
import pandas as pd
import pytest

import opu_fuse
from opu_fuse import zoo
from opu_fuse.cli.main import app
from opu_fuse.errors import UserError
from opu_fuse.frontend.prepare import prepare
from opu_fuse.hw.spec.load_spec import load_hw, load_hw_text
from opu_fuse.sim.cycle.run import MemoryOptions
from opu_fuse.sweeping.journal import NAME, journal
from opu_fuse.sweeping.plan import read_plan
from opu_fuse.sweeping.run import require_same_source
from opu_fuse.sweeping.source import source_digest
from opu_fuse.sweeping.table import frame, write_tables
from tests.some import some

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # sockets of dask's processes

PLAN = {
    "models": ["tiny_residual", "tiny_odd"],
    "specs": ["opu-tiny", {"spec": "opu-tiny", "set": {"buffers.feature.words": [1, 512]}}],
    "strategies": ["matched", "none"],
    "memory": {"bytes_per_cycle": [4, 8], "latency": [10]},
}


def worker(address):
    code = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1"]
    return subprocess.Popen([*code, "--no-dashboard", "--no-nanny"], stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def cluster():
    """A scheduler and two workers, each a process of its own, as on other computers."""
    from distributed import Client, LocalCluster

    scheduler = LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50)
    workers = [worker(scheduler.scheduler_address) for _ in range(2)]
    with Client(scheduler, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
    yield scheduler, workers
    for process in workers:
        process.terminate()
        process.wait()
    scheduler.close()


@pytest.fixture(scope="module")
def rows(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    return opu_fuse.sweep(PLAN, folder, cluster=cluster[0].scheduler_address), folder


def test_rows_are_those_of_single_compilations(rows):
    found = rows[0]
    good = found[found["error"].isna()]
    assert len(found) == 2 * 3 * 2 * 2
    assert set(good["strategy"]) == {"matched", "none"}
    for place in range(0, len(good), 5):
        row = good.iloc[place]
        tree = load_hw(row["spec"]).to_tree()
        for key, value in json.loads(row["set"] or "{}").items():
            tree["buffers"][key.split(".")[1]]["words"] = value
        hw = load_hw_text(json.dumps(tree))
        program = opu_fuse.compile(zoo.build(row["model"]), hw, strategy=row["strategy"])
        memory = MemoryOptions(bytes_per_cycle=row["bytes_per_cycle"], latency=int(row["latency"]))
        counters = program.run(engine="cycle", memory=memory).counters
        assert row["cycles"] == counters["cycles"]
        assert row["dram_bytes"] == counters["dram_bytes_read"] + counters["dram_bytes_written"]
        assert row["groups"] == len(program.bundle.groups)


def test_images_run_together_are_an_axis(cluster):
    plan = {"models": ["tiny_odd"], "specs": ["opu-tiny"], "batches": [1, 3]}
    found = opu_fuse.sweep(plan, cluster=cluster[0].scheduler_address)
    hw = load_hw("opu-tiny")
    assert list(found["batch"]) == [1, 3]
    for row in found.to_dict("records"):
        program = opu_fuse.compile(zoo.build("tiny_odd"), hw, batch=int(row["batch"]))
        assert row["cycles"] == program.run(engine="cycle").counters["cycles"]
        images = row["batch"] * hw.clock_mhz * 1e6 / row["cycles"]
        assert row["images_per_second"] == pytest.approx(images)


def test_what_fails_is_a_row_with_its_message(rows):
    failed = rows[0][rows[0]["error"].notna()]
    assert len(failed) == 2 * 2 * 2
    assert set(failed["set.buffers.feature.words"]) == {1}
    assert failed["error"].str.contains("1 feature words do not divide").all()
    assert failed["cycles"].isna().all()


def test_a_second_run_starts_no_worker_and_gives_the_same_rows(rows, monkeypatch):
    import distributed

    monkeypatch.setattr(distributed, "Client", None)
    found = opu_fuse.sweep(PLAN, rows[1])
    pd.testing.assert_frame_equal(found, rows[0])
    smaller = opu_fuse.sweep({**PLAN, "models": ["tiny_odd"]}, rows[1])
    wanted = rows[0][rows[0]["model"] == "tiny_odd"].reset_index(drop=True)
    pd.testing.assert_frame_equal(smaller, wanted)


def test_the_command_writes_tables_and_a_page(rows, capsys):
    folder = rows[1]
    (folder / "plan.yaml").write_text(json.dumps(PLAN))
    app(["sweep", str(folder / "plan.yaml"), "-o", str(folder)], standalone_mode=False)
    said = capsys.readouterr().out
    assert said.startswith("24 points, 8 failed: ")
    assert "8: opu-tiny with buffers.feature.words 1" in said
    pd.testing.assert_frame_equal(pd.read_parquet(folder / "rows.parquet"), rows[0])
    assert "16 points, 8 failed" in (folder / "sweep.html").read_text()


def test_parquet_and_csv_hold_the_same_rows(rows):
    parquet, csv = write_tables(rows[0], rows[1])
    pd.testing.assert_frame_equal(pd.read_parquet(parquet), rows[0])
    text = pd.read_csv(csv)
    assert list(text.columns) == list(rows[0].columns)
    assert text["key"].tolist() == rows[0]["key"].tolist()
    assert text["cycles"].dropna().tolist() == rows[0]["cycles"].dropna().tolist()


@pytest.mark.nightly
def test_a_lost_worker_costs_a_retry_and_no_row(rows, cluster, tmp_path):
    scheduler, workers = cluster
    killed = []

    def progress(done, total, left):
        if not killed:
            os.kill(workers[0].pid, signal.SIGKILL)
            killed.append(done)

    found = opu_fuse.sweep(PLAN, tmp_path, cluster=scheduler.scheduler_address, progress=progress)
    assert 0 < killed[0] < len(found)
    pd.testing.assert_frame_equal(found, rows[0])


SWEEP = """
import json, sys, opu_fuse
opu_fuse.sweep(json.loads(sys.argv[1]), sys.argv[2], jobs=1)
"""


def test_a_killed_sweep_of_local_processes_goes_on_where_it_was(rows, cluster, tmp_path, caplog):
    address = cluster[0].scheduler_address
    command = [sys.executable, "-c", SWEEP, json.dumps(PLAN), str(tmp_path)]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    lines = tmp_path / NAME
    while not (lines.is_file() and lines.read_bytes().count(b"\n") >= 4):
        assert running.poll() is None
        time.sleep(0.02)
    running.kill()
    running.wait()
    before = lines.read_bytes()
    done = before.count(b"\n")
    assert done < len(rows[0])
    with lines.open("ab") as file:
        file.write(b'{"key": "half a li')  # what a kill may leave
    told = []
    found = opu_fuse.sweep(
        PLAN, tmp_path, cluster=address, progress=lambda *told_: told.append(told_[0])
    )
    pd.testing.assert_frame_equal(found, rows[0])
    assert told[0] > done
    assert lines.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    keys = [json.loads(line)["key"] for line in lines.read_text().splitlines()]
    assert len(keys) == len(set(keys)) == len(found)
    assert not [r for r in caplog.records if r.levelname == "INFO" and "distributed" in r.name]


def test_a_damaged_model_is_a_row_that_says_what_is_wrong_with_it(cluster, tmp_path):
    (tmp_path / "damaged.onnx").write_bytes(b"\x08\xff no protobuf")
    plan = {"models": [str(tmp_path / "damaged.onnx")], "specs": ["opu-tiny"]}
    found = opu_fuse.sweep(plan, tmp_path, cluster=cluster[0].scheduler_address)
    assert found["error"].item().startswith(str(tmp_path / "damaged.onnx"))
    assert "this is not an ONNX model" in found["error"].item()


def test_a_name_with_an_ending_is_a_file():
    with pytest.raises(UserError, match=r"absent\.tflite: No such file"):
        opu_fuse.sweep({"models": ["absent.tflite"], "specs": ["opu-tiny"]})


def test_two_sweeps_do_not_write_into_one_folder(tmp_path):
    with journal(tmp_path), pytest.raises(UserError, match="another sweep is writing to it"):
        opu_fuse.sweep(PLAN, tmp_path)


def test_a_file_is_known_by_its_content(tmp_path):
    first, second = tmp_path / "a.onnx", tmp_path / "b.onnx"
    for path in (first, second):
        onnx.save(some(prepare(zoo.build("tiny_odd")).qdq), path)
    plan = {"models": [str(first), str(second)], "specs": ["opu-tiny"]}
    one, other = read_plan(plan)
    assert one.points() == other.points()
    assert len(frame([one, other], {key: {"key": key, "set": ""} for key in one.points()})) == 1
    onnx.save(some(prepare(zoo.build("tiny_odd", seed=3)).qdq), second)
    one, other = read_plan(plan)
    assert one.points() != other.points()


def test_rows_of_another_source_are_not_taken_for_ours(monkeypatch):
    (task,) = read_plan({"models": ["tiny_odd"], "specs": ["opu-tiny"]})
    before = task.points()
    monkeypatch.setattr("opu_fuse.sweeping.plan.source_digest", lambda: "other")
    assert not before.keys() & task.points().keys()


def test_the_digest_of_the_source_sees_every_byte_and_name(tmp_path, monkeypatch):
    monkeypatch.setattr("opu_fuse.sweeping.source._PACKAGE", tmp_path)
    (tmp_path / "a.py").write_text("1")
    found = {source_digest.__wrapped__()}
    (tmp_path / "a.py").write_text("2")
    found.add(source_digest.__wrapped__())
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    found.add(source_digest.__wrapped__())
    (tmp_path / "c.py").write_text("")
    found.add(source_digest.__wrapped__())
    assert len(found) == 4


def test_workers_with_another_source_are_refused(cluster):
    from distributed import Client

    with Client(cluster[0], set_as_default=False) as client:
        require_same_source(client, source_digest())
        with pytest.raises(UserError, match=r"worker tcp.*: has another opu-fuse than this comp"):
            require_same_source(client, "other")


def test_ranges_lists_and_single_values_span_their_product():
    axes = {"clock_mhz": {"start": 100, "stop": 200, "step": 50}, "queues.load": [16, 32]}
    axes["buffers.psum.words"] = 128
    tasks = read_plan({"models": ["resnet20"], "specs": [{"spec": "opu-tiny", "set": axes}]})
    assert [tuple(t.machine.values.values()) for t in tasks] == [
        (clock, queue, 128) for clock in (100, 150, 200) for queue in (16, 32)
    ]
    assert {t.machine.spec().clock_mhz for t in tasks} == {100, 150, 200}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": []}, "models: "),
        ({"models": ["resnet19"]}, "there is no such network"),
        ({"models": ["no/such.onnx"]}, "no/such.onnx"),
        ({"specs": ["opu-1023"]}, "unknown machine"),
        ({"specs": [{"spec": "opu-tiny", "set": {"buffers.feature.word": 1}}]}, "has no key"),
        ({"strategies": ["best"]}, "strategies.0: "),
        ({"memory": {"latency": [-1]}}, "memory.latency.0: "),
        ({"network": 1}, "network: there is no such key; see docs/sweep.md"),
        ({"specs": [{"base": "opu-tiny"}]}, r"specs\.0\.base: there is no such key"),
        ({"models": [{"model": 5}]}, r"models\.0\.model: Input should be a valid string"),
        ({"scales": ["pow3"]}, "scales.0: "),
        ({"batches": [0]}, "batches.0: "),
    ],
)
def test_a_plan_that_says_nothing_sensible_is_refused_before_anything_runs(change, message):
    with pytest.raises(UserError, match=message):
        opu_fuse.sweep({**PLAN, **change})


def test_no_scheduler_is_told_in_a_line(monkeypatch):
    monkeypatch.setattr("opu_fuse.sweeping.run.ANSWERS_WITHIN", 0.5)
    with pytest.raises(UserError, match="no scheduler answers at tcp"):
        opu_fuse.sweep(PLAN, cluster="tcp://127.0.0.1:9")
