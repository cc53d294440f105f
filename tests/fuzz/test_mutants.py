"""A share of the damaged files, odd machines and odd commands: right, or refused in one line."""

import pytest

from tests.fuzz import mutations, options, programs, specs
from tests.fuzz.campaign import Plan, run, table

pytestmark = pytest.mark.forks
SHARE = {programs.KIND: 40, specs.KIND: 15, options.KIND: 15}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHARE, ids=lambda kind: kind.name)
def test_mutants_are_right_or_refused(kind):
    counts, finds = run(Plan(kinds=[kind], cases=SHARE[kind], seed=1, jobs=1, shrink=False))
    assert not finds.found, table(counts, finds)
    outcomes = {outcome for _, _, outcome in counts.outcomes}
    assert len(outcomes) == 2, "neither all are right nor all are refused, else they show nothing"


@pytest.mark.parametrize("kind", SHARE, ids=lambda kind: kind.name)
def test_a_seed_gives_the_same_case_every_time(kind, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        kind.write(kind.draw(7), tmp_path / name)
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in ("one", "two"))
    assert one == two


def test_changes_leave_trees_that_are_trees():
    """Nothing stands in two places at once, so every tree can be written as JSON."""
    import json

    for seed in range(300):
        tree = {"a": [1, 2.5, {"b": [3]}], "c": "x", "d": {"e": [[4, 5], [6]]}}
        rng = mutations.rng_of(seed)
        for _ in range(4):
            mutations.change_tree(rng, tree)
        json.dumps(tree)
