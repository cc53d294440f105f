"""Passes through a norm on the post engine against the page that defines them."""

import pytest

from opu_fuse import normalisation
from rtl_sim.benches import norm_model
from tests.rtl.bench import run_bench
from tests.rtl.machines import write_machine

pytestmark = pytest.mark.rtl

GATE, NIGHT = 35, 350
"""Thousands of values of every pass on a machine: 10**5 and 10**6 on all three."""


@pytest.mark.parametrize(
    "thousands", [GATE, pytest.param(NIGHT, marks=pytest.mark.nightly)], ids=["gate", "night"]
)
@pytest.mark.parametrize("machine", ["norms", "wide-norms", "two-turn-norms"])
def test_norms_keep_their_page(tmp_path, seed, machine, thousands):
    run_bench(
        tmp_path,
        top="opu_post_bench",
        module="rtl_sim.benches.norm_bench",
        spec=write_machine(machine, tmp_path),
        seed=seed,
        rounds=thousands,
    )


@pytest.mark.parametrize("name", ["RECIPROCAL", "INVERSE_ROOT"])
def test_the_bench_computes_the_same_lines(name):
    lines = getattr(normalisation, name)
    assert [*zip(lines.start, lines.fall, strict=True)] == getattr(norm_model, name)


@pytest.mark.parametrize("rounds", [60, pytest.param(600, marks=pytest.mark.nightly)])
def test_scaling_of_a_pixel_is_that_of_its_sums(tmp_path, seed, rounds):
    """By night of every fraction that is read."""
    run_bench(
        tmp_path,
        top="opu_norm_scaling",
        module="rtl_sim.benches.norm_scaling_bench",
        spec=write_machine("norms", tmp_path),
        seed=seed,
        rounds=rounds,
    )
