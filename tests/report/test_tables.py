"""Tables say what was measured and what was only predicted, and their sums are sums."""

import json
from dataclasses import replace

import pytest

from opu_fuse.bundle.program import HostSegment
from opu_fuse.bundle.result import GroupCounters, RunResult
from opu_fuse.report.json_trees import inspect_json
from opu_fuse.report.tables import groups_table, memory_table
from opu_fuse.report.terminal_tables import Column, FittedTable, short, wrapped
from opu_fuse.sim.engine import run
from tests.bundle.sample import HW, sample_bundle, sample_input


def text_of(table, width=200):
    return "\n".join(table.lines(width))


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
    assert cells[4:] == ["9,216", "400", "72.0 %", "800"]


def test_measured_cycles_are_those_of_one_sample():
    text = text_of(groups_table(sample_bundle(), rtl_result()))
    assert "cycles (measured, rtl)" in text
    assert row(text, "0")[4:] == ["9,216", "720", "40.0 %", "800"]


def test_the_sum_row_takes_the_cycles_of_the_whole_run():
    text = text_of(groups_table(sample_bundle(), rtl_result()))
    assert row(text, "all groups")[4:6] == ["9,216", "780"]


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
    assert row(text, "0x280") == ["0x280", "128", "x", "8x4x4", "8", "input .. 0"]
    assert row(text, "0x300")[5] == "0 .. 0"
    assert row(text, "0x0")[1] == "640"


def test_below_the_groups_stands_what_the_host_does_and_why_not_more_was_fused():
    text = text_of(groups_table(sample_bundle()))
    below = text[text.index("host CPU:") :].splitlines()
    assert [line.strip() for line in below] == [
        "host CPU: 1 operator in 1 segment: 0 fused in 0 kernels, 1 in 1 ONNX Runtime model",
        "1 more kernel between int8 and floats",
        "not fused, 1 operator: Softmax: kernels have no such operator",
        "separated by a rule: 1 pair (inspect --json: cuts)",
    ]


def test_only_what_is_in_kernels_alone_is_counted_as_fused():
    bundle = sample_bundle()
    host = bundle.segments[1]
    assert isinstance(host, HostSegment)
    kernel = replace(host.pieces[0], ops=(("a", ""), ("b", ""), ("softmax", "")))
    host = replace(host, pieces=(kernel, host.pieces[1]), cuts=())
    text = text_of(groups_table(replace(bundle, segments=(bundle.segments[0], host))))
    assert "2 fused in 1 kernel, 1 in 1 ONNX Runtime model" in text
    assert "not fused, 1 operator: Softmax" in text
    assert "separated" not in text
    assert "more kernel" not in text


def test_without_a_host_segment_nothing_is_said_of_the_host():
    bundle = sample_bundle()
    assert "host" not in text_of(groups_table(replace(bundle, segments=bundle.segments[:1])))


def long_bundle(groups=30):
    """Many groups with the names that exporters give."""
    bundle = sample_bundle()
    name = "/model/backbone/stage{0}/block{0}/conv{0}/Conv + /model/backbone/stage{0}/act/Relu"
    return replace(
        bundle,
        groups=tuple(
            replace(bundle.groups[0], index=i, name=name.format(i), macs=10**9 + i)
            for i in range(groups)
        ),
    )


@pytest.mark.parametrize("width", [60, 80, 100, 132, 200])
def test_all_that_a_group_is_fits_the_terminal(width):
    bundle = long_bundle()
    lines = text_of(groups_table(bundle), width).splitlines()
    assert max(len(line) for line in lines if line[0] in "┏┃┡│├└") <= width
    rows = joined_rows(lines)
    assert len(rows) == len(bundle.groups) + 1
    for group, row in zip(bundle.groups, rows, strict=False):
        assert row[0] == str(group.index)
        named = "".join(row[1:4]).replace(" ", "")
        for text in (group.name, "conv,relu,max_pool", "ipa>compare>pool"):
            assert text.replace(" ", "") in named, "a cell wraps, nothing is elided"
        assert row[-2].endswith("%")


