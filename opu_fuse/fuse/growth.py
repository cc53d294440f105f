"""A group while it grows: where its data stands in the pipeline, and what may join next."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from opu_fuse.dfg.graph import Node
from opu_fuse.dfg.integer import owned_bias
from opu_fuse.fuse.legality import (
    EDGE_RULES,
    VIEW_RULES,
    Refusal,
    Scope,
    first_refusal,
    forbidden,
    group_exit,
    leaves,
    one_fill,
    other_operand,
    pipeline_path,
    refuse,
    used_once,
)
from opu_fuse.fuse.module_rules import module_refusal
from opu_fuse.fuse.partition import Match

Forbid = frozenset[tuple[int, ...]]
NOTHING_FORBIDDEN: Forbid = frozenset()


@dataclass(slots=True, kw_only=True)
class Growth:
    """matches so far; members: their nodes; module: where the data stands (None before the first
    module); base: the node whose bytes the tail shows (differs from the tail behind views); used:
    operators run per module.
    """

    matches: list[Match] = field(default_factory=list)
    members: set[int] = field(default_factory=set)
    module: str | None = None
    base: int = -1
    used: dict[str, int] = field(default_factory=dict)

    @property
    def tail(self) -> int:
        """The node whose value the group holds at its end."""
        return self.matches[-1].node

    def take(self, node: int, module: str | None) -> None:
        """Adds an operator (module None: a view)."""
        self.matches.append(Match(node=node, module=module))
        self.members.add(node)
        if module is not None:
            self.module, self.base = module, node
            self.used[module] = self.used.get(module, 0) + 1

    def full(self, scope: Scope) -> frozenset[str]:
        """Modules that have run as many operators as a pass allows."""
        return frozenset(
            m for m, uses in self.used.items() if uses >= scope.modules.by_name[m].uses
        )


def place(
    scope: Scope, group: Growth, node: Node, forbid: Forbid = NOTHING_FORBIDDEN
) -> tuple[Match, ...] | Refusal:
    """The modules on which a node (and the bias it owns) can run next in a group; it is not added
    yet.

    The nearest module that fits is taken; a refusal tells what stops every candidate. Readers and
    operands are not looked at here (`extend`).
    """
    found = _nearest(scope, group, node)
    if isinstance(found, Refusal):
        return found
    matches = (Match(node=node.index, module=found),)
    bias = owned_bias(scope.dfg, node.index) if node.op in {"conv", "dense"} else None
    if bias is not None:
        behind = Growth(module=found, used={**group.used, found: group.used.get(found, 0) + 1})
        adder = _nearest(scope, behind, bias)
        if isinstance(adder, Refusal):
            return adder
        matches += (Match(node=bias.index, module=adder),)
    last = matches[-1].module or found
    if not scope.modules.can_end(last):
        return refuse(group_exit, {"module": last})
    if forbid and working((*group.matches, *matches)) in forbid:
        names = [scope.dfg[m.node].name for m in (*group.matches, *matches)]
        return refuse(forbidden, {"nodes": " + ".join(names)})
    return matches


def working(matches: Iterable[Match]) -> tuple[int, ...]:
    """Nodes that run on a module, ascending: a group is forbidden whatever views go along."""
    return tuple(sorted(m.node for m in matches if m.module is not None))


def extend(
    scope: Scope, group: Growth, node: Node, forbid: Forbid = NOTHING_FORBIDDEN
) -> tuple[Match, ...] | Refusal:
    """How a node joins the group whose tail it reads, or the first rule against it."""
    source = scope.dfg[group.tail]
    refusal = first_refusal(EDGE_RULES, scope, source, node)
    if refusal is not None:
        return refusal
    if node.is_virtual:
        refusal = first_refusal(VIEW_RULES, scope, scope.dfg[group.base], node)
        return refusal or (Match(node=node.index, module=None),)
    inside = _second_inside(scope, group, node)
    if inside is not None:
        return refuse(other_operand, {"node": node.name, "other": scope.dfg[inside].name})
    clash = fill_clash(source, node)
    return clash or place(scope, group, node, forbid)


def fill_clash(pad: Node, node: Node) -> Refusal | None:
    """A pass has one value to fill with: no zero padding behind a pad with another one."""
    if pad.op != "pad" or node.op != "conv" or not any(node.attrs["pads"]):
        return None
    value = pad.attrs["value"]
    words = {"node": node.name, "pad": pad.name, "value": value}
    return refuse(one_fill, words) if value != 0.0 else None


def _second_inside(scope: Scope, group: Growth, node: Node) -> int | None:
    """An operand that the group computes besides its tail (or the tail itself, read twice)."""
    inside = [i for i in leaves(scope.dfg, node) if i in group.members]
    if len(inside) == 1:
        return None
    inside.remove(group.tail)
    return inside[0] if inside else None


def _nearest(scope: Scope, group: Growth, node: Node) -> str | Refusal:
    full = group.full(scope)
    candidates = scope.modules.candidates(group.module, node.op, full)
    refusals = []
    for module in candidates:
        refusal = module_refusal(scope, node, module)
        if refusal is None:
            return module
        refusals.append(refusal)
    if refusals:
        return Refusal(
            rule=refusals[0].rule, text="; ".join(dict.fromkeys(r.text for r in refusals))
        )
    fitting = [m for m in scope.modules.runners(node.op) if module_refusal(scope, node, m) is None]
    if fitting and all(m in full for m in fitting):
        return refuse(used_once, {"module": fitting[0]})
    tail = group.module or "the memory read"
    return refuse(pipeline_path, {"op": node.op, "tail": tail})
