"""The golden model against ONNX Runtime on the QDQ model, one rounding at a time."""

import numpy as np
import pytest

from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.graph import Kind
from opu_fuse.dfg.interpret import interpret
from opu_fuse.errors import ModelError, RunError
from opu_fuse.hw.spec.hw_spec import Numeric
from tests.dfg import canonical
from tests.some import some

NUMERIC = Numeric(multiplier_bits=16, average_bits=16)
CONV = "Conv<kernel_shape=[3,3],pads=[1,1,1,1]>"

OPERATORS = {
    "conv_without_bias": "float[6,3,3,3] w1) => (float[1,6,9,11] y)"
    " { [n] y = " + CONV + "(x, w1) }",
    "conv_strided_dilated_asymmetric": "float[6,3,3,2] w1, float[6] b1) => (float[1,6,4,6] y)"
    " { [n] y = Conv<kernel_shape=[3,2],strides=[2,2],dilations=[2,1],pads=[1,0,2,2]>(x, w1, b1) }",
    "conv_grouped": "float[6,1,3,3] w1, float[6] b1) => (float[1,6,7,9] y)"
    " { [n] y = Conv<kernel_shape=[3,3],group=3>(x, w1, b1) }",
    "conv_relu": "float[6,3,3,3] w1, float[6] b1) => (float[1,6,9,11] y)"
    " { [n] a = " + CONV + "(x, w1, b1) [r] y = Relu(a) }",
    "clip": "float[1] b0) => (float[1,3,9,11] y)"
    " <float lo = {-0.4}, float hi = {1.7}> { [n] y = Clip(x, lo, hi) }",
    "leaky": "float[1] b0) => (float[1,3,9,11] y) { [n] y = LeakyRelu<alpha=0.25>(x) }",
    "max_pool": "float[1] b0) => (float[1,3,5,6] y)"
    " { [n] y = MaxPool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1]>(x) }",
    "average_odd_window": "float[1] b0) => (float[1,3,7,9] y)"
    " { [n] y = AveragePool<kernel_shape=[3,3]>(x) }",
    "average_counted_padding": "float[1] b0) => (float[1,3,9,11] y)"
    " { [n] y = AveragePool<kernel_shape=[3,3],pads=[1,1,1,1],count_include_pad=1>(x) }",
    "average_pow2_counts": "float[1] b0) => (float[1,3,10,12] y)"
    " { [n] y = AveragePool<kernel_shape=[2,2],pads=[1,1,1,1]>(x) }",
    "global_average": "float[1] b0) => (float[1,3,1,1] y) { [n] y = GlobalAveragePool(x) }",
    "pad": "float[1] b0) => (float[1,3,12,13] y)"
    " <int64[8] pads = {0,0,1,0,0,0,2,2}, float v = {0.5}> { [n] y = Pad(x, pads, v) }",
    "residual": "float[1,3,9,11] z) => (float[1,3,9,11] y) { [n] y = Add(x, z) }",
    "upsample": "float[1] b0) => (float[1,3,18,33] y) <float[4] s = {1.0,1.0,2.0,3.0}>"
    " { [n] y = Resize<mode=\"nearest\">(x, , s) }",
    "dense": "float[10,297] w1, float[10] b1) => (float[1,10] y) <int64[2] flat = {1,297}>"
    " { [f] a = Reshape(x, flat) [n] y = Gemm<transB=1>(a, w1, b1) }",
    "concat_on_host": "float[1,2,9,11] z) => (float[1,5,9,11] y)"
    " { [n] y = Concat<axis=1>(x, z) }",
    "softmax_on_host": "float[1] b0) => (float[1,3,9,11] y) { [n] y = Softmax<axis=1>(x) }",
    "channel_scale": "float[3,1,1] k1) => (float[1,3,9,11] y) { [n] y = Mul(x, k1) }",
    "split_of_rows_on_host": "float[1] b0) => (float[1,3,4,11] y, float[1,3,5,11] z)"
    " <int64[2] parts = {4, 5}> { [n] y, z = Split<axis=2>(x, parts) }",
}  # fmt: skip
NETWORK = f"""g (float[1,3,17,19] x, float[16,3,3,3] w1, float[16] b1, float[16,4,3,2] w2,
    float[16] b2, float[10,16] w3, float[10] b3) => (float[1,10] y) <int64[2] flat = {{1,16}}> {{
    [c1] a = {CONV}(x, w1, b1)
    [r1] r = Relu(a)
    [mp] p = MaxPool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1]>(r)
    [c2] d = Conv<kernel_shape=[3,2],pads=[1,0,1,1],group=4>(p, w2, b2)
    [ad] e = Add(d, p)
    [lr] f = LeakyRelu<alpha=0.125>(e)
    [ap] u = AveragePool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1],count_include_pad=1>(f)
    [gp] v = GlobalAveragePool(u)
    [fl] z = Reshape(v, flat)
    [fc] y = Gemm<transB=1>(z, w3, b3) }}"""


