"""Tiles fit every buffer, whatever the layer; what cannot fit says which buffer, how much and
what would help.
"""

from functools import lru_cache

import numpy as np
import onnx
import pytest

from opu_fuse.bundle.program import HostSegment
from opu_fuse.dfg.build import build_dfg
from opu_fuse.errors import DoesNotFit
from opu_fuse.frontend.prepare import prepare
from opu_fuse.fuse.strategies.registry import partition
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.layout.shape import Window
from opu_fuse.pipeline import compile_model
from opu_fuse.schedule import tile_choice
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise
from opu_fuse.tiling import candidates
from opu_fuse.tiling.candidates import choose_tile
from opu_fuse.tiling.chunks import output_ranges
from opu_fuse.tiling.tile import ceil_div, weight_chunks
from opu_fuse.zoo.builder import Net
from tests.schedule.single_layer import make_shape
from tests.schedule.test_lower_group import AVERAGE, HEADER
from tests.written import written

LAYERS = {
    "stem_7x7_of_224": {
        "channels": 3,
        "out_channels": 64,
        "rows": 224,
        "cols": 224,
        "kernel": (7, 7),
        "strides": (2, 2),
        "pads": (3, 3, 3, 3),
    },
    "416_pixels": {
        "channels": 16,
        "out_channels": 32,
        "rows": 416,
        "cols": 416,
        "pads": (1, 1, 1, 1),
    },
    "2048_channels": {
        "channels": 2048,
        "out_channels": 2048,
        "rows": 7,
        "cols": 7,
        "kernel": (1, 1),
    },
    "kernel_11": {
        "channels": 3,
        "out_channels": 96,
        "rows": 227,
        "cols": 227,
        "kernel": (11, 11),
        "strides": (4, 4),
    },
    "fc_25088": {"channels": 512, "out_channels": 4096, "rows": 7, "cols": 7, "kernel": (7, 7)},
    "one_pixel": {"channels": 1, "out_channels": 1, "rows": 1, "cols": 1, "kernel": (1, 1)},
}


@pytest.mark.parametrize("machine", ["opu-tiny", "opu-1024"])
@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_fits(machine, name):
    hw = load_hw(machine)
    shape = make_shape(hw, **LAYERS[name])
    tile, estimate = choose_tile(name, shape, hw)
    assert (
        estimate.total_cycles * hw.macs
        >= shape.pre_pool_rows * shape.pre_pool_cols * shape.pre_pool_channels * shape.in_channels
    )
    ranges = output_ranges(shape, tile, hw)
    assert sum(r.blocks for r in ranges) == ceil_div(shape.pre_pool_channels, hw.word_channels)
    rows = max(w.rows for r in ranges for f in r.features for w in f.weights)
    assert rows * hw.row_words <= tile.sees(hw).buffers.weight.bank_words


@pytest.mark.parametrize("capacity", [4, 7, 12, 40, 1000])
def test_weight_chunks_visit_every_position_of_every_segment_once(capacity):
    seen = set()
    for s, n, y, yn, x, xn in weight_chunks(11, 4, (3, 5), 1, capacity):
        assert s % 4 == 0
        assert n * yn * xn <= capacity
        for key in (
            (a, b, c) for a in range(s, s + n) for b in range(y, y + yn) for c in range(x, x + xn)
        ):
            assert key not in seen
            seen.add(key)
    assert len(seen) == 11 * 3 * 5


def test_a_window_larger_than_any_tile_says_what_would_help():
    hw = load_hw("opu-tiny")
    shape = make_shape(hw, rows=40, cols=40, kernel=(1, 1), pool=Window(kernel=(30, 30)))
    with pytest.raises(
        DoesNotFit, match=r"big: its smallest tile needs \d+ words of the \w+ buffer.*raise buffers"
    ):
        choose_tile("big", shape, hw)


def text(body):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> g {body}')


@pytest.mark.filterwarnings("ignore:no calibration data")
def test_groups_without_a_tile_are_named_without_the_views_behind_them():
    model = text("""(float[1,4,40,40] x) => (float[1,4,11,11] y, float[1,484] z)
        <float[4,4,1,1] w = {0.5, 0.25, 0.5, 1.0, 0.5, 0.25, 0.5, 1.0, 0.5, 0.25, 0.5, 1.0,
         0.5, 0.25, 0.5, 1.0}>
        { a = Conv(x, w)  y = MaxPool<kernel_shape=[30,30]>(a)
          b = MaxPool<kernel_shape=[30,30]>(x)  z = Flatten(b) }""")
    hw = load_hw("opu-tiny")
    dfg = build_dfg(prepare(model).canonical)
    found = partition(dfg, hw)
    computing = [
        tuple(m.node for m in group.matches if not dfg[m.node].is_virtual) for group in found.groups
    ]
    assert {len(nodes) for nodes in computing} == {1, 2}
    assert any(dfg[group.matches[-1].node].is_virtual for group in found.groups)
    for misfits in (
        tile_choice.tile(dfg, found, hw, 1),
        tile_choice.misfits_by_structure(dfg, found, hw),
    ):
        assert isinstance(misfits, tuple)
        assert [misfit.nodes for misfit in misfits] == computing
        assert all("its smallest tile needs" in str(misfit.error) for misfit in misfits)


