"""Integer parameters: one derivation for golden model and code generator, and clear words where it
cannot be done.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.graph import Dfg
from opu_fuse.dfg.integer import (
    filters,
    is_tied,
    operator,
    pad_fill,
    requant_params,
    settings,
    tied_quant,
)
from opu_fuse.errors import ModelError
from opu_fuse.fixedpoint import Multiplier
from opu_fuse.hw.spec.hw_spec import Numeric
from opu_fuse.quant import QuantParams
from opu_fuse.units.base import Stage
from opu_fuse.units.pool import average_params, window_counts
from tests.dfg import canonical
from tests.some import some

NUMERIC = Numeric(multiplier_bits=16, average_bits=16)


def registers(dfg: Dfg, name: str, stage: Stage, prefix: str, *, swap=False, numeric=NUMERIC):
    """A unit's registers for a node, without their prefix."""
    found = settings(dfg, find(dfg, name), stage, numeric, swap=swap).registers
    return SimpleNamespace(**{key.removeprefix(f"{prefix}_"): v for key, v in found.items()})


def graph(body: str, constants: str = "") -> Dfg:
    source = f"""g (float[1,3,6,6] x, float[1,3,6,6] z, float[3,3,1,1] w1, float[3] b1)
        => (float[1,3,6,6] y)
        {constants} {{ {body} }}"""
    return build_dfg(canonical.quantised(source).model)


def with_quants(dfg: Dfg, **quants: QuantParams) -> Dfg:
    """The same graph with other annotations, by node name (`/` written as `__`)."""
    named = {name.replace("__", "/"): quant for name, quant in quants.items()}
    nodes = tuple(replace(n, quant=named.get(n.name, n.quant)) for n in dfg.nodes)
    return replace(dfg, nodes=nodes)


def find(dfg: Dfg, name: str) -> int:
    return next(n.index for n in dfg.nodes if n.name == name)


def q(scale: float, zero_point: int = 0) -> QuantParams:
    return QuantParams(scale=(scale,), zero_point=zero_point)


def test_the_operands_zero_point_is_folded_into_the_bias():
    dfg = graph("[c] y = Conv<kernel_shape=[1,1]>(x, w1, b1)")
    plain = with_quants(dfg, x=q(0.5))
    shifted = with_quants(dfg, x=q(0.5, 7))
    weight = some(dfg[find(dfg, "w1")].const).reshape(3, -1).astype(int)
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
        replace(n, const=np.full(3, 2**31 - 1, np.int32)) if n.name == "b1" else n
        for n in dfg.nodes
    )
    with pytest.raises(ModelError, match=r"c: its accumulator can reach .*32 bits hold 2147483647"):
        requant_params(replace(dfg, nodes=nodes), find(dfg, "c"), NUMERIC)


def test_shifts_only_machines_refuse_other_scales_by_name():
    dfg = with_quants(graph("[c] y = Conv<kernel_shape=[1,1]>(x, w1, b1)"), x=q(0.3))
    with pytest.raises(ModelError, match=r"c: ratio .* is not a power of two; quantise the model"):
        requant_params(dfg, find(dfg, "c"), Numeric(multiplier_bits=0, average_bits=16))


def test_relu_clamps_at_the_zero_point_and_carries_a_change_of_scale():
    dfg = with_quants(graph("[r] y = Relu(x)"), x=q(0.5, 3), r=q(0.25, -9))
    params = registers(dfg, "r", Stage.ACT, "act")
    assert (params.x_zero, params.y_zero, params.lo, params.hi) == (3, -9, -9, 127)
    assert params.pos / 2**params.shift == 2.0


def test_clip_bounds_are_rounded_in_the_results_scale():
    dfg = with_quants(
        graph("[r] y = Clip(x, lo, hi)", "<float lo = {-1.0}, float hi = {6.0}>"),
        x=q(0.5),
        r=q(0.5, 1),
    )
    params = registers(dfg, "r", Stage.ACT, "act")
    assert (params.lo, params.hi) == (-1, 13)


def test_leaky_relu_is_two_slopes_over_one_shift():
    dfg = with_quants(graph("[r] y = LeakyRelu<alpha=0.125>(x)"), x=q(0.5), r=q(0.5))
    params = registers(dfg, "r", Stage.ACT, "act")
    assert (params.pos, params.neg, params.shift) == (8, 1, 3)


