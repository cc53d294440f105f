"""All strategies through one interface, with the steps they share: describe and order groups, find
reasons, verify.
"""

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module

from opu_fuse.choices import option, require_choice
from opu_fuse.dfg.graph import Dfg, Kind
from opu_fuse.errors import PartitionError
from opu_fuse.fuse.explain.boundaries import boundaries
from opu_fuse.fuse.group_order import order_units
from opu_fuse.fuse.matching.context import MatchContext, context_of, leaves
from opu_fuse.fuse.matching.modules import after_array
from opu_fuse.fuse.matching.partial_group import NOTHING_FORBIDDEN, Forbid
from opu_fuse.fuse.partition import Group, HostOp, Match, Partition
from opu_fuse.fuse.strategies.grouping import Strategy
from opu_fuse.fuse.strategies.strategy_names import DEFAULT_STRATEGY, StrategyName
from opu_fuse.fuse.verify import verify
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.process.garbage_collection import no_collection

STRATEGIES: Mapping[str, str] = {
    StrategyName.NONE: "matched",
    StrategyName.GREEDY: "greedy",
    StrategyName.MATCHED: "matched",
    StrategyName.OPTIMAL: "optimal",
    StrategyName.DOMINATOR: "dominator",
}
"""Strategy -> module with the function of that name; imported when it is selected."""


def partition(
    dfg: Dfg,
    hw: HwSpec,
    strategy: str = DEFAULT_STRATEGY,
    forbid: Collection[tuple[int, ...]] = NOTHING_FORBIDDEN,
) -> Partition:
    """Groups of a DFG on a machine, with reasons at all boundaries and the verifier's findings.

    forbid: groups that must not be formed because the scheduler reported that they do not fit. Each
    is a tuple of node indices (views are ignored); a mapping also gives the scheduler's errors.
    `greedy` ignores it. Raises UserError for an unknown strategy.
    """
    require_choice("strategy", strategy, STRATEGIES)
    errors = forbid if isinstance(forbid, Mapping) else dict.fromkeys(forbid)
    misfits = {
        tuple(sorted(n for n in nodes if not dfg[n].is_virtual)): error
        for nodes, error in errors.items()
    }
    forbidden = frozenset(misfits)
    context = context_of(dfg, hw, misfits)
    with no_collection():
        return _partition(context, strategy, forbidden)


def _function(strategy: str) -> Strategy:
    return getattr(import_module(f"opu_fuse.fuse.strategies.{STRATEGIES[strategy]}"), strategy)


def _partition(context: MatchContext, strategy: str, forbidden: Forbid) -> Partition:
    dfg, grouping = context.dfg, _function(strategy)(context, forbidden)
    placed = [after_array(context.modules, dfg, group) for group in grouping.groups]
    groups = in_order(context, placed, grouping.host)
    host_ops = tuple(sorted(grouping.host, key=lambda h: h.node))
    return Partition(
        strategy=strategy,
        groups=groups,
        host=host_ops,
        boundaries=boundaries(context, groups, host_ops, strategy, forbidden, grouping.own_reason),
        violations=verify(context, groups, host_ops),
        search=grouping.search,
        misfits=context.misfits,
    )


def require_legal(dfg: Dfg, result: Partition) -> None:
    """Raises PartitionError with the first violation of an illegal partition."""
    if result.legal:
        return
    first, more = result.violations[0], len(result.violations) - 1
    what = f"{first.text}{f' (and {more} more violations)' if more else ''}"
    raise PartitionError(
        f"{dfg.name}, strategy {result.strategy}", what, f"use {option('strategy', 'matched')}"
    )


def in_order(
    context: MatchContext, raw: Sequence[Sequence[Match]], host: Sequence[HostOp]
) -> tuple[Group, ...]:
    """Groups in execution order, with the values that they read and produce."""
    steps, stuck = order_units(context.dfg, raw, host)
    ordered = [raw[s.group] for s in steps if s.group is not None] + [raw[g] for g in stuck]
    return tuple(_describe(context, i, matches) for i, matches in enumerate(ordered))


def _describe(context: MatchContext, index: int, matches: Sequence[Match]) -> Group:
    dfg, nodes = context.dfg, context.dfg.nodes
    members = {m.node for m in matches}
    inputs: dict[int, None] = {}
    constants: dict[int, None] = {}
    outputs: list[int] = []
    for member in [m.node for m in matches]:
        for operand in leaves(dfg, nodes[member]):
            if operand in members:
                continue
            if nodes[operand].kind is Kind.CONST:
                constants[operand] = None
            else:
                inputs[operand] = None
        if member in context.outputs or not members.issuperset(context.readers(member)):
            outputs.append(member)
    return Group(
        index=index,
        matches=tuple(matches),
        inputs=tuple(inputs),
        constants=tuple(constants),
        outputs=tuple(outputs),
    )
