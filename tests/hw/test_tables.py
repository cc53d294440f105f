"""Tables that RTL and Python share: no gap, no overlap, no contradiction."""

import re
from functools import partial

import pytest
from msgspec.structs import replace

from opu_fuse.hw import unit_rates
from opu_fuse.hw.depthwise_window import ring_columns, window_timing
from opu_fuse.hw.isa import table
from opu_fuse.hw.isa.register_map import CONTROL_REGISTERS, OFFSET, AccessKind
from opu_fuse.hw.isa.table import REGISTERS, VALUE_BITS
from opu_fuse.hw.spec.check_graph import RUNS
from opu_fuse.hw.spec.hw_spec import NOT_IN_HASH, OPERATORS
from opu_fuse.hw.spec.load_spec import load_hw, spec_names
from opu_fuse.resources import hw_specs_dir
from opu_fuse.units.pool import PoolKind

DOCS = hw_specs_dir().parent / "docs"
PAGE = (DOCS / "hw-spec.md").read_text(encoding="utf-8")


def test_every_operator_has_a_kind_that_runs_it():
    assert set(RUNS) == set(OPERATORS)


def test_control_registers_lie_apart_and_none_is_reused():
    offsets = [register.offset for register in CONTROL_REGISTERS]
    assert offsets == sorted(set(offsets))
    assert all(offset % 4 == 0 for offset in offsets)


def test_the_first_registers_never_move():
    """Software finds out by them what it talks to, whatever the version."""
    assert (OFFSET["ID"], OFFSET["VERSION"], OFFSET["SPEC_HASH_LO"], OFFSET["SPEC_HASH_HI"]) == (
        0,
        4,
        8,
        12,
    )


def test_a_command_register_remembers_nothing():
    assert all(r.reset == 0 for r in CONTROL_REGISTERS if r.access is AccessKind.WO)


@pytest.mark.parametrize(("change", "message"), [
    ({"bits": VALUE_BITS + 1}, "register wider than 22"),
    ({"bits": 0}, "register wider than 22"),
    ({"index": 63}, "register gap"),
    ({"name": REGISTERS[1].name}, "a register name appears twice"),
])  # fmt: skip
def test_a_register_that_no_word_carries_is_refused_when_the_table_loads(
    monkeypatch, change, message
):
    monkeypatch.setattr(table, "REGISTERS", (replace(REGISTERS[0], **change), *REGISTERS[1:]))
    with pytest.raises(AssertionError, match=f"{REGISTERS[0].engine.name}: {message}"):
        table._check()


def test_the_page_says_how_many_registers_of_the_post_engine_are_free():
    page = (DOCS / "adding-a-module.md").read_text(encoding="utf-8")
    used = max(r.index for r in REGISTERS if r.engine is table.Engine.POST) + 1
    free = table.REGISTERS_PER_ENGINE - used
    assert f"end at {table.REGISTERS_PER_ENGINE - 1}; of the post engine's, {free} are free" in page


def keys(tree):
    for key, value in tree.items():
        yield key
        if isinstance(value, dict):
            yield from keys(value)


def keys_of_spec(name):
    tree = load_hw(name).to_tree()
    flow = tree.pop("dataflow")
    module = next(iter(flow["modules"].values()))
    mode = tree["array"]["modes"][0]
    return {*keys(tree), "dataflow", *flow, *keys(module), *mode}


ROWS = re.findall(r"^\| (`.+?) \| (.+) \|$", PAGE.partition("## The machines")[0], re.MULTILINE)


@pytest.mark.parametrize("name", spec_names())
def test_the_page_on_specs_explains_every_key(name):
    explained = set(re.findall(r"`(\w+)`", str(ROWS)))
    assert keys_of_spec(name) - explained == set()


def test_the_page_on_specs_explains_no_key_that_is_gone():
    written = set().union(*map(keys_of_spec, spec_names()))
    explained = {key for cell, _ in ROWS for key in re.findall(r"`(\w+)`", cell)}
    assert explained - written == set()


def test_the_page_on_specs_says_which_kinds_run_an_operator():
    lines = PAGE.partition("| operators | kinds |")[2].partition("\n\n")[0].splitlines()[2:]
    found = {}
    for line in lines:
        _, operators, built, others, _ = line.split("|")
        for operator in re.sub(r"\(.*?\)", "", operators).split(","):
            found[operator.strip()] = [re.findall(r"`(\w+)`", cell) for cell in (built, others)]
    assert {op: sorted(built + others) for op, (built, others) in found.items()} == {
        op: sorted(kinds) for op, kinds in RUNS.items()
    }
    shipped = [load_hw(name) for name in spec_names()]
    used = {
        (op, kind)
        for spec in shipped
        if spec.build
        for op, kinds in spec.dataflow.operators.items()
        for kind in kinds
    }
    assert all(str(kind) in found[op][0] for op, kind in used)


def test_the_page_says_what_the_identity_leaves_out():
    for key in NOT_IN_HASH:
        assert f"`{key}`" in PAGE


