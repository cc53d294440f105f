"""Channels-last arrays are taken where that is beyond doubt or asked for, and refused else."""

import numpy as np
import pytest

import opu_fuse
from opu_fuse.array_layout import ArrayLayout, channels_first, is_channels_last
from opu_fuse.choices import named_for_the_command
from opu_fuse.errors import UserError
from opu_fuse.pipeline import Options, Program, compile_model
from opu_fuse.zoo import build

AUTO, NCHW, NHWC = ArrayLayout
SHAPE = (1, 3, 8, 9)


@pytest.mark.parametrize(
    ("given", "shape", "last"),
    [
        ((8, 9, 3), SHAPE, True),
        ((1, 8, 9, 3), SHAPE, True),
        ((7, 8, 9, 3), SHAPE, True),
        ((7, 1, 8, 9, 3), SHAPE, True),
        ((7, 4, 8, 9, 3), (4, 3, 8, 9), True),
        ((7, 8, 9, 3), (4, 3, 8, 9), False),  # 7 is neither the batch nor one sample of it
        ((3, 8, 9), SHAPE, False),
        ((1, 3, 8, 9), SHAPE, False),
        ((5, 3, 8, 9), SHAPE, False),
        ((4, 8, 8, 8), (1, 8, 8, 8), False),  # both fit: as the model has it
        ((3, 3, 3), (1, 3, 3, 3), False),
        ((9, 8, 3), SHAPE, False),  # width before height
        ((8, 3), (1, 3, 8), False),
        ((), SHAPE, False),
    ],
)
def test_a_shape_is_channels_last_only_beyond_doubt(given, shape, last):
    assert is_channels_last(given, shape) is last
    array = np.zeros(given, np.int8)
    assert channels_first("x", array, shape, NCHW) is array
    moved = channels_first("x", array, shape, AUTO)
    assert moved.shape == ((*given[:-3], given[-1], *given[-3:-1]) if last else given)


def test_what_is_asked_for_is_done_where_both_orders_fit(rng):
    array = rng.standard_normal((4, 8, 8, 8))
    moved = channels_first("x", array, (1, 8, 8, 8), NHWC)
    np.testing.assert_array_equal(moved, array.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("given", [(4, 3, 8, 9), (8, 9), (4, 9, 8, 3), (2, 2, 2, 8, 9, 3)])
def test_a_refusal_names_the_axes(given):
    axes = r" expects \(samples, height, width, channels\) = 1x8x9x3, got "
    with pytest.raises(UserError, match=f"layout='nhwc'{axes}"):
        channels_first("x", np.zeros(given), SHAPE, NHWC)
    with named_for_the_command(), pytest.raises(UserError, match=f"--layout nhwc{axes}"):
        channels_first("x", np.zeros(given), SHAPE, NHWC)


def test_calibration_with_channels_last_gives_the_same_program(rng, caplog):
    images = rng.standard_normal((5, 12, 12, 3)).astype(np.float32)
    hw, model = opu_fuse.load_hw("opu-tiny"), build("tiny_residual")
    (port,) = [v.name for v in model.graph.inputs]

    def words(layout, array):
        options = Options(calibration={port or "": array}, layout=layout)
        return compile_model(build("tiny_residual"), hw, options).bundle.constants.tobytes()

    first = words("nchw", np.moveaxis(images, -1, 1))
    assert words("auto", images) == first
    assert "has channels last, 5x12x12x3: taken as 5x3x12x12" in caplog.text
    caplog.clear()
    assert words("nhwc", images) == first
    assert caplog.text == "", "whoever says so needs no warning"
    with pytest.raises(UserError, match=r"axes are \(samples, channels, height, width\)"):
        words("nchw", images)


def test_inputs_with_channels_last_give_the_same_outputs(rng, caplog):
    images = rng.standard_normal((2, 12, 12, 3)).astype(np.float32)
    hw = opu_fuse.load_hw("opu-tiny")
    program = Program(bundle=compile_model(build("tiny_residual"), hw).bundle, hw=hw)
    (port,) = program.bundle.inputs
    expected = program.run({port.name: np.moveaxis(images, -1, 1)}).outputs
    caplog.clear()
    outputs = program.run({port.name: images}).outputs
    assert "has channels last: its last axis was moved" in caplog.text
    for name, array in expected.items():
        np.testing.assert_array_equal(outputs[name], array)
    with pytest.raises(UserError, match=r"axes are \(samples, channels, height, width\)"):
        program.run({port.name: images[..., :2]})