def test_a_residual_add_brings_both_operands_to_one_shift_and_can_be_read_either_way():
    dfg = with_quants(graph("[a] y = Add(x, z)"), x=q(0.5, 1), z=q(0.125, 2), a=q(0.5, 3))
    params = registers(dfg, "a", Stage.RESIDUAL, "res")
    assert params.a_mult == 4 * params.b_mult
    assert (params.a_zero, params.b_zero, params.y_zero) == (1, 2, 3)
    swapped = registers(dfg, "a", Stage.RESIDUAL, "res", swap=True)
    assert (swapped.a_mult, swapped.a_zero) == (params.b_mult, 2)


def test_operands_are_in_the_models_order_unless_the_pipeline_makes_the_second():
    dfg = with_quants(graph("[a] y = Add(x, z)"), x=q(0.5, 1), z=q(0.125, 2), a=q(0.5, 3))
    index = find(dfg, "a")
    assert [value.name for value in operator(dfg, index).operands] == ["x", "z"]
    assert [value.name for value in operator(dfg, index, swap=True).operands] == ["z", "x"]
    plain = settings(dfg, index, Stage.RESIDUAL, NUMERIC).registers
    assert (plain["res_a_zero"], plain["res_b_zero"]) == (1, 2)


@pytest.mark.parametrize(("one", "other", "tied"), [
    (q(0.5, 1), q(0.5, 1), True),
    (q(0.5, 1), q(0.25, 1), False),
    (q(0.5, 1), q(0.5, 2), False),
    (q(0.5), None, False),
    (None, q(0.5), False),
    (None, None, False),
])  # fmt: skip
def test_values_are_tied_when_the_same_integers_are_the_same_numbers(one, other, tied):
    assert is_tied(one, other) is tied


def test_uncounted_padding_has_a_multiplier_per_number_of_positions():
    dfg = with_quants(
        graph("[p] y = AveragePool<kernel_shape=[3,3],pads=[1,1,1,1]>(x)"), x=q(0.5), p=q(0.5)
    )
    params = average_params(operator(dfg, find(dfg, "p")), NUMERIC)
    assert window_counts(operator(dfg, find(dfg, "p"))) == ((2, 3, 3, 3, 3, 2), (2, 3, 3, 3, 3, 2))
    assert [n for n, _ in params.mults] == [4, 6, 9]
    assert params.multiplier_for(2, 2) == Multiplier(mult=1, shift=2)
    assert params.multiplier_for(3, 3).ratio == pytest.approx(1 / 9, rel=1e-4)


def test_a_window_wholly_in_the_padding_has_no_average():
    text = """g (float[1,3,6,6] x) => (float[1,3,7,7] y) {
        [p] y = AveragePool<kernel_shape=[1,1],pads=[0,0,1,1]>(x) }"""
    dfg = build_dfg(canonical.canonical(text))
    nodes = tuple(replace(n, quant=q(0.5)) for n in dfg.nodes)
    with pytest.raises(ModelError, match="p: a pooling window is wholly in the padding"):
        average_params(operator(replace(dfg, nodes=nodes), find(dfg, "p")), NUMERIC)


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
    with pytest.raises(ModelError, match="w1: weights must be constant int8 or int16 with"):
        requant_params(with_quants(dfg, w1=weights), find(dfg, "c"), NUMERIC)


def with_nodes(dfg: Dfg, **fields: dict[str, Any]) -> Dfg:
    """The same graph with other fields of some nodes, by node name."""
    nodes = tuple(replace(n, **fields.get(n.name, {})) for n in dfg.nodes)
    return replace(dfg, nodes=nodes)


def other_shapes(head: str, body: str, opset: int = 17) -> Dfg:
    """A quantised graph with values of its own shapes."""
    return build_dfg(canonical.quantised(f"g ({head} {{ {body} }}", opset=opset).model)


