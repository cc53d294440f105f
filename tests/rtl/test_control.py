"""Queues, front ends, dependency counters."""

import pytest

from tests.rtl.bench import run_bench

pytestmark = pytest.mark.rtl


@pytest.mark.parametrize("depth", [1, 3, 8, 17])
def test_queue_loses_and_reorders_nothing(tmp_path, seed, depth):
    run_bench(
        tmp_path,
        top="opu_queue",
        module="rtl_sim.benches.queue_bench",
        spec="opu-tiny",
        seed=seed,
        rounds=2000,
        parameters={"DEPTH": depth},
    )


def test_instructions_start_in_order_with_their_tokens(tmp_path, seed):
    run_bench(
        tmp_path,
        top="opu_issue_bench",
        module="rtl_sim.benches.issue_bench",
        spec="opu-tiny",
        seed=seed,
        rounds=2000,
    )
