"""Attributes spec errors to the file and line where the author wrote the cause.

A spec that extends another one is checked after merging, so an error may be reported at an
inherited key. The override that causes it is then searched for by reverting one at a time.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from opu_fuse.errors import SpecError
from opu_fuse.hw.spec.problem import Problem
from opu_fuse.hw.spec.yaml_tree import KeyPath, Tree

Check = Callable[[dict[str, Any]], Sequence[Problem] | None]


def blamed(tree: Tree, problems: Sequence[Problem], check: Check) -> tuple[SpecError, ...]:
    """Errors with `file:line` for `problems`.

    If any problem is at a key of the file itself, only such problems are returned: errors at
    inherited keys follow from them. For each override at fault, only its first problem is returned.
    check: validates a merged tree; None if it cannot be checked.
    """
    here = [p for p in problems if _is_own(tree, tree.location(p.path))]
    if tree.base is None or here or not problems:
        reported = here or problems
        return tuple(SpecError(tree.location(p.path), p.what, p.help) for p in reported)
    remaining = {path: check(_without(tree, path)) for path in _leaves(tree.own, ())}
    errors: dict[KeyPath, SpecError] = {}
    for problem in problems:
        culprit = next((path for path, others in remaining.items() if _cures(others, problem)), ())
        inherited = f"{problem.what} (`{'.'.join(map(str, problem.path))}` is inherited)"
        location = tree.location(culprit or problem.path)
        key = culprit or problem.path
        if culprit and key not in errors and (missing := _cut_off(tree, culprit)):
            value = _with(tree, culprit, [*_at(tree.value, culprit), *missing])
            if _cures(check(value), problem):
                help_ = _KEEP.format(names=", ".join(missing), key=".".join(map(str, culprit)))
                problem = msgspec.structs.replace(problem, help=help_)
        errors.setdefault(key, SpecError(location, inherited, problem.help))
    return tuple(errors.values())


_KEEP = "keep {names} in `{key}`: a list replaces the inherited one"


def _cut_off(tree: Tree, path: KeyPath) -> list[str]:
    """Names of an inherited list that the list at `path` leaves out."""
    assert tree.base is not None
    own, inherited = _at(tree.value, path), _at(tree.base.value, path)
    if not isinstance(own, list) or not isinstance(inherited, list):
        return []
    return [name for name in inherited if isinstance(name, str) and name not in own]


def _at(value: Any, path: KeyPath) -> Any:
    """The value at a path, None where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _with(tree: Tree, path: KeyPath, new: Any) -> dict[str, Any]:
    """The merged tree with another value at `path`."""
    value = copy.deepcopy(tree.value)
    _at(value, path[:-1])[path[-1]] = new
    return value


def _cures(remaining: Sequence[Problem] | None, problem: Problem) -> bool:
    return remaining is not None and problem.what not in {other.what for other in remaining}


def _is_own(tree: Tree, location: str) -> bool:
    return location.rpartition(":")[0] == tree.locations.get((), "").rpartition(":")[0]


def _leaves(value: dict[str, Any], path: KeyPath) -> Iterator[KeyPath]:
    """Paths of the leaf keys of a nested mapping."""
    for key, inside in value.items():
        if isinstance(inside, dict) and inside:
            yield from _leaves(inside, (*path, key))
        else:
            yield (*path, key)


def _without(tree: Tree, path: KeyPath) -> dict[str, Any]:
    """The merged tree with the override at `path` reverted to the inherited value."""
    assert tree.base is not None
    value = copy.deepcopy(tree.value)
    old: dict[Any, Any] = tree.base.value
    parent: dict[Any, Any] = value
    for key in path[:-1]:
        parent = parent.setdefault(key, {})
        inside = old.get(key)
        old = inside if isinstance(inside, dict) else {}
    if path[-1] in old:
        parent[path[-1]] = old[path[-1]]
    else:
        parent.pop(path[-1], None)
    return value
