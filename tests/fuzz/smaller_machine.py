"""Smaller machines that may fail in the same way: fewer modules, operators, edges and modes."""

import copy
from collections.abc import Iterator
from typing import Any

Tree = dict[str, Any]


def smaller(tree: Tree) -> Iterator[Tree]:
    """Candidates, the largest steps first; whoever judges them finds out which are machines."""
    for name in tree["dataflow"]["modules"]:
        for joined in (True, False):
            made = copy.deepcopy(tree)
            _remove(made, name, joined=joined)
            yield made
    for *path, last in _removable(tree):
        made = place = copy.deepcopy(tree)
        for key in path:
            place = place[key]
        del place[last]
        yield made
    off = {"depthwise": False, "window_cycles": 1}
    for part, change in (("array", off), ("post", {"keep": False})):
        if any(tree[part][key] != value for key, value in change.items()):
            yield tree | {part: tree[part] | change}


def _removable(tree: Tree) -> Iterator[tuple[Any, ...]]:
    """Ways to entries that may be left out."""
    flow = tree["dataflow"]
    yield from (("dataflow", "operators", name) for name in flow["operators"])
    for source, targets in flow["edges"].items():
        yield from (("dataflow", "edges", source, i) for i in range(len(targets)))
    for name, module in flow["modules"].items():
        way = ("dataflow", "modules", name)
        yield from ((*way, key) for key in ("unit", "domain_in") if key in module)
        yield from ((*way, "limits", key) for key in module.get("limits", ()))
    yield from (("array", "modes", i) for i in range(len(tree["array"]["modes"])))


def _remove(tree: Tree, gone: str, *, joined: bool) -> None:
    """Without a module, and without what only it needs. joined: who fed it feeds what it fed."""
    flow = tree["dataflow"]
    del flow["modules"][gone]
    after = flow["edges"].pop(gone, [])
    for source, targets in flow["edges"].items():
        if gone in targets:
            new = [n for n in after if n not in targets and n != source] if joined else []
            targets[:] = [n for n in targets if n != gone] + new
    kinds = {m["kind"] for m in flow["modules"].values()}
    left = {op: [k for k in able if k in kinds] for op, able in flow["operators"].items()}
    flow["operators"] = {op: able for op, able in left.items() if able}
    needed = {"table": "table" in kinds, "norm": "norm" in kinds}
    needed["pre"] = any("_pre_" in n for n in flow["modules"])
    for name, there in needed.items():
        if not there:
            tree["buffers"].pop(name, None)
