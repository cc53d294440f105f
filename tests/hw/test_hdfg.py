"""The data-flow graph of a machine: searched as published, drawn as written."""

import io
import itertools
import xml.etree.ElementTree as ET

import pytest
from rich.console import Console

from opu_fuse.hw.spec.draw import draw_dot, draw_svg, draw_text
from opu_fuse.hw.spec.hdfg import (
    breadth_first,
    build_hdfg,
    kinds_for,
    module_of,
    reachable,
)
from opu_fuse.hw.spec.load_spec import load_hw, spec_names
from opu_fuse.hw.spec.show import sizes_table
from opu_fuse.units.base import ModuleKind
from tests.some import some

CLASSIC = build_hdfg(load_hw("opu-classic"))
TINY = build_hdfg(load_hw("opu-tiny"))


def test_without_a_match_the_search_starts_at_the_root_itself():
    assert list(breadth_first(CLASSIC)) == [
        "concat", "add_pre", "mul_pre", "pad", "ipa", "mul", "add", "compare", "pool_pad",
        "res_add", "pool", "upsample",
    ]  # fmt: skip


def test_after_a_match_the_search_never_comes_back_to_it():
    assert list(breadth_first(CLASSIC, "compare")) == ["pool", "res_add", "upsample"]
    assert list(breadth_first(CLASSIC, "upsample")) == []


def test_an_operator_has_the_kinds_of_module_that_the_spec_gives_it():
    assert kinds_for(TINY, "upsample") == ()
    assert kinds_for(TINY, "max_pool") == (ModuleKind.POOL,)
    assert module_of(TINY, "pool").limits.window == 255


@pytest.mark.parametrize("name", spec_names())
def test_all_modules_are_reachable(name):
    graph = build_hdfg(load_hw(name))
    assert reachable(graph) == set(graph)


@pytest.mark.parametrize("name", spec_names())
def test_drawings_show_every_module_and_edge(name):
    spec = load_hw(name)
    graph = build_hdfg(spec)
    text, dot, svg = draw_text(spec), draw_dot(spec), draw_svg(spec)
    for module in graph:
        assert f"\n  {module} " in text
        assert f'"{module}" [label=' in dot
        assert f">{module}</text>" in svg
    assert dot.count(" -> ") == graph.number_of_edges()
    root = ET.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}path")) == graph.number_of_edges()
    width, height = float(some(root.get("width"))), float(some(root.get("height")))
    for box in root.findall(f"{space}rect"):
        x, y, w, h = (float(some(box.get(key))) for key in ("x", "y", "width", "height"))
        assert 0 <= x <= width - w
        assert 0 <= y <= height - h


def test_only_edges_of_a_cycle_lead_back_in_a_drawing():
    lines = draw_text(load_hw("opu-1024")).splitlines()[1:]
    assert [line.split()[0] for line in lines] == [
        "concat", "mul_pre", "compare_pre", "pad", "ipa", "add", "compare", "pool", "res_add",
        "upsample",
    ]  # fmt: skip


@pytest.mark.parametrize("name", spec_names())
def test_lines_of_a_drawing_share_a_place_only_with_lines_from_the_same_module(name):
    space = "{http://www.w3.org/2000/svg}"
    stretches = set()  # x, upper and lower end, colour; a colour is one module's near by
    for path in ET.fromstring(draw_svg(load_hw(name))).findall(f"{space}path"):
        points = [tuple(map(float, p.split())) for p in some(path.get("d"))[1:].split("L")]
        stretches |= {
            (x, *sorted((y, v)), path.get("stroke"))
            for (x, y), (u, v) in itertools.pairwise(points)
            if x == u
        }
    for x, low, high, colour in stretches:
        for u, other_low, other_high, other in stretches:
            assert other == colour or x != u or low >= other_high or other_low >= high


def test_the_table_names_sizes_with_their_units():
    written = io.StringIO()
    console = Console(width=120, file=written)
    console.print(sizes_table(load_hw("opu-1024")))
    text = written.getvalue()
    assert "64 units x 16 = 1024 MAC per cycle" in text
    assert "2 x 2048 words of 64 bytes" in text
