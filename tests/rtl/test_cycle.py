"""The cycle engine against the RTL: groups within 1 % or 20 cycles, networks within 0.5 %,
the same instructions retired in the same order.
"""

import pytest

from opu_fuse import zoo
from opu_fuse.hw.load import load_hw
from opu_fuse.pipeline import compile as compile_program
from opu_fuse.sim.cycle import MemoryOptions
from opu_fuse.sim.ports import noise
from opu_fuse.sim.runner import RtlOptions

pytestmark = pytest.mark.rtl

NETWORKS = (
    ("opu-tiny", "tiny_residual", None),
    ("opu-tiny", "tiny_tiles", None),
    ("opu-tiny", "tiny_odd", None),
    ("opu-1024", "resnet20", None),
    ("opu-light", "mobilenet_v1_025", 64),
    ("opu-light", "shufflenet_v2", 32),
)
MEMORIES = ((0, 0.5), (40, 1.0))
"""(latency, share of the bus's bandwidth)."""


@pytest.fixture(scope="module", params=NETWORKS, ids=lambda case: f"{case[1]}-{case[0]}")
def program(request):
    machine, network, image = request.param
    return compile_program(zoo.build(network, image=image), load_hw(machine))


@pytest.mark.parametrize(("latency", "share"), MEMORIES)
def test_the_cycle_engine_knows_the_rtls_cycles(program, latency, share):
    speed = share * program.hw.dram.bus_bytes
    rtl = program.run(
        noise(program.bundle),
        engine="rtl",
        rtl=RtlOptions(latency=latency, bytes_per_cycle=speed),
    )
    cycle = program.run(
        engine="cycle", memory=MemoryOptions(latency=latency, bytes_per_cycle=speed)
    )
    assert cycle.counters["cycles"] == pytest.approx(rtl.counters["cycles"], rel=0.005)
    far = [
        (theirs.index, theirs.cycles, mine.cycles)
        for theirs, mine in zip(rtl.groups, cycle.groups, strict=True)
        if abs(theirs.cycles - mine.cycles) > max(20, 0.01 * theirs.cycles)
    ]
    assert not far, "group, cycles of the RTL, of the cycle engine"
    assert orders(cycle.trace) == orders(rtl.trace)
    hold_counters(rtl.counters, cycle.counters)


def orders(trace):
    found = {}
    for r in trace:
        found.setdefault(r.engine, []).append(r.instruction)
    return found


def hold_counters(rtl, cycle):
    """Bytes and instructions are equal, busy and stalled cycles as close as those of a network."""
    for name, value in rtl.items():
        if name.startswith(("dram_bytes", "instructions")):
            assert cycle[name] == value, name
        else:
            assert abs(cycle[name] - value) <= 0.005 * rtl["cycles"], name
