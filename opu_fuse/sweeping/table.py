"""The rows of a sweep as a table, in the order of its axes, and as files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opu_fuse.sim.array_files import write_file
from opu_fuse.sweeping.plan import Task

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]

COLUMNS = {
    "key": "string",
    "model": "string",
    "image": "Int64",
    "spec": "string",
    "set": "string",
    "strategy": "string",
    "scales": "string",
    "batch": "Int64",
    "bytes_per_cycle": "Float64",
    "latency": "Int64",
    "error": "string",
    "cycles": "Int64",
    "milliseconds": "Float64",
    "images_per_second": "Float64",
    "mac_efficiency": "Float64",
    "macs": "Int64",
    "dram_bytes": "Int64",
    "groups": "Int64",
    "host_operators": "Int64",
    "clock_mhz": "Float64",
    "mac_units": "Int64",
    "on_chip_bytes": "Int64",
    "window_bytes": "Int64",
    "xc7_lut": "Float64",
    "xc7_dsp": "Float64",
    "xc7_bram": "Float64",
    "ecp5_lut": "Float64",
    "ecp5_dsp": "Float64",
    "ecp5_bram": "Float64",
}
"""After them a column `set.<key>` for every key of a spec that the sweep sets."""


def frame(tasks: Sequence[Task], rows: Mapping[str, Row]) -> "pd.DataFrame":
    """A table of the points of a sweep, each once, in the order of its axes. rows: by key."""
    import pandas as pd

    keys = dict.fromkeys(key for task in tasks for key in task.points())
    ordered = [rows[key] for key in keys]
    columns = {
        name: pd.array([row.get(name) for row in ordered], dtype=kind)
        for name, kind in COLUMNS.items()
    }
    values = [json.loads(row["set"] or "{}") for row in ordered]
    for name in dict.fromkeys(name for value in values for name in value):
        column = [_scalar(value.get(name)) for value in values]
        columns[f"set.{name}"] = pd.Series(column).convert_dtypes().array
    return pd.DataFrame(columns)


def _scalar(value: Any) -> Any:
    """Lists and mappings as text: a column of a table holds neither."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def write_tables(table: "pd.DataFrame", folder: Path) -> tuple[Path, Path]:
    """Parquet and CSV of the same rows."""
    parquet, csv = folder / "rows.parquet", folder / "rows.csv"
    write_file(parquet, lambda path: table.to_parquet(path, engine="pyarrow", index=False))
    write_file(csv, lambda path: table.to_csv(path, index=False))
    return parquet, csv
