"""Limits of the RTL: rules for `build: true`, in addition to those of `check.py`."""

import functools
import itertools
from collections.abc import Callable, Iterator

from opu_fuse.hw.isa.table import PRE_UNITS, UNITS_PER_STAGE
from opu_fuse.hw.spec.chain import PRE_KINDS, STAGE_OF, chain_of
from opu_fuse.hw.spec.check_graph import predecessors, reachable, successors
from opu_fuse.hw.spec.check_sizes import RTL_SIZES
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.problem import Problem, unbuilt
from opu_fuse.hw.spec.proposals import PROPOSED
from opu_fuse.quant import Domain
from opu_fuse.units.base import Access, ModuleKind

K = ModuleKind

ARITHMETIC = (K.MULTIPLIER, K.ADDER)
POST_CHAIN = (*STAGE_OF, K.PAD)
ORDER = "memory, pre chain, pad, ipa, multiplier and adder, post chain, upsample or mem_wr"
_PRE, _PAD, _IPA, _ACC, _POST, _STORE = range(1, 7)


def _rank(spec: HwSpec, name: str) -> int | None:
    """Position of a module in the RTL's order; None for what it cannot have. Modules before
    the array form the pre chain, those after it without accumulators the post chain.
    """
    module = spec.dataflow.modules[name]
    upstream = name in _before_array(spec)
    match module.kind:
        case K.MEM_RD:
            return 0
        case K.IPA:
            return _IPA
        case K.UPSAMPLE | K.MEM_WR:
            return _STORE
        case K.PAD if upstream:
            return _PAD
        case kind if upstream:
            return _PRE if kind in PRE_KINDS else None
        case kind if kind in ARITHMETIC:
            return _ACC
        case kind:
            return _POST if kind in POST_CHAIN else None


def _of_kind(spec: HwSpec, kind: ModuleKind, rank: int) -> list[str]:
    """Modules of a kind at a position in the RTL's order."""
    modules = spec.dataflow.modules
    return [n for n, m in modules.items() if m.kind is kind and _rank(spec, n) == rank]


@functools.lru_cache(maxsize=1)  # asked for each end of each edge of one spec
def _before_array(spec: HwSpec) -> frozenset[str]:
    """Modules from which data can reach the array."""
    feeding = predecessors(spec)
    arrays = [n for n, m in spec.dataflow.modules.items() if m.kind is K.IPA]
    return frozenset(reachable(feeding, [source for name in arrays for source in feeding[name]]))


def edges_back(spec: HwSpec) -> Iterator[Problem]:
    """No edge leads from a module after the array to the array or to a module before it."""
    flow, follow = spec.dataflow, successors(spec)
    arrays = {n for n, m in flow.modules.items() if m.kind is K.IPA}
    after = reachable(follow, [t for name in arrays for t in follow[name]])
    cut = {n: [] if n in arrays else targets for n, targets in follow.items()}
    before = reachable(cut, [flow.root] if flow.root in flow.modules else [])
    for source, targets in flow.edges.items():
        for index, target in enumerate(targets):
            if source not in after or target not in flow.modules:
                continue
            around = {n: [] if n == source else others for n, others in follow.items()}
            if target in arrays or (target in before and reachable(around, [target]) & arrays):
                yield unbuilt(
                    ("dataflow", "edges", source, index),
                    f"edge {source} -> {target} leads back to the array",
                    "remove it",
                )


def _extras(spec: HwSpec) -> Iterator[Problem]:
    """Pre chain, tables and norms have their buffers, and no machine has the buffers alone."""
    modules = spec.dataflow.modules
    users_of = {
        "pre": ("is before the array", [n for n in modules if _rank(spec, n) == _PRE]),
        "table": ("is a table", [n for n, m in modules.items() if m.kind is K.TABLE]),
        "norm": ("is a norm", [n for n, m in modules.items() if m.kind is K.NORM]),
    }
    for name, (what, users) in users_of.items():
        present = getattr(spec.buffers, name) is not None
        if users and not present:
            size = PROPOSED[name](spec)
            yield unbuilt(
                ("dataflow", "modules", users[0]),
                f"no {name} buffer for the constants of {', '.join(users)}",
                f"add `buffers.{name}: {{words: {size.words}, banks: {size.banks}}}`",
            )
        elif present and not users:
            said = f"buffer {name}, and no module that {what}"
            yield unbuilt(("buffers", name), said, f"set `{name}: null`")


