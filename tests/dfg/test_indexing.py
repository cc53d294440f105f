"""Indexing maps tell which element an operator reads, and from that how an operand is accessed."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opu_fuse.dfg.graph import Access
from opu_fuse.dfg.indexing import (
    Role,
    broadcast_map,
    conv_maps,
    dense_maps,
    derive_access,
    elementwise_access,
    window_map,
)
from opu_fuse.dfg.numpy_kernels import conv_sums, window_max


@pytest.mark.parametrize(
    ("shape", "result", "const", "access"),
    [
        ((1, 4, 8, 8), (1, 4, 8, 8), False, Access.FULL),
        ((4, 1, 1), (1, 4, 8, 8), True, Access.PER_CHANNEL),
        ((1, 4, 1, 1), (1, 4, 8, 8), False, Access.PER_CHANNEL),
        ((), (1, 4, 8, 8), True, Access.PER_TENSOR),
        ((1, 1, 1), (1, 4, 8, 8), True, Access.PER_TENSOR),
        ((8,), (1, 4, 8, 8), True, Access.UNSUPPORTED),
        ((8, 1), (1, 4, 8, 8), True, Access.UNSUPPORTED),
        ((4, 8, 8), (1, 4, 8, 8), True, Access.FULL),
        ((16,), (1, 16), True, Access.PER_CHANNEL),
        ((1, 16), (1, 16), False, Access.FULL),
        ((1, 16), (1, 16), True, Access.PER_CHANNEL),
        ((1, 4, 1, 1), (1, 4, 1, 1), False, Access.FULL),
        ((4, 1, 1), (1, 4, 1, 1), True, Access.PER_CHANNEL),
        ((1, 1, 8, 8), (1, 4, 8, 8), False, Access.UNSUPPORTED),
    ],
)
def test_access_follows_from_the_shape_that_is_broadcast(shape, result, const, access):
    assert elementwise_access(shape, result, const=const) is access


def test_weights_are_read_per_channel_and_feature_maps_in_full():
    geometry = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)}
    maps = conv_maps((1, 4, 8, 8), (6, 4, 3, 3), (1, 6, 6, 6), **geometry, group=1)
    assert [derive_access(m, const=False) for m in maps] == [Access.FULL, Access.PER_CHANNEL]
    depthwise = conv_maps((1, 4, 3, 3), (4, 1, 3, 3), (1, 4, 1, 1), **geometry, group=4)
    assert [derive_access(m, const=False) for m in depthwise] == [Access.FULL, Access.PER_CHANNEL]
    dense = dense_maps((1, 32), (10, 32))
    assert [derive_access(m, const=False) for m in dense] == [Access.FULL, Access.PER_CHANNEL]


def test_broadcasting_repeats_an_operand_over_the_loops_it_does_not_mention():
    indexing = broadcast_map((4, 1, 1), (1, 4, 8, 8))
    assert indexing.index((0, 3, 5, 7)) == (3, 0, 0)
    assert indexing.mentions(Role.CHANNEL)
    assert not indexing.mentions(Role.SPATIAL)


def read(array: np.ndarray, index: tuple[int, ...], outside: int) -> int:
    inside = all(0 <= i < n for i, n in zip(index, array.shape, strict=True))
    return int(array[index]) if inside else outside


@given(
    st.sampled_from([(1, 3, 2), (2, 2, 2), (4, 1, 1)]),
    st.tuples(*[st.integers(1, 2)] * 4),
    st.tuples(*[st.integers(0, 2)] * 4),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.integers(0, 2**32 - 1),
)
def test_a_convolution_summed_point_by_point_through_its_maps_is_the_kernels_convolution(
    channels, steps, pads, kernel, seed
):
    group, ic, oc = channels
    rng = np.random.default_rng(seed)
    x = rng.integers(-128, 128, (1, group * ic, 5, 6), np.int8)
    w = rng.integers(-127, 128, (group * oc, ic, *kernel), np.int8)
    attrs = {"strides": steps[:2], "dilations": steps[2:], "pads": pads, "group": group}
    sums = conv_sums(x, w, attrs, pad_value=-5)
    feature, weight = conv_maps(x.shape, w.shape, sums.shape, **attrs)
    direct = np.zeros_like(sums)
    for point in itertools.product(*(range(loop.extent) for loop in feature.loops)):
        _, g, o, oh, ow, *_ = point
        direct[0, g * oc + o, oh, ow] += read(x, feature.index(point), -5) * int(
            w[weight.index(point)]
        )
    np.testing.assert_array_equal(sums, direct)


@given(
    st.tuples(*[st.integers(1, 2)] * 4),
    st.tuples(*[st.integers(0, 1)] * 4),
    st.integers(0, 2**32 - 1),
)
def test_a_pool_taken_point_by_point_through_its_map_is_the_kernels_pool(steps, pads, seed):
    x = np.random.default_rng(seed).integers(-128, 128, (1, 2, 6, 5), np.int8)
    attrs = {"kernel": (2, 3), "strides": steps[:2], "dilations": (1, 1), "pads": pads}
    pooled = window_max(x, attrs)
    indexing = window_map(pooled.shape, **attrs)
    direct = np.full(pooled.shape, -128)
    for point in itertools.product(*(range(loop.extent) for loop in indexing.loops)):
        n, c, oh, ow, *_ = point
        direct[n, c, oh, ow] = max(direct[n, c, oh, ow], read(x, indexing.index(point), -128))
    np.testing.assert_array_equal(pooled, direct)
