"""No change loses MAC efficiency or DRAM traffic of a whole network unseen.

The figures are those of `benchmarks/efficiency.py`. A change that is meant to move them writes them
again: `pytest tests/networks/test_efficiency.py --update-golden`.
"""

import json
from dataclasses import replace

import pytest

from benchmarks.efficiency import BARS, DRAM_BAR, measure
from benchmarks.predicted import BAR
from opu_fuse import zoo
from opu_fuse.frontend.prepare import prepare
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_prepared
from opu_fuse.sim.cycle.run import run_cycle
from tests.conftest import golden_folder
from tests.tiers import by_night

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:no calibration data"),
]

TOLERANCE = 0.005


LARGE = {
    f"{name}:opu-1024"
    for name in ("yolov3", "vgg16", "densenet121", "resnet50", "tiny_yolo", "googlenet")
}


@pytest.mark.parametrize("case", by_night(BARS, LARGE))
def test_a_network_keeps_its_efficiency_and_traffic(case, request):
    measured = measure(case)
    found = {"efficiency": round(measured.efficiency, 3), "dram_bytes": measured.dram_bytes}
    golden = golden_folder(request.node) / "figures.json"
    if request.config.getoption("--update-golden"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(json.dumps(found, indent=2) + "\n")
    assert golden.is_file(), f"{golden} is missing: --update-golden writes it"
    expected = json.loads(golden.read_text())
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=TOLERANCE), name
    assert measured.predicted == pytest.approx(measured.cycles, rel=BAR)
    assert measured.dram_bytes <= DRAM_BAR * measured.bound_bytes


@pytest.mark.parametrize(
    "case",
    ["squeezenet@48:opu-micro", "mobilenet_v1_025@64:opu-micro", "tiny_odd:opu-tiny"],
)
def test_a_small_network_takes_about_the_cycles_that_are_predicted(case):
    """Joined maps, maps made block by block, a start that counts: each alone is worth more."""
    found = measure(case)
    assert found.predicted == pytest.approx(found.cycles, rel=0.02)


@pytest.mark.parametrize(
    ("latency", "outstanding", "slower"), [(100, 4, 1.5), (400, 2, 9.0)], ids=["AXI3", "far away"]
)
def test_few_short_bursts_to_a_memory_far_away_are_reckoned_with(latency, outstanding, slower):
    """slower: than with as many bursts as the machine has."""
    hw = load_hw("opu-1024")
    dram = replace(hw.dram, latency=latency, outstanding=outstanding, max_burst=16)
    model = prepare(zoo.build("resnet18", image=64))
    near, far = (compile_prepared(model, m, Options()) for m in (hw, replace(hw, dram=dram)))
    predicted = sum(group.cycles for group in far.bundle.groups)
    assert predicted > 0.9 * slower * sum(group.cycles for group in near.bundle.groups)
    counted = run_cycle(far.bundle, replace(hw, dram=dram)).counters["cycles"]
    assert predicted == pytest.approx(counted, rel=0.05)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("case", "efficiency", "traffic"),
    [("vgg16:opu-1024", 98.0, 0.5), ("resnet50:opu-1024", 97.5, 0.85)],
)
def test_eight_images_together_keep_the_array_busy_and_share_weights(case, efficiency, traffic):
    """traffic: for one image, by each operand and result of a group once."""
    measured = measure(case, batch=8)
    assert measured.efficiency > efficiency
    assert measured.dram_bytes <= traffic * measured.bound_bytes
    assert measured.predicted == pytest.approx(measured.cycles, rel=BAR)
