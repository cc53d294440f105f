"""YAML files as plain trees that record the source line of every key; `extends:` is resolved.

A stricter YAML: duplicate keys, merge keys, anchors and non-text keys are refused, only
`true`/`false` are booleans and dates are text. Under `extends`, mappings merge key by key,
everything else is replaced, and `null` removes an inherited key.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct, field
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from opu_fuse.errors import SpecError

Key = str | int
KeyPath = tuple[Key, ...]


class _Strict(Composer, SafeConstructor, Resolver):
    """Refuses what would be lost silently; `yaml_implicit_resolvers` is narrowed below."""

    file = ""
    peek_event: Callable[[], Any]

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()
        if getattr(event, "anchor", None) is not None:
            raise _error(
                self.file,
                event.start_mark.line,
                "anchors and aliases are not supported",
                "write the value out, or use `extends`",
            )
        return super().compose_node(parent, index)


_Strict.yaml_implicit_resolvers = {
    first: [
        (tag, regexp)
        for tag, regexp in resolvers
        if not tag.endswith((":timestamp", ":bool", ":merge"))
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _first in "tTfF":
    _Strict.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(true|false)$"), [_first])


class _Loader(_Strict, yaml.SafeLoader):
    """Pure-Python loader, whose errors name the problem and its line."""


_Quickest: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _QuickLoader(_Strict, _Quickest):
    """libyaml loader where PyYAML has it: three times as fast, with poorer error messages."""

    def __init__(self, text: str) -> None:
        _Quickest.__init__(self, text)


class Tree(Struct, kw_only=True):
    """value: nested dicts, lists and scalars.
    locations: `file:line` of every key and list element.
    base: the tree that the file extends, None without one.
    own: the file's own keys, empty where it extends none.
    """

    value: dict[str, Any]
    locations: dict[KeyPath, str] = field(default_factory=dict)
    base: "Tree | None" = None
    own: dict[str, Any] = field(default_factory=dict)

    def location(self, path: KeyPath) -> str:
        """`file:line` of `path`, or of its nearest ancestor with a recorded line."""
        while path and path not in self.locations:
            path = path[:-1]
        return self.locations.get(path, "")


def read_tree(path: Path, find: Callable[[str, Path], Path], each: Callable[[Tree], None]) -> Tree:
    """Read one file and what it extends. find(name, folder) gives the file that `extends: name`
    means; each: what happens to every file's own tree before it is merged.

    Raises SpecError with file and line for unreadable files, YAML mistakes, and files that extend
    themselves or, without a name of their own, another one.
    """
    return _resolve(path, find, each, ())


def _resolve(
    path: Path,
    find: Callable[[str, Path], Path],
    each: Callable[[Tree], None],
    above: tuple[Path, ...],
) -> Tree:
    own = _parse(path)
    each(own)
    base_name = own.value.pop("extends", None)
    if base_name is None:
        return own
    location = own.locations[("extends",)]
    if not isinstance(base_name, str):
        raise SpecError(
            location, f"extends is {base_name!r}, not a name or path", "name one spec or file"
        )
    try:
        base_path = find(base_name, path.parent)
    except SpecError as error:
        raise SpecError(location, f"extends: {error.what}", error.help) from None
    chain = (*above, path.resolve())
    if base_path.resolve() in chain:
        raise SpecError(
            location, f"the spec extends itself through {base_name!r}", "remove one `extends`"
        )
    if "name" not in own.value:  # machines are identified by name
        raise SpecError(location, "the spec has no `name` of its own", "give it one")
    base = _resolve(base_path, find, each, chain)
    base.value.pop("clock_on", None)  # measured on the base machine, not on this one
    locations = {**base.locations, **own.locations}
    merged = _merged(base.value, own.value)
    return Tree(value=merged, locations=locations, base=base, own=own.value)


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in own.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(base.get(key), dict):
            result[key] = _merged(base[key], value)
        else:
            result[key] = value
    return result


def _parse(path: Path) -> Tree:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise SpecError(
            str(path), f"cannot be read ({reason})", "give a readable YAML file"
        ) from None
    return parse_tree(text, str(path))


def parse_tree(text: str, file: str) -> Tree:
    """YAML text -> tree; `file` is what messages call it. `extends` is an ordinary key here. Raises
    SpecError.
    """
    with suppress(yaml.YAMLError):
        return _tree_of(_QuickLoader(text), file)
    try:
        loader = _Loader(text)
    except yaml.YAMLError:  # control characters: detected before any line number is known
        raise _error(
            file, 0, "YAML: holds characters that text cannot hold", "give a YAML file"
        ) from None
    try:
        return _tree_of(loader, file)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        advice = "indent with spaces" if "'\\t'" in problem else "correct the syntax"
        raise _error(file, mark.line if mark else 0, f"YAML: {problem}", advice) from None


def _tree_of(loader: _Loader | _QuickLoader, file: str) -> Tree:
    loader.file = file
    try:
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise _error(file, 0, "is not a mapping of keys to values", "write lines `key: value`")
        locations: dict[KeyPath, str] = {(): f"{file}:1"}
        return Tree(value=_mapping(loader, node, (), locations), locations=locations)
    except RecursionError:
        raise _error(file, 0, "YAML: nested too deeply", "a spec needs four levels") from None
    finally:
        loader.dispose()


def _mapping(
    loader: _Strict, node: yaml.MappingNode, path: KeyPath, locations: dict[KeyPath, str]
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line
        key = key_node.value
        plain = isinstance(key, str) and key.isprintable()
        if key_node.tag != "tag:yaml.org,2002:str" or not plain:
            shown = repr(key) if isinstance(key, str) else "of several values"
            raise _error(loader.file, line, f"key {shown} is not text", "keys are plain words")
        if key == "<<":
            raise _error(loader.file, line, "merge keys are not supported", "use `extends`")
        here = (*path, key)
        if key in result:
            first = locations[here].rpartition(":")[2]
            raise _error(
                loader.file,
                line,
                f"key {_dotted(here)!r} appears twice (first in line {first})",
                "remove one of them",
            )
        locations[here] = f"{loader.file}:{line + 1}"
        result[key] = _value(loader, value_node, here, locations)
    return result


def _value(loader: _Strict, node: yaml.Node, path: KeyPath, locations: dict[KeyPath, str]) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _mapping(loader, node, path, locations)
    if isinstance(node, yaml.SequenceNode):
        items = []
        for index, item in enumerate(node.value):
            locations[(*path, index)] = f"{loader.file}:{item.start_mark.line + 1}"
            items.append(_value(loader, item, (*path, index), locations))
        return items
    kind = node.tag.removeprefix("tag:yaml.org,2002:")
    if kind not in ("str", "int", "float", "bool", "null"):
        what = f"values of type {kind!r} are not supported"
        raise _error(loader.file, node.start_mark.line, what, "write a plain value")
    try:
        value = loader.construct_object(node)
        str(value).encode()
        return value
    except (ValueError, IndexError):  # numbers that pyyaml fails on, text that is not Unicode
        what = f"{node.value!r} is not of type {kind}"
        raise _error(loader.file, node.start_mark.line, what, "write a plain value") from None


def _dotted(path: KeyPath) -> str:
    return ".".join(str(p) for p in path)


def _error(file: str, line: int, what: str, help_: str) -> SpecError:
    """Line counts from 0, as YAML marks do."""
    return SpecError(f"{file}:{line + 1}", what, help_)
