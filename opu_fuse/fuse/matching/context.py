"""What all rules are asked about: one DFG on one machine, and who reads whom."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from msgspec import Struct, field

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.dfg.pre_array import is_affine
from opu_fuse.fuse.matching.modules import MatcherState, Modules
from opu_fuse.fuse.partition import Misfits
from opu_fuse.fuse.rules.refusal import Lever, Refusal
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.quant import Domain
from opu_fuse.units.base import ModuleKind

AFFINE_KINDS = {"add": ModuleKind.ADDER, "multiply": ModuleKind.MULTIPLIER}
"""The kind of module that suits a sum or product with constants."""


class MatchContext(Struct, frozen=True, kw_only=True):
    """One DFG on one machine. outputs: indices of the model's outputs; misfits: what the scheduler
    said about groups that it forbids; roles: see `_roles`; forms: per node a number, the same for
    operators that no rule about single operators can tell apart.

    Networks repeat themselves: what modules say about an operator is remembered by its form, what
    holds for it alone by node.
    """

    dfg: Dfg
    hw: HwSpec
    modules: Modules
    outputs: frozenset[int]
    misfits: Misfits
    roles: Sequence[str]
    forms: Sequence[int]
    _readers: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _leaves: dict[int, Mapping[int, int]] = field(default_factory=dict)
    operators: dict[int, Refusal | None] = field(default_factory=dict)
    """What `operator_rules.broken_rule` remembers, by node."""
    held: set[int] = field(default_factory=set)
    """Forms for which all operator rules held, that about rounding aside."""
    placements: dict[tuple[int, str], bool] = field(default_factory=dict)
    """What `module_rules.fits` remembers, by form and module."""
    ways: dict[tuple[MatcherState, str, str], Refusal] = field(default_factory=dict)
    """What `ways.no_way` remembers, by position, operator and module."""
    remedies: dict[tuple[MatcherState, int, str], Lever | None] = field(default_factory=dict)
    """What `remedies.Trial` remembers, by position, form and text."""
    changed: dict[HwSpec, "MatchContext"] = field(default_factory=dict)
    """The same network on machines that remedies have changed."""
    dead_ends: dict[tuple[MatcherState, int], Refusal] = field(default_factory=dict)
    """What `ways.no_module` remembers, by position and form."""

    def reads_twice(self, node: Node, operand: int) -> bool:
        """Whether a node reads a value more than once."""
        if node.op != "concat":
            return node.operands.count(operand) > 1
        counts = self._leaves.get(node.index)
        if counts is None:
            counts = self._leaves[node.index] = Counter(leaves(self.dfg, node))
        return counts[operand] > 1

    def leaves_only_to(self, index: int, reader: int) -> bool:
        """Whether a value is read by this call alone, and is no output of the model."""
        only = self.dfg.users[index] == (reader,) or self.readers(index) == (reader,)
        return only and index not in self.outputs

    def runs_as(self, node: Node) -> str:
        """The operator by which modules are asked for a node."""
        return self.roles[node.index]

    def readers(self, index: int) -> tuple[int, ...]:
        """`readers` of a node."""
        users = self.dfg.users[index]
        if len(users) == 1 and self.dfg.nodes[users[0]].kind is Kind.CALL:
            return users
        found = self._readers.get(index)
        if found is None:
            found = self._readers[index] = readers(self.dfg, index)
        return found


def context_of(dfg: Dfg, hw: HwSpec, misfits: Misfits | None = None) -> MatchContext:
    """The scope in which all rules are asked."""
    modules = Modules(hw)
    roles = _roles(dfg, modules)
    return MatchContext(
        dfg=dfg,
        hw=hw,
        modules=modules,
        outputs=frozenset(dfg.outputs),
        misfits=misfits or {},
        roles=roles,
        forms=_forms(dfg, roles),
    )


def _roles(dfg: Dfg, modules: Modules) -> list[str]:
    """By node, the operator by which modules are asked for it.

    A sum or product with constants is a normalisation of which the other constant changes nothing:
    where the machine has no module for it on int8 values, what normalises runs it, if the machine
    goes on with the result. For the host alone it would be a pass, and a way through memory, more.
    """
    roles = [node.op for node in dfg.nodes]
    if not modules.runners("batch_norm"):
        return roles
    runs = [False] * len(roles)
    for node in reversed(dfg.nodes):  # readers come first
        read = any(runs[user] for user in dfg.users[node.index])
        if node.kind is not Kind.CALL or node.is_virtual:
            runs[node.index] = read
            continue
        if _only_normalises(dfg, modules, node) and (read or _ends_there(dfg, modules, node)):
            roles[node.index] = "batch_norm"
        runs[node.index] = bool(modules.runners(roles[node.index]))
    return roles


def _only_normalises(dfg: Dfg, modules: Modules, node: Node) -> bool:
    """Whether a node is a sum or product with constants for which there is no module."""
    if node.op not in AFFINE_KINDS or not is_affine(dfg, node.index):
        return False
    suitable = (AFFINE_KINDS[node.op], Domain.ACT)
    own = [modules.by_name[name] for name in modules.runners(node.op)]
    return all((m.kind, m.domain_in) != suitable for m in own)


def _ends_there(dfg: Dfg, modules: Modules, node: Node) -> bool:
    """Whether a node makes an output of the model from what the machine has."""
    sources = [dfg[i] for i in data_operands(dfg, node)]
    made = all(s.kind is Kind.VAR or modules.runners(s.op) for s in sources)
    return made and node.index in dfg.outputs


def _forms(dfg: Dfg, roles: Sequence[str]) -> list[int]:
    """Numbers of operators by everything that rules read about them but names and rounding."""
    numbers: dict[Hashable, int] = {}
    values: list[Hashable] = []
    found: list[int] = []
    for node in dfg.nodes:
        operands = tuple([values[i] for i in node.operands])
        if node.kind is Kind.CALL:
            values.append(node.shape)
            attrs = tuple(node.attrs.items())
            role = roles[node.index]
            key = (node.op, role, node.owner is None, node.shape, node.access, attrs, operands)
            found.append(numbers.setdefault(key, len(numbers)))
        else:
            values.append((node.kind, node.shape, operands))
            found.append(-1)
    return found


def leaves(dfg: Dfg, node: Node) -> tuple[int, ...]:
    """Operands of a node in order, tuples (of a concat) replaced by their elements."""
    if node.op != "concat":
        return node.operands
    return tuple(j for i in node.operands for j in dfg.nodes[i].operands)


def data_operands(dfg: Dfg, node: Node) -> tuple[int, ...]:
    """Operands that are computed at run time, in order."""
    nodes = dfg.nodes
    return tuple([i for i in leaves(dfg, node) if nodes[i].kind is not Kind.CONST])


def readers(dfg: Dfg, index: int) -> tuple[int, ...]:
    """Calls and tuple_gets that read a node, tuples looked through; ascending, each once."""
    users, nodes = dfg.users[index], dfg.nodes
    for user in users:
        if nodes[user].kind is Kind.TUPLE:
            return tuple(sorted({r for u in users for r in _through_tuple(dfg, u)}))
    return users


def _through_tuple(dfg: Dfg, user: int) -> tuple[int, ...]:
    return dfg.users[user] if dfg[user].kind is Kind.TUPLE else (user,)
