"""Which cases of a parametrised test `make test` leaves to the night."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def by_night(cases: Iterable[Any], night: Collection[Any]) -> list[Any]:
    """The cases as parameters of a test, those of `night` marked nightly.

    A tuple is one case of several arguments. What `night` names must be among the cases, and some
    cases must be left for the gate.
    """
    every = [*cases]
    assert all(case in every for case in night), "names a case that there is not"
    assert len(night) < len(every), "the gate has no case of this kind"
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[pytest.mark.nightly] * (case in night),
        )
        for case in every
    ]
