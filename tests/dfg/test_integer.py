"""Integer parameters: one derivation for golden model and code generator, and clear words where it
cannot be done.
"""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.graph import Dfg
from opu_fuse.dfg.integer import (
    act_params,
    average_params,
    pad_fill,
    requant_params,
    residual_params,
    tied_quant,
    window_counts,
)
from opu_fuse.errors import ModelError
from opu_fuse.fixedpoint import Multiplier
from opu_fuse.quant import QuantParams
from tests.dfg import canonical

NUMERIC = SimpleNamespace(multiplier_bits=16, average_bits=16)


def graph(body: str, constants: str = "") -> Dfg:
    source = f"""g (float[1,3,6,6] x, float[1,3,6,6] z, float[3,3,1,1] w1, float[3] b1)
        => (float[1,3,6,6] y)
        {constants} {{ {body} }}"""
    return build_dfg(canonical.quantised(source).model)


def with_quants(dfg: Dfg, **quants: QuantParams) -> Dfg:
    """The same graph with other annotations, by node name (`/` written as `__`)."""
    named = {name.replace("__", "/"): quant for name, quant in quants.items()}
    nodes = tuple(dataclasses.replace(n, quant=named.get(n.name, n.quant)) for n in dfg.nodes)
    return dataclasses.replace(dfg, nodes=nodes)


def find(dfg: Dfg, name: str) -> int:
    return next(n.index for n in dfg.nodes if n.name == name)


def q(scale: float, zero_point: int = 0) -> QuantParams:
    return QuantParams(scale=(scale,), zero_point=zero_point)


def test_the_operands_zero_point_is_folded_into_the_bias():
    dfg = graph("[c] y = Conv<kernel_shape=[1,1]>(x, w1, b1)")
    plain = with_quants(dfg, x=q(0.5))
    shifted = with_quants(dfg, x=q(0.5, 7))
    weight = dfg[find(dfg, "w1")].const.reshape(3, -1).astype(int)
    difference = (
        requant_params(plain, find(dfg, "c"), NUMERIC).bias
        - requant_params(shifted, find(dfg, "c"), NUMERIC).bias
    )
    np.testing.assert_array_equal(difference, 7 * weight.sum(axis=1))
    assert requant_params(shifted, find(dfg, "c"), NUMERIC).pad_value == 7


def test_every_output_channel_has_its_own_multiplier():
    dfg = graph("[c] y = Conv<kernel_shape=[1,1]>(x, w1, b1)")
    weights = QuantParams(scale=(0.25, 0.5, 1.0), axis=0)
    params = requant_params(
        with_quants(dfg, x=q(0.5), w1=weights, c__bias=q(1.0)), find(dfg, "c"), NUMERIC
    )
    assert params.mult.tolist() == [1, 1, 1]
    assert params.shift.tolist() == [3, 2, 1]


def test_an_accumulator_that_could_overflow_is_refused():
    dfg = graph("[c] y = Conv<kernel_shape=[1,1]>(x, w1, b1)")
    nodes = tuple(
        dataclasses.replace(n, const=np.full(3, 2**31 - 1, np.int32)) if n.name == "b1" else n
        for n in dfg.nodes
    )
    with pytest.raises(ModelError, match=r"c: its accumulator can reach .*32 bits hold 2147483647"):
        requant_params(dataclasses.replace(dfg, nodes=nodes), find(dfg, "c"), NUMERIC)


def test_shifts_only_machines_refuse_other_scales_by_name():
    dfg = with_quants(graph("[c] y = Conv<kernel_shape=[1,1]>(x, w1, b1)"), x=q(0.3))
    with pytest.raises(ModelError, match=r"c: ratio .* is not a power of two; .*--scales pow2"):
        requant_params(dfg, find(dfg, "c"), SimpleNamespace(multiplier_bits=0, average_bits=16))


def test_relu_clamps_at_the_zero_point_and_carries_a_change_of_scale():
    dfg = with_quants(graph("[r] y = Relu(x)"), x=q(0.5, 3), r=q(0.25, -9))
    params = act_params(dfg, find(dfg, "r"), NUMERIC)
    assert (params.x_zero, params.y_zero, params.lo, params.hi) == (3, -9, -9, 127)
    assert params.pos / 2**params.shift == 2.0


