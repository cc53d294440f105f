"""Differences of two machines, key by key."""

from collections.abc import Iterator, Mapping
from typing import Any

from opu_fuse.hw.spec.hw_spec import HwSpec

_NOT_COMPARED = ("name", "description")


def difference_lines(one: HwSpec, other: HwSpec) -> Iterator[str]:
    """A line for every key with another value; `-` is a key that one of them does not have."""
    first, second = (dict(_flat(spec.to_tree(), "")) for spec in (one, other))
    for key in dict.fromkeys((*first, *second)):
        before, after = first.get(key, "-"), second.get(key, "-")
        inside = f"{key}."
        if any(known.startswith(inside) for known in (*first, *second)):
            continue  # it is left out in one of them, its keys follow
        if before != after and key not in _NOT_COMPARED:
            yield f"{key}: {before} -> {after}"


def _flat(value: Mapping[str, Any], folder: str) -> Iterator[tuple[str, str]]:
    """Dotted keys of plain values and lists, as YAML writes them."""
    for key, inside in value.items():
        if isinstance(inside, Mapping):
            yield from _flat(inside, f"{folder}{key}.")
        else:
            yield f"{folder}{key}", _text(inside)


def _text(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_text(v)}" for k, v in value.items()) + "}"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
