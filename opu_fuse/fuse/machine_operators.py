"""Which operators a machine runs: on which module, within which limits, and why not otherwise."""

from collections.abc import Iterator, Mapping

from msgspec import Struct
from rich.table import Table

from opu_fuse.fuse.rules.module_rules import (
    computed_operand,
    constant_operand,
    domain,
    fill_value,
    limits,
    operand_access,
    symmetric_padding,
)
from opu_fuse.fuse.rules.operator_rules import OF_ONE, known_operator
from opu_fuse.fuse.rules.refusal import Rule, template
from opu_fuse.fuse.rules_page import shown
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.hw.spec.check import largest
from opu_fuse.hw.spec.hw_spec import OPERATORS, Fill, HwSpec, Module
from opu_fuse.quant import Domain
from opu_fuse.units.base import Access, ModuleKind

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
    Access.FULL: "a second feature map, constant or computed, or one computed pixel for all",
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
    front = chain_of(spec).front if spec.build else frozenset[str]()
    for operator in OPERATORS:
        kinds = spec.dataflow.operators.get(operator, ())
        names = [name for name, m in spec.dataflow.modules.items() if m.kind in kinds]
        for name in names:
            module = spec.dataflow.modules[name]
            rows.append(
                Row(
                    operator=operator,
                    module=name,
                    limits=tuple(_limits(operator, module, gates=name in front)),
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


def _limits(operator: str, module: Module, *, gates: bool) -> Iterator[str]:
    """gates: products are those with one computed pixel."""
    if module.domain_in is Domain.ACC:
        owned = ": the bias that a convolution or dense layer owns" if operator == "add" else ""
        yield f"accumulators{owned}"
    if module.operand is not None:
        gate = "a computed map of one pixel, one value per channel"
        of_map = module.kind is ModuleKind.SE
        known = gate if of_map and gates else _OPERANDS[Access.FULL if of_map else module.operand]
        yield f"second operand: {known}"
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


def _reads_maps(module: Module) -> bool:
    return module.operand is Access.FULL or module.kind is ModuleKind.SE


def _rules(operator: str, module: Module) -> Iterator[Rule]:
    """The operator's own rule, then those that check the module's limits."""
    if operator in OF_ONE:
        yield OF_ONE[operator]
    if module.domain_in is Domain.ACC:
        yield domain
    if module.operand is not None:
        yield operand_access
        yield computed_operand if _reads_maps(module) else constant_operand
    if any(getattr(module.limits, axis) is not None for axis in AXES.get(operator, ())):
        yield limits
    if "padding" in AXES.get(operator, ()) and not module.limits.asymmetric:
        yield symmetric_padding
    if operator == "pad" and module.limits.fill is Fill.ZERO:
        yield fill_value
