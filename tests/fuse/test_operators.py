"""The supported-operator table: complete, current, and in the words of the rules."""

import importlib
import inspect
import io
import pkgutil
import re

import onnx.parser
import pytest
from rich.console import Console

from opu_fuse import fuse
from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.lower_node import LOWERINGS
from opu_fuse.frontend.importing.decompose.contrib import OF_STANDARD
from opu_fuse.fuse.explain.rulebook import RULEBOOK
from opu_fuse.fuse.machine_operators import AXES, OF_ONE, operator_rows, operators_table
from opu_fuse.fuse.rules.host_reasons import HOST_REASONS
from opu_fuse.fuse.rules.operator_rules import OPERATOR_RULES, known_operator
from opu_fuse.fuse.rules.refusal import Words, gaps, template
from opu_fuse.fuse.rules_page import PAGE, rules_page, shown
from opu_fuse.fuse.strategies.registry import partition
from opu_fuse.hw.spec.hw_spec import OPERATORS
from opu_fuse.hw.spec.load_spec import load_hw, spec_names
from opu_fuse.model.operator_sets import GROUPED_SOFTMAX, NORM_OPERATORS
from opu_fuse.pipeline import partition_model
from opu_fuse.resources import hw_specs_dir
from opu_fuse.units import FORMS
from tests.dfg import canonical
from tests.fuse.reading import machine, on_host
from tests.fuse.rule_cases import limited
from tests.some import some

RULES = [rule for section in RULEBOOK for rule in section.rules]


def predicates():
    """Every function of the fuser that gives the words for a message."""
    for info in pkgutil.walk_packages(fuse.__path__, "opu_fuse.fuse."):
        module = importlib.import_module(info.name)
        for function in filter(inspect.isfunction, vars(module).values()):
            answer = inspect.signature(function).return_annotation
            own = function.__module__ == module.__name__ and not function.__name__.startswith("_")
            if own and answer == Words | None:
                yield function


def test_every_predicate_stands_in_the_rulebook_once():
    assert sorted(r.__name__ for r in RULES) == sorted(p.__name__ for p in predicates())
    assert len(set(RULES)) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_predicate_has_its_message_and_a_row_in_the_page(rule):
    text = template(rule)
    assert gaps(text.message)
    assert not text.message.endswith(".")
    row = re.search(rf"^\| `{rule.__name__}` \| (.*) \| (.*) \|$", rules_page(), re.MULTILINE)
    assert some(row)[1] == shown(text.message)
    assert some(row)[2] == (" / ".join(shown(change) for change in text.changes) or "–")


def test_the_page_is_current():
    written = (hw_specs_dir().parent / PAGE).read_text(encoding="utf-8")
    assert written == rules_page(), "run `make generate` and commit what it writes"


@pytest.mark.parametrize("name", spec_names())
def test_rows_follow_the_operator_map(name):
    spec = load_hw(name)
    for operator in OPERATORS:
        kinds = spec.dataflow.operators.get(operator, ())
        rows = [row for row in operator_rows(spec) if row.operator == operator]
        if not kinds:
            assert [(r.module, r.rules) for r in rows] == [(None, (known_operator,))]
        else:
            assert {spec.dataflow.modules[some(r.module)].kind for r in rows} == set(kinds)


def test_a_row_says_what_the_module_can_do_and_what_happens_otherwise():
    rows = {(r.operator, r.module): r for r in operator_rows(machine("opu-classic"))}
    pad = rows["pad", "pad"]
    assert pad.limits == ("padding ≤ 65535", "opposite sides padded alike", "fills with zero")
    assert "‹node› fills with ‹value›; module pad fills with zero" in pad.otherwise
    assert rows["add", "res_add"].limits == (
        "second operand: a second feature map, constant or computed, or one computed pixel for all",
    )
    assert rows["clip", None].otherwise == "clip: no module of this machine runs it"
    tiny = {(r.operator, r.module): r for r in operator_rows(machine("opu-tiny"))}
    assert tiny["max_pool", "pool"].limits[0] == "window ≤ 255"
    three = limited(machine("opu-tiny"), "pool", window=3)
    changed = {(r.operator, r.module): r for r in operator_rows(three)}
    assert changed["max_pool", "pool"].limits[0] == "window ≤ 3"


def test_the_gate_of_a_squeeze_and_excite_is_a_map():
    rows = {(r.operator, r.module): r for r in operator_rows(machine("opu-light"))}
    gate, product = rows["multiply", "se_pre"], rows["multiply", "se"]
    assert gate.limits == ("second operand: a computed map of one pixel, one value per channel",)
    assert product.limits == (
        "second operand: a second feature map, constant or computed, or one computed pixel for all",
    )
    assert "‹operand› is a constant; module se_pre takes feature maps" in gate.otherwise


def test_the_table_of_the_command_line_has_the_same_rows():
    printed = io.StringIO()
    console = Console(width=400, file=printed)
    console.print(operators_table(machine("opu-1024")))
    cells = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in printed.getvalue().splitlines()
        if line.count("│") == 5
    ]
    assert cells == [
        [r.operator, r.module or "host", "; ".join(r.limits), r.otherwise]
        for r in operator_rows(machine("opu-1024"))
    ]


def test_tables_about_operators_name_operators():
    assert set(AXES) <= set(OPERATORS)
    assert set(OF_ONE) <= set(OPERATORS)
    assert set(OF_ONE.values()) < set(OPERATOR_RULES)


def test_every_form_that_the_graph_builder_knows_is_described():
    """Products of two maps, and what turns them, are described as MatMul. A Softmax over groups of
    channels comes from the front end.
    """
    described = {*LOWERINGS, *NORM_OPERATORS, *OF_STANDARD, "MatMul"}
    assert set(FORMS) == described - {"Einsum", "Transpose", GROUPED_SOFTMAX}


def test_the_host_runs_it_and_says_why():
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 8, 4, 6] x) => (float[A, B] y)'
    nodes = "{ a = Relu (x) b = Softmax <axis = 1> (a) y = Flatten (b) }"
    _, found = partition_model(onnx.parser.parse_model(text + nodes), load_hw("opu-light"))
    host = next(op for op in found.host if "Softmax" in op.why.text)
    assert [lever.text for lever in host.why.levers] == [
        f"replace Softmax by operators that the machine runs (it {HOST_REASONS['Softmax']})"
    ]


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        ("ConvTranspose (x, w1, c)", "a constant bias"),
        ("MatMul (m, w2)", "an operand of one row, (1, n)"),
        ("Gemm <transA = 1, transB = 1> (m, w2)", "an operand of one row, (1, n), not transposed"),
    ],
)
def test_an_operator_in_another_form_is_told_the_condition_that_it_breaks(node, wanted):
    """Weights are constant and pads explicit: that is not what is the matter."""
    inputs = "float[1,4,8,8] x, float[4,4] m, float[2] c, float[4,2,3,3] w1, float[4,4] w2"
    dfg = build_dfg(canonical.canonical(f"g ({inputs}) => (float[] y) {{ [o] y = {node} }}"))
    assert wanted in on_host(dfg, partition(dfg, machine("opu-1024t")))["o"]