def joined_rows(lines):
    """Cells of every row; those that wrapped are one again."""
    rows = []
    for line in lines:
        if line.startswith("│"):
            cells = [cell.strip() for cell in line.strip("│").split("│")]
            if any(cells[-3:]):
                rows.append(cells)
            else:
                rows[-1] = [f"{a}{b}" for a, b in zip(rows[-1], cells, strict=True)]
    return rows


def test_at_80_columns_no_column_is_left_out():
    text = text_of(groups_table(long_bundle()), 80)
    assert "no room for" not in text
    heading = [line.split("┃")[2].strip() for line in text.splitlines() if line.startswith("┃")]
    assert heading == ["group", "operators", "modules"], "stacked"


def test_columns_that_have_no_room_are_named_below():
    narrow = text_of(groups_table(long_bundle()), 60)
    assert "no room for MACs (--wide shows all)" in narrow


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("a + b", 10, ["a + b"]),
        ("conv1 + conv2 + add", 10, ["conv1 +", "  conv2 +", "  add"]),
        ("/model/backbone/Conv", 10, ["/model/", "  backbone", "  /Conv"]),
        ("abcdefghijkl", 5, ["abcde", "fghij", "kl"]),
        ("", 5, [""]),
    ],
)
def test_a_cell_breaks_at_spaces_then_within_names(text, width, lines):
    assert wrapped(text, width) == lines


def test_wide_shows_every_name_whole_in_any_terminal():
    bundle = long_bundle()
    text = text_of(groups_table(bundle, wide=True), 60)
    for group in bundle.groups:
        assert f"│ {group.name} " in text
    assert "conv, relu, max_pool" in text


def test_below_measured_groups_stands_for_whom_a_cycle_counts():
    assert "groups overlap" in text_of(groups_table(sample_bundle(), rtl_result()))
    assert "groups overlap" not in text_of(groups_table(sample_bundle()))


def small_table():
    columns = (Column(name="name"), Column(name="cycles (predicted)", number=True))
    return FittedTable(
        title="two rows",
        columns=columns,
        rows=[("conv", "1,200"), ("a_long_name", "7")],
        total=("all", "1,207"),
        footer=["a line below"],
    )


def test_a_table_is_drawn_to_the_character():
    assert (
        text_of(small_table())
        == """\
two rows
┏━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━┓
┃ name        ┃ cycles (predicted) ┃
┡━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━┩
│ conv        │              1,200 │
│ a_long_name │                  7 │
├─────────────┼────────────────────┤
│ all         │              1,207 │
└─────────────┴────────────────────┘
a line below"""
    )


def test_a_narrow_terminal_that_cannot_show_lines_gets_a_narrow_table_without():
    assert (
        "\n".join(small_table().lines(25, ascii_only=True))
        == """\
two rows
+-----------------------+
|         |      cycles |
| name    | (predicted) |
|---------+-------------|
| conv    |       1,200 |
| a_long_ |           7 |
| name    |             |
|---------+-------------|
| all     |       1,207 |
+-----------------------+
a line below"""
    )


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("层一", "层一" + 7 * " "),  # two places each
        ("e\N{COMBINING ACUTE ACCENT}", "e\N{COMBINING ACUTE ACCENT}" + 10 * " "),
        ("a\nb", "a b" + 8 * " "),
        ("层" * 30, 10 * "层" + "  "),
    ],
)
def test_no_character_moves_the_columns(name, shown):
    table = small_table()
    table.rows[0] = (name, "1")
    assert f"│ {shown} │" in "\n".join(table.lines(40))


def test_of_a_long_name_beginning_and_end_are_kept():
    assert short("abcdefghij", 10) == "abcdefghij"
    assert short("abcdefghij", 6) == "ab…hij"
    assert short("abcdefghij", 1) == "…"
