"""Fused stacks and batch blocks as text, without the imports of explanations."""

from collections.abc import Iterator

from opu_fuse.schedule.plan import Plan
from opu_fuse.schedule.tile_choice import BatchBlock, Together, Weighed


def stack_lines(plan: Plan) -> Iterator[str]:
    """A line for every fused stack and every batch block of the program."""
    for found in plan.cascades:
        yield f"strip by strip: {names(plan, found)}{compared(plan, found)}"
    yield from (in_rounds(plan, found) for found in plan.rounds)


def in_rounds(plan: Plan, found: BatchBlock) -> str:
    """The groups of the batch blocks, and their images per block."""
    return f"{found.images} of {plan.layout.images} images at a time: {names(plan, found)}"


def names(plan: Plan, found: Together | BatchBlock) -> str:
    """Of its groups."""
    return ", ".join(plan.layers[group][0].layer.name for group in found.groups)


def compared(plan: Plan, found: Together) -> str:
    """With its groups one after the other, where that was asked."""
    tried = next((w for w in plan.weighed if w.together == found), None)
    return f": {both(tried)}" if tried else " (as asked for)"


def both(tried: Weighed) -> str:
    """Cycles and bytes of a fused stack and of its unfused groups."""
    return (
        f"{tried.cycles} cycles and {tried.bytes} bytes, one after the other {tried.cycles_alone} "
        f"and {tried.bytes_alone}"
    )
