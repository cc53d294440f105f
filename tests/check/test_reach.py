"""`make check` finds the tests that a change can reach, and skips what there is no time for."""

import pytest

from tests.check import budget
from tests.check.reach import ROOT, imports, reached
from tests.tiers import by_night


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ("opu_fuse/fixedpoint.py", "tests/test_fixedpoint.py"),
        ("tests/schedule/test_segment_order.py", "tests/schedule/test_segment_order.py"),
        ("tests/golden/cli/test_explain/any/text.txt", "tests/cli/test_explain.py"),
        ("rtl_sim/benches/post_bench.py", "tests/rtl/test_post.py"),
        ("runtime/src/opu_post.c", "tests/sim/test_native.py"),
    ],
)
def test_the_nearest_test_comes_first(changed, first):
    assert reached([changed])[0] == first


def test_a_test_is_reached_through_modules_between():
    assert "opu_fuse/fixedpoint.py" not in imports()["tests/networks/test_families.py"]
    assert "tests/networks/test_families.py" in reached(["opu_fuse/pipeline.py"])
    assert "tests/test_fixedpoint.py" not in reached(["opu_fuse/pipeline.py"])


def test_pages_are_held_by_their_test():
    assert "tests/test_docs.py" in reached(["docs/passes.md"])
    assert (ROOT / "docs/passes.md").is_file()


def test_nothing_is_reached_by_nothing():
    assert reached([]) == []


@pytest.mark.parametrize(("left", "skipped"), [(-1, True), (60, False)])
def test_what_has_not_begun_in_time_is_skipped(left, skipped, monkeypatch):
    monkeypatch.setenv(budget.SECONDS, str(left))
    budget.pytest_collection_finish()
    if skipped:
        with pytest.raises(pytest.skip.Exception, match="no time left"):
            budget.pytest_runtest_setup()
    else:
        budget.pytest_runtest_setup()


@pytest.mark.parametrize("night", [["c"], ["a", "b"]])
def test_the_gate_keeps_a_case_of_every_kind(night):
    """Of the cases a and b; c is none."""
    with pytest.raises(AssertionError, match=r"no(t| case)|names a case"):
        by_night(["a", "b"], night)


def test_the_rest_is_marked_nightly():
    marked = by_night([("a", 1), ("b", 2)], [("b", 2)])
    assert [(p.values, bool(p.marks)) for p in marked] == [(("a", 1), False), (("b", 2), True)]