def _tables(spec: HwSpec) -> Iterator[Problem]:
    """Products of a sum of two maps use slices or tables, those of a product of two maps use both;
    powers of two are no products.
    """
    if not spec.post.residual_tables:
        return
    for has, what in (
        (_of_kind(spec, K.SE, _POST), "products of maps, which take a slice each"),
        (spec.numeric.multiplier_bits == 0, "powers of two, which are shifts"),
    ):
        if has:
            yield unbuilt(
                ("post", "residual_tables"),
                f"tables for the residual unit, and {what}",
                "leave residual_tables out",
            )


def _modules(spec: HwSpec) -> Iterator[Problem]:
    """One module of each kind outside the chains, domains and operands that the RTL has."""
    flow = spec.dataflow
    seen: dict[tuple[ModuleKind, int], str] = {}
    for name, module in flow.modules.items():
        path = ("dataflow", "modules", name)
        rank = _rank(spec, name)
        if rank is None:
            what = f"module {name!r}: no {module.kind} at this position"
            yield unbuilt((*path, "kind"), what, f"keep to the order {ORDER}")
            continue
        other = seen.setdefault((module.kind, rank), name)
        if other != name and rank not in (_PRE, _POST):
            yield unbuilt(
                path,
                f"{other!r} and {name!r} are both {module.kind}, the RTL has one",
                "remove one",
            )
        domain = Domain.ACC if rank in (_IPA, _ACC) else Domain.ACT
        if module.domain_out is not domain:
            yield unbuilt(
                path,
                f"module {name!r} ({module.kind}) has output domain {module.domain_out}",
                f"set domain: {domain}",
            )
        constants = module.kind in ARITHMETIC or (rank == _PRE and module.kind is K.SE)
        if constants and module.operand is not Access.PER_CHANNEL:
            yield unbuilt(
                (*path, "operand"),
                f"module {name!r} ({module.kind}) has operand {module.operand or 'none'}",
                "say `operand: per_channel`",
            )
        yield from _uses(spec, name)
        if module.tap:
            what = f"module {name!r} has a tap, a pass stores one value"
            yield unbuilt((*path, "tap"), what, "remove it")
        if module.kind is K.POOL and module.limits.dilation != 1:
            yield unbuilt(
                (*path, "limits"),
                f"module {name!r}: pooling windows are not dilated",
                "set limits.dilation to 1",
            )


def _uses(spec: HwSpec, name: str) -> Iterator[Problem]:
    """A module that a pass comes to several times is as many units: of its own, in the pre chain or
    a stage of the post chain, and no pool.
    """
    module, rank = spec.dataflow.modules[name], _rank(spec, name)
    if module.uses == 1:
        return
    why = ""
    if module.kind is K.POOL:
        why = ", a pass pools once"
    elif rank != _PRE and (rank != _POST or module.kind not in STAGE_OF):
        why = f", there is one {module.kind}"
    elif module.unit is not None:
        why = f" and shares unit {module.unit!r}, of which a pass uses one module"
    if why:
        what = f"module {name!r} is used {module.uses} times per pass{why}"
        yield unbuilt(("dataflow", "modules", name, "uses"), what, "use 1")


