"""A run with the program that ran: as tables and drawings."""

from dataclasses import dataclass, fields
from html import escape
from typing import TYPE_CHECKING, Any

from opu_fuse.bundle.program import Bundle
from opu_fuse.bundle.result import RunResult
from opu_fuse.errors import RunError
from opu_fuse.extras import library
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.report.frames import groups_frame
from opu_fuse.report.group_rows import has_cycles
from opu_fuse.report.notebook import groups_html
from opu_fuse.report.pipeline_drawing import pipeline_svg
from opu_fuse.report.run_figures import RunFigures
from opu_fuse.summaries import summary

if TYPE_CHECKING:
    import pandas as pd

    from opu_fuse.report.page.embedded import Chart  # needs Bokeh


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRun(RunResult):
    """A run with its program and machine."""

    bundle: Bundle
    hw: HwSpec

    @classmethod
    def of(cls, result: RunResult, bundle: Bundle, hw: HwSpec) -> "ProgramRun":
        parts = {field.name: getattr(result, field.name) for field in fields(result)}
        return cls(bundle=bundle, hw=hw, **parts)

    def to_frame(self) -> "pd.DataFrame":
        """A pandas table with a row per group, measured where the engine has time."""
        return groups_frame(self.bundle, self)

    def roofline(self) -> "Chart":
        """MACs a cycle over MACs a DRAM byte, a point for every group that multiplies.

        Of a run on an engine that has time, else RunError. Needs Bokeh (extra `notebook`).
        """
        if not has_cycles(self):
            what = f"the {self.engine} engine has no time"
            raise RunError("roofline", what, "run with engine='cycle' or engine='rtl'")
        charts, hw = _report_page("charts"), self.hw
        tree = {
            "summary": {"mac_units": hw.macs, "dram_bytes_per_cycle": hw.dram.bytes_per_cycle},
            "groups": [*self._figures().groups()],
        }
        figure = charts.roofline(tree, charts.group_source(tree, 0), 0)
        title = f"roofline of {self.bundle.model} on {hw.name}"
        return _report_page("embedded").Chart(title=title, figure=figure)

    def __repr__(self) -> str:
        return summary(self, self.bundle.model, *self._facts(), machine=self.hw.name)

    def _repr_html_(self) -> str:
        """The groups, and where the engine has time the pipeline with the load of each module."""
        drawing = ""
        if has_cycles(self):
            drawing = pipeline_svg(self.hw, self._figures().modules())
        facts = f"<div>{escape(', '.join(self._facts()))}</div>"
        return facts + groups_html(self.bundle, self, drawing)

    def _figures(self) -> RunFigures:
        return RunFigures(self.bundle, self.hw, self)


def _report_page(file: str) -> Any:
    """A file of the report's page; they draw with Bokeh."""
    where, purpose = "roofline", "charts are drawn by"
    return library(f"opu_fuse.report.page.{file}", where=where, purpose=purpose, extra="notebook")
