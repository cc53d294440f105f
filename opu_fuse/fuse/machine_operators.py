"""Which operators a machine runs: on which module, within which limits, and why not otherwise.

`python -m opu_fuse.fuse.machine_operators` writes docs/operators.md for the machines that come
with the package; the page is checked in, and a test compares it.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from rich.table import Table

from opu_fuse.fuse.explain.rulebook import RULEBOOK
from opu_fuse.fuse.rules.host_reasons import families
from opu_fuse.fuse.rules.module_rules import (
    computed_operand,
    constant_operand,
    domain,
    fill_value,
    limits,
    operand_access,
    symmetric_padding,
)
from opu_fuse.fuse.rules.operator_rules import FORMS, OF_ONE, OPERATOR_RULES, known_operator
from opu_fuse.fuse.rules.refusal import Rule, gaps, template
from opu_fuse.hw.spec.check import largest
from opu_fuse.hw.spec.hw_spec import OPERATORS, Fill, HwSpec, Module
from opu_fuse.hw.spec.load_spec import load_hw, spec_names
from opu_fuse.model.names import Name
from opu_fuse.quant import Domain
from opu_fuse.resources import hw_specs_dir
from opu_fuse.units.base import Access

logger = logging.getLogger(__name__)

PAGE = "docs/operators.md"

AXES: Mapping[str, tuple[str, ...]] = {
    "conv": ("kernel", "stride", "dilation", "padding"),
    "max_pool": ("window", "stride", "dilation", "padding"),
    "avg_pool": ("window", "stride", "dilation", "padding"),
    "pad": ("padding",),
}
"""Attributes of an operator that a module can limit."""

_OPERANDS = {
    Access.PER_TENSOR: "a constant, one value",
    Access.PER_CHANNEL: "a constant, one value per channel",
    Access.FULL: "a second feature map; of a sum, it may be constant",
}


class Row(Struct, frozen=True, kw_only=True):
    """An operator on one of the modules that run it.

    module: None if no module runs it; limits: largest sizes that the module supports; rules: those
    that may refuse the operator on this module.
    """

    operator: str
    module: str | None
    limits: tuple[str, ...]
    rules: tuple[Rule, ...]

    @property
    def otherwise(self) -> str:
        """The messages of the rules that may refuse the operator on the module."""
        known = {"op": self.operator} | ({"module": self.module} if self.module else {})
        return "; ".join(shown(template(rule).message, known) for rule in self.rules)


def operator_rows(spec: HwSpec) -> tuple[Row, ...]:
    """One row per operator of the DFG and module of the machine that runs it."""
    rows: list[Row] = []
    for operator in OPERATORS:
        kinds = spec.dataflow.operators.get(operator, ())
        names = [name for name, m in spec.dataflow.modules.items() if m.kind in kinds]
        for name in names:
            module = spec.dataflow.modules[name]
            rows.append(
                Row(
                    operator=operator,
                    module=name,
                    limits=tuple(_limits(operator, module)),
                    rules=tuple(_rules(operator, module)),
                )
            )
        if not names:
            rows.append(Row(operator=operator, module=None, limits=(), rules=(known_operator,)))
    return tuple(rows)


def operators_table(spec: HwSpec) -> Table:
    """The rows of `operator_rows` as a table for the terminal."""
    table = Table(
        "operator", "module", "limits", "else on the host", title=f"{spec.name}: operators"
    )
    for row in operator_rows(spec):
        table.add_row(row.operator, row.module or "host", "; ".join(row.limits), row.otherwise)
    return table


def operators_page() -> str:
    """The text of docs/operators.md: rows of every machine, and all rules with their messages."""
    common = [rule for rule in OPERATOR_RULES if rule not in OF_ONE.values()]
    parts = [_INTRO, _messages(common)]
    for name in spec_names():
        spec = load_hw(name)
        rows = [
            (r.operator, r.module or "–", "; ".join(r.limits) or "–", r.otherwise or "–")
            for r in operator_rows(spec)
        ]
        parts.append(f"## {name}\n\n{spec.description[0].upper()}{spec.description[1:]}.\n")
        parts.append(_table(("operator", "module", "limits", "on the host when"), rows))
    parts.append(_ON_THE_HOST)
    parts.append(_table(("operator", "runs in this form"), FORMS.items()))
    reasons = [(", ".join(ops), f"it {why}") for why, ops in families().items()]
    parts.append(_table(("operators", "why no machine runs them"), reasons))
    parts.append(_RULES)
    for section in RULEBOOK:
        parts.append(f"### About {section.about}\n\nOtherwise {section.otherwise}.\n")
        parts.append(_messages(section.rules))
    return "\n".join(parts)


_PARTS = {
    "new": "a module of kind ‹kind› after ‹module› to `dataflow.modules` and `dataflow.edges`",
    "detail": "",
}
"""Text for gaps that hold more than a name, or nothing."""


def shown(text: str, known: Mapping[str, str] = MappingProxyType({})) -> str:
    """A message with its known gaps filled and the others shown as ‹words›."""
    words = {**_PARTS, **known}
    return text.format(**{name: Name(words.get(name, f"‹{name}›")) for name in gaps(text)})


def _limits(operator: str, module: Module) -> Iterator[str]:
    if module.domain_in is Domain.ACC:
        yield "accumulators: the bias that a convolution or dense layer owns"
    if module.operand is not None:
        yield f"second operand: {_OPERANDS[module.operand]}"
    for axis in AXES.get(operator, ()):
        most = getattr(module.limits, axis)
        yield f"{axis} ≤ {largest(axis) if most is None else most}"
    if "padding" in AXES.get(operator, ()) and not module.limits.asymmetric:
        yield "opposite sides padded alike"
    if operator == "pad":
        yield "fills with zero" if module.limits.fill is Fill.ZERO else "fills with any value"
    if operator == "batch_norm":
        yield "also a sum or product with constants that no module of its own runs"
    if module.uses > 1:
        yield f"{module.uses} times per pass"


def _rules(operator: str, module: Module) -> Iterator[Rule]:
    """The operator's own rule, then those that check the module's limits."""
    if operator in OF_ONE:
        yield OF_ONE[operator]
    if module.domain_in is Domain.ACC:
        yield domain
    if module.operand is not None:
        yield operand_access
        yield computed_operand if module.operand is Access.FULL else constant_operand
    if any(getattr(module.limits, axis) is not None for axis in AXES.get(operator, ())):
        yield limits
    if "padding" in AXES.get(operator, ()) and not module.limits.asymmetric:
        yield symmetric_padding
    if operator == "pad" and module.limits.fill is Fill.ZERO:
        yield fill_value


def _messages(rules: Iterable[Rule]) -> str:
    rows = []
    for rule in rules:
        text = template(rule)
        help_ = " / ".join(map(shown, text.changes))
        rows.append((f"`{rule.__name__}`", shown(text.message), help_ or "–"))
    return _table(("rule", "message", "what would help"), rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


_INTRO = """\
<!-- Generated by `python -m opu_fuse.fuse.machine_operators`; do not edit. -->

