"""Whatever goes wrong, the machine stops with its reason and works again."""

import pytest

from tests.rtl.bench import run_bench
from tests.rtl.machines import write_machine
from tests.tiers import by_night

pytestmark = pytest.mark.rtl


@pytest.mark.parametrize(
    ("machine", "rounds"), by_night([("opu-tiny", 8), ("odd-buffers", 3)], [("odd-buffers", 3)])
)
def test_every_fault_at_random_times_is_told_and_survived(tmp_path, seed, machine, rounds):
    run_bench(  # 9 tests, every one `rounds` injections
        tmp_path,
        top="opu_top",
        module="rtl_sim.benches.fault_bench",
        spec=write_machine(machine, tmp_path),
        seed=seed,
        rounds=rounds,
    )


@pytest.mark.parametrize(
    ("machine", "rounds"), by_night([("opu-tiny", 4), ("odd-buffers", 2)], [("odd-buffers", 2)])
)
def test_an_abort_recovers_without_a_reset_of_the_machine(tmp_path, seed, machine, rounds):
    run_bench(  # 9 tests, `rounds` aborts for every channel of the bus
        tmp_path,
        top="opu_top",
        module="rtl_sim.benches.abort_bench",
        spec=write_machine(machine, tmp_path),
        seed=seed,
        rounds=rounds,
    )
