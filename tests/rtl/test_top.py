"""The whole machine on a standard bus."""

import pytest

from tests.rtl.bench import run_bench

pytestmark = pytest.mark.rtl


BENCHES = {
    "works, stops and recovers": "top_bench",
    "goes on with a queued program": "next_program_bench",
}


@pytest.mark.parametrize("bench", BENCHES.values(), ids=BENCHES.keys())
def test_machine_on_a_stalling_bus(tmp_path, seed, bench):
    run_bench(
        tmp_path,
        top="opu_top",
        module=f"rtl_sim.benches.{bench}",
        spec="opu-tiny",
        seed=seed,
        rounds=1,
    )
