"""What the API returns prints as one short line, and a notebook shows it as tables and drawings."""

import dataclasses
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import msgspec
import onnx
import pytest

import opu_fuse
from opu_fuse.bundle.program import HostSegment
from opu_fuse.exploring.run import Candidate, Exploration
from opu_fuse.fuse.rules.refusal import Refusal
from opu_fuse.hw.area.estimate import area
from opu_fuse.hw.memories import Family
from opu_fuse.summaries import MOST_CHARACTERS, summary
from tests.api.conftest import LONG

RESULTS = ("program", "run", "timed", "partition", "losses")


@pytest.fixture(scope="module")
def exploration() -> Exploration:
    def found(name: str, milliseconds: float) -> Candidate:
        spec = opu_fuse.load_hw(name)
        return Candidate(
            spec=spec,
            milliseconds={"net": milliseconds, "other": 1.0},
            area=area(spec, Family.XC7),
            share=0.25,
            dram_bytes=1000,
        )

    slow, fast, shipped = found("opu-tiny", 3.0), found("opu-1024", 1.0), found("opu-1024", 2.0)
    return Exploration(best=(fast,), tried=(slow, fast), shipped=(shipped,))


def inside(thing: object, seen: dict[int, object]) -> None:
    """All records that can be reached from one by attributes and items."""
    if id(thing) in seen or isinstance(thing, str | bytes | type):
        return
    if isinstance(thing, dict):
        children = thing.values()
    elif isinstance(thing, list | tuple | set | frozenset):
        children = thing
    elif isinstance(thing, Refusal):  # beyond it is the search, which nobody is given
        seen[id(thing)] = thing
        return
    elif dataclasses.is_dataclass(thing):
        seen[id(thing)] = thing
        children = [getattr(thing, f.name) for f in dataclasses.fields(thing)]
    elif isinstance(thing, msgspec.Struct):
        seen[id(thing)] = thing
        children = [getattr(thing, name) for name in thing.__struct_fields__]
    else:
        return
    for child in children:
        inside(child, seen)


LARGE = {"HwSpec", "Bundle", "Dfg", "Boundary", "HostOp", "Group", "GroupInfo", "Tensor"}


def test_whatever_the_api_returns_prints_as_a_short_line(request, exploration):
    results = [request.getfixturevalue(name) for name in RESULTS]
    check = results[0].check(request.getfixturevalue("images"), results[1])
    seen: dict[int, object] = {}
    for result in (*results, check, exploration):
        inside(result, seen)
    texts = {id(thing): repr(thing) for thing in seen.values()}
    kinds = {type(thing).__name__ for thing in seen.values()}
    assert kinds >= LARGE
    own = {type(t).__name__ for t in seen.values() if texts[id(t)].startswith("<")}
    assert own >= LARGE
    long = {
        (type(thing).__name__, text[:80], len(text))
        for thing in seen.values()
        if len(text := texts[id(thing)]) > MOST_CHARACTERS or "\n" in text
        if type(thing).__module__.startswith("opu_fuse")
        if type(thing).__name__ not in DETAILS
    }
    assert long == set()


DETAILS = {"Array", "Buffers", "Dataflow", "Limits", "Module"}
"""Parts of a spec, whose keys are what somebody asks for."""


def test_lines_say_model_machine_and_sizes(program, run, timed, partition, losses, images):
    cycles = f"{sum(g.cycles for g in program.bundle.groups):,} cycles predicted"
    name = r"net/net/net/net/.*….*/net/"
    for thing, *facts in (
        (program, "2 groups", cycles),
        (run, "functional engine", "4 samples", "2 groups", "maps float32[4, 8, 6, 6]"),
        (timed, "cycle engine", "2 groups", f"{timed.counters['cycles']:,} cycles"),
        (partition, "strategy matched", "2 groups", "1 operator on the host CPU", "legal"),
        (losses, "pow2 scales", "4 samples", "output waves", "dB"),
    ):
        text = repr(thing)
        assert re.match(rf"<{type(thing).__name__} {name} on opu-tiny: ", text), text
        assert [fact for fact in facts if fact not in text] == [], text
    assert repr(program.hw).startswith("<HwSpec opu-tiny: 32 MAC/cycle, 100 MHz, 7 modules, ")
    assert repr(program.check(images, run)).startswith("<CheckResult passed: 0 of ")


