"""The match context: one DFG on one machine, its reader relation, and the memo tables of rules."""

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
    """One DFG on one machine.

    outputs: indices of the model's outputs; misfits: the scheduler's errors for groups that it
    forbids; roles: see `_roles`; forms: per node the number of its equivalence class. Operators of
    one class are equal to every rule about single operators but those about rounding.

    Networks repeat layers, so verdicts of modules are memoised by form. Verdicts that hold for one
    operator only are memoised by node.
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
    """Memo of `operator_rules.broken_rule`, by node."""
    round_trips: list[frozenset[int]] = field(default_factory=list)
    """Memo of `operator_rules.round_trip`: empty, or one set of nodes."""
    held: set[int] = field(default_factory=set)
    """Forms for which all operator rules hold, except those about rounding."""
    placements: dict[tuple[int, str], bool] = field(default_factory=dict)
    """Memo of `module_rules.fits`, by form and module."""
    unreachable: dict[tuple[MatcherState, str, str], Refusal] = field(default_factory=dict)
    """Memo of `diagnose.why_unreachable`, by state, operator and module."""
    remedies: dict[tuple[MatcherState, int, str], Lever | None] = field(default_factory=dict)
    """Memo of `remedies.Trial`, by state, form and text."""
    changed: dict[HwSpec, "MatchContext"] = field(default_factory=dict)
    """Contexts of this network on machines that remedies have changed."""
    dead_ends: dict[tuple[MatcherState, int], Refusal] = field(default_factory=dict)
    """Memo of `diagnose.no_module`, by state and form."""

    def reads_twice(self, node: Node, operand: int) -> bool:
        """Whether a node reads a value more than once."""
        if node.op != "concat":
            return node.operands.count(operand) > 1
        counts = self._leaves.get(node.index)
        if counts is None:
            counts = self._leaves[node.index] = Counter(leaves(self.dfg, node))
        return counts[operand] > 1

    def leaves_only_to(self, index: int, reader: int) -> bool:
        """Whether this call is the only reader of a value that is no output of the model."""
        only = self.dfg.users[index] == (reader,) or self.readers(index) == (reader,)
        return only and index not in self.outputs

    def runs_as(self, node: Node) -> str:
        """The operator name under which modules are searched for a node."""
        return self.roles[node.index]

    def readers(self, index: int) -> tuple[int, ...]:
        """Calls and tuple_gets that read a node (memoised `readers`)."""
        users = self.dfg.users[index]
        if len(users) == 1 and self.dfg.nodes[users[0]].kind is Kind.CALL:
            return users
        cached = self._readers.get(index)
        if cached is None:
            cached = self._readers[index] = readers(self.dfg, index)
        return cached


def context_of(dfg: Dfg, hw: HwSpec, misfits: Misfits | None = None) -> MatchContext:
    """The match context of a DFG on a machine. misfits: groups that the scheduler forbids."""
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
    """By node, the operator name under which modules are searched for it.

    A sum or product with constants is a batch normalisation with neutral scale or offset. If the
    machine has no int8 module for it, a `batch_norm` module runs it, provided that the machine also
    reads the result. If only the host read it, the pass would merely add a DRAM round trip.
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
        if _only_normalises(dfg, modules, node) and (
            read or _is_output_of_machine(dfg, modules, node)
        ):
            roles[node.index] = "batch_norm"
        runs[node.index] = bool(modules.runners(roles[node.index]))
    return roles


def _only_normalises(dfg: Dfg, modules: Modules, node: Node) -> bool:
    """Whether a node is a sum or product with constants that no module of its own runs."""
    if node.op not in AFFINE_KINDS or not is_affine(dfg, node.index):
        return False
    suitable = (AFFINE_KINDS[node.op], Domain.ACT)
    runners = [modules.by_name[name] for name in modules.runners(node.op)]
    return all((m.kind, m.domain_in) != suitable for m in runners)


def _is_output_of_machine(dfg: Dfg, modules: Modules, node: Node) -> bool:
    """Whether a node computes a model output from values that the machine holds."""
    sources = [dfg[i] for i in data_operands(dfg, node)]
    on_machine = all(s.kind is Kind.VAR or modules.runners(s.op) for s in sources)
    return on_machine and node.index in dfg.outputs


def _forms(dfg: Dfg, roles: Sequence[str]) -> list[int]:
    """Equivalence classes of operators by all that rules read, except names and rounding.

    -1 for nodes that are no calls.
    """
    numbers: dict[Hashable, int] = {}
    values: list[Hashable] = []
    class_of: list[int] = []
    for node in dfg.nodes:
        operands = tuple([values[i] for i in node.operands])
        if node.kind is Kind.CALL:
            values.append(node.shape)
            attrs = tuple(node.attrs.items())
            role = roles[node.index]
            key = (node.op, role, node.owner is None, node.shape, node.access, attrs, operands)
            class_of.append(numbers.setdefault(key, len(numbers)))
        else:
            values.append((node.kind, node.shape, operands))
            class_of.append(-1)
    return class_of


def leaves(dfg: Dfg, node: Node) -> tuple[int, ...]:
    """Operands of a node in order, with the tuple of a concat replaced by its elements."""
    if node.op != "concat":
        return node.operands
    return tuple(j for i in node.operands for j in dfg.nodes[i].operands)


def data_operands(dfg: Dfg, node: Node) -> tuple[int, ...]:
    """Operands that are computed at run time, in order."""
    nodes = dfg.nodes
    return tuple([i for i in leaves(dfg, node) if nodes[i].kind is not Kind.CONST])


def readers(dfg: Dfg, index: int) -> tuple[int, ...]:
    """Calls and tuple_gets that read a node, directly or through a tuple; ascending, each once."""
    users, nodes = dfg.users[index], dfg.nodes
    for user in users:
        if nodes[user].kind is Kind.TUPLE:
            return tuple(sorted({r for u in users for r in _through_tuple(dfg, u)}))
    return users


def _through_tuple(dfg: Dfg, user: int) -> tuple[int, ...]:
    return dfg.users[user] if dfg[user].kind is Kind.TUPLE else (user,)
