"""Layers of the modules of light networks: depthwise windows, tables, products, upsampling."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opu_fuse.hw.spec.hw_spec import Buffer
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.layout.shape import Window
from opu_fuse.tiling.candidates import choose_tile
from opu_fuse.tiling.chunks import output_ranges
from opu_fuse.units.base import Stage
from tests.schedule.single_layer import make_shape, run_layer
from tests.sim.machines import EVERY_MODULE

R, A, P, S, T = Stage.REQUANT, Stage.ACT, Stage.POOL, Stage.RESIDUAL, Stage.TABLE
POOL_2 = Window(kernel=(2, 2), strides=(2, 2))


def light(*, units=8):
    """opu-tiny with every module; fewer units give several parts a block."""
    hw = load_hw("opu-tiny")
    array = replace(hw.array, depthwise=True)
    if units < 8:
        modes = tuple(replace(m, oc=m.oc * units // 8) for m in hw.array.modes)
        array = replace(array, units=units, modes=modes)
    buffers = replace(hw.buffers, table=Buffer(words=512), pre=Buffer(words=64))
    return replace(hw, array=array, buffers=buffers, dataflow=EVERY_MODULE)


DEPTHWISE = {
    "3x3": ({"channels": 8, "pads": (1, 1, 1, 1)}, (R, A)),
    "odd_channels_stride_2": (
        {"channels": 21, "rows": 13, "cols": 9, "strides": (2, 2), "pads": (0, 1, 1, 0)},
        (R,),
    ),
    "5x5_in_many_windows": ({"channels": 11, "kernel": (5, 5), "pads": (2, 2, 2, 2)}, (R, A)),
    "1x1": ({"channels": 5, "kernel": (1, 1)}, (R,)),
    "dilated": ({"channels": 9, "dilations": (2, 3), "rows": 12, "cols": 14}, (R,)),
    "several_tiles": (
        {"channels": 30, "rows": 19, "cols": 23, "pads": (1, 1, 1, 1)},
        (R, A),
    ),
    "pooled_and_added": (
        {"channels": 12, "rows": 12, "cols": 12, "pads": (1, 1, 1, 1), "pool": POOL_2}
        | {"residual": "mid"},
        (R, S, P, A),
    ),
    "kernel_as_large_as_the_map": (
        {"channels": 9, "rows": 14, "cols": 15, "kernel": (14, 15)},
        (R,),
    ),
}


@pytest.mark.parametrize("units", [8, 4])
@pytest.mark.parametrize("name", DEPTHWISE)
def test_depthwise_layer_computes_what_it_says(name, units, rng):
    hw = light(units=units)
    geometry, order = DEPTHWISE[name]
    channels = geometry["channels"]
    shape = make_shape(hw, **geometry, out_channels=channels, groups=channels, depthwise=True)
    got, expected = run_layer(hw, shape, order, rng)
    assert np.array_equal(got, expected)
    assert len(np.unique(expected)) >= 5


def narrow(units):
    """opu-light with fewer units: words of 64 channels in 64 / units parts, windows of 4 by 4."""
    hw = load_hw("opu-light")
    modes = tuple(replace(hw.array.modes[i], oc=hw.array.modes[i].oc * units // 32) for i in (0, 1))
    modes = tuple(mode for mode in modes if mode.oc >= 8) or (replace(modes[1], ic=16, oc=units),)
    return replace(hw, array=replace(hw.array, units=units, modes=modes))


AT_ONCE = {
    "a part": ({"channels": 5, "pads": (1, 1, 1, 1)}, (2, 2)),
    "a whole part, odd rows": ({"channels": 32, "rows": 13}, (2, 1)),
    "a block and a part": ({"channels": 70, "rows": 11, "pads": (1, 0, 2, 1)}, (2, 2)),
    "whole words": ({"channels": 64}, (1, 1)),
    "one row": ({"channels": 7, "rows": 3}, (2, 2)),
    "stride 2: five rows": ({"channels": 8, "rows": 13, "cols": 13, "strides": (2, 2)}, (1, 1)),
    "strides differ": ({"channels": 8, "kernel": (2, 3), "strides": (1, 2)}, (2, 3)),
    "columns": ({"channels": 9, "kernel": (3, 1), "pads": (1, 0, 1, 0)}, (2, 2)),
    "rows of a cycle each": ({"channels": 9, "kernel": (1, 3)}, (1, 1)),
    "dilated": ({"channels": 9, "dilations": (2, 1), "rows": 9}, (1, 1)),
    "several windows": ({"channels": 9, "kernel": (5, 3)}, (1, 1)),
    "pooled": (
        {"channels": 12, "rows": 12, "cols": 12, "pads": (1, 1, 1, 1), "pool": POOL_2}
        | {"residual": "mid"},
        (2, 2),
    ),
}
"""Sizes, and output rows at once of the last part: of 64 channels in two parts, and in four."""


@pytest.mark.parametrize("units", [32, 16])
@pytest.mark.parametrize("name", AT_ONCE)
def test_a_part_alone_in_its_word_makes_several_rows_of_the_same_reads(name, units, rng):
    hw = narrow(units)
    geometry, at_once = AT_ONCE[name]
    channels = geometry["channels"]
    shape = make_shape(hw, **geometry, out_channels=channels, groups=channels, depthwise=True)
    tile, _ = choose_tile("layer", shape, hw)
    last = output_ranges(shape, tile, hw)[-1].features[-1].weights[-1]
    assert last.at_once == at_once[units == 16]
    order = (R, S, P, A) if shape.pool else (R, A)
    got, expected = run_layer(hw, shape, order, rng)
    assert np.array_equal(got, expected)
    assert len(np.unique(expected)) >= 5


@pytest.mark.parametrize("order", [(R, T), (R, T, P), (R, P, T), (T,), (R, A, T)])
def test_tables_stand_anywhere_in_the_chain(order, rng):
    hw = light()
    pool: dict[str, Any] = {"pool": POOL_2} if P in order else {}
    shape = make_shape(hw, array=R in order, channels=13, out_channels=11, **pool)
    got, expected = run_layer(hw, shape, order, rng)
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("broadcast", [True, False])
@pytest.mark.parametrize("order", [(R, S), (R, A, S), (S, A), (R, T, S)])
def test_products_with_a_map_or_with_one_pixel(order, broadcast, rng):
    hw = light()
    shape = make_shape(
        hw,
        array=R in order,
        channels=19,
        out_channels=21,
        rows=15,
        cols=13,
        residual="final",
        broadcast=broadcast,
    )
    got, expected = run_layer(hw, shape, order, rng, product=True)
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("scale", [(2, 2), (3, 1), (1, 4)])
@pytest.mark.parametrize("pool", [None, POOL_2])
def test_upsampled_maps_repeat_rows_and_columns(scale, pool, rng):
    hw = light()
    shape = make_shape(hw, channels=9, out_channels=18, rows=14, cols=15, pool=pool, upsample=scale)
    got, expected = run_layer(hw, shape, (R, P) if pool else (R, A), rng)
    assert np.array_equal(got, expected)
