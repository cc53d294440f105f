"""Can this module run this operator? The predicates that a match must satisfy.

Every predicate gets the match context, the node and the module's name. Its docstring is the user
message (see `legality.py`).
"""

from collections.abc import Iterator, Sequence

from opu_fuse.dfg.graph import Access, Dfg, Kind, Node
from opu_fuse.fuse.matching.context import MatchContext
from opu_fuse.fuse.rules.operator_rules import TWO_OPERANDS, kind_for
from opu_fuse.fuse.rules.refusal import Refusal, Words, first_refusal, refuse
from opu_fuse.fuse.rules.spec_changes import NewModule
from opu_fuse.hw.spec.check import MOST_REPEATS, largest
from opu_fuse.hw.spec.hw_spec import Fill
from opu_fuse.lowering.pool_windows import exceeds_pools
from opu_fuse.quant import Domain
from opu_fuse.units.base import Access as OperandAccess
from opu_fuse.units.base import ModuleKind

_FITTING = {
    OperandAccess.PER_TENSOR: {Access.PER_TENSOR},
    OperandAccess.PER_CHANNEL: {Access.PER_TENSOR, Access.PER_CHANNEL},
    OperandAccess.FULL: {Access.FULL},
}
_WORDING = {
    OperandAccess.PER_TENSOR: "as one value",
    OperandAccess.PER_CHANNEL: "per channel",
    OperandAccess.FULL: "as a full feature map",
}


_FORMS = {
    OperandAccess.PER_TENSOR: "one value",
    OperandAccess.PER_CHANNEL: "one value per channel, shape (c, 1, 1)",
}


def fits(context: MatchContext, node: Node, name: str) -> bool:
    """Whether all module rules hold. Memoised by form and module."""
    key = (context.forms[node.index], name)
    holds = context.placements.get(key)
    if holds is None:
        holds = context.placements[key] = module_refusal(context, node, name) is None
    return holds


def module_refusal(context: MatchContext, node: Node, name: str) -> Refusal | None:
    """The first broken module rule, None if all hold. Skips rules that cannot apply."""
    rules = _RULES[context.modules.by_name[name].operand is not None, bool(node.attrs)]
    return first_refusal(rules, context, node, name)


def module_refusals(context: MatchContext, node: Node, name: str) -> tuple[Refusal, ...]:
    """All broken module rules, with `limits` once per axis.

    A wrong domain is reported alone, because the operator then needs another module.
    """
    first = None if fits(context, node, name) else module_refusal(context, node, name)
    if first is None or first.predicate is domain:
        return () if first is None else (first,)
    rules = [symmetric_padding, fill_value, repeats, only_clamps]
    if context.modules.by_name[name].operand is not None:
        rules += OPERAND_RULES
    broken = [(rule, words) for rule in rules if (words := rule(context, node, name)) is not None]
    refusals = [refuse(rule, words) for rule, words in broken]
    return (*refusals, *(refuse(limits, words) for words in excesses(context, node, name)))


def domain(context: MatchContext, node: Node, name: str) -> Words | None:
    """{node} works on {has}, module {module} on {takes}

    Change: add {new}
    """
    takes = context.modules.by_name[name].domain_in
    has = Domain.ACC if node.owner is not None else Domain.ACT
    if has is takes:
        return None
    words = {Domain.ACC: "accumulators (like a convolution's bias)", Domain.ACT: "int8 values"}
    facts: Words = {"node": node.name, "module": name}
    kind = kind_for(context, node) if node.op in TWO_OPERANDS else None
    if kind is not None and not _has(context, kind, has):
        mapped = str(kind) in context.hw.dataflow.operators.get(node.op, ())
        facts = {**facts, "new": NewModule(kind=kind, domain=has, op="" if mapped else node.op)}
    return {**facts, "takes": words[takes], "has": words[has]}


def operand_access(context: MatchContext, node: Node, name: str) -> Words | None:
    """{node} has {operand} of shape {shape}; module {module} reads it {wanted}

    Change: give {operand:own} {form}
    """
    wanted = context.modules.by_name[name].operand or OperandAccess.FULL
    side = _side_operands(context.dfg, node)
    wrong = [
        operand
        for i, (operand, access) in enumerate(zip(node.operands, node.access, strict=True))
        if access not in (_readable(context, name, operand) if i in side else {Access.FULL})
    ]
    if not wrong:
        return None
    operand = context.dfg[wrong[0]]
    words = {"module": name, "wanted": _WORDING[wanted], "node": node.called}
    own = wanted if wrong[0] in [node.operands[i] for i in side] else OperandAccess.FULL
    form = _FORMS.get(own, f"the shape of the result, {node.shape}")
    return {**words, "operand": operand.called, "shape": operand.shape, "form": form}


