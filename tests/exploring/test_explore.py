"""Explorations: what is proposed makes a machine, what is found fits and is not beaten, a killed
search goes on, impossible requests are told in a line.
"""

import json
import math
import re
from pathlib import Path

import onnx
import pytest
from msgspec.structs import replace
from optuna.trial import FixedTrial
from typer.testing import CliRunner

import opu_fuse
from benchmarks.attention_builder import Builder
from opu_fuse import zoo
from opu_fuse.cli.main import app
from opu_fuse.errors import UserError
from opu_fuse.exploring import run
from opu_fuse.exploring.design import BASE, OPTIONS, WHOLE, Design, on_board
from opu_fuse.exploring.space import parameters_of, propose
from opu_fuse.hw.area.devices import DEVICES, device
from opu_fuse.hw.area.estimate import area
from opu_fuse.hw.spec.load_spec import load_hw, load_hw_text, problems
from opu_fuse.sweeping.journal import NAME
from opu_fuse.units.base import ModuleKind

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # sockets of dask's processes


@pytest.fixture
def quick(monkeypatch):
    """Machines are timed by a formula; gates, tables and a pool are needed. Returns those timed."""
    timed = []

    def rows(self, specs):
        timed.extend(specs)
        return [[_row(spec) for _ in self.models] for spec in specs]

    monkeypatch.setattr(run._Timer, "rows", rows)
    return timed


def _row(spec):
    flow = spec.dataflow.modules
    cycles = 10**9 // spec.macs + 10**8 // spec.buffers.feature.words
    return {
        "error": None,
        "cycles": cycles,
        "milliseconds": cycles / spec.clock_mhz / 1000,
        "dram_bytes": 1000,
        "host_operators": sum(name not in flow for name in ("se", "table", "pool")),
    }


def test_a_design_is_a_machine_that_says_what_it_is():
    whole, base = WHOLE.spec(), load_hw(BASE)
    assert whole is not None
    assert whole.dataflow == base.dataflow
    assert whole.macs == base.macs
    assert set(base.array.modes) <= set(whole.array.modes)
    assert Design.parse(str(WHOLE)) == WHOLE


def test_a_design_says_what_stands_in_tables():
    side = replace(WHOLE, tables=6, side_lanes=16, without=("gates",), side_tables=True)
    assert str(side) == str(WHOLE).replace("=-", "=gates tables=6 side_lanes=16 side_tables=1")
    assert Design.parse(str(side)) == side
    spec = side.spec()
    assert spec is not None
    assert spec.array.table_terms == 6
    assert (spec.residual_lanes, spec.post.residual_tables) == (16, True)


def test_a_design_wires_its_array_in_as_many_ways_as_it_says():
    modes = WHOLE.tree()["array"]["modes"]
    assert [tuple(mode.values()) for mode in modes[:2]] == [(64, 8, 1), (32, 16, 1)]
    for count in range(1, len(modes) + 1):
        assert replace(WHOLE, modes=count).tree()["array"]["modes"] == modes[:count]


@pytest.mark.parametrize(
    "name", ["opu-1024", "opu-1024-lean", "opu-1024a", "opu-light", "opu-tiny"]
)
def test_a_search_can_begin_with_a_shipped_machine(name):
    known = load_hw(name)
    without = () if known.has(ModuleKind.SE) else ("gates",)
    spec = propose(FixedTrial(parameters_of(known)), without=without).spec()
    assert spec is not None
    assert spec.array.macs == known.array.macs
    assert set(known.array.modes) <= set(spec.array.modes)
    assert spec.post.lanes == known.post.lanes
    assert spec.residual_lanes == known.residual_lanes
    assert spec.post.residual_tables == known.post.residual_tables
    assert spec.dram.bus_bytes == known.dram.bus_bytes
    assert spec.buffers.weight.words == known.buffers.weight.words


