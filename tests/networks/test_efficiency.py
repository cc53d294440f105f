"""No change loses MAC efficiency or DRAM traffic of a whole network unseen.

The figures are those of `benchmarks/efficiency.py`. A change that is meant to move them writes them
again: `pytest tests/networks/test_efficiency.py --update-golden`.
"""

import json

import pytest

from benchmarks.efficiency import BARS, DRAM_BAR, measure
from benchmarks.predicted import BAR
from tests.conftest import golden_folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:no calibration data"),
]

TOLERANCE = 0.005


@pytest.mark.parametrize("case", BARS)
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
