"""Modes of several pixels: narrow maps computed several pixels at a time, and stored so, or each
pixel in a word of its own where somebody wants whole words.
"""

from dataclasses import replace

import numpy as np
import pytest

from opu_fuse.hw.spec.hw_spec import Mode
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.layout.pixel_packing import can_fetch
from opu_fuse.layout.shape import Window
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.tiling.candidates import choose_tile
from opu_fuse.units.base import Stage
from opu_fuse.zoo.builder import Net
from tests.exact import assert_exact
from tests.schedule.single_layer import make_shape, run_layer

R, A, S, P = Stage.REQUANT, Stage.ACT, Stage.RESIDUAL, Stage.POOL
PAIRS = Window(kernel=(2, 2), strides=(2, 2))
TALL = Window(kernel=(3, 2), strides=(1, 2), pads=(1, 0, 1, 0))


def packing():
    """opu-tiny with a mode of two pixels: 8 lanes hold two pixels of four channels."""
    hw = load_hw("opu-tiny")
    return replace(hw, array=replace(hw.array, modes=(*hw.array.modes, Mode(ic=4, oc=4, px=2))))


LAYERS = {
    "3x3": ({"channels": 4, "out_channels": 4, "pads": (1, 1, 1, 1)}, (R, A)),
    "odd_columns": ({"channels": 4, "out_channels": 3, "cols": 11, "pads": (1, 1, 1, 1)}, (R,)),
    "one_column": ({"channels": 3, "out_channels": 4, "cols": 1, "kernel": (1, 1)}, (R,)),
    "image": (
        {"channels": 3, "out_channels": 4, "rows": 9, "cols": 13, "slotted": True},
        (R, A),
    ),
    "image_stride_2": (
        {"channels": 3, "out_channels": 4, "cols": 14, "strides": (2, 2), "slotted": True},
        (R,),
    ),
    "wide_input": ({"channels": 21, "out_channels": 4, "rows": 7, "cols": 10}, (R,)),
    "added": (
        {"channels": 4, "out_channels": 4, "pads": (1, 1, 1, 1), "cols": 9, "residual": "final"},
        (R, S, A),
    ),
    "pooled": (
        {"channels": 4, "out_channels": 3, "cols": 22, "pads": (1, 1, 1, 1), "pool": PAIRS},
        (R, A, P),
    ),
    "pooled_in_tiles": (
        {
            "channels": 4,
            "out_channels": 4,
            "rows": 39,
            "cols": 50,
            "pads": (1, 1, 1, 1),
            "pool": PAIRS,
        },
        (R, A, P),
    ),
    "pooled_three_rows": (
        {"channels": 3, "out_channels": 4, "rows": 10, "cols": 12, "slotted": True, "pool": TALL},
        (R, P),
    ),
    "several_tiles": (
        {"channels": 4, "out_channels": 4, "rows": 31, "cols": 37, "pads": (1, 1, 1, 1)},
        (R, A),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_packed_layer_computes_what_it_says(name, rng):
    hw = packing()
    geometry, order = LAYERS[name]
    shape = make_shape(hw, **geometry, px=2)
    tile, _ = choose_tile("layer", shape, hw)
    assert hw.array.modes[tile.mode].px == 2
    got, expected = run_layer(hw, shape, order, rng)
    assert np.array_equal(got, expected)


SPREAD = {
    name: (geometry, order) for name, (geometry, order) in LAYERS.items() if "pool" not in geometry
} | {
    "upsampled": ({"channels": 4, "out_channels": 3, "cols": 9, "upsample": (2, 2)}, (R, A)),
    "nine_pixels_wide": ({"channels": 12, "out_channels": 4, "rows": 3, "cols": 9}, (R, A)),
}


@pytest.mark.parametrize("name", SPREAD)
def test_a_layer_whose_pixels_are_spread_computes_what_it_says(name, rng):
    geometry, order = SPREAD[name]
    hw = load_hw("opu-1024") if "upsample" in geometry else packing()
    shape = make_shape(hw, **geometry, px=2, spread=True)
    tile, _ = choose_tile("layer", shape, hw)
    assert hw.array.modes[tile.mode].px == 2
    got, expected = run_layer(hw, shape, order, rng)
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("cascades", ["never", "always"])
@pytest.mark.parametrize(
    ("machine", "out", "pixels"),
    [
        ("opu-1024", 16, 2),
        ("opu-1024", 32, 2),
        ("opu-1024", 33, 1),  # twice, more than a word
        ("opu-light", 16, 1),  # its mode of two pixels has half the multipliers a pixel
    ],
)
def test_a_narrow_map_in_a_concatenation_is_made_several_pixels_at_a_time(
    machine, out, pixels, cascades, rng
):
    """Whoever reads it wants whole words."""
    hw, net = load_hw(machine), Net("narrow", seed=3)
    x = net.relu(net.conv(net.input("x", (1, 40, 9, 15)), "before", out=16, kernel=1), "r")
    y = net.relu(net.conv(x, "narrow", out=out, kernel=3, pads=1), "narrow.relu")
    beside = net.relu(net.conv(x, "beside", out=40, kernel=1), "beside.relu")
    y = net.conv(net.concat([y, beside], "both"), "last", out=64, kernel=1)
    found = compile_model(net.finish(y), hw, Options(cascades=cascades))
    layers = [part.layer for parts in found.plan.layers.values() for part in parts]
    shapes = {layer.name.split(" ")[0]: layer.shape for layer in layers}
    assert (shapes["narrow"].px, shapes["narrow"].spread) == (pixels, pixels > 1)
    assert not shapes["last"].spread
    assert_exact(found, hw, rng, (None, 1))


def test_pixels_too_far_apart_for_two_words_are_not_fetched():
    hw = packing()
    wide = hw.array.modes[-1]
    apart = make_shape(hw, channels=12, out_channels=4, strides=(1, 2), px=2)
    assert not can_fetch(apart, wide, hw)
    assert can_fetch(make_shape(hw, channels=12, out_channels=4, px=2), wide, hw)
