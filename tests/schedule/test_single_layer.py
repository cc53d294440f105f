"""Every layer geometry that fits gives the same integers through tiles, banks, tokens and
instructions as computed directly.
"""

from typing import Any

import numpy as np
import pytest

from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.layout.shape import Window
from opu_fuse.units.base import Stage
from tests.schedule.single_layer import emit_program, make_shape, run_layer

R, A, P, S = Stage.REQUANT, Stage.ACT, Stage.POOL, Stage.RESIDUAL
POOL_2 = Window(kernel=(2, 2), strides=(2, 2))
POOL_3 = Window(kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))

CASES = {
    "one_pixel": ({"rows": 1, "cols": 1, "kernel": (1, 1)}, (R,)),
    "plain_3x3": ({"channels": 8, "out_channels": 8, "pads": (1, 1, 1, 1)}, (R, A)),
    "odd_channels_asymmetric_padding": (
        {
            "channels": 13,
            "out_channels": 19,
            "rows": 11,
            "cols": 7,
            "pads": (0, 1, 2, 1),
            "strides": (2, 1),
        },
        (R, A),
    ),
    "slotted_image": (
        {
            "channels": 3,
            "rows": 17,
            "cols": 19,
            "kernel": (5, 5),
            "pads": (2, 2, 2, 2),
            "slotted": True,
        },
        (R,),
    ),
    "slotted_image_stride_2": (
        {
            "channels": 1,
            "rows": 15,
            "cols": 15,
            "kernel": (7, 7),
            "strides": (2, 2),
            "pads": (3, 3, 3, 3),
            "slotted": True,
        },
        (R, A),
    ),
    "tiles_in_rows_columns_channels": (
        {"channels": 21, "out_channels": 27, "rows": 20, "cols": 19, "pads": (1, 1, 1, 1)},
        (R,),
    ),
    "kernel_11": (
        {"channels": 9, "rows": 23, "cols": 23, "kernel": (11, 11), "strides": (4, 4)},
        (R,),
    ),
    "dilated": (
        {"channels": 9, "rows": 19, "cols": 19, "dilations": (4, 3), "pads": (4, 3, 4, 3)},
        (R,),
    ),
    "columns_further_apart_than_a_bank": (
        {
            "channels": 3,
            "rows": 2,
            "cols": 150,
            "kernel": (1, 3),
            "dilations": (1, 140),
            "pads": (0, 140, 0, 140),
        },
        (R,),
    ),
    "dilation_wider_than_a_bank": (
        {"channels": 3, "rows": 33, "cols": 33, "dilations": (15, 15), "pads": (15, 15, 15, 15)},
        (R,),
    ),
    "grouped": ({"channels": 24, "out_channels": 36, "groups": 3, "pads": (1, 1, 1, 1)}, (R,)),
    "depthwise": ({"channels": 19, "out_channels": 19, "groups": 19, "pads": (1, 1, 1, 1)}, (R, A)),
    "dense_of_a_map": (
        {"channels": 37, "rows": 7, "cols": 7, "out_channels": 50, "kernel": (7, 7)},
        (R,),
    ),
    "max_pool_halo": (
        {"channels": 8, "rows": 21, "cols": 21, "pads": (1, 1, 1, 1), "pool": POOL_3},
        (R, A, P),
    ),
    "pool_then_act": ({"channels": 5, "rows": 12, "cols": 12, "pool": POOL_2}, (R, P, A)),
    "residual_before_pool": (
        {
            "channels": 9,
            "out_channels": 9,
            "rows": 14,
            "cols": 14,
            "pool": POOL_3,
            "residual": "mid",
        },
        (R, S, A, P),
    ),
    "residual_after_pool": (
        {
            "channels": 9,
            "out_channels": 9,
            "rows": 14,
            "cols": 14,
            "pool": POOL_2,
            "residual": "final",
        },
        (R, A, P, S),
    ),
    "residual_then_act": (
        {"channels": 24, "out_channels": 24, "rows": 13, "residual": "final"},
        (R, S, A),
    ),
    "copy_add": (
        {"array": False, "channels": 19, "rows": 15, "cols": 9, "residual": "final"},
        (S, A),
    ),
    "copy_pool": ({"array": False, "channels": 19, "rows": 15, "cols": 15, "pool": POOL_3}, (P,)),
    "copy_act": ({"array": False, "channels": 7, "rows": 30, "cols": 3}, (A,)),
}


