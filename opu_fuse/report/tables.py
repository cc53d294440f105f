"""Tables for the terminal (cli/ prints them)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from opu_fuse.bundle.derived_facts import images_per_second, mac_efficiency, machine_of
from opu_fuse.bundle.program import Bundle, HostSegment
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.number_text import counted, percent, rounded, whole
from opu_fuse.report.decibels import snr_meaning
from opu_fuse.report.group_rows import group_rows, has_cycles, host_summary, per_run
from opu_fuse.report.terminal_tables import Column, FittedTable, short

if TYPE_CHECKING:
    from opu_fuse.bundle.result import CheckResult, OfModel, RunResult  # compiling has none

NOT_REPRESENTATIVE = (
    "on random inputs, which do not represent real ones: for the accuracy pass --input FILE.npz, "
    "in the form of calibration data"
)
OVERLAP = "groups overlap: a cycle counts for the group that the array computes (docs/report.md)"


def groups_table(
    bundle: Bundle,
    result: "RunResult | None" = None,
    *,
    wide: bool = False,
    host_reasons: bool = True,
) -> FittedTable:
    """Every group: operators, modules, MACs, cycles, MAC efficiency, DRAM bytes, and their sum.

    The heading of the cycles says whether they were measured (and by which engine) or predicted.
    The operators of the host CPU follow below. host_reasons: why they are not in fused kernels.
    """
    rows = group_rows(bundle, result)
    hw = machine_of(bundle)
    timed = result is not None and has_cycles(result)
    source = f"measured, {result.engine}" if result is not None and timed else "predicted"
    table = FittedTable(
        title=f"{short(bundle.model)} on {hw.name}",
        columns=(
            Column(name="#", number=True),
            Column(name="group"),
            Column(name="operators", stack=True),
            Column(name="modules", stack=True),
            Column(name="MACs", number=True, leave_out=1),
            Column(name=f"cycles ({source})", number=True),
            Column(name="MAC eff.", number=True),
            Column(name="DRAM bytes", number=True),
        ),
        wide=wide,
    )
    for row in rows:
        table.rows.append(
            (
                *(str(row.group.index), row.group.name, row.operators, row.modules),
                whole(row.group.macs),
                whole(row.cycles),
                _share(row.mac_efficiency, row.group.macs),
                whole(row.dram_bytes),
            )
        )
    macs = sum(row.group.macs for row in rows)
    cycles = sum(row.cycles for row in rows)
    if result is not None and timed:
        cycles = per_run(result, "cycles")
        table.footer.append(OVERLAP)
    table.total = (
        *("", "all groups", "", ""),
        whole(macs),
        whole(cycles),
        _share(mac_efficiency(hw.macs, macs, cycles), macs),
        whole(sum(row.dram_bytes for row in rows)),
    )
    if bundle.batch > 1:
        table.footer.append(_speed(bundle, hw, cycles))
    if any(isinstance(s, HostSegment) for s in bundle.segments):
        table.footer += host_lines(bundle, reasons=host_reasons)
    return table


def total_line(bundle: Bundle, result: "RunResult") -> str:
    """Cycles, time and DRAM traffic of a run that has measured them."""
    cycles, clock = per_run(result, "cycles"), machine_of(bundle).clock_mhz
    moved = per_run(result, "dram_bytes_read") + per_run(result, "dram_bytes_written")
    return (
        f"{result.engine} engine: {whole(cycles)} cycles, {rounded(cycles / clock / 1000)} ms at "
        f"{clock:g} MHz, {whole(moved)} bytes of DRAM traffic"
    )


def _speed(bundle: Bundle, hw: HwSpec, cycles: int) -> str:
    """Of all images of a batch, and of one."""
    milliseconds = cycles / hw.clock_mhz / 1000
    speed = images_per_second(bundle, hw.clock_mhz, cycles)
    return (
        f"{bundle.batch} images together in {milliseconds:.3f} ms, {speed:.1f} images per "
        f"second at {hw.clock_mhz:g} MHz; all numbers are those of the {bundle.batch}"
    )


def host_lines(bundle: Bundle, *, reasons: bool) -> list[str]:
    """How the operators of the host CPU were fused, and with `reasons` why the others were not."""
    h = host_summary(bundle)
    alone = sum(n for _, n in h.not_fused)
    summary = (
        f"host CPU: {counted(h.operators, 'operator')} in {counted(h.segments, 'segment')}: "
        f"{h.fused} fused in {counted(h.kernels, 'kernel')}, {alone} in "
        f"{counted(h.models, 'ONNX Runtime model')}"
    )
    lines = [summary]
    if h.conversions:
        lines.append(f"{counted(h.conversions, 'more kernel')} between int8 and floats")
    if reasons:
        lines += [f"not fused, {counted(n, 'operator')}: {why}" for why, n in h.not_fused]
        if h.cuts:
            pairs = counted(h.cuts, "pair")
            lines.append(f"separated by a rule: {pairs} (inspect --json: cuts)")
    return lines


def memory_table(bundle: Bundle, *, wide: bool = False) -> FittedTable:
    """The memory window from its start: constants, feature maps with their lifetimes, program."""
    rows = [
        (0, bundle.constants.size, "weights and parameters", "", "", "all"),
        (bundle.program_offset, 4 * len(bundle.words), "program", "", "", "all"),
    ]
    for t in bundle.tensors:
        y = t.layout
        born = "input" if t.first_group < 0 else str(t.first_group)
        shape, slot = f"{y.channels}x{y.rows}x{y.cols}", str(y.slot)
        rows.append((t.offset, y.size_bytes, t.name, shape, slot, f"{born} .. {t.last_group}"))
    return FittedTable(
        title=f"{short(bundle.model)}: memory window of {whole(bundle.window_bytes)} bytes",
        columns=(
            *(Column(name=name, number=True) for name in ("offset", "bytes")),
            Column(name="what"),
            *(Column(name=name, number=True) for name in ("shape", "slot", "groups")),
        ),
        rows=[(f"{offset:#x}", whole(size), *texts) for offset, size, *texts in sorted(rows)],
        wide=wide,
    )


def _share(value: float, macs: int) -> str:
    return percent(value) if macs else ""


def check_lines(checked: "CheckResult") -> Iterator[str]:
    """What was compared, and how much each tensor was allowed to differ."""
    yield (
        f"check against {checked.reference}: {whole(checked.mismatches)} of "
        f"{counted(checked.elements, 'value')} differ in {counted(checked.tensors, 'tensor')}, "
        f"largest difference {checked.max_abs_diff}; {counted(checked.outputs, 'output')} compared"
    )
    exact = checked.tensors - sum(checked.loose.values())
    if checked.tensors:
        yield f"  allowed: no difference in {counted(exact, 'tensor')}"
    for why, count in checked.loose.items():
        tensors = counted(count, "tensor")
        yield f"  allowed: one step from the exact result of its operands in {tensors} ({why})"
    if not checked.tensors and not checked.uncompared:
        yield "  everything runs on the host CPU: no quantised tensor to compare"
    if checked.uncompared:
        why = "fused, resident in a buffer, overwritten, or transposed at a port"
        yield f"  not observable: {counted(len(checked.uncompared), 'tensor')} ({why})"
    if checked.of_model is not None:
        yield from _of_model_lines(checked.of_model)


def _of_model_lines(against: "OfModel") -> Iterator[str]:
    """The outputs compared with those of the user's model."""
    if against.why:
        called = f"the model {against.model}" if against.model else "the model that was compiled"
        yield f"not compared with {called}: {against.why}"
    for output in against.outputs:
        text = f"{whole(output.differing)} of {counted(output.elements, 'value')} differ"
        if not output.differing:
            text = "exact"
        elif output.snr_db is not None:
            text = f"SNR {output.snr_db:.1f} dB ({snr_meaning(output.snr_db)})"
        if output.differing and output.limit is not None:
            text += f", largest difference {output.max_abs_diff:.3g} of {output.limit:.3g} allowed"
        yield f"against {against.model} in ONNX Runtime: output {output.name}: {text}"
    if against.noise and any(output.snr_db is not None for output in against.outputs):
        yield f"  {NOT_REPRESENTATIVE}"
