"""The driver itself: outcomes, limits, repeating, shrinking, on a kind whose cases are numbers."""

import os
import time
import warnings

import numpy as np
import pytest

from opu_fuse.errors import InternalError, ModelError
from tests.fuzz import campaign, pool
from tests.fuzz.campaign import Plan, run, table
from tests.fuzz.cases import Outcome

pytestmark = pytest.mark.forks


def _spin():
    end = time.process_time() + 20
    while time.process_time() < end:
        pass


def _numpy_warning():
    np.log(np.zeros(1))


def _fails(error):
    raise error


DEEDS = {
    "right": lambda: None,
    "wrong": lambda: "3 of 4 values differ",
    "refused": lambda: _fails(ModelError("m.onnx", "has no input", "give it one")),
    "two lines": lambda: _fails(ModelError("m.onnx", "has\nno input", "give it one")),
    "internal": lambda: _fails(InternalError("run", "9 tiles")),
    "assertion": lambda: _fails(AssertionError("x")),
    "warning": _numpy_warning,
    "exit": lambda: _fails(SystemExit(3)),
    "no memory": lambda: _fails(MemoryError()),
    "big": lambda: len(bytearray(os.urandom(1 << 20)) * 1100) and None,
    "hang": _spin,
    "wait": lambda: time.sleep(60),
    "crash": os.abort,
}
MEANT = {
    "right": Outcome.RIGHT,
    "wrong": Outcome.WRONG,
    "refused": Outcome.REFUSED,
    "no memory": Outcome.MEMORY,
    "big": Outcome.MEMORY,
    "hang": Outcome.HANG,
    "wait": Outcome.HANG,
    "crash": Outcome.CRASH,
}


class Deeds:
    """The case of seed n is deed n."""

    name, share = "deeds", 1.0

    def draw(self, seed):
        return list(DEEDS)[seed]

    def machines(self, case):
        return [""]

    def judge(self, case, machine):
        return DEEDS[case]()

    def seconds(self, case):
        return 2.0 if case in {"hang", "wait"} else 20.0

    def smaller(self, case, machine):
        return iter(())

    def write(self, case, folder):
        (folder / "case.txt").write_text(case)


class Numbers(Deeds):
    """The case of a seed is a number; from 100 on it is wrong on machine b."""

    name = "numbers"

    def draw(self, seed):
        return seed

    def machines(self, case):
        return ["a", "b"]

    def judge(self, case, machine):
        return f"{case} is large" if case >= 100 and machine == "b" else None

    def smaller(self, case, machine):
        yield from (case // 2, case - 1)

    def write(self, case, folder):
        (folder / "case.txt").write_text(str(case))


@pytest.mark.parametrize("deed", DEEDS)
def test_every_outcome_is_told_apart(deed, tmp_path):
    plan = Plan(kinds=[Deeds()], only_seed=list(DEEDS).index(deed), jobs=1, folder=tmp_path)
    counts, finds = run(plan)
    wanted = MEANT.get(deed, Outcome.INTERNAL)
    assert counts.outcomes == {("deeds", "", wanted): 1}
    assert [f.verdict.outcome for f in finds.found] == [wanted] * wanted.is_find


def test_what_the_parent_holds_is_no_memory_of_the_case(monkeypatch, tmp_path):
    held = bytearray(os.urandom(1 << 20)) * 200
    monkeypatch.setattr(pool, "MIB_PER_CASE", 100)
    plan = Plan(kinds=[Deeds()], only_seed=list(DEEDS).index("right"), jobs=1, folder=tmp_path)
    counts, finds = run(plan)
    assert not finds.found, table(counts, finds)
    assert counts.peak_mib["deeds"][0] < 100 < len(held) >> 20


def test_a_find_is_repeated_shrunk_and_written(tmp_path):
    counts, finds = run(Plan(kinds=[Numbers()], cases=3, seed=299, jobs=2, folder=tmp_path))
    assert counts.outcomes == {
        ("numbers", "a", Outcome.RIGHT): 3,
        ("numbers", "b", Outcome.WRONG): 3,
    }
    shrunk = {f.seed: f.case for f in finds.found}
    assert sorted(shrunk.values()) == [100, 100, max(shrunk.values())], "the third is only written"
    folder = tmp_path / "numbers-299-b-wrong"
    assert int((folder / "case.txt").read_text()) == shrunk[299]
    assert "--kind numbers --only-seed 299 --machine b" in (folder / "find.txt").read_text()
    assert "FIND ×3 wrong: 100 is large" in table(counts, finds)


def test_the_same_seeds_give_the_same_cases_whoever_runs_them():
    found = [run(Plan(kinds=[Numbers()], cases=9, seed=95, jobs=jobs))[0] for jobs in (1, 3)]
    assert found[0].outcomes == found[1].outcomes


def test_processes_are_replaced_after_their_number_of_requests(monkeypatch):
    monkeypatch.setattr(pool, "REQUESTS_PER_PROCESS", 2)
    counts, _ = run(Plan(kinds=[Numbers()], cases=7, seed=1, jobs=2))
    assert sum(counts.outcomes.values()) == 14


def test_kinds_run_side_by_side_by_their_shares():
    few, many = Numbers(), Numbers()
    few.name, few.share = "few", 0.25
    order = campaign._order(Plan(kinds=[few, many], minutes=1.0))
    first = [next(order)[0].name for _ in range(50)]
    assert first.count("few") == 10


def test_warnings_are_switched_back():
    from tests.fuzz.cases import judged

    before = list(warnings.filters)
    judged(Deeds(), "right", "")
    assert warnings.filters == before
