"""Messages for YAML that does not fit the schema of `hw_spec.py`."""

import dataclasses
import re
import types
import typing
from collections.abc import Mapping
from typing import Any

from opu_fuse.errors import SpecError
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.problem import did_you_mean, kinds_called
from opu_fuse.hw.spec.yaml_tree import KeyPath, Tree

_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")


def schema_error(tree: Tree, detail: Mapping[str, Any]) -> SpecError:
    """One detail of a pydantic `ValidationError`, worded for whoever wrote the YAML."""
    path: KeyPath = tuple(detail["loc"])
    key = _dotted(path)
    location = tree.location(path)
    match detail["type"]:
        case "unexpected_keyword_argument":
            *folders, name = path
            known = _keys_at(tuple(folders))
            inside = f" in {_dotted(tuple(folders))}" if folders else ""
            return SpecError(
                location,
                f"unknown key {name!r}{inside}",
                f"known keys: {', '.join(known)}{did_you_mean(str(name), known)}",
            )
        case "missing" | "missing_keyword_only_argument":
            return SpecError(
                location, f"key {key!r} is missing", "add it, or extend a spec that has it"
            )
        case "enum":
            known = tuple(
                e.strip(" '")
                for e in detail.get("ctx", {})["expected"].replace(" or ", ",").split(",")
            )
            word = str(detail["input"])
            meant = [str(kind) for kind in kinds_called(word)] if path[-1] == "kind" else []
            return SpecError(
                location,
                f"{key} is {detail['input']!r}, which is not known",
                f"known: {', '.join(known)}{did_you_mean(word, known, meant)}",
            )
        case _:
            shown = "" if isinstance(detail["input"], dict) else f" {detail['input']!r}"
            what, advice = _in_yaml(detail)
            return SpecError(location, f"{key}{shown}: {what}", advice)


def _in_yaml(detail: Mapping[str, Any]) -> tuple[str, str]:
    """The mistake of a value, and what to write instead, in the words of YAML."""
    kind, value = str(detail["type"]), detail["input"]
    text = isinstance(value, str)
    if kind in {"int_type", "float_type"} and text and _NUMBER.fullmatch(value):
        return "is text, not a number", f"remove the quotes: write {value}"
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return "is no whole number", f"write {int(value)}"
    if kind == "bool_type":
        written = {"yes": "true", "on": "true", "no": "false", "off": "false"}
        return "is neither true nor false", f"write {written.get(str(value), 'true or false')}"
    if kind in {"tuple_type", "list_type"}:
        return "is no list", "write it in brackets" if not text else f"write [{value}]"
    if kind == "string_type":
        return "is no text", f'put it in quotes: write "{value}"' if not text else "write a text"
    if kind in {"dict_type", "dataclass_type", "mapping_type"}:
        return (
            "is a value, not keys with values",
            "write {key: value}, see docs/hw-spec.md",
        )
    if kind == "string_pattern_mismatch":
        return "is no name", "use small letters, digits and hyphens, and begin with a letter"
    message = detail["msg"][0].lower() + detail["msg"][1:]
    return message, "correct the value; docs/hw-spec.md describes every key"


def _keys_at(path: KeyPath) -> tuple[str, ...]:
    """Field names of the dataclass reached by following `path` from HwSpec."""
    kind: Any = HwSpec
    for part in path:
        if dataclasses.is_dataclass(kind):
            kind = typing.get_type_hints(kind)[str(part)]
        elif typing.get_origin(kind) in (Mapping, dict, tuple):
            args = typing.get_args(kind)
            kind = args[1] if typing.get_origin(kind) is not tuple else args[0]
        if typing.get_origin(kind) in (typing.Union, types.UnionType):
            kind = next(a for a in typing.get_args(kind) if a is not type(None))
    return tuple(f.name for f in dataclasses.fields(kind))


def _dotted(path: KeyPath) -> str:
    return ".".join(str(p) for p in path)