def constant_operand(context: MatchContext, node: Node, name: str) -> Words | None:
    """{operand} is computed at run time; module {module} takes a constant

    Change: make {input:own} a constant of the model
    Change: add {new}
    """
    if _takes_maps(context, name):
        return None
    side = [context.dfg[node.operands[i]] for i in _side_operands(context.dfg, node)]
    computed = [operand for operand in side if operand.kind is not Kind.CONST]
    if not computed:
        return None
    words: Words = {"module": name, "operand": computed[0].called}
    missing = _missing(context, node)
    if missing or computed[0].kind is not Kind.VAR:
        return {**words, **missing}
    return {**words, "input": computed[0].called}


def computed_operand(context: MatchContext, node: Node, name: str) -> Words | None:
    """{operand} is a constant; module {module} takes feature maps

    Change: add {new}
    Change: make {map:own} an input of the model
    """
    if not _takes_maps(context, name):
        return None
    reads_maps = name not in context.modules.front
    constants = [
        context.dfg[i].called
        for i, access in zip(node.operands, node.access, strict=True)
        if context.dfg[i].kind is Kind.CONST and not (reads_maps and access is Access.FULL)
    ]
    if not constants:
        return None
    words: Words = {"module": name, "operand": constants[0]}
    missing = _missing(context, node)
    return {**words, **(missing or {"map": constants[0]})}


def limits(context: MatchContext, node: Node, name: str) -> Words | None:
    """{node} has {axis} {value}; module {module} takes at most {limit}

    Change: {smaller}
    Change: raise `dataflow.modules.{module}.limits.{axis}` to {needed}
    """
    return next(excesses(context, node, name), None)


def symmetric_padding(context: MatchContext, node: Node, name: str) -> Words | None:
    """{node} pads its sides by {pads}; module {module} pads opposite sides alike

    Change: pad opposite sides of {node:own} alike
    Change: set `dataflow.modules.{module}.limits.asymmetric` to true
    """
    pads = node.attrs.get("pads", (0, 0, 0, 0))
    if context.modules.by_name[name].limits.asymmetric or pads[:2] == pads[2:]:
        return None
    return {"node": node.called, "pads": pads, "module": name}


def fill_value(context: MatchContext, node: Node, name: str) -> Words | None:
    """{node} fills with {value}; module {module} fills with zero

    Change: let {node:own} fill with zero
    Change: set `dataflow.modules.{module}.limits.fill` to any
    """
    value = node.attrs.get("value", 0.0) if node.op == "pad" else 0.0
    if value == 0.0 or context.modules.by_name[name].limits.fill is Fill.ANY:
        return None
    return {"node": node.called, "value": value, "module": name}


def repeats(context: MatchContext, node: Node, name: str) -> Words | None:  # noqa: ARG001  one signature for all rules
    """{node} repeats rows and columns {scale} times; a store repeats each at most {limit} times

    Change: split {node:own} into two of smaller factors
    """
    scale = node.attrs["scale"] if node.op == "upsample" else (1,)
    if max(scale) <= MOST_REPEATS:
        return None
    return {"node": node.called, "scale": "×".join(map(str, scale)), "limit": MOST_REPEATS}


def only_clamps(context: MatchContext, node: Node, name: str) -> Words | None:
    """{node} rounds to another scale; module {module}, before the array, only clamps"""
    front = name in context.modules.front
    return {"node": node.name, "module": name} if front and node.is_requantisation else None


DOMAIN_RULES = (domain,)
OPERAND_RULES = (operand_access, constant_operand, computed_operand)
"""Rules for modules with a second operand."""
LIMIT_RULES = (limits, symmetric_padding, fill_value, repeats, only_clamps)
"""Rules for operators with attributes."""
MODULE_RULES = (*DOMAIN_RULES, *OPERAND_RULES, *LIMIT_RULES)
_RULES = {
    (operand, attrs): DOMAIN_RULES + operand * OPERAND_RULES + attrs * LIMIT_RULES
    for operand in (False, True)
    for attrs in (False, True)
}


def _missing(context: MatchContext, node: Node) -> Words:
    """The module to add for a sum or product of such operands; {} if the machine has that kind."""
    kind = kind_for(context, node)
    if (
        kind is None
        and node.op == "multiply"
        and all(context.dfg[i].kind is not Kind.CONST for i in node.operands)
    ):
        kind = ModuleKind.SE  # one of them is a gate of one pixel
    if kind is None or _has(context, kind, Domain.ACT):
        return {}
    return {"new": NewModule(kind=kind, op=node.op)}


def _has(context: MatchContext, kind: ModuleKind, domain: Domain) -> bool:
    modules = context.modules.by_name.values()
    return any(m.kind is kind and m.domain_in is domain for m in modules)