def test_a_network_with_attention_gets_norms(tmp_path):
    b = Builder()
    onnx.save(b.model(b.encoder_layer(b.input(1, 5, 16), 2)), tmp_path / "layer.onnx")
    (found,) = run.explore([str(tmp_path / "layer.onnx")], "xc7k325t", trials=1).tried
    assert found.spec.has(ModuleKind.NORM)
    for op in load_hw("opu-1024a").dataflow.operators:
        assert op in load_hw(BASE).dataflow.operators
    whole, bare = WHOLE.spec(), replace(WHOLE, without=("norms",)).spec()
    assert whole is not None
    assert bare is not None
    assert area(bare, device("xc7k325t").family).dsp < area(whole, device("xc7k325t").family).dsp


def test_products_that_find_no_slice_stand_in_tables(quick, monkeypatch):
    """Twice the products of opu-1024-lean on the device that it fills by half."""
    board = device("xc7k325t")
    wide = {**parameters_of(load_hw("opu-1024-lean")), "parts": 1, "macs": 11}
    monkeypatch.setattr(run, "parameters_of", lambda _: wide)
    found = run.explore(["tiny_residual"], "xc7k325t", trials=1, seed=0)
    (one,) = found.tried
    assert one.spec.macs == 2048
    assert one.spec.array.table_terms > 0
    assert one.share <= 1
    tree = one.spec.to_tree()
    tree["array"]["table_terms"] -= 2
    assert area(load_hw_text(json.dumps(tree), "less"), board.family).dsp > board.has.dsp


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_can_be_left_out(option):
    text = str(WHOLE).replace("without=-", f"without={option}")
    spec = Design.parse(text).spec()
    assert spec is not None
    assert not set(OPTIONS[option]) & set(spec.dataflow.modules)


def test_what_is_found_fits_and_no_other_one_beats_it(quick):
    found = run.explore(["tiny_odd"], "ecp5-85", trials=8, seed=3, fill=0.6)
    has = device("ecp5-85").has
    assert len(found.tried) == 8
    assert not found.shipped  # opu-tiny fits, but would leave gates and tables to the host
    for c in found.tried:
        assert c.area.lut <= has.lut
        assert c.area.dsp <= has.dsp
        assert c.area.bram <= has.bram
        assert c.area == area(c.spec, device("ecp5-85").family)
        beats = [
            b
            for b in found.best
            if b.latency <= c.latency
            and b.share <= c.share
            and (b.latency, b.share) != (c.latency, c.share)
        ]
        assert bool(beats) == all(c.latency != b.latency or c.share != b.share for b in found.best)
    latencies = [c.latency for c in found.best]
    assert latencies == sorted(latencies)


KEPT = {"ecp5-85": ("mobilenet_v2", 96), "xc7k325t": ("resnet18", 224)}
"""Device -> network and image of the search that wrote `benchmarks/explored-DEVICE.yaml`."""


def _told(name):
    """Its row in docs/explore.md."""
    text = (ROOT / "docs" / "explore.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\|.*`tpe`, seed 0: `benchmarks/explored-{name}.yaml`.*$", text, re.M)
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize("name", KEPT)
def test_a_machine_that_was_kept_is_one_that_a_search_writes(name):
    path, board = str(ROOT / "benchmarks" / f"explored-{name}.yaml"), device(name)
    assert not problems(path)
    spec = load_hw(path)
    assert on_board(spec.to_tree(), board) == spec.to_tree()
    own = area(spec, board.family)
    assert own.lut <= board.fill * board.has.lut
    assert [f"{own.lut:,.0f}", f"{own.dsp:g}", f"{own.bram:g}"] == _told(name)[-3:]


@pytest.mark.nightly
@pytest.mark.parametrize("name", KEPT)
def test_a_machine_that_was_kept_is_as_fast_as_told(name):
    spec = load_hw(str(ROOT / "benchmarks" / f"explored-{name}.yaml"))
    network, image = KEPT[name]
    program = opu_fuse.compile(zoo.build(network, image=image), spec)
    cycles = program.run(engine="cycle").counters["cycles"]
    assert f"{cycles / spec.clock_mhz / 1000:.2f}" == _told(name)[3]


