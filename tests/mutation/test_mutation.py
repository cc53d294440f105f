"""The net under the tests: changes are those a person could make, and its tables are of today."""

from pathlib import Path

import pytest

from tests.mutation.changes import mutants
from tests.mutation.concern import CONCERN, EQUIVALENT

ROOT = Path(__file__).resolve().parents[2]

SOURCE = '''
def f(x: int | None, y=-1):
    """Text of 1 + 1."""
    if x is None and not y:
        raise ValueError(f"{x + 1}")
    g(x)
    return [min(a, 2) for a in x if a < y and a != 2]
'''


def test_every_place_that_acts_is_changed_and_no_other():
    changes = {m.change for m in mutants(SOURCE)}
    assert changes == {
        "-1 → +1",
        "1 → 2",
        "if x is None and (not y): → if True:",
        "if x is None and (not y): → if False:",
        "x is None and (not y) → x is None or not y",
        "x is None → x is not None",
        "not y → not not y",
        "g(x) → None",
        "min → max",
        "2 → 3",
        "2 → 3 (2)",
        "for a in x if a < y and a != 2 → for a in x",
        "a < y and a != 2 → a < y or a != 2",
        "a != 2 → a == 2",
        "a < y → a <= y",
    }


def test_a_mutant_is_the_source_with_one_change():
    found = [(m.line, m.text, m.source) for m in mutants("a = b\nx = 1 + y\n")]
    assert found == [(2, "x = 1 + y", f"a = b\nx = {value}") for value in ("1 - y", "2 + y")]


@pytest.mark.parametrize("file", EQUIVALENT)
def test_the_mutants_said_to_be_equivalent_arise(file):
    arise = {(m.text, m.change) for m in mutants((ROOT / file).read_text(encoding="utf-8"))}
    listed = {(text, change) for text, changes in EQUIVALENT[file].items() for change in changes}
    assert listed - arise == set()


def test_what_concerns_a_file_is_there():
    paths = {*CONCERN, *(test for tests in CONCERN.values() for test in tests)}
    for path in sorted(paths):
        file, *name = path.split("::")
        assert (ROOT / file).exists(), path
        assert not name or f"def {name[0]}(" in (ROOT / file).read_text(encoding="utf-8"), path
