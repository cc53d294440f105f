"""Names of the strategies, for callers that list them without importing them."""

from enum import StrEnum
from typing import Literal


class StrategyName(StrEnum):
    """How operators are grouped; `strategies.STRATEGIES` says where every name's function is."""

    NONE = "none"
    """Every operator alone."""
    GREEDY = "greedy"
    """The published algorithm, defects included."""
    MATCHED = "matched"
    """The longest legal chains along the pipeline."""
    OPTIMAL = "optimal"
    """The legal grouping with the fewest predicted cycles."""
    DOMINATOR = "dominator"
    """TVM's FuseOps, cut where the machine needs it."""


StrategyLike = StrategyName | Literal["none", "greedy", "matched", "optimal", "dominator"]
"""As an argument; the names are those above (`tests/api/test_public_api.py`)."""


DEFAULT_STRATEGY = StrategyName.MATCHED

REWRITING = frozenset({StrategyName.MATCHED, StrategyName.OPTIMAL})
"""Strategies that accept a graph rewritten for fusion; the others get the user's graph."""
