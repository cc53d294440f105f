"""The tasks of a worker: quantise a model, and compile and time it for one machine.

Both depend on their arguments only, so a scheduler may repeat them elsewhere when a
worker is lost.
"""

import json
import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import onnx
from msgspec.structs import asdict

from opu_fuse import zoo
from opu_fuse.bundle.derived_facts import images_per_second, mac_efficiency, total_macs
from opu_fuse.errors import UserError
from opu_fuse.frontend.importing.load import parse_model
from opu_fuse.frontend.prepare import Prepared
from opu_fuse.fuse.strategies.strategy_names import StrategyName
from opu_fuse.hw.area.estimate import area
from opu_fuse.hw.memories import Family
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.pipeline import Options, compile_prepared, prepare_model, require_machine
from opu_fuse.report.group_rows import host_summary
from opu_fuse.sim.cycle.run import MemoryOptions, run_cycle
from opu_fuse.sweeping.plan import Setting, Task

Row = dict[str, Any]


@contextmanager
def _silent() -> Generator[None]:
    """A worker has no reader; what matters is in the rows."""
    logger = logging.getLogger("opu_fuse")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@_silent()
def quantised(task: Task, data: bytes | None) -> bytes | str:
    """The quantised model of a task, serialised, or as text why there is none. data: the file."""
    entry = task.model.entry
    options = Options(
        strategy=task.strategy, scales=task.scales, shapes=entry.shapes, dims=entry.dims
    )
    try:
        if data is None:
            model = zoo.build(entry.model, image=entry.image)
        else:
            model = parse_model(data, entry.model)
        prepared = prepare_model(model, options, norms=task.norms)
    except UserError as error:
        return str(error)
    assert prepared.qdq is not None
    return prepared.qdq.SerializeToString(deterministic=True)


@_silent()
def points(task: Task, settings: Sequence[Setting], model: bytes | str) -> list[Row]:
    """Compile and time a model: a row for each setting of the memory. model: the result of
    `quantised`. An input that cannot be handled is a row with its message in `error`.
    """
    if isinstance(model, str):
        return [failed(model)] * len(settings)
    try:
        hw = task.machine.spec()
        require_machine(hw, task.scales)
        prepared = _prepared(model, task.strategy, task.norms)
        options = Options(strategy=task.strategy, batch=task.batch)
        bundle = compile_prepared(prepared, hw, options).bundle
    except UserError as error:
        return [failed(str(error))] * len(settings)
    macs, host = total_macs(bundle), host_summary(bundle)
    rows = []
    for bytes_per_cycle, latency in settings:
        memory = MemoryOptions(bytes_per_cycle=bytes_per_cycle, latency=latency)
        counters = run_cycle(bundle, hw, memory).counters
        cycles = counters.get("cycles", 0)
        rows.append(
            {
                "error": None,
                "bytes_per_cycle": bytes_per_cycle or hw.dram.bytes_per_cycle,
                "latency": hw.dram.latency if latency is None else latency,
                "cycles": cycles,
                "milliseconds": cycles / hw.clock_mhz / 1000,
                "images_per_second": images_per_second(bundle, hw.clock_mhz, cycles),
                "mac_efficiency": mac_efficiency(hw.macs, macs, cycles),
                "macs": macs,
                "dram_bytes": counters.get("dram_bytes_read", 0)
                + counters.get("dram_bytes_written", 0),
                "groups": len(bundle.groups),
                "host_operators": host.operators,
                "clock_mhz": float(hw.clock_mhz),
                "mac_units": hw.macs,
                "on_chip_bytes": hw.on_chip_bytes,
                "window_bytes": bundle.window_bytes,
                **_area(hw),
            }
        )
    return rows


def _area(hw: HwSpec) -> Row:
    """The resources that the machine uses on each family of devices."""
    areas = {family: asdict(area(hw, family)) for family in Family}
    return {f"{family}_{kind}": n for family, own in areas.items() for kind, n in own.items()}


def described(task: Task, key: str, setting: Setting) -> Row:
    """Columns that identify a point; they precede its results."""
    bytes_per_cycle, latency = setting
    return {
        "key": key,
        "model": task.model.name,
        "image": task.model.entry.image,
        "spec": task.machine.base.name,
        "set": json.dumps(task.machine.values) if task.machine.values else "",
        "strategy": task.strategy,
        "scales": task.scales,
        "batch": task.batch,
        "bytes_per_cycle": bytes_per_cycle,
        "latency": latency,
    }


def failed(message: str) -> Row:
    """A row of a point that gave nothing."""
    return {"error": message}


@lru_cache(maxsize=4)
def _prepared(model: bytes, strategy: StrategyName, norms: frozenset[str]) -> Prepared:
    """Kept by the worker: the machines of a model follow each other."""
    options = Options(strategy=strategy)
    return prepare_model(onnx.load_from_string(model), options, norms=norms)
