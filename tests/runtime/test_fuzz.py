"""Damage behind the checksums: nothing outside the caller's memory is touched."""

import pytest

from tests.fuzz.runtime import BASES, KIND, MEMBERS, Case, change_and_run
from tests.tiers import by_night

GATE = (0, 1, 20, 30, 40, len(BASES) - 2, len(BASES) - 1)
"""Segments of the machine, of both kinds, and five operators of the host."""


def _counts(case):
    """Files that were refused, ended with another status, and ran."""
    done = change_and_run(case)
    assert done.returncode == 0, done.stderr[-3000:]
    return [int(x) for x in done.stdout.split()]


@pytest.mark.parametrize("base", by_night(range(len(BASES)), set(range(len(BASES))) - {*GATE}))
def test_changed_numbers_reach_nothing_outside(base):
    refused, _, ran = _counts(Case(base=base, first=1, count=150))
    assert refused > 5
    assert ran > 5


@pytest.mark.nightly
@pytest.mark.parametrize("base", range(len(BASES)))
def test_many_changed_numbers_reach_nothing_outside(base):
    assert sum(_counts(Case(base=base, first=100_000, count=5000))) == 5000


def test_a_find_is_written_as_the_file_that_it_is(tmp_path):
    """The last file of a case is that of its seed alone, and not the sound one."""
    cases = {"of three": (5, 3), "alone": (7, 1), "another": (8, 1)}
    written = {}
    for name, (first, count) in cases.items():
        (tmp_path / name).mkdir()
        KIND.write(Case(base=1, first=first, count=count), tmp_path / name)
        written[name] = [(tmp_path / name / member).read_bytes() for member in MEMBERS]
    assert written["of three"] == written["alone"] != written["another"]
