"""What is there, for a type checker too: `some(node.inputs[1]).meta`."""

from typing import TypeVar

T = TypeVar("T")


def some(value: T | None) -> T:
    assert value is not None
    return value
