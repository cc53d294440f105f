"""The kinds of hardware, one file each: see `base.Unit` for what a record holds."""

from opu_fuse.units.affine import AFFINE
from opu_fuse.units.array import ARRAY, REQUANT
from opu_fuse.units.base import ModuleKind, Stage, Unit
from opu_fuse.units.comparator import COMPARATOR
from opu_fuse.units.memory import LOAD, PAD, STORE
from opu_fuse.units.norm import NORM
from opu_fuse.units.pool import POOL
from opu_fuse.units.prelu import PRELU
from opu_fuse.units.residual import RESIDUAL
from opu_fuse.units.table import TABLE

UNITS: tuple[Unit, ...] = (
    *(LOAD, AFFINE, PAD, ARRAY, REQUANT),
    *(COMPARATOR, PRELU, POOL, RESIDUAL, TABLE, NORM, STORE),
)
"""In the order in which values pass them on most machines."""

BY_STAGE: dict[Stage, Unit] = {u.stage: u for u in UNITS if u.stage is not None}
BY_KIND: dict[ModuleKind, Unit] = {kind: unit for unit in UNITS for kind in unit.runs}

POST: tuple[Unit, ...] = tuple(u for u in UNITS if u.stage and u.stage is not Stage.PRE)
"""Stages of the post chain."""

STAGE_OF_OPERATOR: dict[str, Unit] = {
    op: unit for unit in reversed(POST) for ops in unit.runs.values() for op in ops
}
"""Operator -> the stage that runs it, the first of several."""

FORMS: dict[str, str] = {op: form for unit in UNITS for op, form in unit.forms.items()}
"""ONNX operator -> in which form machines run it, in words; `dfg/lower_node.py` decides it in
code.
"""

REAL_CONSTANTS: frozenset[str] = frozenset(
    op for unit in UNITS if unit.real_constants for ops in unit.runs.values() for op in ops
)
"""Operators whose constant operands need no scale."""

RUNS: dict[str, tuple[ModuleKind, ...]] = {
    op: tuple(kind for u in UNITS for kind, ops in u.runs.items() if op in ops)
    for op in dict.fromkeys(op for u in UNITS for ops in u.runs.values() for op in ops)
}
"""Operator -> module kinds that have a behaviour for it."""
