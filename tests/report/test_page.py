"""The page of `report`, opened in a real Chromium: what it draws is what the engine said, and it
can be clicked, sorted, filtered and zoomed.
"""

import json
from itertools import pairwise

import pytest

import opu_fuse
from opu_fuse import zoo
from opu_fuse.cli.main import app
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile as compile_program
from opu_fuse.report.page import points
from opu_fuse.report.page.document import html
from opu_fuse.report.page.network import network_data


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Path of a page about two machines, and the JSON beside it."""
    folder = tmp_path_factory.mktemp("report")
    paths = []
    for network, machine in (("tiny_residual", "opu-tiny"), ("tiny_residual", "opu-micro")):
        paths.append(str(folder / f"{machine}.opu"))
        compile_program(zoo.build(network), load_hw(machine)).save(paths[-1])
    page = folder / "r.html"
    command = ["report", *paths, "-o", str(page)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["opu-fuse", *command])
        app(command, standalone_mode=False)
    return page, json.loads(page.with_suffix(".json").read_text())["programs"]


@pytest.fixture
def page(open_in, written):
    """The page about two programs."""
    return open_in(written[0])


def columns(page, name, *keys):
    """Rows that a source of the page holds."""
    code = "([name, keys]) => keys.map((key) => Array.from(model(name).data[key]))"
    return list(zip(*page.evaluate(code, [name, list(keys)]), strict=True))


def test_what_is_drawn_is_what_the_tree_says(page, written):
    for number, tree in enumerate(written[1]):
        boxes = page.locator(f"#network-{number} .operator")
        assert boxes.count() == len(tree["operators"])
        shown = boxes.evaluate_all("all => all.map((g) => g.textContent)")
        for operator, text in zip(tree["operators"], shown, strict=True):
            group = operator["group"]
            place = "host CPU" if group is None else f"group {group}"
            assert operator["name"] in text
            assert text.endswith(f"{operator['op'].removeprefix('host:')} · {place}")
        assert page.locator(f"#network-{number} .edge").count() == len(tree["edges"])
        rows = page.locator(f"#table-{number} tbody tr")
        assert rows.count() == len(tree["groups"])
        for group, row in zip(tree["groups"], rows.all(), strict=True):
            cells = row.inner_text().split("\t")
            assert cells[:2] == [str(group["index"]), group["name"]]
            assert cells[3] == f"{group['cycles']:,}"
            assert cells[5:7] == [group["bound_by"], f"{group['dram_bytes']:,}"]
        assert columns(page, f"groups-{number}", "index", "cycles", "dram_bytes", "bound_by") == [
            (g["index"], g["cycles"], g["dram_bytes"], g["bound_by"]) for g in tree["groups"]
        ]
        time = tree["timeline"]
        keys = ("track", "from", "to", "group")
        bars = zip(*(time[key] for key in keys), time["wait"], strict=True)
        drawn = {name: columns(page, f"{name}-{number}", *keys) for name in ("busy", "waits")}
        expected = {"busy": [], "waits": []}
        for *bar, waits in bars:
            expected["waits" if waits else "busy"].append(tuple(bar))
        assert drawn == expected
        for key in ("read", "written"):
            assert tree["memory"][key] in lines(page, f"traffic-{number}"), key


def lines(page, name):
    """y of every line of a chart."""
    return page.evaluate(
        "(name) => model(name).renderers.map((r) => Array.from(r.data_source.data.y))", name
    )


def test_edges_carry_shapes_and_those_that_skip_operators_are_dashed(page, written):
    tree = written[1][0]
    shapes = {o["name"]: "×".join(map(str, o["shape"][1:])) for o in tree["operators"]}
    assert shapes["stem"] == "16×12×12"
    labels = page.locator("#network-0 .shape").all_text_contents()
    assert sorted(labels) == sorted(shapes[source] for source, _ in tree["edges"])
    skips = [[a, b] for a, b in tree["edges"] if longer_path(tree["edges"], a, b)]
    assert skips == [["block1.relu", "block2.add"]]
    assert page.locator("#network-0 .skip").count() == len(skips)


def longer_path(edges, source, target):
    """Whether something between them leads from one to the other."""
    reached = {b for a, b in edges if a == source} - {target}
    for _ in edges:
        reached |= {b for a, b in edges if a in reached}
    return target in reached


def test_of_a_value_with_many_readers_one_edge_has_the_shape():
    names = ["a", *(f"r{i}" for i in range(5)), "end"]
    operators = [
        {"name": name, "op": "conv", "group": None, "module": None, "host": "why",
         "shape": [1, 8, 4, 4], "boundaries": []}
        for name in names
    ]  # fmt: skip
    edges = [["a", f"r{i}"] for i in range(5)] + [[f"r{i}", "end"] for i in range(5)]
    tree = {"operators": operators, "edges": [*edges, ["a", "end"]], "groups": []}
    drawn = json.loads(network_data(tree))["edges"]
    assert [label for a, _, label, _ in drawn if a == 0] == ["8×4×4", *[""] * 5]
    assert [edge[:2] for edge in drawn if edge[3]] == [[0, 6]], "the one that skips"


def test_no_box_of_the_network_covers_another_or_ends_before_its_name(page):
    overlaps = """() => {
        const boxes = [...document.querySelectorAll("#network-0 .operator")]
        const at = boxes.map((box) => box.querySelector("rect").getBoundingClientRect())
        const wide = boxes.map((box) => Math.max(
            ...[...box.querySelectorAll("text")].map((t) => t.getBoundingClientRect().width)))
        const over = (a, b) =>
            a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
        return [at.flatMap((a, i) => at.filter((b, j) => j > i && over(a, b))).length,
                at.filter((a, i) => wide[i] > a.width).length]
    }"""
    assert page.evaluate(overlaps) == [0, 0]


@pytest.mark.parametrize("how", ["click", "keyboard"])
def test_a_selected_operator_shows_its_module_tile_cost_and_boundaries(page, written, how):
    tree = written[1][0]
    place, operator = next((i, o) for i, o in enumerate(tree["operators"]) if o["boundaries"])
    boxes = page.locator("#network-0 .operator")
    if how == "click":
        boxes.nth(place).click()
    else:
        boxes.nth(0).focus()
        for _ in range(place):
            page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
    shown = page.inner_text("#detail-0")
    group = tree["groups"][operator["group"]]
    reason, _, change = operator["boundaries"][0]["reason"].partition("; ")
    for text in (operator["name"], f"module {operator['module']}", f"{group['cycles']:,} cycles"):
        assert text in shown
    assert f"{group['tile']['count']} tile" in shown
    assert reason in shown
    assert f"to change it: {change}" in shown
    assert page.evaluate("model('groups-0').selected.indices") == [operator["group"]]
    assert boxes.nth(place).get_attribute("aria-pressed") == "true"
    assert page.locator("#table-0 tr.chosen").get_attribute("data-group") == str(operator["group"])


def cells(page, number, column):
    """What a column of the table shows from top to bottom."""
    rows = page.locator(f"#table-{number} tbody tr:visible").all()
    return [row.locator("th, td").nth(column).inner_text() for row in rows]


def test_a_heading_sorts_and_words_filter(page, written):
    groups = written[1][0]["groups"]
    assert cells(page, 0, 0) == [str(g["index"]) for g in groups]
    heading = page.locator("#table-0 thead button", has_text="cycles").first
    heading.click()
    assert cells(page, 0, 3) == [f"{c:,}" for c in sorted(g["cycles"] for g in groups)]
    heading.press("Enter")
    assert cells(page, 0, 3) == [f"{c:,}" for c in sorted(g["cycles"] for g in groups)[::-1]]
    page.get_by_label("Filter").first.fill("CONV2 ipa")
    kept = [g for g in groups if "conv2" in g["name"] and "ipa" in g["modules"]]
    assert 0 < len(kept) < len(groups)
    assert sorted(cells(page, 0, 0)) == sorted(str(g["index"]) for g in kept)


def test_a_row_selects_the_group_in_the_network(page, written):
    page.locator("#table-0 tbody button").nth(1).press("Enter")
    group = written[1][0]["groups"][1]
    assert f"Group {group['index']}" in page.inner_text("#detail-0")
    marked = page.locator("#network-0 .operator.chosen").all_text_contents()
    assert len(marked) == len(group["operators"])
    assert all(text.endswith(f"group {group['index']}") for text in marked)


def test_a_point_of_the_roofline_selects_its_group(page):
    page.evaluate("model('groups-0').selected.indices = [2]")
    assert page.locator("#table-0 tr.chosen").get_attribute("data-group") == "2"
    assert page.locator("#network-0 .operator.chosen").count() > 0


def test_the_network_zooms_by_buttons_and_by_the_wheel_with_ctrl(page):
    width = "() => document.querySelector('#network-0 svg').getBoundingClientRect().width"
    before = page.evaluate(width)
    page.locator("[data-zoom=in]").first.click()
    assert page.evaluate(width) == pytest.approx(1.25 * before)
    page.locator("[data-zoom=whole]").first.click()
    box, drawn = "#network-0", "#network-0 svg"
    high = page.locator(box).bounding_box()["height"]
    assert page.locator(drawn).bounding_box()["height"] <= high + 1
    page.locator("[data-zoom=full]").first.click()
    assert page.evaluate(width) == pytest.approx(before)
    page.locator(box).hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    page.wait_for_function(f"({width})() > {before}")


def test_a_long_network_is_laid_out_in_parts_that_join(open_in, tmp_path):
    """Layout of a chain of thousands would recurse too deeply, and take long."""
    count = 2500
    operators = [
        {"name": f"layer{i}", "op": "conv", "group": None, "module": None, "host": "why",
         "shape": [1, 8, 4, 4], "boundaries": []}
        for i in range(count)
    ]  # fmt: skip
    edges = [[f"layer{i}", f"layer{i + 1}"] for i in range(count - 1)]
    edges += [[f"layer{i}", f"layer{i + 5}"] for i in range(0, count - 5, 10)]
    data = network_data({"operators": operators, "edges": edges, "groups": []})
    path = tmp_path / "long.html"
    body = (
        '<div><div class="graph" id="network-0"></div></div><div id="detail-0"></div>'
        '<input id="filter-0"><div id="table-0"><table><thead></thead><tbody></tbody></table></div>'
        f'<script type="application/json" id="data-0">{data}</script>'
    )
    path.write_text(html("long", body, ""))
    page = open_in(path)
    tops = page.locator("#network-0 rect").evaluate_all(
        "all => all.map((box) => box.getBoundingClientRect().top)"
    )
    assert len(tops) == count
    assert all(below > above for above, below in pairwise(tops))
    assert page.locator("#network-0 .edge").count() == len(edges)


def test_the_wheel_zooms_all_charts_over_time_together(page, written):
    chart = page.locator("#timeline-0")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    ranges = "(['timeline-0', 'traffic-0', 'on_chip-0', 'alive-0']).map((n) => model(n).x_range)"
    span = f"() => {ranges}.map((r) => r.end - r.start)"
    before = page.evaluate(span)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.wheel(0, -300)
    page.wait_for_function(f"({span})()[0] < {before[0]}")
    after = page.evaluate(span)
    assert len(set(before)) == len(set(after)) == 1
    assert page.evaluate("model('timeline-1').x_range.end") == max(written[1][1]["timeline"]["to"])


def test_two_programs_are_compared_with_their_ratio(page, written):
    first, second = (tree["summary"]["cycles"] for tree in written[1])
    row = page.locator("table.summary tr", has_text="cycles").first.inner_text()
    assert row.split("\t")[1:] == [f"{first:,}", f"{second:,} × {second / first:.3g}"]
    assert page.locator("table.differences tbody tr").count() > 0


@pytest.mark.parametrize("width", [1280, 420])
def test_nothing_but_its_own_scroll_boxes_is_wider_than_the_window(open_in, written, width):
    page = open_in(written[0], width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_passes_automatic_checks_of_accessibility(open_in, written, accessible, scheme):
    page = open_in(written[0], scheme=scheme)
    accessible(page)
    page.locator("#network-0 .operator").first.press("Enter")
    accessible(page)


def test_all_but_the_charts_is_reached_by_the_tabulator_key(page):
    reached = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("""() => {
            const e = document.activeElement
            return e.id || e.dataset.zoom || e.closest("[id]")?.id || e.tagName
        }""")
        )
    assert {"network-0", "detail-0", "filter-0", "table-0", "in", "out", "whole"} <= reached


def test_charts_take_the_colours_of_the_dark_scheme(open_in, written):
    for scheme, paper in (("light", "#ffffff"), ("dark", "#14181d")):
        page = open_in(written[0], scheme=scheme)
        assert page.evaluate("model('timeline-0').background_fill_color") == paper


def test_lines_of_a_chart_differ_in_colour_or_dashes(page):
    looks = page.evaluate(
        "model('on_chip-0').renderers.map((r) => [r.glyph.line_color, r.glyph.line_dash])"
    )
    assert len(looks) >= 6
    assert len({str(look) for look in looks}) == len(looks)


def test_the_page_says_version_command_machine_and_memory(page, written):
    text = page.inner_text("main")
    assert f"opu-fuse {opu_fuse.__version__} with opu-fuse report " in text
    summary = written[1][0]["summary"]
    assert summary["dram_latency"] == 20
    assert "DRAM\n8 bytes per cycle, latency 20 cycles" in text
    assert "machine\nopu-tiny: 32 MAC per cycle" in text
    assert "of the bound" not in text


def sweep_rows(rng):
    """120 points of two models; one has no figure, one failed."""
    rows = [
        {name: float(rng.integers(1, 40)) for name in points.SWEEP.figures}
        | {"model": model, "spec": "s", "set.array.units": int(n % 3), "strategy": "matched"}
        | {"scales": "pow2", "image": None, "batch": 1, "error": None}
        for model in ("a", "b")
        for n in range(60)
    ]
    rows[7]["bytes_per_cycle"] = None
    return [*rows, {"error": "<b>no</b>"}]


def choose(page, axis, title):
    page.get_by_label(f"{axis} axis").select_option(label=title)


def test_the_page_of_a_sweep_joins_what_no_other_point_beats(open_in, tmp_path, rng):
    *rows, failed = sweep_rows(rng)
    path = tmp_path / "sweep.html"
    path.write_text(points.page([*rows, failed], "Sweep small"))
    page = open_in(path)
    assert "&lt;b&gt;no&lt;/b&gt;" in path.read_text()
    choose(page, "x", "memory bandwidth, bytes per cycle")
    choose(page, "y", "MAC efficiency, %")
    assert page.evaluate("model('scatter').below[0].axis_label").startswith("memory bandwidth")
    shown = columns(page, "lines", "xs", "ys")
    joined = set()
    for model, (xs, ys) in zip(("a", "b"), shown, strict=True):
        mine = [r for r in rows if r["model"] == model and r["bytes_per_cycle"] is not None]
        unbeaten = {
            (r["bytes_per_cycle"], 100 * r["mac_efficiency"])
            for r in mine
            if not any(
                o["bytes_per_cycle"] <= r["bytes_per_cycle"]
                and o["mac_efficiency"] >= r["mac_efficiency"]
                and (o["bytes_per_cycle"], o["mac_efficiency"])
                != (r["bytes_per_cycle"], r["mac_efficiency"])
                for o in mine
            )
        }
        assert len(xs) == len(unbeaten) > 1
        assert set(zip(xs, ys, strict=True)) == unbeaten
        joined |= {(model, x, y) for x, y in unbeaten}
    heads = page.locator("table.points thead th").all_inner_texts()
    x, y = heads.index("memory bandwidth, bytes per cycle"), heads.index("MAC efficiency, %")
    shown_rows = page.locator("table.points tbody tr:visible").all_inner_texts()
    listed = [row.split("\t") for row in shown_rows]
    assert {(row[0], float(row[x]), float(row[y].replace(",", ""))) for row in listed} == joined
    drawn = columns(page, "points", "x", "y")
    assert drawn == [(r["bytes_per_cycle"], 100 * r["mac_efficiency"]) for r in rows]
    page.get_by_label("show all points").check()
    assert page.locator("table.points tbody tr:visible").count() == len(rows)


def test_the_page_of_a_sweep_has_a_title_units_and_what_all_points_share(open_in, tmp_path, rng):
    path = tmp_path / "sweep.html"
    path.write_text(points.page(sweep_rows(rng), "Sweep small", command="opu-fuse sweep x"))
    page = open_in(path)
    assert page.locator("h1").inner_text() == "Sweep small"
    text = page.inner_text("main")
    assert "opu-fuse sweep x" in text
    assert "120 points, 1 failed" in text
    assert "machine\ns\n" in text
    assert "null" not in text
    heads = page.locator("table.points thead th").all_inner_texts()
    assert heads[:3] == ["model", "array.units", "time, ms"], "only what differs"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [480, 1400])
def test_the_page_of_a_sweep_is_accessible(open_in, tmp_path, rng, accessible, scheme, width):
    path = tmp_path / "sweep.html"
    path.write_text(points.page(sweep_rows(rng), "Sweep small"))
    page = open_in(path, width=width, scheme=scheme)
    accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_point_shows_its_facts_under_the_mouse(open_in, tmp_path, rng):
    rows = sweep_rows(rng)
    rows[0]["milliseconds"] = 5140.595280
    path = tmp_path / "sweep.html"
    path.write_text(points.page(rows, "Sweep small"))
    page = open_in(path)
    tips = page.evaluate(
        "model('scatter').toolbar.tools.find((t) => t.type === 'HoverTool').tooltips"
    )
    place = [title for title, _ in tips].index("time, ms")
    field = tips[place][1].removeprefix("@")
    assert columns(page, "points", field)[0] == ("5,141",)


def test_a_sweep_in_which_all_failed_has_a_page(open_in, tmp_path):
    path = tmp_path / "sweep.html"
    path.write_text(points.page([{"error": "too large"}], "Sweep none"))
    assert "too large" in open_in(path).inner_text("main")
