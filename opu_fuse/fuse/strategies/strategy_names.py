"""The strategies by name, for whoever offers them without loading them."""

from enum import StrEnum


class StrategyName(StrEnum):
    """How operators are grouped; `strategies.STRATEGIES` says where every name's function is."""

    NONE = "none"
    """Every operator alone."""
    GREEDY = "greedy"
    """The published algorithm, defects included."""
    MATCHED = "matched"
    """The longest legal chains along the pipeline."""
    OPTIMAL = "optimal"
    """Of all legal groupings the one with the fewest predicted cycles."""
    DOMINATOR = "dominator"
    """TVM's FuseOps, cut where the machine needs it."""


DEFAULT_STRATEGY = StrategyName.MATCHED

REWRITING = frozenset({StrategyName.MATCHED, StrategyName.OPTIMAL})
"""Strategies that may be given a graph rewritten for fusing; the others see the user's own."""
