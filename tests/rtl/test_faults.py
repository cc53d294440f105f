"""Whatever goes wrong, the machine stops with its reason and works again."""

import pytest

from tests.rtl.bench import run_bench
from tests.rtl.machines import write_machine

pytestmark = pytest.mark.rtl


@pytest.mark.parametrize("machine", ["opu-tiny"])
def test_every_fault_at_random_times_is_told_and_survived(monkeypatch, tmp_path, seed, machine):
    run_bench(  # 8 kinds of faults, 16 times each
        monkeypatch,
        tmp_path,
        top="opu_top",
        module="rtl_sim.benches.fault_bench",
        spec=write_machine(machine, tmp_path),
        seed=seed,
        rounds=16,
        public=True,
    )
