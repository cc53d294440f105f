"""The cycle engine against the RTL: the same cycles of every group and every instruction."""

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
    ("opu-1024", "googlenet", 64),
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
def test_the_cycle_engine_has_the_rtls_counters_groups_and_records(program, latency, share):
    speed = share * program.hw.dram.bus_bytes
    rtl = program.run(
        noise(program.bundle),
        engine="rtl",
        rtl=RtlOptions(latency=latency, bytes_per_cycle=speed),
    )
    cycle = program.run(
        engine="cycle", memory=MemoryOptions(latency=latency, bytes_per_cycle=speed)
    )
    assert {name: cycle.counters[name] for name in rtl.counters} == rtl.counters
    assert cycle.groups == rtl.groups
    assert cycle.trace == rtl.trace
