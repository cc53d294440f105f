"""The cycle engine against the RTL: the same cycles of every group and every instruction."""

import pytest

from opu_fuse import zoo
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile as compile_program
from opu_fuse.sim.cycle.run import MemoryOptions
from opu_fuse.sim.engine_names import MemoryName
from opu_fuse.sim.ports import noise
from opu_fuse.sim.runner import RtlOptions
from tests.dfg.canonical import canonical
from tests.rtl.machines import write_machine
from tests.tiers import by_night
from tests.written import written

pytestmark = pytest.mark.rtl

NETWORKS = (
    ("opu-tiny", "tiny_residual", None),
    ("opu-tiny", "tiny_tiles", None),
    ("opu-tiny", "tiny_odd", None),
    ("opu-ulx3s", "tiny_tiles", None),
    ("opu-1024", "resnet20", None),
    ("opu-1024", "googlenet", 64),
    ("opu-1024-lean", "squeezenet", 64),
    ("opu-light", "mobilenet_v1_025", 64),  # in cascades
    ("opu-light", "shufflenet_v2", 32),
)
MEMORIES = ((0, 0.5), (40, 1.0))
"""(latency, share of the bus's bandwidth)."""
BEHIND_DDR = (
    ("opu-micro", "squeezenet", 48),  # its clock does not divide the memory's
    ("opu-1024", "resnet20", None),
    ("opu-light", "mobilenet_v1_025", 64),
    ("opu-1024-lean", "squeezenet", 64),
)
WHOLE = {("opu-1024", "googlenet", 64), ("opu-1024-lean", "squeezenet", 64), NETWORKS[-1]}


@pytest.fixture(
    scope="module",
    params=by_night([(case,) for case in NETWORKS], [(case,) for case in WHOLE]),
    ids=lambda case: f"{case[1]}-{case[0]}",
)
def program(request):
    machine, network, image = request.param
    cascades = "always" if network == "mobilenet_v1_025" else "auto"
    return compile_program(zoo.build(network, image=image), load_hw(machine), cascades=cascades)


@pytest.mark.parametrize("channels", [129, 24, 7])
def test_sweeps_that_are_short_wait_for_parameters_of_the_pre_chain(tmp_path, channels):
    """One pixel, one tap, few results: a block is swept sooner than the next one's come in."""
    model = canonical(
        f"g (float[1,{channels},1,1] x, float[{channels},1,1] b, float[4,{channels},1,1] w) "
        "=> (float[1,4,1,1] y) { a = Add(x, b) y = Conv(a, w) }"
    )
    hw = load_hw(write_machine("every-module", tmp_path))
    same_counters(compile_program(model, hw), 0, hw.dram.bus_bytes)


def test_products_in_tables_take_their_cycles(tmp_path):
    hw = load_hw(write_machine("array-in-tables", tmp_path))
    same_counters(compile_program(zoo.build("tiny_residual"), hw), 40, hw.dram.bus_bytes)


STRETCHED = """<ir_version: 10, opset_import: ["" : 17]> g
    (float[1,6,8,9] x) => (float[1,6,72,17] y)
    <float[6,1,4,1] w, float[0] roi = {}, float[4] s = {1, 1, 3, 1}>
    { a = Resize<coordinate_transformation_mode="asymmetric", mode="linear">(x, roi, s)
      y = ConvTranspose<group=6, pads=[1,0,0,0], strides=[3,2]>(a, w) }"""


def test_a_burst_that_leaves_a_rest_holds_up_what_would_join_it():
    """A row and its repeats, 27 words, of which one lies in front of a page."""
    program = compile_program(written(STRETCHED, seed=3), load_hw("opu-1024"), reuse_memory=False)
    same_counters(program, 40, program.hw.dram.bus_bytes)


@pytest.mark.parametrize(("latency", "share"), MEMORIES)
def test_the_cycle_engine_has_the_rtls_counters_groups_and_records(program, latency, share):
    same_counters(program, latency, share * program.hw.dram.bus_bytes)


@pytest.mark.parametrize("dram", MemoryName)
@pytest.mark.parametrize(
    ("machine", "network", "image"),
    by_night([("opu-tiny", "tiny_odd", None), *BEHIND_DDR], BEHIND_DDR),
)
def test_both_wait_for_the_same_ddr_memory(machine, network, image, dram):
    """Rows, refreshes and turnarounds of Python and of the RTL's memory."""
    program = compile_program(zoo.build(network, image=image), load_hw(machine))
    for latency in (0, 40):
        same_counters(program, latency, None, dram=dram)


def same_counters(program, latency, speed, *, dram=None):
    port = {"latency": latency, "bytes_per_cycle": speed, "dram": dram}
    rtl = program.run(noise(program.bundle), engine="rtl", rtl=RtlOptions(**port))
    cycle = program.run(engine="cycle", memory=MemoryOptions(**port))
    assert {name: cycle.counters[name] for name in rtl.counters} == rtl.counters
    assert cycle.groups == rtl.groups
    assert cycle.trace == rtl.trace
