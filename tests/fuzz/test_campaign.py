"""A small fixed share of random networks (`test_mutants.py` has the other kinds), and an hour of
all kinds by night.
"""

import os

import pytest

from opu_fuse.errors import ProgramError
from opu_fuse.sim.native.runner import NativeRunner
from tests.fuzz import judge_network, native, networks
from tests.fuzz.campaign import Plan, run, table
from tests.fuzz.cases import Outcome
from tests.fuzz.kinds import HOMES, kind
from tests.fuzz.machines import machine
from tests.fuzz.pipelines import Pipelines
from tests.fuzz.random_machine import NAME

pytestmark = pytest.mark.forks
MINUTES = float(os.environ.get("OPU_FUSE_FUZZ_MINUTES", "60"))
MOST_REFUSED = 0.02
"""Of pairs of a machine and a network, for a strategy that knows the rules."""


def finds_of(**plan):
    counts, finds = run(Plan(**plan))
    assert sum(counts.outcomes.values()), "nothing was judged"
    assert not finds.found, "\n" + table(counts, finds)
    return counts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cases"), [("networks", 5), ("careless", 3), ("native", 3), ("runtime", 4)]
)
def test_a_fixed_share_of_networks_and_programs_is_right_or_refused(name, cases, tmp_path):
    finds_of(kinds=[kind(name)], cases=cases, jobs=1, folder=tmp_path, shrink=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "cases"),
    [(True, 4), (False, 2), pytest.param(False, 1000, marks=pytest.mark.nightly)],
)
def test_a_fixed_share_of_machines_runs_along_its_graph(one, cases, tmp_path):
    counts = finds_of(
        kinds=[Pipelines(one=one)], cases=cases, jobs=1, folder=tmp_path, shrink=False
    )
    refused = {s: n for (_, s, o), n in counts.outcomes.items() if o is Outcome.REFUSED}
    refused.pop("greedy", None)  # the published algorithm knows neither rules nor sizes
    assert all(n <= MOST_REFUSED * cases for n in refused.values()), refused


@pytest.mark.rtl
@pytest.mark.slow
@pytest.mark.parametrize("cases", [2, pytest.param(20, marks=pytest.mark.nightly)])
def test_rtl_of_random_machines_does_what_the_functional_engine_does(cases, tmp_path):
    finds_of(kinds=[kind("pipelines-rtl")], cases=cases, jobs=1, folder=tmp_path, shrink=False)


@pytest.mark.rtl
@pytest.mark.slow
def test_rtl_runs_networks_as_the_functional_engine_does(tmp_path):
    machine = "opu-tiny"
    finds_of(kinds=[kind("rtl")], cases=3, machine=machine, jobs=1, folder=tmp_path, shrink=False)


@pytest.mark.nightly
def test_an_hour_finds_nothing(seed, tmp_path):
    kinds, jobs = [kind(name) for name in HOMES], os.cpu_count() or 1
    finds_of(kinds=kinds, minutes=MINUTES, jobs=jobs, folder=tmp_path, seed=seed)


def test_a_changed_byte_of_the_native_engine_is_found(monkeypatch):
    run_of = NativeRunner.run

    def disturbed(self, *args):
        ran = run_of(self, *args)
        self.window[0] += 1  # twice is no undoing: a batch runs several times
        return ran

    monkeypatch.setattr(NativeRunner, "run", disturbed)
    found = native.KIND.judge(native.KIND.draw(500_000), NAME) or ""
    assert "other bytes in the memory window" in found


def test_what_compiles_is_not_refused_later(monkeypatch):
    """A file that is called damaged right behind the compiler is a find."""

    def damaged(*_):
        raise ProgramError("network", "a has 6 values, ONNX Runtime makes 9", "compile it again")

    case, hw = networks.KIND.draw(1), machine("opu-tiny")
    monkeypatch.setattr(judge_network, "_check_disagrees", damaged)
    assert "a has 6 values" in (judge_network.judge(case, hw) or "")
