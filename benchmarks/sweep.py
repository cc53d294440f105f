"""A sweep of 2,000 points on a Dask cluster: the rows of the local run, two workers against one,
kill -9 of a worker and of the client, memory of the scheduler.

    python benchmarks/sweep.py

10 networks x 20 machines x 10 settings of the memory. The networks are small, so that what is not
work of the workers would show. Cores that others use make the ratio of times too good or too bad:
the load is printed, too.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx_ir as ir
import pandas as pd
import psutil

import opu_fuse
from opu_fuse.sweeping.journal import NAME
from opu_fuse.zoo.builder import Net

SIDE = 32
"""Rows and columns of the images."""


def network(blocks: int, width: int) -> ir.Model:
    """Residual blocks on a small image."""
    net = Net(f"blocks{blocks}_width{width}", seed=0)
    x = net.input("image", (1, 3, SIDE, SIDE))
    x = net.relu(net.conv(x, "stem", out=width, kernel=3, pads=1), "stem.relu")
    for i in range(blocks):
        y = net.conv(x, f"{i}.conv", out=width, kernel=3, pads=1, batch_norm=f"{i}.bn")
        x = net.relu(net.add(x, y, f"{i}.add"), f"{i}.relu")
    return net.finish(x)


def write_plan(folder: Path, networks: int, machines: int) -> dict[str, Any]:
    """The sweep, its models as files."""
    names = []
    for blocks, width in list(product((0, 1, 2, 3, 4), (8, 16)))[:networks]:
        model = network(blocks, width)
        names.append(str(folder / f"{model.graph.name}.onnx"))
        ir.save(model, names[-1])
    words = [256 << i for i in range(machines // 5)]
    axes = {"buffers.feature.words": words, "buffers.psum.words": [128, 160, 192, 224, 256]}
    return {
        "models": names,
        "specs": [{"spec": "opu-tiny", "set": axes}],
        "memory": {"bytes_per_cycle": [1, 2, 4, 8, 16], "latency": [20, 100]},
    }


def dask(verb: str, *options: str) -> list[str]:
    """The command that starts a scheduler or a worker."""
    return [sys.executable, "-m", f"distributed.cli.dask_{verb}", *options, "--no-dashboard"]


@contextmanager
def process(*command: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that is killed at the end of the block."""
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def worker(address: str) -> Any:
    """One thread, and nobody who starts it again when it is killed."""
    return process(*dask("worker", address, "--nthreads", "1", "--no-nanny"))


def wait_for_workers(address: str, count: int) -> None:
    """Raises TimeoutError after two minutes."""
    from distributed import Client

    with Client(address, set_as_default=False, timeout=60) as client:
        client.wait_for_workers(count, timeout=120)


def peak_mib(pid: int) -> float:
    """Resident memory that a process has had at most."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    (kib,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return int(kib) / 1024


def cpu_seconds(running: Any) -> float:
    """What a process has computed so far."""
    times = psutil.Process(running.pid).cpu_times()
    return times.user + times.system


def timed(plan: Any, folder: Path, **where: Any) -> tuple[pd.DataFrame, float]:
    """Rows, and seconds by the clock on the wall."""
    start = time.perf_counter()
    rows = opu_fuse.sweep(plan, folder, **where)
    return rows, time.perf_counter() - start


def count(folder: Path) -> int:
    """Rows that are written."""
    lines = folder / NAME
    return lines.read_bytes().count(b"\n") if lines.is_file() else 0


def wait_for_rows(folder: Path, enough: int, client: "subprocess.Popen[bytes]") -> None:
    """While the client works."""
    while count(folder) < enough:
        assert client.poll() is None, "the client ended before it was killed"
        time.sleep(0.05)


def kills(plan: Any, folder: Path, address: str, victim: Any, total: int) -> pd.DataFrame:
    """A worker is killed at a quarter of the rows, the client at half; another client continues."""
    folder.mkdir()
    file = folder / "plan.yaml"
    file.write_text(json.dumps(plan), encoding="utf-8")
    command = [sys.executable, "-m", "opu_fuse", "-q", "sweep", str(file), "-o", str(folder)]
    with process(*command, "--cluster", address) as client:
        wait_for_rows(folder, total // 4, client)
        victim.send_signal(signal.SIGKILL)
        print(f"killed a worker at {count(folder)} rows")
        wait_for_rows(folder, total // 2, client)
        client.send_signal(signal.SIGKILL)
        client.wait()
    before = count(folder)
    print(f"killed the client at {before} rows")
    rows, seconds = timed(plan, folder, cluster=address)
    print(f"continued with {len(rows) - before} points on one worker: {seconds:.0f} s")
    keys = [json.loads(line)["key"] for line in (folder / NAME).read_bytes().splitlines()]
    assert len(keys) == len(set(keys)) == total, "a point is lost or duplicated"
    return rows


def main() -> None:
    """Prints what docs/benchmarks.md shows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=10, help="1 to 10")
    parser.add_argument("--machines", type=int, default=20, help="5, 10, 15 or 20")
    options = parser.parse_args()
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        plan = write_plan(folder, options.networks, options.machines)
        local, seconds = timed(plan, folder / "local", jobs=2)
        print(f"{len(local)} points, {local['error'].notna().sum()} failed")
        print(f"local, two processes: {seconds:.0f} s, load {os.getloadavg()[0]:.1f}")

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        scheduler = stack.enter_context(process(*dask("scheduler", "--host", address)))
        workers, times, idle = [], [], 0.0
        for number in (1, 2):
            workers.append(stack.enter_context(worker(address)))
            wait_for_workers(address, number)
            idle = idle or peak_mib(scheduler.pid)
            busy = [cpu_seconds(w) for w in workers]
            rows, seconds = timed(plan, folder / str(number), cluster=address)
            busy = [cpu_seconds(w) - before for w, before in zip(workers, busy, strict=True)]
            pd.testing.assert_frame_equal(rows, local)
            times.append(seconds)
            computed = " and ".join(f"{cpu:.0f}" for cpu in busy)
            print(f"workers: {number}, {seconds:.0f} s, load {os.getloadavg()[0]:.1f}", end="; ")
            print(f"computed {computed} s")
        print(f"two workers take {times[1] / times[0]:.2f} of one worker's time")
        rows = kills(plan, folder / "kills", address, workers[0], len(local))
        pd.testing.assert_frame_equal(rows, local)
        print("rows are those of the local run, none lost, none twice")
        print(f"peak memory of the scheduler: {peak_mib(scheduler.pid):.0f} MiB, idle {idle:.0f}")


if __name__ == "__main__":
    main()
