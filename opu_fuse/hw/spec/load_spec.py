"""From a name or a YAML file to a checked `HwSpec`.

Order: YAML with source lines (`yaml_tree`) -> schema (`hw_spec`) -> meaning (`check`). The first
mistake is raised as `SpecError` with file, line and key; `problems` gives all of them.
"""

import functools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from opu_fuse.errors import SpecError
from opu_fuse.hw.spec.blame import blamed
from opu_fuse.hw.spec.check import check_spec
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.problem import Problem, did_you_mean
from opu_fuse.hw.spec.schema_errors import schema_error
from opu_fuse.hw.spec.yaml_tree import KeyPath, Tree, parse_tree, read_tree
from opu_fuse.resources import hw_specs_dir

HwLike = HwSpec | str | Path
"""A machine, its name, or the file that describes it."""

_RESOLVED: dict[str, HwSpec] = {}
"""Sound specs by their resolved text, read once: who looks into a program asks for its spec."""


def spec_names() -> tuple[str, ...]:
    """Names of the machines that come with the package, sorted."""
    return tuple(sorted(p.stem for p in hw_specs_dir().glob("*.yaml")))


def load_hw(name_or_path: HwLike) -> HwSpec:
    """The machine called `name_or_path` (of `hw_specs/`), or described by that YAML file; a machine
    is itself.

    A text without a slash and without a `.yaml`/`.yml` ending is a name. Raises SpecError.
    """
    if isinstance(name_or_path, HwSpec):
        return name_or_path
    spec = _sound(*_read(find_spec(str(name_or_path))))
    return _RESOLVED.setdefault(spec.to_yaml(), spec)


def load_hw_text(text: str, where: str = "spec.yaml") -> HwSpec:
    """A resolved spec (`HwSpec.to_yaml`) from its text, as a program file holds it. Raises
    SpecError.
    """
    if text not in _RESOLVED:
        _RESOLVED[text] = _sound(*_validate(parse_tree(text, where)))
    return _RESOLVED[text]


def spec_of_tree(tree: Mapping[str, Any]) -> HwSpec:
    """The spec of a tree such as `HwSpec.to_tree` gives, which fits the schema; whether it makes a
    machine is not asked.
    """
    return _adapter().validate_json(json.dumps(tree))


def problems(name_or_path: str | Path) -> tuple[SpecError, ...]:
    """Everything wrong with a spec, in file order of discovery; empty when it is sound."""
    try:
        return _read(find_spec(str(name_or_path)))[1]
    except SpecError as error:
        return (error,)


def find_spec(name: str, folder: Path | None = None) -> Path:
    """File of a spec name or path; relative paths start at `folder`. Raises SpecError listing the
    known specs.
    """
    if "/" in name or name.endswith((".yaml", ".yml")):
        path = (folder or Path()) / name
        if path.is_file():
            return path
        raise SpecError(
            name, "no such file", f"give a YAML file or one of: {', '.join(spec_names())}"
        )
    path = hw_specs_dir() / f"{name}.yaml"
    if name not in spec_names():
        raise SpecError(
            name,
            "unknown machine",
            f"known: {', '.join(spec_names())}{did_you_mean(name, spec_names())}",
        )
    return path


def _sound(spec: HwSpec | None, errors: tuple[SpecError, ...]) -> HwSpec:
    if not errors:
        assert spec is not None
        return spec
    first, others = errors[0], len(errors) - 1
    more = f" (and {others} more: `opu-fuse hw check` lists them)" if others else ""
    raise SpecError(first.where, first.what + more, first.help)


def _read(path: Path) -> tuple[HwSpec | None, tuple[SpecError, ...]]:
    return _validate(read_tree(path, find_spec, _expand_domains))


def _validate(tree: Tree) -> tuple[HwSpec | None, tuple[SpecError, ...]]:
    _expand_domains(tree)
    _default_limits(tree.value)
    try:
        # JSON mode: here pydantic's strict schema takes lists for tuples and text for enums.
        text = json.dumps(tree.value, allow_nan=False)
    except ValueError:
        location, key = _first_non_finite(tree)
        return None, (SpecError(location, f"{key} is not a finite number", "give a number"),)
    try:
        spec = _adapter().validate_json(text)
    except ValidationError as error:
        found = (schema_error(tree, detail) for detail in error.errors())
        return None, tuple(sorted(found, key=_line))
    return spec, blamed(tree, check_spec(spec), _again)


def _line(error: SpecError) -> tuple[str, int]:
    file, _, number = error.where.rpartition(":")
    return file, int(number) if number.isdecimal() else 0


def _again(value: dict[str, Any]) -> tuple[Problem, ...] | None:
    """Problems of another tree; None where it does not fit the schema."""
    try:
        return check_spec(spec_of_tree(value))
    except ValidationError:
        return None


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
        location = tree.location((*path, "domain"))
        both = [k for k in ("domain_in", "domain_out") if module.get(k) is not None]
        if both:
            raise SpecError(
                location, f"module {name!r} has `domain` and `{both[0]}`", "keep one of them"
            )
        domain = module.pop("domain")
        for key in ("domain_in", "domain_out"):
            module[key] = domain
            tree.locations[(*path, key)] = location


def _default_limits(value: dict[str, Any]) -> None:
    """Pooling windows of a machine that is built are not dilated, where nobody says anything."""
    flow = value.get("dataflow")
    modules = flow.get("modules") if isinstance(flow, dict) else None
    for module in modules.values() if isinstance(modules, dict) and value.get("build") else ():
        if isinstance(module, dict) and module.get("kind") == "pool":
            limits = module.setdefault("limits", {})
            if isinstance(limits, dict):
                limits.setdefault("dilation", 1)


def _first_non_finite(tree: Tree) -> tuple[str, str]:
    """Source line and dotted key of a number that is NaN or infinite."""

    def first_path(value: Any, path: KeyPath) -> KeyPath | None:
        if isinstance(value, float) and not math.isfinite(value):
            return path
        items = (
            value.items()
            if isinstance(value, dict)
            else enumerate(value)
            if isinstance(value, list)
            else ()
        )
        return next((p for k, v in items if (p := first_path(v, (*path, k)))), None)

    path = first_path(tree.value, ()) or ()
    return tree.location(path), ".".join(map(str, path))