def text(name: str) -> str:
    return f"g (float[1,3,9,11] x, {OPERATORS[name]}"


def differences(
    quantised: canonical.Quantised, seed: int, bits: int = 16
) -> dict[str, tuple[float, int]]:
    """Per rounded call: (share of differing elements, largest difference)."""
    dfg = build_dfg(quantised.model)
    inputs = canonical.user_inputs(quantised.qdq, np.random.default_rng(seed))
    values = interpret(dfg, inputs, Numeric(multiplier_bits=bits, average_bits=16))
    expected = canonical.reference(quantised, inputs)
    found = {}
    for node in dfg.nodes:
        if node.kind in {Kind.CALL, Kind.TUPLE_GET, Kind.VAR} and node.tensor:
            assert values[node.index].dtype == np.int8
            gap = np.abs(values[node.index].astype(int) - expected[node.value])
            found[node.name] = (float((gap > 0).mean()), int(gap.max()))
    assert found
    return found


@pytest.mark.parametrize("zero_points", [False, True], ids=["symmetric", "zero_points"])
@pytest.mark.parametrize("name", OPERATORS)
def test_with_power_of_two_scales_no_value_differs_from_onnx_runtime(name, zero_points, seed):
    quantised = canonical.quantised(text(name), seed, zero_points=zero_points)
    assert set(differences(quantised, seed + 1).values()) == {(0.0, 0)}


@pytest.mark.parametrize("bits", [0, 16], ids=["shifts_only", "multipliers"])
def test_a_whole_network_with_power_of_two_scales_is_exact(bits, seed):
    for sample in range(3):
        found = differences(
            canonical.quantised(NETWORK, seed, zero_points=True), seed + sample, bits
        )
        assert set(found.values()) == {(0.0, 0)}


@pytest.mark.parametrize("name", [n for n in OPERATORS if n != "conv_relu"])  # two operators
def test_with_free_scales_an_operator_is_within_one_step(name, seed):
    quantised = canonical.quantised(text(name), seed, pow2=False, zero_points=True)
    for share, largest in differences(quantised, seed).values():
        assert largest <= 1
        assert share < 0.02


def test_uncounted_padding_divides_by_the_positions_inside(seed):
    """Windows of 6 positions (borders) have ties that no 16-bit multiplier hits: one step,
    rarely.
    """
    source = """g (float[1,3,9,11] x) => (float[1,3,9,11] y) {
        [n] y = AveragePool<kernel_shape=[3,3],pads=[1,1,1,1]>(x) }"""
    share, largest = differences(canonical.quantised(source, seed), seed)["n"]
    assert largest <= 1
    assert share < 0.1


