"""The page of `report`, opened in a real Chromium: what it draws is what the engine said, and it
can be clicked, sorted, filtered and zoomed.
"""

import json
import os
import shutil

import pytest

from opu_fuse import zoo
from opu_fuse.cli.main import app
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile as compile_program
from opu_fuse.report.page import points

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None and os.environ.get("CI") != "true", reason="needs chromium"
)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Path of a page about two machines, and the JSON beside it."""
    folder = tmp_path_factory.mktemp("report")
    paths = []
    for network, machine in (("tiny_residual", "opu-tiny"), ("tiny_residual", "opu-micro")):
        paths.append(str(folder / f"{machine}.opu"))
        compile_program(zoo.build(network), load_hw(machine)).save(paths[-1])
    page = folder / "r.html"
    app(["report", *paths, "-o", str(page)], standalone_mode=False)
    return page, json.loads(page.with_suffix(".json").read_text())["programs"]


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        # As root, which continuous integration is, Chromium starts without its sandbox only.
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser):
    """Opens a file offline; nothing may go wrong in it."""
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    said = []
    page.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda request: said.append(request.url))

    def open_file(path):
        page.goto(path.as_uri())
        page.wait_for_function("window.Bokeh?.documents[0]?.is_idle")
        page.evaluate(
            "() => { window.model = (name) => Bokeh.documents[0].get_model_by_name(name) }"
        )
        return page

    yield open_file
    context.close()
    assert said == []


@pytest.fixture
def page(opened, written):
    """The page about two programs."""
    return opened(written[0])


def columns(page, name, *keys):
    """Rows that a source of the page holds."""
    code = "([name, keys]) => keys.map((key) => Array.from(model(name).data[key]))"
    return list(zip(*page.evaluate(code, [name, list(keys)]), strict=True))


def test_what_is_drawn_is_what_the_tree_says(page, written):
    for number, tree in enumerate(written[1]):
        assert columns(page, f"operators-{number}", "name", "group") == [
            (o["name"], -1 if o["group"] is None else o["group"]) for o in tree["operators"]
        ]
        assert columns(page, f"groups-{number}", "index", "cycles", "dram_bytes", "bound_by") == [
            (g["index"], g["cycles"], g["dram_bytes"], g["bound_by"]) for g in tree["groups"]
        ]
        time = tree["timeline"]
        keys = ("track", "from", "to", "group")
        bars = zip(*(time[key] for key in keys), time["wait"], strict=True)
        drawn = {name: columns(page, f"{name}-{number}", *keys) for name in ("work", "waits")}
        told = {"work": [], "waits": []}
        for *bar, waits in bars:
            told["waits" if waits else "work"].append(tuple(bar))
        assert drawn == told
        for key, shown in {"read": "read", "written": "written"}.items():
            assert tree["memory"][key] in lines(page, f"traffic-{number}"), shown


def lines(page, name):
    """y of every line of a chart."""
    return page.evaluate(
        "(name) => model(name).renderers.map((r) => Array.from(r.data_source.data.y))", name
    )


def test_a_click_on_an_operator_shows_its_module_tile_cost_and_boundaries(page, written):
    tree = written[1][0]
    place, operator = next((i, o) for i, o in enumerate(tree["operators"]) if o["boundaries"])
    x, y = page.evaluate(
        """(place) => {
            const view = Bokeh.index.find_one(model("network-0"))
            view.el.scrollIntoView()
            const at = model("operators-0").data
            const box = view.canvas_view.el.getBoundingClientRect()
            return [box.x + view.frame.x_scale.compute(at.x[place]),
                    box.y + view.frame.y_scale.compute(at.y[place])]
        }""",
        place,
    )
    page.mouse.click(x, y)
    page.wait_for_function("document.getElementById('detail-0').innerText.includes('Group')")
    shown = page.inner_text("#detail-0")
    group = tree["groups"][operator["group"]]
    reason, _, change = operator["boundaries"][0]["reason"].partition("; ")
    for text in (operator["name"], f"module {operator['module']}", f"{group['cycles']:,} cycles"):
        assert text in shown
    assert f"{group['tile']['count']} tiles" in shown
    assert reason in shown
    assert f"to change it: {change}" in shown
    assert page.evaluate("model('groups-0').selected.indices") == [operator["group"]]
    assert columns(page, "operators-0", "line")[place] == (3,)


def cells(page, number, column):
    """What a column of the table shows from top to bottom."""
    rows = page.locator(f"#table-{number} .slick-row").all()
    texts = [row.locator(".slick-cell").nth(column).inner_text() for row in rows]
    tops = [row.bounding_box()["y"] for row in rows]
    return [text for _, text in sorted(zip(tops, texts, strict=True))]


def test_a_click_on_a_heading_sorts_and_words_filter(page, written):
    groups = written[1][0]["groups"]
    assert cells(page, 0, 0) == [str(g["index"]) for g in groups]
    heading = page.locator("#table-0 .slick-header-column", has_text="cycles")
    heading.click()
    page.wait_for_timeout(200)
    assert cells(page, 0, 3) == [f"{c:,}" for c in sorted(g["cycles"] for g in groups)]
    heading.click()
    page.wait_for_timeout(200)
    assert cells(page, 0, 3) == [f"{c:,}" for c in sorted(g["cycles"] for g in groups)[::-1]]
    page.locator("#table-0 input").fill("CONV2 ipa")
    page.wait_for_timeout(200)
    kept = [g for g in groups if "conv2" in g["name"] and "ipa" in g["modules"]]
    assert 0 < len(kept) < len(groups)
    assert sorted(cells(page, 0, 0)) == sorted(str(g["index"]) for g in kept)


def test_a_click_on_a_row_selects_the_group_in_the_network(page, written):
    page.locator("#table-0 .slick-row").nth(1).locator(".slick-cell").nth(1).click()
    page.wait_for_function("document.getElementById('detail-0').innerText.includes('Group')")
    group = written[1][0]["groups"][1]
    assert f"Group {group['index']}" in page.inner_text("#detail-0")
    marked = [g for g, line in columns(page, "operators-0", "group", "line") if line > 1]
    assert set(marked) == {1}
    assert len(marked) == len(group["operators"])


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


def test_two_programs_stand_side_by_side_with_their_ratio(page, written):
    first, second = (tree["summary"]["cycles"] for tree in written[1])
    row = page.locator("table.summary tr", has_text="cycles").first.inner_text()
    assert row.split("\t")[1:] == [f"{first:,}", f"{second:,} × {second / first:.3g}"]
    assert page.locator("table.differences tbody tr").count() > 0


@pytest.mark.parametrize("width", [1280, 420])
def test_nothing_but_its_own_scroll_boxes_is_wider_than_the_window(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_page_of_a_sweep_joins_what_no_other_point_beats(opened, tmp_path, rng):
    figures = list(points.FIGURES)
    rows = [
        {name: float(rng.integers(1, 40)) for name in figures}
        | {"model": model, "spec": "s", "set": "", "strategy": "matched", "scales": "pow2"}
        | {"batch": 1, "latency": None, "error": None}
        for model in ("a", "b")
        for _ in range(60)
    ]
    rows[7]["bytes_per_cycle"] = None
    path = tmp_path / "sweep.html"
    path.write_text(points.page([*rows, {"error": "<b>no</b>"}], "sweep"))
    page = opened(path)
    assert "&lt;b&gt;no&lt;/b&gt;" in path.read_text()
    page.locator("select").nth(0).select_option(label=points.FIGURES["bytes_per_cycle"])
    page.locator("select").nth(1).select_option(label=points.FIGURES["mac_efficiency"])
    shown = columns(page, "lines", "xs", "ys")
    for model, (xs, ys) in zip(("a", "b"), shown, strict=True):
        mine = [r for r in rows if r["model"] == model and r["bytes_per_cycle"] is not None]
        unbeaten = {
            (r["bytes_per_cycle"], r["mac_efficiency"])
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
    best = columns(page, "front", "bytes_per_cycle", "mac_efficiency")
    assert set(best) == {p for xs, ys in shown for p in zip(xs, ys, strict=True)}
    drawn = columns(page, "points", "x", "y")
    assert drawn == [(r["bytes_per_cycle"], r["mac_efficiency"]) for r in rows]