@pytest.mark.parametrize("name", CASES)
def test_layer_computes_what_it_says(name, rng):
    geometry, order = CASES[name]
    hw = load_hw("opu-tiny")
    got, expected = run_layer(hw, make_shape(hw, **geometry), order, rng)
    assert np.array_equal(got, expected)
    assert len(np.unique(expected)) >= min(32, expected.size // 2)


@pytest.mark.parametrize("uncounted", [False, True])
def test_average_pool_counts_padding_or_leaves_it_out(uncounted, rng):
    hw = load_hw("opu-tiny")
    shape = make_shape(hw, channels=9, out_channels=11, rows=17, cols=13, pool=POOL_3)
    got, expected = run_layer(hw, shape, (R, A, P), rng, average=True, uncounted=uncounted)
    assert np.array_equal(got, expected)


def test_layer_of_the_large_machine(rng):
    hw = load_hw("opu-1024")
    shape = make_shape(
        hw, channels=150, out_channels=200, rows=30, cols=37, pads=(1, 1, 1, 1), pool=POOL_3
    )
    got, expected = run_layer(hw, shape, (R, A, P), rng)
    assert np.array_equal(got, expected)


def test_words_that_follow_each_other_are_stored_in_one_run():
    """Rows of 5 words, blocks of 25, two of them in a tile."""
    hw = load_hw("opu-tiny")
    shape = make_shape(hw, channels=128, out_channels=128, rows=5, cols=5, kernel=(1, 1))
    stores = [x.params for x in emit_program(hw, shape, (R,)) if x.engine is Engine.STORE]
    assert {(p["run"], p["rows"], p["blocks"]) for p in stores} == {(50, 1, 1)}
    assert len(stores) == 8


def test_what_all_tiles_need_is_brought_once():
    hw = load_hw("opu-1024")
    shape = make_shape(hw, channels=64, out_channels=64, rows=20, cols=20, kernel=(1, 1))
    program = emit_program(hw, shape, (R,))
    assert sum(x.engine is Engine.STORE for x in program) > 1
    for opcode in ("weight", "param"):
        assert sum((x.engine, x.opcode) == (Engine.LOAD, opcode) for x in program) == 1


@pytest.mark.parametrize("round_", range(25))
def test_random_layers(round_, rng):
    hw = load_hw("opu-tiny")

    def pick(*options):
        return options[int(rng.integers(len(options)))]

    kernel = (pick(1, 2, 3, 5), pick(1, 2, 3, 5))
    groups = pick(1, 1, 1, 2, 5)
    geometry: dict[str, Any] = {
        "channels": groups * int(rng.integers(1, 12)),
        "out_channels": groups * int(rng.integers(1, 12)),
        "rows": int(rng.integers(6, 24)),
        "cols": int(rng.integers(6, 24)),
        "kernel": kernel,
        "strides": (pick(1, 1, 2, 3), pick(1, 1, 2, 3)),
        "pads": tuple(int(rng.integers(0, k)) for k in (*kernel, *kernel)),
        "groups": groups,
        "pool": pick(None, None, POOL_2, POOL_3),
        "residual": pick(None, "final"),
    }
    order = (R, *((P,) if geometry["pool"] else ()), *((S,) if geometry["residual"] else ()), A)
    shape = make_shape(hw, **geometry)
    if min(shape.out_rows, shape.out_cols) < 1:
        shape = make_shape(hw, **dict(geometry, pool=None))
        order = tuple(s for s in order if s is not P)
    got, expected = run_layer(hw, shape, order, rng)
    assert np.array_equal(got, expected)