def test_a_float_island_is_computed_in_floating_point_and_rounded_where_the_model_rounds(seed):
    source = f"""g (float[1,3,9,11] x, float[3,3,3,3] w1, float[3] b1) => (float[1,3,9,11] y) {{
        [c] a = {CONV}(x, w1, b1)
        [s] b = Add(a, x)
        [r] y = Relu(b) }}"""
    quantised = canonical.quantised(source, seed, unrounded=("a", "b"))
    assert differences(quantised, seed)["r"] == (0.0, 0)
    values = interpret(
        build_dfg(quantised.model),
        canonical.user_inputs(quantised.qdq, np.random.default_rng(1)),
        NUMERIC,
    )
    floats = [v for v in values.values() if v.dtype == np.float32 and v.shape == (1, 3, 9, 11)]
    assert len(floats) == 2, "the convolution with its bias, and the add"


def test_a_float_model_runs_as_it_is(seed):
    proto = canonical.float_model(text("conv_relu"), seed)
    inputs = canonical.user_inputs(proto, np.random.default_rng(seed))
    dfg = build_dfg(canonical.canonical(text("conv_relu"), seed))
    values = interpret(dfg, inputs, NUMERIC)
    np.testing.assert_allclose(
        values[dfg.outputs[0]], canonical.run(proto, inputs, ["y"])["y"], rtol=1e-6
    )


def test_nodes_named_as_host_run_in_onnx_runtime(seed):
    quantised = canonical.quantised(NETWORK, seed)
    dfg = build_dfg(quantised.model)
    inputs = canonical.user_inputs(quantised.qdq, np.random.default_rng(seed))
    everything = frozenset(n.index for n in dfg.calls)
    on_host = interpret(dfg, inputs, NUMERIC, host=everything)
    expected = canonical.reference(quantised, inputs)
    for node in dfg.calls:
        if node.tensor:
            np.testing.assert_array_equal(on_host[node.index], expected[node.value])
    convs = [n.index for n in dfg.calls if n.op in {"conv", "dense"}]
    assert not [c for c in convs if c in on_host], "a host convolution has no accumulator to show"


def test_accumulators_are_kept_whole(seed):
    quantised = canonical.quantised(text("conv_relu"), seed)
    dfg = build_dfg(quantised.model)
    inputs = canonical.user_inputs(quantised.qdq, np.random.default_rng(seed))
    values = interpret(dfg, inputs, NUMERIC)
    conv = next(n for n in dfg.calls if n.op == "conv")
    assert values[conv.index].dtype == np.int64
    assert np.abs(values[conv.index]).max() > 127


def test_int8_inputs_are_taken_as_they_are(seed):
    quantised = canonical.quantised(text("max_pool"), seed)
    dfg = build_dfg(quantised.model)
    inputs = canonical.user_inputs(quantised.qdq, np.random.default_rng(seed))
    integers = {"x": some(dfg[dfg.inputs[0]].quant).quantize(inputs["x"])}
    for index, value in interpret(dfg, inputs, NUMERIC).items():
        np.testing.assert_array_equal(interpret(dfg, integers, NUMERIC)[index], value)


def test_missing_and_misshapen_inputs_are_named(seed):
    dfg = build_dfg(canonical.canonical(text("residual"), seed))
    x = np.zeros((1, 3, 9, 11), np.float32)
    with pytest.raises(RunError, match="input 'z': has no value"):
        interpret(dfg, {"x": x}, NUMERIC)
    with pytest.raises(
        RunError, match=r"input 'z': shape \(1, 3, 9, 1\), the model takes \(1, 3, 9, 11\)"
    ):
        interpret(dfg, {"x": x, "z": x[..., :1]}, NUMERIC)


def test_what_onnx_runtime_refuses_is_named(seed):
    model = canonical.canonical(text("softmax_on_host"), seed)
    model.graph[0].op_type = "NoSuchOperator"
    with pytest.raises(ModelError, match="n: ONNX Runtime cannot run NoSuchOperator"):
        interpret(build_dfg(model), {"x": np.zeros((1, 3, 9, 11), np.float32)}, NUMERIC)
