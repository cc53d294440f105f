"""The whole machine on a standard bus."""

import pytest

from tests.rtl.bench import run_bench

pytestmark = pytest.mark.rtl


def test_machine_works_stops_and_recovers_on_a_stalling_bus(tmp_path, seed):
    run_bench(
        tmp_path,
        top="opu_top",
        module="rtl_sim.benches.top_bench",
        spec="opu-tiny",
        seed=seed,
        rounds=1,
        public=True,
    )
