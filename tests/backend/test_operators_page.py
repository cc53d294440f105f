"""The table of supported operators says of every operator what happens when it is tried."""

import re

import onnx.defs
import pytest

from opu_fuse.fuse.rules.host_reasons import HOST_REASONS
from opu_fuse.hw.spec.hw_spec import OPERATORS
from opu_fuse.hw.spec.load_spec import spec_names
from opu_fuse.model.operator_sets import ELEMENT_WISE
from opu_fuse.units import FORMS
from tests.backend.operator_probes import PROBES
from tests.backend.operators_page import NOTHING, PAGE, limit_rows, named, outcome, page, rows

SHOWN = PAGE.read_text(encoding="utf-8")
PROBED = {probe.operator for probe in PROBES}
SHARE = 16
"""One probe of so many is tried for every change, the others nightly."""


def probes():
    for number, probe in enumerate(PROBES):
        marks = () if number % SHARE == 1 else (pytest.mark.nightly,)
        yield pytest.param(probe, id=f"{probe.operator}: {probe.form}", marks=marks)


@pytest.mark.parametrize("probe", list(probes()))
def test_a_form_runs_where_the_page_says(probe):
    found = outcome(probe)
    (row,) = rows({probe: found})
    cells = " | ".join(row[1:])
    lines = [line for line in SHOWN.splitlines() if line.endswith(f" | {cells} |")]
    operators = [name for line in lines for name in re.findall(r"\w+", line.split(" | ")[0])]
    assert probe.operator in operators, f"run `make generate`; found: {cells}"


@pytest.mark.nightly
def test_the_page_is_current():
    assert page({probe: outcome(probe) for probe in PROBES}) == SHOWN, "run `make generate`"


def test_every_operator_of_the_standard_is_in_a_table():
    """And what the front end or a machine has a form for is in the first one."""
    standard = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    assert standard == PROBED | set(HOST_REASONS)
    assert set(FORMS) | ELEMENT_WISE <= PROBED
    for operator in standard:
        assert re.search(rf"^\|.*\b{operator}\b.*\|", SHOWN, flags=re.MULTILINE), operator


def test_operators_with_a_reason_for_the_host_are_marked_if_a_form_of_them_runs():
    host = SHOWN[SHOWN.index("## On the host") : SHOWN.index("## Modules and limits")]
    marked = set(re.findall(r"(\w+) \*", host))
    assert marked == PROBED & set(HOST_REASONS)


def test_every_operator_of_the_machines_has_its_module_and_limits():
    found = limit_rows()
    assert {row[0].strip("`") for row in found} == set(OPERATORS)
    assert all("| ".join(row) in SHOWN.replace(" | ", "| ") for row in found), "run `make generate`"


def test_sets_of_machines_are_told_in_the_fewest_words():
    every = list(spec_names())
    assert named(every) == "all"
    assert named(every[1:]) == f"all but `{every[0]}`"
    assert named(every[:2]) == f"`{every[0]}`, `{every[1]}`"


def test_nothing_is_said_of_operators_that_cost_nothing():
    assert f"| Identity | any | {NOTHING} | all |" in SHOWN