@pytest.mark.nightly
def test_no_machine_takes_more_tables_than_it_may(quick, monkeypatch):
    board = replace(device("ecp5-85"), fill=0.6)
    monkeypatch.setattr(run, "device", lambda _: board)

    def fullest(**fill):
        found = run.explore(["tiny_odd"], "ecp5-85", trials=16, **fill)
        return max(c.area.lut for c in found.tried) / board.has.lut

    assert fullest(fill=0.5) <= 0.5 < fullest() <= board.fill < fullest(fill=1) <= 1


def test_modules_that_no_model_needs_are_in_no_machine(quick):
    found = run.explore(["tiny_odd"], "xc7k325t", trials=4)
    for c in found.tried:
        modules = c.spec.dataflow.modules
        assert {"se", "table", "pool"} <= set(modules)
        assert not {"res_add", "slopes", "upsample", "mul_pre"} & set(modules)


def test_a_seed_proposes_the_same_machines(quick):
    first, same, other = (
        run.explore(["tiny_odd"], "zu7ev", trials=6, seed=seed) for seed in (1, 1, 2)
    )
    assert [c.spec for c in first.tried] == [c.spec for c in same.tried]
    assert [c.spec for c in first.tried] != [c.spec for c in other.tried]


def test_what_is_written_is_accepted_and_goes_on_without_workers(tmp_path, monkeypatch, capsys):
    command = ["explore", "--model", "tiny_residual", "--device", "ecp5-85", "-o", str(tmp_path)]
    command += ["--trials", "3", "--jobs", "1"]
    app(command, standalone_mode=False)
    said = capsys.readouterr().out
    assert "opu-ulx3s (shipped)" in said
    written = sorted(tmp_path.glob("*.yaml"))
    assert written
    for path in written:
        assert not problems(str(path))
        spec = load_hw(str(path))
        program = opu_fuse.compile(zoo.build("tiny_residual"), spec)
        cycles = program.run(engine="cycle").counters["cycles"]
        assert f"tiny_residual {cycles / spec.clock_mhz / 1000:.3f} ms" in spec.description
    assert len((tmp_path / "tried.csv").read_text().splitlines()) <= 4
    before = (tmp_path / NAME).read_text()
    assert all(json.loads(line)["error"] is None for line in before.splitlines())

    monkeypatch.setattr("distributed.Client", None)
    app(command, standalone_mode=False)
    assert capsys.readouterr().out == said
    assert (tmp_path / NAME).read_text() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device_name": "xc7k325"}, "unknown device; known: .*did you mean"),
        ({"objectives": ("speed",)}, "unknown objective; known: latency, area"),
        ({"fill": 85}, "fill=85: not a share of the device's tables; over 0, at most 1"),
        (
            {"clock_mhz": 100_001},
            "clock_mhz=100001: not a clock of a machine; 0.001 to 100,000 MHz",
        ),
        ({"clock_mhz": 0}, "clock_mhz=0: not a clock of a machine"),
        ({"clock_mhz": math.nan}, "clock_mhz=nan: not a clock of a machine"),
        (
            {"models": [{"model": "my/net.onnx", "image": 96}]},
            "my/net.onnx: image 96 is for networks of the zoo, and this is a file; leave image out",
        ),
        ({"models": ["resnet19"]}, "there is no such network"),
        ({"models": ["no/such.onnx"]}, "No such file"),
    ],
)
def test_what_is_unknown_is_told_before_anything_runs(change, message):
    with pytest.raises(UserError, match=message):
        run.explore(**{"models": ["tiny_odd"], "device_name": "ecp5-85"} | change)


def test_a_model_that_no_machine_takes_is_told(monkeypatch):
    failed = [[{"error": "conv7: kernel 300 is too large"}]]
    monkeypatch.setattr(run._Timer, "rows", lambda _, specs: failed * len(specs))
    with pytest.raises(UserError, match="tiny_odd: no machine takes it: conv7: kernel 300"):
        run.explore(["tiny_odd"], "ecp5-85")