def test_an_exploration_says_what_is_best(exploration):
    assert repr(exploration) == (
        "<Exploration net, other: 1 best of 2 machines, 1 shipped, "
        "fastest 2.000 ms with 1,024 MAC/cycle>"
    )
    assert repr(exploration.best[0]).startswith(
        "<Candidate opu-1024: 2.000 ms, 1,024 MAC/cycle, 25%"
    )


def test_a_line_is_cut_and_has_no_line_breaks():
    text = summary(object(), "a\nb" * 50, "c" * 500, machine="d" * 100)
    assert len(text) == MOST_CHARACTERS
    assert text.startswith("<object a b")
    assert text.endswith("…>")
    assert "\n" not in text


class Tags(HTMLParser):
    """Tags in order, and the texts of table cells by row; closing tags must be those of the open
    ones.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):  # noqa: ARG002  as the base class names it
        self.tags.append(tag)
        if tag in {"path", "rect", "polygon"}:  # of SVG: closed in themselves
            return
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):  # noqa: ARG002  as above
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & {*self._open}:
            self.rows[-1][-1] += data


def test_a_program_is_shown_as_its_groups_and_its_pipeline(program):
    page = Tags(program._repr_html_())
    heads, *rows = page.rows
    assert heads[:4] == ["#", "group", "operators", "modules"]
    assert "cycles (predicted)" in heads
    assert [row[0] for row in rows] == ["0", "1", ""]
    assert LONG in rows[0][1]
    assert {"details", "svg"} <= {*page.tags}
    assert "b" not in page.tags[: page.tags.index("tbody")][2:], "markup of a name is text"


def test_a_timed_run_is_shown_with_the_load_of_each_module(run, timed):
    page = timed._repr_html_()
    assert "cycles (measured, cycle)" in Tags(page).rows[0]
    share = timed._figures().modules()
    (array,) = [m for m in share if m["kind"] == "ipa"]
    assert f"ipa, {100 * array['busy_share']:.1f} %" in page
    untimed = run._repr_html_()
    assert "cycles (predicted)" in Tags(untimed).rows[0]
    assert "4 samples" in untimed
    assert "<svg" not in untimed


def test_a_partition_is_shown_by_names_with_the_reasons_of_the_host(partition):
    _, *rows = Tags(partition._repr_html_()).rows
    assert [row[0] for row in rows] == ["0", "1", "host"]
    assert LONG in rows[0][1]
    assert rows[-1][2:] == ["table", partition.host[0].reason]


def test_an_illegal_partition_says_so():
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    net (float[1,8,4,4] x) => (float[1,8,4,4] y) { a = Relu(x)  b = Relu(a)  y = Sub(b, a) }""")
    found = opu_fuse.partition(model, "opu-tiny", "greedy")
    assert not found.legal
    assert "illegal: " in repr(found)
    assert found._repr_html_().count("<div>illegal: ") == len(found.violations)


def test_a_machine_is_shown_as_hw_draw_draws_it():
    drawing = opu_fuse.load_hw("opu-1024")._repr_svg_()
    texts = [t.text for t in ET.fromstring(drawing).iter() if t.tag.endswith("text")]
    assert {*opu_fuse.load_hw("opu-1024").dataflow.modules} <= {*texts}
    assert "double frame: a group may end" in texts


def test_a_roofline_has_a_point_for_every_group_and_needs_no_network(timed):
    chart = timed.roofline()
    assert chart.figure.y_range.end > timed.hw.macs
    page = chart._repr_html_()
    assert page.startswith('<iframe title="roofline of net/')
    assert not re.search(r"&lt;(script|link|img)[^&]* (src|href)=", page)
    (source,) = [r.data_source for r in chart.figure.renderers if r.data_source.name == "groups-0"]
    assert list(source.data["cycles"]) == list(timed.to_frame()["cycles"])


def test_a_roofline_of_a_run_without_time_is_refused(run):
    text = "^roofline: the functional engine has no time; run with engine='cycle' or engine='rtl'$"
    with pytest.raises(opu_fuse.UserError, match=text):
        run.roofline()


def test_the_network_of_the_tests_has_a_host_operator(program):
    assert any(isinstance(s, HostSegment) for s in program.bundle.segments)
