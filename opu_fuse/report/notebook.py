"""What notebooks show of programs: the tables of the terminal, the drawings of `hw draw`."""

from typing import TYPE_CHECKING

from opu_fuse.bundle.program import Bundle
from opu_fuse.report.html_tables import terminal_table_html
from opu_fuse.report.tables import groups_table

if TYPE_CHECKING:
    from opu_fuse.bundle.result import RunResult  # compiling has none


def groups_html(bundle: Bundle, result: "RunResult | None", drawing: str) -> str:
    """The table of the groups, and a drawing of the machine to open."""
    table = terminal_table_html(groups_table(bundle, result, wide=True), "groups")
    more = f"<details><summary>pipeline</summary>{drawing}</details>" if drawing else ""
    return table + more
