"""Fetch, load and store engines against memories with random stalls."""

from itertools import product

import pytest

from tests.rtl.bench import run_bench
from tests.rtl.machines import write_machine
from tests.tiers import by_night

pytestmark = pytest.mark.rtl


CASES = [*product(("opu-tiny", "narrow-bus", "every-module", "images"), ("load", "store", "fetch"))]
CASES += [("norms", "load"), ("wide-norms", "load")]
LIKE_OTHERS = [
    ("narrow-bus", "load"),
    ("wide-norms", "load"),
    ("narrow-bus", "fetch"),
    ("every-module", "fetch"),
    ("images", "store"),
    ("images", "fetch"),
]


@pytest.mark.parametrize(("machine", "engine"), by_night(CASES, LIKE_OTHERS))
def test_engine_keeps_its_page_and_the_rules_of_the_bus(tmp_path, seed, machine, engine):
    run_bench(
        tmp_path,
        top=f"opu_{engine}",
        module=f"rtl_sim.benches.{engine}_bench",
        spec=write_machine(machine, tmp_path),
        seed=seed,
        rounds=40,
    )


@pytest.mark.parametrize("machine", by_night(["images", "wide-images"], ["wide-images"]))
def test_load_unfolds_images_in_the_cycles_that_its_page_says(tmp_path, seed, machine):
    run_bench(
        tmp_path,
        top="opu_load",
        module="rtl_sim.benches.unfold_bench",
        spec=write_machine(machine, tmp_path),
        seed=seed,
        rounds=60,
    )
