"""A partition with the model and the machine it belongs to: as tables, by names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from html import escape
from typing import TYPE_CHECKING

from opu_fuse.dfg.graph import Dfg
from opu_fuse.extras import frame
from opu_fuse.fuse.explain.partition_json import partition_to_json
from opu_fuse.fuse.partition import Partition
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.report.html_tables import html_table
from opu_fuse.summaries import summary

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedModel(Partition):
    """A partition with its model and machine. dfg: the nodes that matches, host operators and
    boundaries give by index.
    """

    dfg: Dfg = field(compare=False)  # its ONNX nodes are of one import
    hw: HwSpec

    @classmethod
    def of(cls, dfg: Dfg, hw: HwSpec, partition: Partition) -> "PartitionedModel":
        parts = {f.name: getattr(partition, f.name) for f in fields(partition)}
        return cls(dfg=dfg, hw=hw, **parts)

    def to_frame(self) -> "pd.DataFrame":
        """A pandas table, a row per operator: group and module, or why it runs on the host CPU."""
        table = frame(self._operators(), ("name", "operator", "group", "module", "reason"))
        return table.astype({"group": "Int64"})  # the host's have none

    def _operators(self) -> Iterator[Mapping[str, object]]:
        tree = partition_to_json(self.dfg, self.hw, self)
        for group in tree["groups"]:
            for op in group["ops"]:
                where = {"group": group["index"], "module": op["module"], "reason": None}
                yield {"name": op["name"], "operator": op["op"], **where}
        for op in tree["host"]:
            where = {"group": None, "module": None, "reason": op["reason"]}
            yield {"name": op["name"], "operator": op["op"], **where}

    def __repr__(self) -> str:
        by = f"strategy {self.strategy}"
        return summary(self, self.dfg.name, by, *self._facts(), machine=self.hw.name)

    def _repr_html_(self) -> str:
        """The groups, and the operators of the host CPU with the reasons."""
        tree = partition_to_json(self.dfg, self.hw, self)
        rows = [
            (
                str(group["index"]),
                *(escape(", ".join(op[key] for op in group["ops"])) for key in ("name", "op")),
                escape(" > ".join(dict.fromkeys(o["module"] for o in group["ops"] if o["module"]))),
            )
            for group in tree["groups"]
        ]
        host = [
            ("host", escape(op["name"]), escape(op["op"]), escape(op["reason"]))
            for op in tree["host"]
        ]
        heads = ("#", "names", "operators", "modules, or why on the host CPU")
        wrong = "".join(f"<div>illegal: {escape(v['text'])}</div>" for v in tree["violations"])
        table = html_table(heads, [*rows, *host], "groups")
        return f"<div>{escape(repr(self)[1:-1])}</div>{wrong}{table}"
