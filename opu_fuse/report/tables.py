"""Tables for the terminal (rich renderables; cli/ prints them)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from opu_fuse.bundle.facts import mac_efficiency, machine_of
from opu_fuse.bundle.program import Bundle, HostSegment
from opu_fuse.report.rows import group_rows, has_cycles, host_summary, per_sample

if TYPE_CHECKING:
    from opu_fuse.bundle.result import CheckResult, RunResult  # compiling has none

NAME_LENGTH = 48
"""Characters of a name in a table; exporters write paths of a hundred."""


def groups_table(bundle: Bundle, result: "RunResult | None" = None) -> Table:
    """Every group: operators, modules, MACs, cycles, MAC efficiency, DRAM bytes, and their sum.

    The heading of the cycles says whether they were measured (and by which engine) or predicted;
    below stands what the host does.
    """
    rows = group_rows(bundle, result)
    hw = machine_of(bundle)
    source = f"measured, {result.engine}" if result and has_cycles(result) else "predicted"
    table = new_table(f"{short(bundle.model)} on {hw.name}")
    table.add_column("#", justify="right")
    for name in ("group", "operators", "modules"):
        table.add_column(name, overflow="fold")
    for name in ("MACs", f"cycles ({source})", "MAC eff.", "DRAM bytes"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            str(row.group.index),
            plain(short(row.group.name)),
            plain(row.operators),
            plain(row.modules),
            _number(row.group.macs),
            _number(row.cycles),
            _share(row.mac_efficiency, row.group.macs),
            _number(row.dram_bytes),
        )
    macs = sum(row.group.macs for row in rows)
    cycles = sum(row.cycles for row in rows)
    if result is not None and has_cycles(result):
        cycles = per_sample(result, "cycles")
    moved = sum(row.dram_bytes for row in rows)
    table.add_section()
    table.add_row(
        *("", "all groups", "", ""),
        _number(macs),
        _number(cycles),
        _share(mac_efficiency(hw.macs, macs, cycles), macs),
        _number(moved),
    )
    if any(isinstance(s, HostSegment) for s in bundle.segments):
        table.caption, table.caption_justify = plain(host_text(bundle)), "left"
    return table


def host_text(bundle: Bundle) -> str:
    """How the host's operators were fused, and why the others were not; a line each."""
    h = host_summary(bundle)
    total = (
        f"host: {_count(h.operators, 'operator')} in {_count(h.segments, 'segment')}, "
        f"{h.fused} fused in {_count(h.kernels, 'kernel')}, "
        f"{sum(n for _, n in h.not_fused)} in {_count(h.models, 'model')} of ONNX Runtime"
    )
    lines = [total]
    if h.conversions:
        lines.append(f"{_count(h.conversions, 'more kernel')} between int8 and floats")
    lines += [f"not fused, {_count(n, 'operator')}: {why}" for why, n in h.not_fused]
    if h.cuts:
        lines.append(f"kept apart by a rule: {_count(h.cuts, 'pair')} (inspect --json: cuts)")
    return "\n".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def memory_table(bundle: Bundle) -> Table:
    """The memory window from its start: constants, feature maps with their lifetimes, program."""
    table = new_table(
        f"{short(bundle.model)}: memory window of {_number(bundle.window_bytes)} bytes"
    )
    for name in ("offset", "bytes"):
        table.add_column(name, justify="right")
    for name in ("what", "layout", "groups"):
        table.add_column(name, overflow="fold")
    rows: list[tuple[int, int, str, str, str]] = [
        (0, bundle.constants.size, "weights and parameters", "", "all"),
        (bundle.program_offset, 4 * len(bundle.words), "program", "", "all"),
    ]
    for t in bundle.tensors:
        y = t.layout
        layout = f"{y.channels}x{y.rows}x{y.cols}, slots of {y.slot}"
        born = "input" if t.first_group < 0 else str(t.first_group)
        rows.append((t.offset, y.size_bytes, t.name, layout, f"{born} .. {t.last_group}"))
    for offset, size, what, layout, groups in sorted(rows):
        table.add_row(f"{offset:#x}", _number(size), plain(short(what)), layout, groups)
    return table


def counters_table(result: "RunResult") -> Table:
    """All counters of a run, over all its samples."""
    table = new_table(
        f"{result.engine} engine, {result.samples} sample{'s' * (result.samples != 1)}"
    )
    table.add_column("counter")
    table.add_column("total", justify="right")
    for name in sorted(result.counters):
        table.add_row(name, _number(result.counters[name]))
    return table


def new_table(title: str) -> Table:
    """An empty table."""
    return Table(title=plain(title), title_justify="left")


def short(name: str) -> str:
    """A name of at most NAME_LENGTH characters: of longer ones the middle is left out. JSON has
    them whole.
    """
    half = NAME_LENGTH // 2
    return name if len(name) <= NAME_LENGTH else f"{name[: half - 1]}…{name[-half:]}"


def plain(text: str) -> Text:
    """Names of models may hold brackets; they are no markup."""
    return Text(text)


def _number(value: int) -> str:
    return f"{value:_}".replace("_", " ")


def _share(value: float, macs: int) -> str:
    return f"{100 * value:.1f} %" if macs else ""


def check_lines(checked: "CheckResult") -> Iterator[str]:
    """What was compared, and how much each tensor was allowed to differ."""
    yield (
        f"check against {checked.reference}: {checked.mismatches} of {checked.elements} values "
        f"differ in {checked.tensors} tensors, largest difference {checked.max_abs_diff}; "
        f"{checked.outputs} outputs compared"
    )
    loose = sum(checked.loose.values())
    if checked.tensors:
        yield f"  allowed: no difference in {checked.tensors - loose} tensors"
    for why, count in checked.loose.items():
        yield f"  allowed: a step from what its operands give in {count} tensors ({why})"
    if not checked.tensors and not checked.uncompared:
        yield "  no tensor is quantised: everything runs on the host"
    if checked.uncompared:
        yield f"  not shown by the run: {len(checked.uncompared)} tensors"