def test_a_device_on_which_nothing_fits_is_told(quick, monkeypatch):
    small = DEVICES["ecp5-85"].__class__(
        family=DEVICES["ecp5-85"].family,
        has=area(load_hw("opu-tiny"), DEVICES["ecp5-85"].family).__class__(lut=900, dsp=2, bram=4),
        clock_mhz=50,
        memory_bytes=1e9,
        fill=0.85,
        source="",
    )
    monkeypatch.setitem(DEVICES, "speck", small)
    monkeypatch.setattr(run, "MOST_REFUSED", 20)
    with pytest.raises(UserError, match="none of 21 machines in a row was new and fitted"):
        run.explore(["tiny_odd"], "speck")


@pytest.mark.parametrize(
    ("fill", "remedy"),
    [(0.001, "a larger fill or a larger device"), (None, "a larger device")],
)
def test_a_search_that_finds_nothing_names_what_would_help(quick, monkeypatch, fill, remedy):
    monkeypatch.setattr(run, "MOST_REFUSED", 20)
    monkeypatch.setattr(run._Search, "_fits", lambda *_: False)
    with pytest.raises(UserError, match=f"was new and fitted; give {remedy}$"):
        run.explore(["tiny_odd"], "xc7k325t", fill=fill, trials=1)


def test_a_search_that_found_some_names_fewer_trials(quick, monkeypatch):
    fits = iter([True])
    monkeypatch.setattr(run, "MOST_REFUSED", 20)
    monkeypatch.setattr(run._Search, "_fits", lambda *_: next(fits, False))
    with pytest.raises(UserError, match=r"fitted; give fewer trials or a larger device$"):
        run.explore(["tiny_odd"], "xc7k325t", trials=2)


def test_a_clock_is_one_that_a_spec_may_have(quick):
    slowest, fastest = 0.001, 100_000
    tree = load_hw(BASE).to_tree()
    for clock in (slowest, fastest):
        assert load_hw_text(json.dumps(tree | {"clock_mhz": clock}), "it").clock_mhz == clock
    for clock in (slowest / 2, fastest + 1):
        with pytest.raises(UserError, match="clock_mhz"):
            load_hw_text(json.dumps(tree | {"clock_mhz": clock}), "it")
    (found,) = run.explore(["tiny_odd"], "ecp5-85", trials=1, clock_mhz=fastest).tried
    assert found.spec.clock_mhz == fastest


def command(*options):
    return CliRunner(env={"COLUMNS": "200"}).invoke(
        app, ["explore", "--device", "xc7k325t", "--trials", "1", *options]
    )


@pytest.mark.parametrize(
    ("clock", "limit"),
    [("0", "greater than or equal to 0.001"), ("100001", "less than or equal to 100000")],
)
def test_the_option_says_which_clocks_there_are(tmp_path, clock, limit):
    found = command("--model", "tiny_odd", "-o", str(tmp_path), "--clock", clock)
    assert found.exit_code == 2
    assert limit in found.output


def test_one_machine_is_one_machine(quick, tmp_path):
    found = command("--model", "tiny_odd", "-o", str(tmp_path))
    assert "\n1 machine: " in found.output


def test_image_is_for_networks_of_the_zoo_and_refused_where_there_is_none(quick, tmp_path):
    file = tmp_path / "net.onnx"
    file.write_bytes(b"")
    options = ("--model", str(file), "-o", str(tmp_path), "--image", "32")
    told = command(*options).exception
    assert str(told).startswith(f"{file}: image 32 is for networks of the zoo")
    assert command(*options, "--model", "tiny_residual").exit_code == 0


def test_a_key_that_a_model_has_not_is_refused():
    with pytest.raises(UserError, match="models: imgae: there is no such key"):
        run.explore([{"model": "tiny_odd", "imgae": 32}], "xc7k325t")


def test_help_names_every_device_and_objective():
    said = CliRunner().invoke(app, ["explore", "--help"], env={"COLUMNS": "200"}).output
    for name in (*DEVICES, *run.OBJECTIVES):
        assert name in said, name