def _chains(spec: HwSpec) -> Iterator[Problem]:
    """The pre chain has at most 6 modules, the post chain 12, each counted as often as a pass may
    use it; those that name one unit do the same kind of stage.
    """
    flow = spec.dataflow
    pre = [n for n in flow.modules if _rank(spec, n) == _PRE]
    post = [n for n, m in flow.modules.items() if _rank(spec, n) == _POST and m.kind in STAGE_OF]
    for chain, names, most in (("pre", pre, PRE_UNITS), ("post", post, UNITS_PER_STAGE)):
        uses = [name for name in names for _ in range(min(flow.modules[name].uses, most + 1))]
        if len(uses) > most:
            yield unbuilt(
                ("dataflow", "modules", uses[most]),
                f"{len(uses)} modules in the {chain} chain, at most {most}",
                "remove some" if len(uses) == len(names) else "remove some, or lower `uses`",
            )
    first: dict[str, str] = {}
    for name, module in flow.modules.items():
        if module.unit is None:
            continue
        path = ("dataflow", "modules", name, "unit")
        if name not in post:
            yield unbuilt(path, f"module {name!r} is no stage of the post chain", "remove `unit`")
            continue
        other = flow.modules[first.setdefault(module.unit, name)]
        if STAGE_OF[other.kind] is not STAGE_OF[module.kind]:
            yield unbuilt(
                path,
                f"modules of kinds {other.kind} and {module.kind} share no unit ({module.unit!r})",
                "give them two",
            )


def _gates(spec: HwSpec) -> Iterator[Problem]:
    """Before the array a gate is the one unit of a pass, but for the clamp that belongs to it."""
    flow = spec.dataflow
    named = {flow.root, *flow.edges, *itertools.chain.from_iterable(flow.edges.values())}
    if not named <= flow.modules.keys():
        return  # which another rule says
    units = chain_of(spec).pre_units
    for name in _of_kind(spec, K.SE, _PRE):
        if units > 1:  # none: another rule says why
            module = flow.modules[name]
            yield unbuilt(
                ("dataflow", "modules", name),
                f"module {name!r} ({module.kind}) is before the array, where a pass can reach "
                f"{units} units",
                "leave out edges between it and multipliers or adders before the array, and from "
                "comparators to it",
            )


def _order(spec: HwSpec) -> Iterator[Problem]:
    """Edges follow memory -> pre chain -> pad -> ipa -> multiplier, adder -> post chain ->
    upsample or mem_wr; inside pre chain and post chain any order.
    """
    flow = spec.dataflow
    for source, targets in flow.edges.items():
        for index, target in enumerate(targets):
            if source not in flow.modules or target not in flow.modules:
                continue
            before, after = _rank(spec, source), _rank(spec, target)
            if before is None or after is None:
                continue
            if before < after or before == after in (_PRE, _ACC, _POST):
                continue
            why = f"violates the order of the RTL ({ORDER})"
            if (before, after) == (_PAD, _PRE):
                why = "leads from a pad to the pre chain, which padding does not pass"
            yield unbuilt(
                ("dataflow", "edges", source, index),
                f"edge {source} -> {target} {why}",
                "remove it",
            )


def _operators(spec: HwSpec) -> Iterator[Problem]:
    """Averages run in the post chain; the compiler moves those too large for it to the array.
    Activations are the comparators'; a table has the functions that these cannot do. A store
    repeats pixels where it has the module for it.
    """
    for operator, kind, instead in (
        ("avg_pool", K.IPA, K.POOL),
        ("upsample", K.MEM_WR, K.UPSAMPLE),
        *((name, K.TABLE, K.COMPARATOR) for name in ("relu", "clip", "leaky_relu")),
    ):
        if kind in spec.dataflow.operators.get(operator, ()):
            yield unbuilt(
                ("dataflow", "operators", operator),
                f"{operator} mapped to the {kind}",
                f"map it to {instead}",
            )


RTL_RULES: tuple[Callable[[HwSpec], Iterator[Problem]], ...] = (
    *RTL_SIZES,
    _extras,
    _tables,
    _modules,
    _chains,
    _gates,
    _order,
    _operators,
)
