"""The units of a plan by what they are."""

from itertools import pairwise


def stacks(plan):
    """Fused stacks."""
    return [unit for unit in plan.units if unit.stack]


def in_blocks(plan):
    """Units that run batch block by batch block."""
    return [unit for unit in plan.units if unit.images]


def heads(plan):
    """Fused heads."""
    return [unit for unit in plan.units if unit.heads]


def co_scheduled(plan):
    """Group -> the one whose tiles are interleaved with its own, or the next one of fused heads."""
    units = (unit for unit in plan.units if unit.interleaved or unit.heads)
    return {a: b for unit in units for a, b in pairwise(unit.groups)}


def first_ranges(plan):
    """Group -> output ranges that it computes in a unit of its own."""
    return {unit.groups[0]: unit.first_ranges for unit in plan.units if unit.first_ranges}
