"""Can this module run this operator? The table of predicates behind a match (see `legality.py` for
their form).

Every predicate gets the scope, the node and the module's name.
"""

from opu_fuse.dfg.graph import Access, Dfg, Kind, Node
from opu_fuse.fuse.legality import Refusal, Scope, Words, first_refusal
from opu_fuse.hw.spec import Access as OperandAccess
from opu_fuse.hw.spec import Fill, Module, ModuleKind
from opu_fuse.quant import Domain

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


def module_refusal(scope: Scope, node: Node, name: str) -> Refusal | None:
    """The first of the module rules that does not hold; rules that cannot apply are not asked."""
    key = (node.index, name)
    try:
        return scope.placements[key]
    except KeyError:
        rules = DOMAIN_RULES
        if scope.modules.by_name[name].operand is not None:
            rules += OPERAND_RULES
        if node.attrs:
            rules += LIMIT_RULES
        found = scope.placements[key] = first_refusal(rules, scope, node, name)
        return found


def domain(scope: Scope, node: Node, name: str) -> Words | None:
    """{node} works on {has}, module {module} on {takes}"""
    takes = scope.modules.by_name[name].domain_in
    has = Domain.ACC if node.owner is not None else Domain.ACT
    if has is takes:
        return None
    words = {Domain.ACC: "accumulators (like a convolution's bias)", Domain.ACT: "int8 values"}
    return {"node": node.name, "module": name, "takes": words[takes], "has": words[has]}


def operand_access(scope: Scope, node: Node, name: str) -> Words | None:
    """{node} has {operand} of shape {shape}; module {module} reads it {wanted}"""
    wanted = scope.modules.by_name[name].operand or OperandAccess.FULL
    second = _second_operand(scope.dfg, node)
    wrong = [
        operand
        for i, (operand, access) in enumerate(zip(node.operands, node.access, strict=True))
        if access not in (_FITTING[wanted] if i == second else {Access.FULL})
    ]
    if not wrong:
        return None
    operand = scope.dfg[wrong[0]]
    words = {"module": name, "wanted": _WORDING[wanted], "node": node.name}
    return {**words, "operand": operand.name, "shape": operand.shape}


def constant_operand(scope: Scope, node: Node, name: str) -> Words | None:
    """{operand} is computed at run time; module {module} takes a constant"""
    if scope.modules.by_name[name].operand is OperandAccess.FULL:
        return None
    operand = scope.dfg[node.operands[_second_operand(scope.dfg, node)]]
    return None if operand.kind is Kind.CONST else {"module": name, "operand": operand.name}


def computed_operand(scope: Scope, node: Node, name: str) -> Words | None:
    """{operand} is a constant; module {module} takes computed feature maps"""
    if scope.modules.by_name[name].operand is not OperandAccess.FULL:
        return None
    constants = [scope.dfg[i].name for i in node.operands if scope.dfg[i].kind is Kind.CONST]
    return {"module": name, "operand": constants[0]} if constants else None


def limits(scope: Scope, node: Node, name: str) -> Words | None:
    """{node} has {axis} {value}; module {module} takes at most {limit}"""
    for axis, value, limit in _measures(node, scope.modules.by_name[name]):
        if limit is not None and value > limit:
            return {"node": node.name, "axis": axis, "value": value, "module": name, "limit": limit}
    return None


def symmetric_padding(scope: Scope, node: Node, name: str) -> Words | None:
    """{node} pads its sides by {pads}; module {module} pads opposite sides alike"""
    pads = node.attrs.get("pads", (0, 0, 0, 0))
    if scope.modules.by_name[name].limits.asymmetric or pads[:2] == pads[2:]:
        return None
    return {"node": node.name, "pads": pads, "module": name}


def fill_value(scope: Scope, node: Node, name: str) -> Words | None:
    """{node} fills with {value}; module {module} fills with zero"""
    value = node.attrs.get("value", 0.0) if node.op == "pad" else 0.0
    if value == 0.0 or scope.modules.by_name[name].limits.fill is Fill.ANY:
        return None
    return {"node": node.name, "value": value, "module": name}


DOMAIN_RULES = (domain,)
OPERAND_RULES = (operand_access, constant_operand, computed_operand)
"""Of modules with an operand."""
LIMIT_RULES = (limits, symmetric_padding, fill_value)
"""Of operators with attributes."""
MODULE_RULES = (*DOMAIN_RULES, *OPERAND_RULES, *LIMIT_RULES)


def _second_operand(dfg: Dfg, node: Node) -> int:
    """Position of the operand that does not come along the pipeline: the constant one, else the
    second.
    """
    constants = [i for i, operand in enumerate(node.operands) if dfg[operand].kind is Kind.CONST]
    return constants[0] if len(constants) == 1 else 1


def _measures(node: Node, module: Module) -> list[tuple[str, int, int | None]]:
    """(axis, value, limit) of everything about the operator that a module can limit."""
    limit, attrs = module.limits, node.attrs
    kernel = (
        ("window", limit.window) if module.kind is ModuleKind.POOL else ("kernel", limit.kernel)
    )
    measures = [
        (kernel[0], attrs.get("kernel"), kernel[1]),
        ("stride", attrs.get("strides"), limit.stride),
        ("dilation", attrs.get("dilations"), limit.dilation),
        ("padding", attrs.get("pads"), limit.padding),
    ]
    return [(axis, max(values), bound) for axis, values, bound in measures if values]
