"""Messages for YAML that does not fit the schema of `spec.py`."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from opu_fuse.errors import SpecError
from opu_fuse.hw.problem import did_you_mean
from opu_fuse.hw.spec import HwSpec
from opu_fuse.hw.yamltree import KeyPath, Tree


def schema_error(tree: Tree, detail: Mapping[str, Any]) -> SpecError:
    """One detail of a pydantic `ValidationError`, worded for whoever wrote the YAML."""
    path: KeyPath = tuple(detail["loc"])
    key = _dotted(path)
    place = tree.place(path)
    match detail["type"]:
        case "unexpected_keyword_argument":
            *folders, name = path
            known = _keys_at(tuple(folders))
            inside = f" in {_dotted(tuple(folders))}" if folders else ""
            return SpecError(
                place,
                f"unknown key {name!r}{inside}",
                f"known keys: {', '.join(known)}{did_you_mean(str(name), known)}",
            )
        case "missing" | "missing_keyword_only_argument":
            return SpecError(
                place, f"key {key!r} is missing", "add it, or extend a spec that has it"
            )
        case "enum":
            known = tuple(
                e.strip(" '")
                for e in detail.get("ctx", {})["expected"].replace(" or ", ",").split(",")
            )
            return SpecError(
                place,
                f"{key} is {detail['input']!r}, which is not known",
                f"known: {', '.join(known)}{did_you_mean(str(detail['input']), known)}",
            )
        case _:
            message = detail["msg"][0].lower() + detail["msg"][1:]
            shown = "" if isinstance(detail["input"], dict) else f" {detail['input']!r}"
            return SpecError(
                place,
                f"{key}{shown}: {message}",
                "correct the value; docs/hw-spec.md describes every key",
            )


def _keys_at(path: KeyPath) -> tuple[str, ...]:
    """Field names of the dataclass found by following `path` from HwSpec."""
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
