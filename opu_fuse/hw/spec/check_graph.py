"""Rules over the data-flow part of a spec: edges, root, reach, domains, operands, operators.

Every rule is a generator of `Problem`s over a schema-valid spec; its docstring is its row in the
documentation.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from opu_fuse.hw.isa.table import HEAD_NAME
from opu_fuse.hw.spec.hw_spec import OPERATORS, HwSpec, Module
from opu_fuse.hw.spec.problem import Problem, bad, did_you_mean, kinds_called
from opu_fuse.model.operator_sets import UNARY
from opu_fuse.quant import Domain
from opu_fuse.units import RUNS, UNITS
from opu_fuse.units.base import ModuleKind

K = ModuleKind

_FUNCTIONS = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in UNARY} | {"silu"}
"""Functions of one value, as the operators of a spec are written."""
OPERAND_KINDS = {kind: reads for unit in UNITS for kind, reads in unit.operands.items()}
"""Module kinds with a second operand, and how each may read it."""


def _names(spec: HwSpec) -> Iterator[Problem]:
    """Modules have names that assembly can say: letters, digits and _, no digit first; one name is
    the requantiser's, which is no module.
    """
    for name in spec.dataflow.modules:
        if name == HEAD_NAME:
            what = f"module name {name!r} is the requantiser in programs"
            yield bad(("dataflow", "modules", name), what, "use another name")
        if not (name.isascii() and name.isidentifier()):
            yield bad(
                ("dataflow", "modules", name),
                f"module name {name!r} is no identifier",
                "use letters, digits and _, and begin with a letter",
            )


def _edges(spec: HwSpec) -> Iterator[Problem]:
    """Edges join modules that exist, no module feeds itself, none is fed twice by the same one."""
    modules = spec.dataflow.modules
    for source, targets in spec.dataflow.edges.items():
        path = ("dataflow", "edges", source)
        if source not in modules:
            yield _missing_module(path, f"module {source!r}, from which edges lead,", modules)
        for index, target in enumerate(targets):
            if target not in modules:
                yield _missing_module(
                    (*path, index), f"edge {source} -> {target}: module {target!r}", modules
                )
            elif target == source:
                yield bad((*path, index), f"module {source!r} feeds itself", "remove the edge")
            elif target in targets[:index]:
                yield bad((*path, index), f"edge {source} -> {target} appears twice", "remove one")


def _root(spec: HwSpec) -> Iterator[Problem]:
    """The root is a module of kind mem_rd: data comes from memory."""
    flow = spec.dataflow
    path = ("dataflow", "root")
    if flow.root not in flow.modules:
        yield _missing_module(path, f"root {flow.root!r}", flow.modules)
    elif flow.modules[flow.root].kind is not K.MEM_RD:
        kind = flow.modules[flow.root].kind
        yield bad(path, f"root {flow.root!r} is a {kind}, not a mem_rd", "start at a mem_rd module")


def _reachable(spec: HwSpec) -> Iterator[Problem]:
    """Every module can be reached from the root, and from every module data can reach an exit."""
    flow = spec.dataflow
    if flow.root not in flow.modules:
        return
    reached = reachable(successors(spec), [flow.root])
    exits = [name for name, module in flow.modules.items() if module.exit]
    ending = reachable(predecessors(spec), exits)
    for name in flow.modules:
        path = ("dataflow", "modules", name)
        if name not in reached:
            yield bad(
                path,
                f"module {name!r} cannot be reached from the root {flow.root!r}",
                "add an edge that leads to it, or remove it",
            )
        elif name not in ending:
            yield bad(
                path,
                f"no exit can be reached from module {name!r}: no group could end after it",
                "set `exit: true` on it or on a module that it feeds",
            )


def _domains(spec: HwSpec) -> Iterator[Problem]:
    """An ipa makes acc from act, memory holds act, and only what comes from an acc module can be
    acc.
    """
    flow = spec.dataflow
    feeding = predecessors(spec)
    for name, module in flow.modules.items():
        path = ("dataflow", "modules", name)
        domains = (module.domain_in, module.domain_out)
        wanted = {K.IPA: (Domain.ACT, Domain.ACC), K.MEM_RD: (Domain.ACT, Domain.ACT)}.get(
            module.kind, domains
        )
        if domains != wanted:
            yield bad(
                path,
                f"module {name!r} ({module.kind}) is {domains[0]} -> {domains[1]}",
                f"it must be {wanted[0]} -> {wanted[1]}",
            )
        if module.domain_in is Domain.ACC and not any(
            flow.modules[p].domain_out is Domain.ACC for p in feeding[name]
        ):
            yield bad(
                path,
                f"module {name!r} has input domain acc, but no module that feeds it has output "
                "domain acc",
                "set `domain: act`, or let a module with output domain acc feed it",
            )


def _operands(spec: HwSpec) -> Iterator[Problem]:
    """Modules with a second operand say how it is read, the others have none."""
    for name, module in spec.dataflow.modules.items():
        allowed = OPERAND_KINDS.get(module.kind, ())
        path = ("dataflow", "modules", name, "operand")
        if not allowed and module.operand is not None:
            yield bad(
                path, f"module {name!r} ({module.kind}) has no second operand", "remove `operand`"
            )
        elif allowed and module.operand not in allowed:
            yield bad(
                path,
                f"module {name!r} ({module.kind}) has operand {module.operand or 'none'}",
                f"say `operand: {allowed[-1]}`",
            )


def _operators(spec: HwSpec) -> Iterator[Problem]:
    """Mapped operators exist, their kinds are present in the graph and can run them."""
    present = {module.kind for module in spec.dataflow.modules.values()}
    for operator, kinds in spec.dataflow.operators.items():
        path = ("dataflow", "operators", operator)
        if operator not in OPERATORS:
            if operator in _FUNCTIONS:
                yield bad(
                    path,
                    f"unknown operator {operator!r}: it is a function, which a table makes",
                    "map `table: [table]` instead",
                )
                continue
            yield bad(
                path,
                f"unknown operator {operator!r}",
                f"known: {', '.join(OPERATORS)}{did_you_mean(operator, OPERATORS)}",
            )
            continue
        if not kinds:
            yield bad(
                path,
                f"operator {operator!r} has no module kind",
                "name one, or remove the line: unmapped operators run on the host",
            )
        for index, kind in enumerate(kinds):
            here = (*path, index)
            if kind in kinds[:index]:
                yield bad(here, f"operator {operator!r} names {kind} twice", "remove one")
            elif kind not in RUNS[operator]:
                yield bad(
                    here,
                    f"a module of kind {kind} cannot run {operator!r}",
                    f"kinds that can: {', '.join(RUNS[operator])}",
                )
            elif kind not in present:
                yield bad(
                    here,
                    f"operator {operator!r} is mapped to {kind}, but no module is of that kind",
                    "add such a module, or remove the kind",
                )


def successors(spec: HwSpec) -> dict[str, list[str]]:
    """The modules that every module feeds; edges to modules that do not exist are left out."""
    modules, edges = spec.dataflow.modules, spec.dataflow.edges
    return {name: [t for t in edges.get(name, ()) if t in modules] for name in modules}


def predecessors(spec: HwSpec) -> dict[str, list[str]]:
    """The modules that feed every module."""
    results: dict[str, list[str]] = {name: [] for name in spec.dataflow.modules}
    for source, targets in successors(spec).items():
        for target in targets:
            results[target].append(source)
    return results


def reachable(edges: Mapping[str, Iterable[str]], starts: Iterable[str]) -> set[str]:
    """The starts and all that can be reached from them."""
    result, todo = set(starts), list(starts)
    while todo:
        new = set(edges[todo.pop()]) - result
        result |= new
        todo += new
    return result


def _missing_module(
    path: tuple[str | int, ...], what: str, modules: Mapping[str, Module]
) -> Problem:
    name = what.split("'")[-2]
    kinds = kinds_called(name)
    meant = [known for known, module in modules.items() if module.kind in kinds]
    known = f"modules: {', '.join(modules)}{did_you_mean(name, modules, meant)}"
    return bad(path, f"{what} does not exist", known)


GRAPH_RULES = (_names, _edges, _root, _reachable, _domains, _operands, _operators)
