"""Small changes to bytes, texts and trees of plain values, drawn from a generator.

Each function makes one change: a case is a start and the seeds of its changes, so that it shrinks
by leaving changes out.
"""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

NUMBERS = (0, 1, -1, 2, 3, 5, 7, 8, 16, 63, 64, 65, 127, 128, 255, 256, 65535, 65536)
HUGE = (1 << 22, 1 << 31, -(1 << 31), 1 << 32, 1 << 44, 1 << 63, -(1 << 63), 1 << 64, 10**30)
ODD_VALUES = (
    *(None, True, False, "", "x", "0", "nul\0", "höhe", "a/b", "../../x", "\ud800", "\x1b[31m"),
    *(0.5, -0.0, 1e-40, 1e308, -1e308, [], {}, [[]], [0], {"a": 1}, "A" * 5000),
)
_CHARACTERS = " \t\n\r:-,=#{}[]&*!|>'\"%@`~0123456789abcxyz_.ABCäé\0\x1b\u2028"


def rng_of(*seed: int) -> np.random.Generator:
    """The generator of a case, or of one of its changes."""
    return np.random.default_rng(seed)


def one_of(rng: np.random.Generator, values: Any) -> Any:
    """One of a sequence, as it is (numpy would make it an array's element)."""
    return values[int(rng.integers(len(values)))]


def odd_number(rng: np.random.Generator, near: int = 0) -> int:
    """Small, huge, or near a number that stood there."""
    match int(rng.integers(4)):
        case 0:
            return near + int(one_of(rng, (-1, 1, -2, 2, 8, -8)))
        case 1:
            return int(one_of(rng, HUGE))
        case 2:
            return int(one_of(rng, (near * 2, near * 3, near // 2, -near, near * 1000)))
        case _:
            return int(one_of(rng, NUMBERS))


def change_bytes(rng: np.random.Generator, data: bytes) -> bytes:
    """A bit, a byte, or a stretch: changed, removed, repeated, or moved in from elsewhere."""
    if not data:
        return bytes(rng.integers(0, 256, int(rng.integers(1, 9))).astype(np.uint8))
    at = int(rng.integers(len(data)))
    length = int(min(2 ** rng.integers(0, 10), len(data) - at))
    there = data[at : at + length]
    match int(rng.integers(7)):
        case 0:
            new = bytes([there[0] ^ 1 << int(rng.integers(8))]) + there[1:]
        case 1:
            new = bytes([int(rng.integers(256))]) + there[1:]
        case 2:
            new = b""
        case 3:
            new = there + there
        case 4:
            start = int(rng.integers(len(data)))
            new = data[start : start + length]
        case 5:
            new = bytes(rng.integers(0, 256, length).astype(np.uint8))
        case _:
            return data[:at]
    return data[:at] + new + data[at + length :]


def change_text(rng: np.random.Generator, text: str) -> str:
    """A character or a line: changed, removed, repeated, moved; a number made odd."""
    lines = text.splitlines(keepends=True) or [""]
    at = int(rng.integers(len(lines)))
    line = lines[at]
    match int(rng.integers(8)):
        case 0:
            lines[at] = ""
        case 1:
            lines[at] = line + line
        case 2:
            other = int(rng.integers(len(lines)))
            lines[at], lines[other] = lines[other], line
        case 3:
            lines[at] = _with_odd_number(rng, line)
        case 4:
            spot = int(rng.integers(len(line) + 1))
            lines[at] = line[:spot] + str(one_of(rng, _CHARACTERS)) + line[spot:]
        case 5:
            spot = int(rng.integers(len(line) + 1))
            lines[at] = line[:spot] + line[spot + 1 :]
        case 6:
            words = line.split(" ")
            words[int(rng.integers(len(words)))] = one_of(rng, text.split() or ["x"])
            lines[at] = " ".join(words)
        case _:
            lines[at] = "  " * int(rng.integers(1, 3)) + line.lstrip()
    return "".join(lines)


def _with_odd_number(rng: np.random.Generator, line: str) -> str:
    starts = [i for i, c in enumerate(line) if c.isdigit() and not line[i - 1 : i].isdigit()]
    if not starts:
        return line
    start = end = one_of(rng, starts)
    while end < len(line) and line[end].isdigit():
        end += 1
    return f"{line[:start]}{odd_number(rng, int(line[start:end][:30]))}{line[end:]}"


def change_tree(rng: np.random.Generator, tree: Any) -> None:
    """One change somewhere in lists and dicts, in place: a value, a key, an item."""
    places = list(_places(tree))
    if not places:
        return
    parent, key = one_of(rng, places)
    value = parent[key]
    match int(rng.integers(7)):
        case 0 | 1 if isinstance(value, int | float) and not isinstance(value, bool):
            number = odd_number(rng, int(min(max(value, -1e18), 1e18)))
            parent[key] = number if isinstance(value, int) else float(np.clip(number, -1e30, 1e30))
        case 0 | 1 | 2:
            parent[key] = copy.deepcopy(one_of(rng, ODD_VALUES))
        case 3:
            other, at = one_of(rng, places)
            parent[key] = copy.deepcopy(other[at])
        case 4:
            del parent[key]
        case 5 if isinstance(parent, list):
            parent.insert(key, copy.deepcopy(value))
        case 5 if isinstance(parent, dict):
            parent[f"{key}2"] = copy.deepcopy(value)
        case _:
            _swap(rng, parent, key)


def _swap(rng: np.random.Generator, parent: Any, key: Any) -> None:
    keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
    other = one_of(rng, keys)
    parent[key], parent[other] = parent[other], parent[key]


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every value, containers as well as leaves."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value)
