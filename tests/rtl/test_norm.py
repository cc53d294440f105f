"""Passes through a norm on the post engine against the page that defines them."""

from itertools import product

import pytest

from opu_fuse import normalisation
from rtl_sim.benches import norm_model
from tests.rtl.bench import run_bench
from tests.rtl.machines import write_machine
from tests.tiers import by_night

pytestmark = pytest.mark.rtl

GATE, NIGHT = 15, 350
"""Thousands of values of every pass on a machine; at night 10**6 on all three."""


CASES = [*product(["norms", "wide-norms", "two-turn-norms"], [GATE, NIGHT])]


@pytest.mark.parametrize(
    ("machine", "thousands"),
    by_night(CASES, {("wide-norms", GATE)} | {case for case in CASES if NIGHT in case}),
)
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
