"""Every case of onnx's backend tests runs and is right, or is refused for a listed reason."""

import pytest

from tests.backend import node_cases
from tests.backend.node_cases import KINDS, PAGE, Where, cases_by_operator, kind_of, outcome, row

SHOWN = PAGE.read_text(encoding="utf-8")
SHARE = 36
"""One operator of so many is looked at for every change, the others nightly."""


ROWS = [line.split(" | ")[0].removeprefix("| ") for line in SHOWN.splitlines() if " | " in line]
OPERATORS = ROWS[ROWS.index("operator") + 1 :]


def operators():
    """Those of the page: to make the cases takes seconds, and not every run needs them."""
    for number, name in enumerate(OPERATORS):
        often = number % SHARE == 1
        yield pytest.param(name, marks=pytest.mark.slow if often else pytest.mark.nightly)


@pytest.mark.filterwarnings("ignore::RuntimeWarning:onnx")  # while it makes them
@pytest.mark.parametrize("operator", list(operators()))
def test_every_case_runs_and_is_right_or_is_refused_for_a_listed_reason(operator):
    found = [outcome(case) for case in cases_by_operator().get(operator, ())]
    wrong = {o.name: o.wrong for o in found if o.wrong}
    assert not wrong
    unlisted = {o.name: o.reason for o in found if o.where is Where.REFUSED}
    assert not {n: why for n, why in unlisted.items() if kind_of(why) not in KINDS}
    if node_cases.versions() in SHOWN:  # other versions have other cases
        assert row(operator, found) in SHOWN, "run `make generate`"


def test_the_page_has_a_row_for_every_operator():
    if node_cases.versions() not in SHOWN:
        pytest.skip("the page was made with other versions, which have other cases")
    assert list(cases_by_operator()) == OPERATORS, "run `make generate`"
    assert f"Of {sum(map(len, cases_by_operator().values()))} cases " in SHOWN
