"""Monitor of the instructions that a simulated machine retires."""

from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.task import Task
from cocotb.triggers import ValueChange

from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.rtlgen.rtl_files import PROBE
from opu_fuse.sim.rtl.machine_run import Retired

_PC_BITS, _CYCLE_BITS = 32, 64


class RetireMonitor:
    """Retire records of one machine.

    machine: handle of the `opu_top` instance, simulated together with `opu_retired.sv`. records:
    all since the start of the monitor, in order. on_record: called with each record in the
    cycle of the retirement.
    """

    def __init__(self, machine: Any, on_record: Callable[[Retired], None] | None = None) -> None:
        self._probe = getattr(machine, f"u_{PROBE.removeprefix('opu_')}")
        self._on_record = on_record
        self.records: list[Retired] = []
        self._task: Task[None] = cocotb.start_soon(self._watch())

    def close(self) -> None:
        """Record nothing more."""
        self._task.cancel()

    async def _watch(self) -> None:
        probe = self._probe
        while True:
            await ValueChange(probe.total)
            engines, end = int(probe.engines.value), int(probe.at.value)
            pcs, starts = int(probe.pcs.value), int(probe.starts.value)
            for engine in Engine:
                if engines >> engine & 1:
                    self._add(
                        Retired(
                            engine=engine,
                            pc=pcs >> engine * _PC_BITS & (1 << _PC_BITS) - 1,
                            start=starts >> engine * _CYCLE_BITS & (1 << _CYCLE_BITS) - 1,
                            end=end,
                        )
                    )

    def _add(self, record: Retired) -> None:
        self.records.append(record)
        if self._on_record is not None:
            self._on_record(record)
