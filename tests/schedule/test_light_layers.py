"""Layers of the modules of light networks: depthwise windows, tables, products, upsampling."""

from dataclasses import replace

import numpy as np
import pytest

from opu_fuse.hw.load import load_hw
from opu_fuse.hw.spec import Buffer
from opu_fuse.layout.shape import Window
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


@pytest.mark.parametrize("order", [(R, T), (R, T, P), (R, P, T), (T,), (R, A, T)])
def test_tables_stand_anywhere_in_the_chain(order, rng):
    hw = light()
    pool = {"pool": POOL_2} if P in order else {}
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