# Supported operators

Which operators the machines that come with the package run, on which module of their data flow,
and within which limits. Whatever a machine cannot run is left to the host, in ONNX Runtime, and
`opu-fuse partition --explain` says why. `opu-fuse hw show SPEC --operators` prints the table of any
machine. In messages, ‹words› are replaced by names and numbers of the case.

`reshape` (every pure change of view) needs no module: it belongs to the group whose result it
shows.

For every operator:
"""

_ON_THE_HOST = """\
## On the host, and why

Operators of ONNX that machines run in one form only, others being left to the host; then those that
none runs. Functions of one value become tables, and changes of view nothing at all. What the front
end replaces ([models.md](models.md)) is not listed.
"""

_RULES = """\
## All rules

One predicate each; its docstring is the message. A change of the spec that helps one operator may
lead to a machine that the RTL cannot build: `opu-fuse hw check` says so.
"""


def main() -> int:
    """Write the page of a checkout; 1 when this is not one."""
    project = hw_specs_dir().parent
    if not (project / "pyproject.toml").is_file():
        logger.error("generated pages belong to a checkout, this is an installed package")
        return 1
    (project / PAGE).write_text(operators_page(), encoding="utf-8")
    logger.info("wrote %s", PAGE)
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    raise SystemExit(main())
