"""Tiles fit every buffer, whatever the layer; what cannot fit says which buffer, how much and
what would help.
"""

import pytest

from opu_fuse.cost.chunks import output_ranges
from opu_fuse.cost.tiles import ceil_div, weight_chunks
from opu_fuse.cost.tiling import choose_tile
from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.load import load_hw
from opu_fuse.layout.shape import Window
from tests.schedule.single_layer import make_shape

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
        >= shape.mid_rows * shape.mid_cols * shape.mid_channels * shape.in_channels
    )
    ranges = output_ranges(shape, tile, hw)
    assert sum(r.blocks for r in ranges) == ceil_div(shape.mid_channels, hw.word_channels)
    rows = max(w.rows for r in ranges for f in r.features for w in f.weights)
    assert rows * hw.row_words <= hw.buffers.weight.bank_words


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