def test_a_weight_row_lasts_as_long_as_pixels_words_or_the_write_back_need():
    tiny, large = load_hw("opu-tiny"), load_hw("opu-1024")
    assert [unit_rates.row_cycles(tiny, pixels) for pixels in (1, 4, 5)] == [4, 4, 5]
    assert [unit_rates.row_cycles(large, pixels) for pixels in (1, 16, 17)] == [16, 16, 17]
    assert unit_rates.conv_cycles(large, pixels=49, rows=36) == 49 * 36


def test_a_row_of_a_mode_of_several_pixels_is_shorter_and_swept_faster():
    large = load_hw("opu-1024")
    assert [unit_rates.row_cycles(large, 64, px) for px in (1, 2, 4)] == [64, 32, 16]
    assert [unit_rates.row_cycles(large, 8, px) for px in (1, 2, 4)] == [16, 8, 4], (
        "1024, 512, 256 B"
    )
    assert unit_rates.conv_cycles(large, pixels=49, rows=3, px=2) == 3 * 25


def test_depthwise_takes_a_cycle_per_part_unless_data_comes_slower():
    light = load_hw("opu-light")  # 32 units, 64 channels: two parts a block

    def cycles(kernel, parts=2, size=(10, 20), stride_x=1, dilation_x=1):
        return unit_rates.depthwise_cycles(
            light, size=size, parts=parts, kernel=kernel, stride_x=stride_x, dilation_x=dilation_x
        )

    assert cycles((3, 3)) == 2 * 200
    assert cycles((3, 3), parts=1) == 10 * 3 * 11, "22 columns of a row, two of them a cycle"
    assert cycles((3, 3), parts=5) == 2 * 400 + 330, "a block in part costs the data of a whole one"
    assert cycles((3, 3), stride_x=2) == 10 * 3 * 21, "41 columns"
    assert cycles((3, 1), stride_x=2) == 600, "single columns, those between windows are not read"
    assert cycles((3, 3), dilation_x=2) == 1800
    assert cycles((3, 3), size=(1, 1), parts=4) == 4 * 8, "weight rows of 8 words"


def test_windows_of_two_cycles_take_two_unless_data_comes_slower():
    hw = load_hw("opu-1024a")  # 64 units, 64 channels: a part a block

    def cycles(kernel, parts=1, size=(10, 20)):
        return unit_rates.depthwise_cycles(
            hw, size=size, parts=parts, kernel=kernel, stride_x=1, dilation_x=1
        )

    assert cycles((3, 3)) == 2 * 200, "the data takes 10 * 3 * 11"
    assert cycles((4, 4)) == 10 * 4 * 12, "23 columns of a row, two of them a cycle"
    assert cycles((3, 3), parts=3) == 3 * 400
    assert cycles((3, 3), size=(1, 1), parts=4) == 4 * 16, "weight rows of 16 words"


@pytest.mark.parametrize("stride_x", [1, 2, 3, 4])
@pytest.mark.parametrize(("rows", "cols"), [(3, 3), (3, 1), (1, 3), (4, 4)])
def test_cycles_of_depthwise_are_about_those_of_the_walk(rows, cols, stride_x):
    """`hw.window` walks column by column, as the RTL does."""
    light = load_hw("opu-light")
    for parts in (1, 2, 5):
        blocks = tuple(min(2, parts - first) for first in range(0, parts, 2))
        walked = window_timing(
            out_rows=9, out_cols=17, kernel=(rows, cols), stride_x=stride_x, dilation_x=1,
            parts=blocks, row_words=light.row_words, columns=ring_columns(4),
        ).stepped  # fmt: skip
        told = unit_rates.depthwise_cycles(
            light, size=(9, 17), parts=parts, kernel=(rows, cols), stride_x=stride_x, dilation_x=1
        )
        assert told == pytest.approx(walked, rel=0.06), (parts, walked)


def test_transfers_are_bound_by_bus_and_memory():
    large = load_hw("opu-1024")
    assert unit_rates.transfer_cycles(large, 64) == 1
    assert unit_rates.transfer_cycles(large, 65) == 2
    assert unit_rates.fetch_cycles(large, 16) == 16


def test_post_visits_new_columns_of_maximum_pools_and_whole_windows_of_averages():
    visits = partial(unit_rates.post_iterations, out_rows=2, out_cols=4)
    assert visits() == 8
    assert visits(window=(3, 3)) == 2 * (9 + 3 * 3)
    assert visits(window=(3, 3), out_cols=1) == 2 * 9
    assert visits(window=(3, 3), stride_x=2) == 2 * (9 + 3 * 6)
    assert visits(window=(3, 3), stride_x=3) == visits(window=(3, 3), stride_x=4) == 8 * 9
    assert visits(window=(4, 4)) == 8 * 16, "three columns are not kept"
    assert visits(window=(1, 1), stride_x=255) == 8
    assert visits(window=(3, 3), kind=PoolKind.AVERAGE) == 8 * 9


def test_copies_take_a_cycle_for_a_pixel_of_a_block():
    assert unit_rates.copy_cycles(pixels=4, blocks=2) == 8
