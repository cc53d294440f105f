"""Tables say what was measured and what was only predicted, and their sums are sums."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from opu_fuse.bundle.result import GroupCounters, RunResult
from opu_fuse.report.json import inspect_json
from opu_fuse.report.tables import counters_table, groups_table, memory_table, short
from opu_fuse.sim.engine import run
from tests.bundle.sample import HW, sample_bundle, sample_input


def text_of(table):
    out = io.StringIO()
    Console(width=200, file=out).print(table)
    return out.getvalue()


def row(text, start):
    """Cells of the row whose first cell, or second if the first is empty, is `start`."""
    for line in text.splitlines():
        cells = [c.strip() for c in line.strip("│┃").replace("┃", "│").split("│")]
        if start in cells[:2]:
            return cells
    raise AssertionError(f"no row {start} in\n{text}")


def rtl_result(cycles=1440, samples=2):
    """2 samples: 720 cycles each."""
    group = GroupCounters(
        index=0, instructions=12, dram_bytes_read=1536, dram_bytes_written=64, cycles=cycles
    )
    counters = {"cycles": cycles + 120, "dram_bytes_read": 2000, "dram_bytes_written": 64}
    return RunResult(engine="rtl", outputs={}, counters=counters, groups=(group,), samples=samples)


@pytest.mark.parametrize("with_run", [False, True])
def test_without_measured_cycles_the_table_says_predicted(with_run):
    result = run(sample_bundle(), HW, sample_input()) if with_run else None
    text = text_of(groups_table(sample_bundle(), result))
    assert "cycles (predicted)" in text
    assert "measured" not in text
    cells = row(text, "0")
    assert cells[1:4] == ["conv", "conv, relu, max_pool", "ipa > compare > pool"]
    # 9216 MACs in 400 cycles on 32 units
    assert cells[4:] == ["9 216", "400", "72.0 %", "800"]


def test_measured_cycles_are_those_of_one_sample():
    text = text_of(groups_table(sample_bundle(), rtl_result()))
    assert "cycles (measured, rtl)" in text
    assert row(text, "0")[4:] == ["9 216", "720", "40.0 %", "800"]


def test_the_sum_row_takes_the_cycles_of_the_whole_run():
    text = text_of(groups_table(sample_bundle(), rtl_result()))
    assert row(text, "all groups")[4:6] == ["9 216", "780"]


def test_names_with_brackets_are_no_markup():
    bundle = sample_bundle()
    group = replace(bundle.groups[0], name="[red]conv[/red] [1]")
    assert "[red]conv[/red] [1]" in text_of(groups_table(replace(bundle, groups=(group,))))


def test_long_names_lose_their_middle_in_tables_and_nothing_in_json():
    long = "/model/backbone/stage2/" + "block/" * 15 + "conv2/Conv"
    kept = "/model/backbone/stage2/" + "…" + long[-24:]
    bundle = sample_bundle()
    bundle = replace(
        bundle,
        model=long,
        groups=(replace(bundle.groups[0], name=long),),
        tensors=tuple(replace(t, name=long) for t in bundle.tensors[:1]),
    )
    for table in (groups_table(bundle), memory_table(bundle)):
        text = text_of(table)
        assert long not in text
        assert text.count(kept) == 2  # the title, too
    assert long in json.dumps(inspect_json(bundle, memory=True))
    assert short(long[:48]) == long[:48]
    assert len(short(long)) == 48


def test_the_memory_map_is_in_address_order_with_lifetimes():
    text = text_of(memory_table(sample_bundle()))
    order = [text.index(x) for x in ("weights and parameters", " x ", " pool ", " program ")]
    assert order == sorted(order)
    assert row(text, "0x280") == ["0x280", "128", "x", "8x4x4, slots of 8", "input .. 0"]
    assert row(text, "0x300")[4] == "0 .. 0"
    assert row(text, "0x0")[1] == "640"


def test_counters_are_all_there():
    result = run(sample_bundle(), HW, sample_input(samples=2))
    text = text_of(counters_table(result))
    assert "functional engine, 2 samples" in text
    for name, value in result.counters.items():
        assert row(text, name)[1].replace(" ", "") == str(value)


def test_below_the_groups_stands_what_the_host_does_and_why_not_more_was_fused():
    text = text_of(groups_table(sample_bundle()))
    below = text[text.index("host:") :].splitlines()
    assert [line.strip() for line in below] == [
        "host: 1 operator in 1 segment, 0 fused in 0 kernels, 1 in 1 model of ONNX Runtime",
        "1 more kernel between int8 and floats",
        "not fused, 1 operator: Softmax: kernels have no such operator",
        "kept apart by a rule: 1 pair (inspect --json: cuts)",
    ]


def test_only_what_is_in_kernels_alone_is_counted_as_fused():
    bundle = sample_bundle()
    host = bundle.segments[1]
    kernel = replace(host.pieces[0], ops=(("a", ""), ("b", ""), ("softmax", "")))
    host = replace(host, pieces=(kernel, host.pieces[1]), cuts=())
    text = text_of(groups_table(replace(bundle, segments=(bundle.segments[0], host))))
    assert "2 fused in 1 kernel, 1 in 1 model of ONNX Runtime" in text
    assert "not fused, 1 operator: Softmax" in text
    assert "kept apart" not in text
    assert "more kernel" not in text


def test_without_a_host_segment_nothing_is_said_of_the_host():
    bundle = sample_bundle()
    assert "host" not in text_of(groups_table(replace(bundle, segments=bundle.segments[:1])))
