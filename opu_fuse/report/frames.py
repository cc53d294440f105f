"""Groups and tensors of a program as pandas tables."""

from typing import TYPE_CHECKING

from opu_fuse.bundle.program import Bundle
from opu_fuse.extras import frame
from opu_fuse.report.group_rows import GroupRow, group_rows, has_cycles
from opu_fuse.report.json_trees import Tree, memory_json

if TYPE_CHECKING:
    import pandas as pd

    from opu_fuse.bundle.result import RunResult

GROUP_COLUMNS = (
    *("name", "operators", "modules", "macs"),
    *("predicted_cycles", "cycles", "mac_efficiency", "dram_bytes"),
)
TENSOR_COLUMNS = (
    *("name", "shape", "offset", "bytes", "slot", "scale", "zero_point"),
    *("first_group", "last_group"),
)


def groups_frame(bundle: Bundle, result: "RunResult | None" = None) -> "pd.DataFrame":
    """A row per group, with the group's number as index, for all images of the batch.

    With a run, dram_bytes is measured. Where its engine has time there is a column `cycles`, and
    mac_efficiency is that of these; else it is that of the predicted ones.
    """
    timed = has_cycles(result)
    columns = [name for name in GROUP_COLUMNS if timed or name != "cycles"]
    rows = group_rows(bundle, result)
    table = frame(map(_group, rows), columns)
    table.index = [row.group.index for row in rows]
    return table.rename_axis("group")


def _group(row: GroupRow) -> Tree:
    return {
        "name": row.group.name,
        "operators": row.operators,
        "modules": row.modules,
        "macs": row.group.macs,
        "predicted_cycles": row.group.cycles,
        "cycles": row.cycles,
        "mac_efficiency": row.mac_efficiency,
        "dram_bytes": row.dram_bytes,
    }


def tensors_frame(bundle: Bundle) -> "pd.DataFrame":
    """A row per feature map in the memory window, by offset: those of `inspect --memory --json`."""
    rows = sorted(memory_json(bundle)["tensors"], key=lambda tensor: tensor["offset"])
    return frame(rows, TENSOR_COLUMNS)
