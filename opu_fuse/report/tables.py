"""Tables for the terminal (cli/ prints them)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from opu_fuse.bundle.derived_facts import images_per_second, mac_efficiency, machine_of
from opu_fuse.bundle.program import Bundle, HostSegment
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.report.group_rows import group_rows, has_cycles, host_summary, per_run
from opu_fuse.report.terminal_tables import Column, FittedTable, short

if TYPE_CHECKING:
    from opu_fuse.bundle.result import CheckResult, OfModel, RunResult  # compiling has none

NOT_REPRESENTATIVE = (
    "on random inputs, which are not representative of real ones: for the accuracy give --input "
    "FILE.npz, as calibration data"
)
OVERLAP = "groups overlap: a cycle counts for the group that the array works for (docs/report.md)"


def groups_table(
    bundle: Bundle, result: "RunResult | None" = None, *, wide: bool = False
) -> FittedTable:
    """Every group: operators, modules, MACs, cycles, MAC efficiency, DRAM bytes, and their sum.

    The heading of the cycles says whether they were measured (and by which engine) or predicted;
    the operators of the host follow below.
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
            Column(name="operators", leave_out=3),
            Column(name="modules", leave_out=2),
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
                _number(row.group.macs),
                _number(row.cycles),
                _share(row.mac_efficiency, row.group.macs),
                _number(row.dram_bytes),
            )
        )
    macs = sum(row.group.macs for row in rows)
    cycles = sum(row.cycles for row in rows)
    if result is not None and timed:
        cycles = per_run(result, "cycles")
        table.footer.append(OVERLAP)
    table.total = (
        *("", "all groups", "", ""),
        _number(macs),
        _number(cycles),
        _share(mac_efficiency(hw.macs, macs, cycles), macs),
        _number(sum(row.dram_bytes for row in rows)),
    )
    if bundle.batch > 1:
        table.footer.append(_speed(bundle, hw, cycles))
    if any(isinstance(s, HostSegment) for s in bundle.segments):
        table.footer += host_text(bundle).splitlines()
    return table


def _speed(bundle: Bundle, hw: HwSpec, cycles: int) -> str:
    """Of all images of a batch, and of one."""
    milliseconds = cycles / hw.clock_mhz / 1000
    speed = images_per_second(bundle, hw.clock_mhz, cycles)
    return (
        f"{bundle.batch} images together in {milliseconds:.3f} ms, {speed:.1f} images per "
        f"second at {hw.clock_mhz:g} MHz; all numbers are those of the {bundle.batch}"
    )


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
        title=f"{short(bundle.model)}: memory window of {_number(bundle.window_bytes)} bytes",
        columns=(
            *(Column(name=name, number=True) for name in ("offset", "bytes")),
            Column(name="what"),
            *(Column(name=name, number=True) for name in ("shape", "slot", "groups")),
        ),
        rows=[(f"{offset:#x}", _number(size), *texts) for offset, size, *texts in sorted(rows)],
        wide=wide,
    )


def counters_table(result: "RunResult") -> FittedTable:
    """All counters of a run, over all its samples."""
    return FittedTable(
        title=f"{result.engine} engine, {result.samples} sample{'s' * (result.samples != 1)}",
        columns=(Column(name="counter"), Column(name="total", number=True)),
        rows=[(name, _number(total)) for name, total in sorted(result.counters.items())],
    )


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
        yield "  everything runs on the host: it has no quantised tensor to show"
    if checked.uncompared:
        why = "inside a pass, on chip only, overwritten, or turned by a port"
        yield f"  not shown by the run: {len(checked.uncompared)} tensors ({why})"
    if checked.of_model is not None:
        yield from _of_model_lines(checked.of_model)


def _of_model_lines(found: "OfModel") -> Iterator[str]:
    """The outputs compared with those of the user's model."""
    if found.why:
        called = f"the model {found.model}" if found.model else "the model that was compiled"
        yield f"not compared with {called}: {found.why}"
    for output in found.outputs:
        said = f"{output.differing} of {output.elements} values differ"
        if not output.differing:
            said = "exact"
        elif output.snr_db is not None:
            said = f"SNR {output.snr_db:.1f} dB"
        if output.differing and output.limit is not None:
            said += f", largest difference {output.max_abs_diff:.3g} of {output.limit:.3g} allowed"
        yield f"against {found.model} in ONNX Runtime: output {output.name}: {said}"
    if found.noise and any(output.snr_db is not None for output in found.outputs):
        yield f"  {NOT_REPRESENTATIVE}"