def _readable(context: MatchContext, name: str, operand: int) -> set[Access]:
    """How a module can read a second operand: what is computed also as a map or one pixel of it."""
    fitting = _FITTING[context.modules.by_name[name].operand or OperandAccess.FULL]
    if not _takes_maps(context, name) or name in context.modules.front:
        return fitting
    is_computed = context.dfg[operand].kind is not Kind.CONST
    return fitting | ({Access.FULL, Access.PER_CHANNEL} if is_computed else {Access.FULL})


def _takes_maps(context: MatchContext, name: str) -> bool:
    """Whether a module's second operand is a computed map or one pixel of it."""
    module = context.modules.by_name[name]
    return module.operand is OperandAccess.FULL or module.kind is ModuleKind.SE


def _side_operands(dfg: Dfg, node: Node) -> tuple[int, ...]:
    """Positions of the operands that a module does not read from the pipeline.

    These are the constants, else the single operand that is no full map, else the second one.
    """
    constants = [i for i, operand in enumerate(node.operands) if dfg[operand].kind is Kind.CONST]
    if 0 < len(constants) < len(node.operands) or len(node.operands) == 1:
        return tuple(constants)
    narrow = [i for i, access in enumerate(node.access) if access is not Access.FULL]
    return (narrow[0],) if len(narrow) == 1 else (1,)


def excesses(context: MatchContext, node: Node, name: str) -> Iterator[Words]:
    """The facts of `limits`, per axis on which an operator exceeds the module or an instruction.

    Averages too large for every pool run on the array, so the array's limits apply.
    """
    module = context.modules.by_name[name]
    pool = module.kind is ModuleKind.POOL
    limit, attrs = module.limits, node.attrs
    arrays = [m for m in context.modules.by_name.values() if m.kind is ModuleKind.IPA]
    if pool and arrays and node.op == "avg_pool" and exceeds_pools(context.hw, node):
        pool, limit = False, arrays[0].limits
    reach = ("window", limit.window) if pool else ("kernel", limit.kernel)
    for axis, values, most in (
        (reach[0], attrs.get("kernel"), reach[1]),
        ("stride", attrs.get("strides"), limit.stride),
        ("dilation", attrs.get("dilations"), limit.dilation),
        ("padding", attrs.get("pads"), limit.padding),
    ):
        most = largest(axis) if most is None else most
        if not values or max(values) <= most:
            continue
        per_side = axis == "padding"
        yield {
            "node": node.name,
            "module": name,
            "axis": axis,
            "value": max(values) if per_side else "×".join(map(str, values)),
            "limit": most if per_side else f"{most}×{most}",
            "smaller": smaller(node, axis, most),
            "needed": max(values) if max(values) <= largest(axis) else None,
        }


def smaller(node: Node, axis: str, most: int) -> str | None:
    """Advice: an equivalent of the operator within a limit.

    most: the limit, of rows and columns each, or of one side for padding.

    None when there is none, or when the user's file has no such operator.
    """
    if not node.called.own:
        return None
    kernel, own = node.attrs.get("kernel", (1, 1)), node.called.own
    if axis == "window" and node.op == "max_pool" and most > 1:
        return f"split {own} into {-(-(max(kernel) - 1) // (most - 1))} pools in a row"
    if node.op == "avg_pool" and kernel == node.attrs["strides"] and axis in {"window", "stride"}:
        return f"take the mean of {own} in steps, over parts of at most {most}×{most}"
    if axis == "stride":
        return _strides(own, node.attrs["strides"], most)
    if axis == "kernel" and most > 1:
        return f"split {own} into convolutions of at most {most}×{most} and add them"
    if axis == "dilation":
        steps = zip(kernel, node.attrs["dilations"], strict=True)
        spread = "×".join(str((k - 1) * d + 1) for k, d in steps)
        return f"write the kernel of {own} as one of {spread} with zeros in it"
    if axis == "padding" and node.op == "pad" and most:
        return f"pad by {-(-max(node.attrs['pads']) // most)} operators in a row instead of {own}"
    return None


def _strides(own: str, strides: Sequence[int], most: int) -> str | None:
    """Advice: factor a stride into the operator's own and that of a following 1×1 pool."""
    first = [max(d for d in range(1, most + 1) if stride % d == 0) for stride in strides]
    rest = [stride // d for stride, d in zip(strides, first, strict=True)]
    if max(rest) > most:
        return None
    own_stride, other = (
        "×".join(map(str, factors if len({*factors}) > 1 else factors[:1]))
        for factors in (first, rest)
    )
    return f"give {own} stride {own_stride} and let a MaxPool of 1×1 with stride {other} follow"