def test_clip_bounds_are_rounded_in_the_results_scale():
    dfg = with_quants(
        graph("[r] y = Clip(x, lo, hi)", "<float lo = {-1.0}, float hi = {6.0}>"),
        x=q(0.5),
        r=q(0.5, 1),
    )
    params = act_params(dfg, find(dfg, "r"), NUMERIC)
    assert (params.lo, params.hi) == (-1, 13)


def test_leaky_relu_is_two_slopes_over_one_shift():
    dfg = with_quants(graph("[r] y = LeakyRelu<alpha=0.125>(x)"), x=q(0.5), r=q(0.5))
    params = act_params(dfg, find(dfg, "r"), NUMERIC)
    assert (params.pos, params.neg, params.shift) == (8, 1, 3)


def test_a_residual_add_brings_both_operands_to_one_shift_and_can_be_read_either_way():
    dfg = with_quants(graph("[a] y = Add(x, z)"), x=q(0.5, 1), z=q(0.125, 2), a=q(0.5, 3))
    params = residual_params(dfg, find(dfg, "a"), NUMERIC)
    assert params.a_mult == 4 * params.b_mult
    assert (params.a_zero, params.b_zero, params.y_zero) == (1, 2, 3)
    swapped = residual_params(dfg, find(dfg, "a"), NUMERIC, swap=True)
    assert (swapped.a_mult, swapped.a_zero) == (params.b_mult, 2)


def test_uncounted_padding_has_a_multiplier_per_number_of_positions():
    dfg = with_quants(
        graph("[p] y = AveragePool<kernel_shape=[3,3],pads=[1,1,1,1]>(x)"), x=q(0.5), p=q(0.5)
    )
    params = average_params(dfg, find(dfg, "p"), NUMERIC)
    assert window_counts(dfg, find(dfg, "p")) == ((2, 3, 3, 3, 3, 2), (2, 3, 3, 3, 3, 2))
    assert [n for n, _ in params.mults] == [4, 6, 9]
    assert params.multiplier_for(2, 2) == Multiplier(mult=1, shift=2)
    assert params.multiplier_for(3, 3).ratio == pytest.approx(1 / 9, rel=1e-4)


def test_a_window_wholly_in_the_padding_has_no_average():
    text = """g (float[1,3,6,6] x) => (float[1,3,7,7] y) {
        [p] y = AveragePool<kernel_shape=[1,1],pads=[0,0,1,1]>(x) }"""
    dfg = build_dfg(canonical.canonical(text))
    nodes = tuple(dataclasses.replace(n, quant=q(0.5)) for n in dfg.nodes)
    with pytest.raises(ModelError, match="p: a pooling window lies wholly in the padding"):
        average_params(dataclasses.replace(dfg, nodes=nodes), find(dfg, "p"), NUMERIC)


def test_an_explicit_pad_fills_with_its_rounded_value():
    body = "[p] a = Pad(x, pads, v) [m] y = MaxPool<kernel_shape=[3,3]>(a)"
    dfg = graph(body, "<int64[8] pads = {0,0,1,1,0,0,1,1}, float v = {-1.3}>")
    dfg = with_quants(dfg, x=q(0.5, 4), p=q(0.5, 4))
    assert pad_fill(dfg, find(dfg, "p")) == 1


def test_operators_that_only_move_values_refuse_a_change_of_scale():
    dfg = with_quants(graph("[m] y = MaxPool<kernel_shape=[1,1]>(x)"), x=q(0.5), m=q(0.25))
    with pytest.raises(ModelError, match=r"m: max_pool changes the scale from 0.5 to 0.25"):
        tied_quant(dfg, find(dfg, "m"))


def test_weights_with_a_zero_point_are_refused():
    dfg = graph("[c] y = Conv<kernel_shape=[1,1]>(x, w1, b1)")
    weights = QuantParams(scale=(0.25, 0.5, 1.0), axis=0, zero_point=3)
    with pytest.raises(ModelError, match="w1: weights must be constant int8 with zero point 0"):
        requant_params(with_quants(dfg, w1=weights), find(dfg, "c"), NUMERIC)