def dense(x: int = 0, bias: str = ", b1", y_scale: float = 0.25) -> tuple[Dfg, int]:
    """Four filters of 3 inputs."""
    dfg = other_shapes(
        "float[1,3,6,6] x, float[4,3,1,1] w1, float[4] b1) => (float[1,4,6,6] y)",
        f"[c] a = Conv<kernel_shape=[1,1]>(x, w1{bias}) [r] y = Relu(a)",
    )
    scaled = with_quants(dfg, x=q(0.5, x), w1=q(0.125), c__bias=q(y_scale), c=q(y_scale))
    return scaled, find(dfg, "c")


def test_the_bias_is_the_models_less_what_the_zero_point_adds():
    dfg, conv = dense(x=-5)
    weight, bias = (some(dfg[find(dfg, n)].const).tolist() for n in ("w1", "b1"))
    expected = [
        b + 5 * sum(w for ((w,),) in channels) for b, channels in zip(bias, weight, strict=True)
    ]
    assert requant_params(dfg, conv, NUMERIC).bias.tolist() == expected


def test_without_a_bias_only_the_zero_point_adds():
    dfg, conv = dense(bias="")
    assert requant_params(dfg, conv, NUMERIC).bias.tolist() == [0, 0, 0, 0]


def test_the_multiplier_is_the_product_of_the_operands_scales_over_the_results():
    dfg, conv = dense(y_scale=0.0625 / 3)
    params = requant_params(dfg, conv, NUMERIC)
    assert (params.mult.tolist(), params.shift.tolist()) == ([3] * 4, [0] * 4)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("weight", [-128, 1])
def test_sums_may_reach_the_last_integer_of_the_accumulator_and_no_further(weight, sign):
    dfg, conv = dense()
    reach = 3 * 128 * abs(weight)
    weights = {"const": np.full((4, 3, 1, 1), weight, np.int8)}

    def bias(last: int) -> dict[str, Any]:
        return {"const": np.array([0, 0, 0, sign * last], np.int32)}

    fits = with_nodes(dfg, w1=weights, b1=bias(2**31 - 1 - reach))
    assert abs(requant_params(fits, conv, NUMERIC).bias[3]) == 2**31 - 1 - reach
    beyond = with_nodes(dfg, w1=weights, b1=bias(2**31 - reach))
    with pytest.raises(ModelError, match="c: its accumulator can reach 2147483648, 32 bits hold"):
        requant_params(beyond, conv, NUMERIC)


@pytest.mark.parametrize("const", [None, np.zeros(4, np.float32), np.zeros(4, np.int64)])
def test_a_bias_that_is_no_constant_int32_is_refused(const):
    dfg, conv = dense()
    with pytest.raises(ModelError, match="b1: a bias must be constant int32 in accumulator scale"):
        requant_params(with_nodes(dfg, b1={"const": const}), conv, NUMERIC)


@pytest.mark.parametrize("const", [None, np.zeros((4, 3, 1, 1), np.float32)])
def test_weights_that_are_no_constant_int8_are_refused(const):
    dfg, conv = dense()
    with pytest.raises(ModelError, match="w1: weights must be constant int8 or int16 with"):
        requant_params(with_nodes(dfg, w1={"const": const}), conv, NUMERIC)


def test_a_value_that_is_not_rounded_is_named():
    dfg, conv = dense()
    with pytest.raises(ModelError, match="x: its value is not rounded to int8"):
        requant_params(with_nodes(dfg, x={"quant": None}), conv, NUMERIC)


@pytest.mark.parametrize(("channels", "group"), [(4, 1), (2, 2)])
def test_filters_of_a_transposed_convolution_come_one_for_each_result(channels, group):
    dfg = other_shapes(
        f"float[1,{channels},6,6] x, float[{channels},{2 // group},2,3] w1) => (float[1,2,7,8] y)",
        f"[t] y = ConvTranspose<kernel_shape=[2,3],group={group}>(x, w1)",
    )
    assert dfg[find(dfg, "t")].op == "transposed_conv"
    weight = some(dfg[find(dfg, "w1")].const).tolist()
    if group == 1:
        weight = [[one[result] for one in weight] for result in range(2)]
    assert filters(dfg, find(dfg, "t")).tolist() == weight


