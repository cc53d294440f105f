"""From a name or a YAML file to a checked `HwSpec`.

Order: YAML with places (`yamltree`) -> schema (`spec`) -> meaning (`check`). The first mistake is raised as `SpecError` with file,
line and key; `problems` gives all of them.
"""

import dataclasses
import difflib
import functools
import json
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from opu_fuse.errors import SpecError
from opu_fuse.hw.check import check_spec
from opu_fuse.hw.spec import HwSpec
from opu_fuse.hw.yamltree import KeyPath, Tree, read_tree
from opu_fuse.resources import hw_specs_dir


def spec_names() -> tuple[str, ...]:
    """Names of the machines that come with the package, sorted."""
    return tuple(sorted(p.stem for p in hw_specs_dir().glob("*.yaml")))


def load_hw(name_or_path: str | Path) -> HwSpec:
    """The machine called `name_or_path` (of `hw_specs/`), or described by that YAML file.

    A text without a slash and without a `.yaml`/`.yml` ending is a name. Raises SpecError.
    """
    spec, errors = _read(find_spec(str(name_or_path)))
    if errors:
        more = f" (and {len(errors) - 1} more: `opu-fuse hw check` lists them)" if len(errors) > 1 else ""
        first = errors[0]
        raise SpecError(first.where, first.what + more, first.help)
    assert spec is not None
    return spec


def load_hw_text(text: str, where: str = "spec.yaml") -> HwSpec:
    """A resolved spec from YAML text (the member of a program file). Raises SpecError."""
    raise NotImplementedError


def problems(name_or_path: str | Path) -> tuple[SpecError, ...]:
    """Everything wrong with a spec, in file order of discovery; empty when it is sound."""
    try:
        return _read(find_spec(str(name_or_path)))[1]
    except SpecError as error:
        return (error,)


def find_spec(name: str, folder: Path | None = None) -> Path:
    """File of a spec name or path; relative paths start at `folder`. Raises SpecError listing the known specs."""
    if "/" in name or name.endswith((".yaml", ".yml")):
        path = (folder or Path()) / name
        if path.is_file():
            return path
        raise SpecError(name, "no such file", f"give a YAML file or one of: {', '.join(spec_names())}")
    path = hw_specs_dir() / f"{name}.yaml"
    if name not in spec_names():
        raise SpecError(name, "unknown machine", f"known: {', '.join(spec_names())}{_did_you_mean(name, spec_names())}")
    return path


def _read(path: Path) -> tuple[HwSpec | None, tuple[SpecError, ...]]:
    return _validate(read_tree(path, find_spec))


def _validate(tree: Tree) -> tuple[HwSpec | None, tuple[SpecError, ...]]:
    _expand_domains(tree)
    try:
        # JSON mode: the one in which pydantic's strict schema takes lists for tuples and text for enums.
        text = json.dumps(tree.value, allow_nan=False)
    except ValueError:
        place, key = _not_a_number(tree)
        return None, (SpecError(place, f"{key} is not a finite number", "give a number"),)
    try:
        spec = _adapter().validate_json(text)
    except ValidationError as error:
        return None, tuple(_schema_error(tree, detail) for detail in error.errors())
    return spec, tuple(SpecError(tree.place(p.path), p.what, p.help) for p in check_spec(spec))


@functools.cache
def _adapter() -> TypeAdapter[HwSpec]:
    return TypeAdapter(HwSpec)


def _expand_domains(tree: Tree) -> None:
    """`domain: x` is short for both `domain_in` and `domain_out`."""
    dataflow = tree.value.get("dataflow")
    modules = dataflow.get("modules") if isinstance(dataflow, dict) else None
    for name, module in modules.items() if isinstance(modules, dict) else ():
        if not isinstance(module, dict) or "domain" not in module:
            continue
        path = ("dataflow", "modules", name)
        place = tree.place((*path, "domain"))
        both = [k for k in ("domain_in", "domain_out") if k in module]
        if both:
            raise SpecError(place, f"module {name!r} has `domain` and `{both[0]}`", "keep one of them")
        domain = module.pop("domain")
        for key in ("domain_in", "domain_out"):
            module[key] = domain
            tree.places[(*path, key)] = place


def _not_a_number(tree: Tree) -> tuple[str, str]:
    def walk(value: Any, path: KeyPath) -> KeyPath | None:
        if isinstance(value, float) and not math.isfinite(value):
            return path
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        return next((p for k, v in items if (p := walk(v, (*path, k)))), None)

    path = walk(tree.value, ()) or ()
    return tree.place(path), ".".join(map(str, path))


def _schema_error(tree: Tree, detail: Any) -> SpecError:
    path: KeyPath = detail["loc"]
    key = ".".join(str(p) for p in path)
    place = tree.place(path)
    match detail["type"]:
        case "unexpected_keyword_argument":
            known = _keys_at(path[:-1])
            inside = f" in {'.'.join(map(str, path[:-1]))}" if len(path) > 1 else ""
            return SpecError(place, f"unknown key {path[-1]!r}{inside}",
                             f"known keys: {', '.join(known)}{_did_you_mean(str(path[-1]), known)}")  # fmt: skip
        case "missing" | "missing_keyword_only_argument":
            return SpecError(place, f"key {key!r} is missing", "add it, or extend a spec that has it")
        case "enum":
            known = tuple(e.strip(" '") for e in detail["ctx"]["expected"].replace(" or ", ",").split(","))
            return SpecError(place, f"{key} is {detail['input']!r}, which is not known",
                             f"known: {', '.join(known)}{_did_you_mean(str(detail['input']), known)}")  # fmt: skip
        case _:
            message = detail["msg"][0].lower() + detail["msg"][1:]
            shown = "" if isinstance(detail["input"], dict) else f" {detail['input']!r}"
            return SpecError(place, f"{key}{shown}: {message}", "correct the value; docs/hw-spec.md describes every key")


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


def _did_you_mean(word: str, known: typing.Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