@pytest.mark.filterwarnings("ignore:no calibration data")
def test_where_nothing_computes_nothing_has_to_fit():
    model = text("""(float[1,4,6,6] x) => (float[1,2,6,6] y, float[1,2,6,6] z)
        <float s = {0.25}, int8 o = {0}, int64[2] parts = {2,2}>
        { q = QuantizeLinear(x, s, o)  r = DequantizeLinear(q, s, o)  a, b = Split<axis=1>(r, parts)
          c = QuantizeLinear(a, s, o)  d = DequantizeLinear(c, s, o)  y = Softmax(d)
          e = QuantizeLinear(b, s, o)  f = DequantizeLinear(e, s, o)  z = Softmax(f) }""")
    dfg, hw = build_dfg(prepare(model).canonical), load_hw("opu-1024")
    found = partition(dfg, hw)
    assert found.groups
    assert tile_choice.misfits_by_structure(dfg, found, hw) == ()


@pytest.mark.filterwarnings("ignore:no calibration data")
def test_maps_are_packed_only_when_every_group_has_a_layer(monkeypatch):
    """A pad and a pool with fills of their own are one group first, then two."""
    done = []
    lower, pack = tile_choice.lower_group, tile_choice.pack

    def lowered(*given):
        done.append("refused")
        found = lower(*given)
        done[-1] = "lowered"
        return found

    def packed(*given):
        done.append("packed")
        return pack(*given)

    monkeypatch.setattr(tile_choice, "lower_group", lowered)
    monkeypatch.setattr(tile_choice, "pack", packed)
    model = written(HEADER + AVERAGE.replace("VALUE", "-2"), seed=3)
    compile_model(model, load_hw("opu-1024"))
    assert done == ["refused", "lowered", "lowered", "packed"]


def test_equal_layers_share_one_search(monkeypatch):
    searched = []
    search = lru_cache(lambda shape, hw, **how: searched.append(shape) or best(shape, hw, **how))
    best = candidates._best.__wrapped__
    monkeypatch.setattr(candidates, "_best", search)
    for layers in (4, 7):
        net = Net("equal", seed=3)
        x = net.input("x", (1, 8, 6, 6))
        for i in range(layers):
            x = net.conv(x, f"conv{i}", out=8, kernel=3, pads=1)
        compile_model(net.finish(x), load_hw("opu-tiny"))
        assert 0 < len(searched) < 4


VIEWS = """<ir_version: 10, opset_import: ["" : 17]>
g (float[1,4,6,6] x, float[1,4,2,2] k) => (float[1,8,6,6] y, float[1,72] part, float[1,8,6,6] v,
                                           float[1,288] whole, float[1,16] given) {
  a, b = Split <axis = 1> (x)  y = Conv (a, w)  v = Conv (b, w)
  [of_part] r = Reshape (a, r_shape)  part = Softmax (r)
  [of_map] q = Reshape (y, q_shape)  whole = Softmax (q)
  [of_input] o = Reshape (k, o_shape)  given = Softmax (o) }"""


def test_the_host_makes_those_views_whose_bytes_do_not_lie_in_memory():
    """Of what it makes itself, and of what no group reads or writes."""
    model = onnx.parser.parse_model(VIEWS)
    data = {"w": np.random.default_rng(1).normal(size=(8, 2, 1, 1)).astype(np.float32)}
    data |= {f"{name}_shape": np.array((1, n)) for name, n in (("r", 72), ("q", 288), ("o", 16))}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in data.items())
    bundle = compile_model(model, load_hw("opu-tiny")).bundle
    made = {name for s in bundle.segments if isinstance(s, HostSegment) for name, *_ in s.ops}
    assert {"of_part", "of_input"} <= made
    assert "of_map" not in made
    inputs = noise(bundle)
    result = run(bundle, load_hw("opu-tiny"), inputs, capture=True)
    assert check(bundle, inputs, result).passed


@pytest.mark.parametrize(("machine", "several"), [("opu-1024a", True), ("opu-1024t", False)])
def test_a_layer_of_tokens_begins_before_a_norm_ends(machine, several):
    hw = load_hw(machine)
    sizes = {"channels": 192, "out_channels": 768, "rows": 1, "cols": 197, "kernel": (1, 1)}
    assert (choose_tile("", make_shape(hw=hw, **sizes), hw)[0].cols < 197) is several


def test_a_mode_is_best_for_the_whole_blocks_of_a_tile():
    """Of 80 channels the last 16 have a mode of their own, here that of 64 input channels."""
    hw = load_hw("opu-1024a")
    shape = make_shape(hw, channels=80, out_channels=80, rows=40, cols=40, kernel=(1, 1))
    tile, found = choose_tile("", shape, hw)
    modes = [hw.array.modes[part.mode] for part in output_ranges(shape, tile, hw)]
    assert [(mode.ic, mode.oc) for mode in modes] == [(16, 64), (64, 16)]
    rows = 40 * 40 * (5 + 2)
    assert rows <= found.compute_cycles < 1.1 * rows
