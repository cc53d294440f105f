"""A small fixed share of every kind of cases, and an hour of all kinds by night."""

import os

import pytest

from tests.fuzz.campaign import Plan, run, table
from tests.fuzz.kinds import HOMES, kind

CASES = {"networks": 25}
"""Of the kinds that run with every change; what is not named here: 30."""
NEEDS_RTL = {"rtl"}
MINUTES = float(os.environ.get("OPU_FUSE_FUZZ_MINUTES", "60"))


def finds_of(**plan):
    counts, finds = run(Plan(**plan))
    assert sum(counts.outcomes.values()), "nothing was judged"
    assert not finds.found, "\n" + table(counts, finds)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(HOMES) - NEEDS_RTL))
def test_a_fixed_share_is_right_or_refused(name, tmp_path):
    cases = CASES.get(name, 30)
    finds_of(kinds=[kind(name)], cases=cases, jobs=1, folder=tmp_path, shrink=False)


@pytest.mark.rtl
@pytest.mark.slow
def test_rtl_runs_networks_as_the_functional_engine_does(tmp_path):
    kinds = [kind("rtl")]
    finds_of(kinds=kinds, cases=3, machine="opu-tiny", jobs=1, folder=tmp_path, shrink=False)


@pytest.mark.nightly
def test_an_hour_finds_nothing(seed, tmp_path):
    jobs = os.cpu_count() or 1
    plan = {"minutes": MINUTES, "jobs": jobs, "folder": tmp_path, "seed": seed}
    finds_of(kinds=[kind(name) for name in HOMES], **plan)
