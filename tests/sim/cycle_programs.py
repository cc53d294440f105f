"""Programs as assembly, through the cycle engine."""

from dataclasses import dataclass

from opu_fuse.hw.isa.assembly import assemble
from opu_fuse.hw.isa.encoding import encode
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim.cycle.counters import engine_counters, gaps
from opu_fuse.sim.cycle.instruction_costs import steps_of
from opu_fuse.sim.cycle.machine import CycleMachine

TINY = load_hw("opu-tiny")
LATENCY = 20


@dataclass(frozen=True, slots=True)
class Timeline:
    """cycles: in all; spans: (start, end) of every instruction, by engine; gaps: (from, to, reason)
    by engine.
    """

    cycles: int
    spans: dict[str, list[tuple[int, int]]]
    gaps: dict[str, list[tuple[int, int, str]]]
    counters: dict[str, int]

    def lasts(self, engine: str, number: int = 0) -> int:
        start, end = self.spans[engine][number]
        return end - start


def timeline(
    text: str,
    hw: HwSpec = TINY,
    *,
    latency: int = LATENCY,
    bytes_per_cycle: float | None = None,
    base: int = 0,
) -> Timeline:
    """Run a program, `check` before and `end` behind it."""
    program = f"fetch.check hash={hw.spec_hash:#x}\n{text}\nfetch.end\n"
    words = encode(assemble(program, spec=hw))
    machine = CycleMachine(
        steps_of(words, hw, hw.dram.capacity)[1],
        hw,
        base=base,
        latency=latency,
        bytes_per_cycle=bytes_per_cycle or hw.dram.bus_bytes,
    )
    cycles = machine.run()
    names = {e: Engine(e).name.lower() for e in machine.issues}
    return Timeline(
        cycles=cycles,
        spans={
            names[e]: list(zip(i.starts, i.ends, strict=True)) for e, i in machine.issues.items()
        },
        gaps={names[e]: list(gaps(i)) for e, i in machine.issues.items()},
        counters=engine_counters(machine, cycles),
    )


UNIT = "stride_y=1 stride_x=1"
COPY = f"compute.copy in_rows=4 in_cols=4 row_pitch=4 {UNIT} out_rows=4 out_cols=4 ic_steps=1 \
slot_log2=3"
CONV = f"compute.conv in_rows=6 in_cols=6 row_pitch=6 {UNIT} dilation_y=1 dilation_x=1 out_rows=4 \
out_cols=4 kernel_rows=3 kernel_cols=3 ic_steps=1 oc_steps=2 slot_log2=3"
POST = f"post.run in_rows=4 in_cols=4 psum_row_pitch=4 {UNIT} win_rows=1 win_cols=1 out_rows=4 \
out_cols=4 blocks=1 out_row_pitch=4"
LOAD = "load.feature run=16 rows=1 blocks=1"
STORE = "store.store dram=0x1000 run=16 rows=1 blocks=1"