def test_a_machine_that_only_shifts_adds_only_scales_a_power_of_two_apart():
    shifts = Numeric(multiplier_bits=0, average_bits=16)
    dfg = graph("[a] y = Add(x, z)")
    apart = with_quants(dfg, x=q(0.3), z=q(0.6), a=q(0.15))
    params = registers(apart, "a", Stage.RESIDUAL, "res", numeric=shifts)
    assert (params.a_mult, params.b_mult, params.shift) == (2, 4, 0)
    free = with_quants(dfg, x=q(0.5), z=q(0.75), a=q(0.5))
    with pytest.raises(ModelError, match=r"a: ratio 1\.5 is not a power of two, the machine only"):
        registers(free, "a", Stage.RESIDUAL, "res", numeric=shifts)
    assert registers(free, "a", Stage.RESIDUAL, "res").b_mult == 3


@pytest.mark.parametrize("counted", [0, 1])
@pytest.mark.parametrize(("kernel", "strides", "dilations", "pads"), [
    ((3, 2), (1, 1), (1, 1), (1, 0, 1, 1)),
    ((2, 3), (2, 3), (1, 1), (0, 2, 1, 1)),
    ((3, 2), (1, 2), (2, 3), (2, 1, 1, 1)),
])  # fmt: skip
def test_positions_that_count_are_those_of_the_map(kernel, strides, dilations, pads, counted):
    size, spans = (9, 7), [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    out = [(n + pads[i] + pads[i + 2] - spans[i]) // strides[i] + 1 for i, n in enumerate(size)]
    dfg = other_shapes(
        f"float[1,1,9,7] x) => (float[1,1,{out[0]},{out[1]}] y)",
        f"[p] y = AveragePool<kernel_shape={[*kernel]},strides={[*strides]},"
        f"dilations={[*dilations]},pads={[*pads]},count_include_pad={counted}>(x)",
        opset=19,
    )
    inside = [range(-pads[i], n + pads[i + 2]) if counted else range(n) for i, n in enumerate(size)]
    expected = tuple(
        tuple(
            sum(o * strides[i] - pads[i] + k * dilations[i] in inside[i] for k in range(kernel[i]))
            for o in range(out[i])
        )
        for i in range(2)
    )
    assert window_counts(operator(dfg, find(dfg, "p"))) == expected


def test_a_concatenation_moves_all_its_parts_in_one_scale():
    dfg = other_shapes(
        "float[1,3,6,6] x, float[1,3,6,6] z) => (float[1,6,6,6] y)", "[k] y = Concat<axis=1>(x, z)"
    )
    tied = with_quants(dfg, x=q(0.5, 1), z=q(0.5, 1), k=q(0.5, 1))
    assert tied_quant(tied, find(dfg, "k")) == q(0.5, 1)
    for other in (q(0.25, 1), q(0.5, 2)):
        with pytest.raises(ModelError, match="k: concat changes the scale"):
            tied_quant(with_quants(tied, z=other), find(dfg, "k"))


def test_clip_bounds_are_rounded_not_cut_and_end_with_the_range():
    dfg = graph("[r] y = Clip(x, lo, hi)", "<float lo = {-0.9}, float hi = {0.9}>")
    dfg = with_quants(dfg, x=q(0.5), r=q(0.5, 1))
    params = registers(dfg, "r", Stage.ACT, "act")
    assert (params.lo, params.hi) == (-1, 3)
    far = {"attrs": {"min": -np.inf, "max": np.inf}}
    params = registers(with_nodes(dfg, r=far), "r", Stage.ACT, "act")
    assert (params.lo, params.hi) == (-128, 127)


def test_a_machine_that_only_shifts_multiplies_only_scales_a_power_of_two_apart():
    shifts = Numeric(multiplier_bits=0, average_bits=16)
    dfg = graph("[m] y = Mul(x, z)")
    apart = with_quants(dfg, x=q(0.5), z=q(0.3), m=q(0.6))
    found = registers(apart, "m", Stage.RESIDUAL, "res", numeric=shifts)
    assert (found.a_mult, found.shift) == (1, 2)
    free = with_quants(dfg, x=q(0.5), z=q(0.75), m=q(0.5))
    with pytest.raises(ModelError, match=r"m: ratio 0\.75 is not a power of two, the machine only"):
        registers(free, "m", Stage.RESIDUAL, "res", numeric=shifts)
    found = registers(free, "m", Stage.RESIDUAL, "res")
    assert (found.a_mult, found.shift) == (3, 2)
