"""TABLE: any function of one int8 value, looked up."""

import numpy as np

from opu_fuse.units.base import (
    Capability,
    Field,
    Interval,
    ModuleKind,
    Reach,
    Site,
    Space,
    Stage,
    Unit,
)
from opu_fuse.units.operator import Numeric, Operator, Settings
from opu_fuse.units.params import PostParams

TABLE_WORDS = 256
"""Table memory words of one unary function: an entry for every int8, every lane its own."""


def _settings(operator: Operator, numeric: Numeric) -> Settings:  # noqa: ARG001  one signature for all units
    """The function is in its entries."""
    return Settings(registers={})


def _run(value: np.ndarray, p: PostParams, site: Site) -> np.ndarray:
    entries = p["table"] + TABLE_WORDS // 2 + value.astype(np.int64)
    return site.words(Space.TABLE)[entries, np.arange(site.lanes)]


def _reads(p: PostParams, reach: Reach) -> tuple[Interval, ...]:
    """Which entries are read depends on the data: all count."""
    return reach.run(p["table"], TABLE_WORDS)


TABLE = Unit(
    module="opu_table",
    doc="any function of one value, by a table of 256 entries",
    runs={ModuleKind.TABLE: ("table", "relu", "clip", "leaky_relu")},
    capability=Capability(bit=4, doc="a table"),
    options={ModuleKind.TABLE: "tables"},
    stage=Stage.TABLE,
    prefix="table",
    registers=(Field(43, "table", 22, "table memory word of the entry for -128"),),
    memory=Space.TABLE,
    cycles=3,
    run=_run,
    reads=_reads,
    settings=_settings,
)
