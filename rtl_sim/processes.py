"""Blocking assignments in clocked processes, and who sees them.

A variable that a clocked process sets with `=` changes before others that wait for the same edge
have run, or after: what they read is up to the tool. So such a variable belongs to its process.
The simulators' bodies (docs/machine.md) are such processes, whose functions do most of the
assigning; linters look at the text of a process and not into functions, so this reads the tree
that Verilator writes of a design, where parameters are numbers and names are resolved.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Node = Mapping[str, Any]

CLOCKED = frozenset({"always", "always_ff"})
_PROCESSES = frozenset({"ALWAYS", "ASSIGNW", "CELL", "INITIAL", "FINAL"})
_WAITS = frozenset({"DELAY", "EVENTCONTROL", "WAIT"})
_FUNCTIONS = frozenset({"FUNC", "TASK"})
_ASSIGNMENTS = frozenset({"ASSIGN", "ASSIGNDLY", "ASSIGNW"})


def shared(folder: Path) -> list[str]:
    """A line for each variable that a clocked process sets with `=` and that another process,
    an instance or a `<=` touches: where it is set, where it is touched. folder: what Verilator
    wrote with `--json-only`.
    """
    tree = json.loads(next(folder.glob("*.tree.json")).read_text(encoding="utf-8"))
    meta = json.loads(next(folder.glob("*.tree.meta.json")).read_text(encoding="utf-8"))
    files = {key: Path(file["filename"]).name for key, file in meta["files"].items()}
    return sorted({line for module in tree["modulesp"] for line in _module(module, files)})


def _module(module: Node, files: Mapping[str, str]) -> Iterator[str]:
    functions = {n["addr"]: n for n in _below(module) if n["type"] in _FUNCTIONS}
    # An initial block that waits for nothing has ended before the first edge.
    processes = [p for p in _processes(module) if p["type"] != "INITIAL" or _waits(p)]
    own = {n["addr"]: n["name"] for n in _variables(module)}
    effects = [_Effects(process, functions) for process in processes]
    for process, effect in zip(processes, effects, strict=True):
        if process.get("keyword") not in CLOCKED:
            continue
        for variable, sites in effect.blocking.items():
            others = [e.touched[variable] for e in effects if e is not effect]
            others.append(effect.delayed[variable])
            sites_elsewhere = sorted({_site(n, files) for nodes in others for n in nodes})
            if variable in own and sites_elsewhere:
                yield (
                    f"{_site(sites[0], files)}: {own[variable]} is set with = in a clocked "
                    f"process and belongs to it, but for {', '.join(sites_elsewhere)}"
                )


class _Effects:
    """What a process does to variables (by their address), through the functions that it calls.

    blocking, delayed: nodes that set one with = and with <=; touched: all nodes that name it.
    """

    def __init__(self, process: Node, functions: Mapping[str, Node]) -> None:
        self.blocking: defaultdict[str, list[Node]] = defaultdict(list)
        self.delayed: defaultdict[str, list[Node]] = defaultdict(list)
        self.touched: defaultdict[str, list[Node]] = defaultdict(list)
        self._functions = functions
        self._called: set[str] = set()
        self._visit(process, self.blocking)

    def _visit(self, node: Node, written: defaultdict[str, list[Node]]) -> None:
        kind = node["type"]
        if kind == "ASSIGNDLY":
            written = self.delayed
        elif kind in _ASSIGNMENTS:
            written = self.blocking
        if kind in {"FUNCREF", "TASKREF"}:
            self._call(node["taskp"])
        elif kind in {"VARREF", "VARXREF"}:
            self.touched[node["varp"]].append(node)
            if node["access"] != "RD":
                written[node["varp"]].append(node)
        for child in _children(node):
            self._visit(child, written)

    def _call(self, function: str) -> None:
        if function in self._functions and function not in self._called:
            self._called.add(function)
            self._visit(self._functions[function], self.blocking)


def _processes(node: Node) -> Iterator[Node]:
    for child in _children(node):
        if child["type"] in _PROCESSES:
            yield child
        elif child["type"] not in _FUNCTIONS:
            yield from _processes(child)


def _waits(process: Node) -> bool:
    return any(n["type"] in _WAITS for n in _below(process))


def _variables(node: Node) -> Iterator[Node]:
    """Those that outlive a step: neither of a function nor of a block in a process."""
    for child in _children(node):
        if child["type"] == "VAR":
            yield child
        elif child["type"] not in _FUNCTIONS | _PROCESSES:
            yield from _variables(child)


def _below(node: Node) -> Iterator[Node]:
    for child in _children(node):
        yield child
        yield from _below(child)


def _children(node: Node) -> Iterator[Node]:
    for value in node.values():
        if isinstance(value, list):
            yield from value


def _site(node: Node, files: Mapping[str, str]) -> str:
    file, line, _ = node["loc"].split(",")
    return f"{files[file]}:{line.split(':')[0]}"
