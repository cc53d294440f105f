"""The integer Softmax, LayerNorm, RMSNorm and GroupNorm are within one step of ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from opu_fuse import normalisation as norm

SCALES = (2.0**-6, 2.0**-4, 2.0**-3, 0.0917, 2.0**-2)
LENGTHS = (1, 2, 16, 49, 64, 65, 197, 1500)
MOST_DIFFERENT = 300
"""Of a million results: those within 0.03 of a tie of ONNX Runtime's float32."""
MAPS = (300, 8_192, 24_576, 65_536)
"""Values of a map that is normalised as a whole: the last is the most that the unit sums up."""
LEAST_DISTINCT = 16
"""Shorter rows have few distinct results, and many of them are ties."""


def _session(node: onnx.NodeProto, **constants: np.ndarray) -> onnxruntime.InferenceSession:
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["r", "n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["r", "n"])],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def _quantised(y: np.ndarray, scale: float, zero: int) -> np.ndarray:
    return np.clip(np.rint(y / np.float32(scale)).astype(np.int64) + zero, -128, 127)


def _rows(rng: np.random.Generator, count: int, n: int, scale: float) -> np.ndarray:
    """Rows that stress different parts of the table: spread, flat, one peak, and a tail where an
    exponential is about half a unit of a short table.
    """
    part = (max(count // 4, 1), n)
    peak = rng.integers(-128, -60, part).astype(float)
    peak[np.arange(part[0]), rng.integers(0, n, part[0])] = rng.integers(-100, 128, part[0])
    tail = 127.0 - np.clip(rng.normal(11.5 / scale, 1, part), 1, 255)
    tail[:, 0] = 127
    spread = rng.normal(0, rng.uniform(4, 60, (part[0], 1)), part)
    rows = [spread, rng.integers(-3, 4, part).astype(float), peak, tail]
    return np.clip(np.rint(np.concatenate(rows)), -128, 127).astype(np.int64)


def _edge_rows(rng: np.random.Generator, n: int) -> np.ndarray:
    """All values equal, or at one of the ends: many of their results are ties."""
    equal = np.repeat(np.arange(-128, 128)[:, None], n, axis=1)
    return np.concatenate([equal, rng.choice([-128, 127], (64, n))])


def _norm_rows(rng: np.random.Generator, count: int, n: int, scale: float) -> np.ndarray:
    """Rows far from zero and nearly constant ones besides."""
    shifted = rng.normal(rng.uniform(-90, 90, (count, 1)), 12, (count, n))
    constant = rng.normal(5, 0.6, (count, n))
    rows = np.clip(np.rint(np.concatenate([shifted, constant])), -128, 127).astype(np.int64)
    return np.concatenate([_rows(rng, count, n, scale), rows])


def _softmax_differences(x: np.ndarray, scale: float) -> np.ndarray:
    """Of all output scales, in steps of the result."""
    session = _session(helper.make_node("Softmax", ["x"], ["y"], axis=-1))
    y = np.asarray(session.run(None, {"x": x.astype(np.float32) * np.float32(scale)})[0])
    table = norm.exponentials(scale)
    outputs = ((2.0**-8, -128), (2.0**-7, 0), (1 / 255, -128), (2.0**-10, -128), (0.0031, 3))
    return np.concatenate([
        norm.softmax(x, table, norm.OutputScale.of(out), zero) - _quantised(y, out, zero)
        for out, zero in outputs
    ])  # fmt: skip


def _layer_norm(x: np.ndarray, epsilon: float, scale: float) -> norm.Scaling:
    """Of the rows of int8 values."""
    n, total, squares = x.shape[-1], x.sum(-1, keepdims=True), (x * x).sum(-1, keepdims=True)
    return norm.norm_scaling(n, total, squares, norm.Epsilon.of(epsilon, scale, n).value)


def _layer_norm_differences(x: np.ndarray, scale: float, epsilon: float) -> np.ndarray:
    """With random gains and offsets, in steps of the result."""
    n, rng, out = x.shape[-1], np.random.default_rng(x.size), 2.0**-4
    gain = rng.normal(1, 0.4, n).astype(np.float32)
    offset = rng.normal(0, 0.5, n).astype(np.float32)
    form = {"axis": -1, "epsilon": epsilon}
    node = helper.make_node("LayerNormalization", ["x", "g", "b"], ["y"], **form)
    feed = x.astype(np.float32) * np.float32(scale)
    y = np.asarray(_session(node, g=gain, b=offset).run(None, {"x": feed})[0])
    mult, bias, shift = norm.channel_records(gain, offset, out)
    got = norm.normalise(
        x, _layer_norm(x, epsilon, scale), mult=mult, bias=bias, shift=shift, zero_point=0
    )
    return got - _quantised(y, out, 0)


def _assert_near(values: int, n: int) -> None:
    """At most one step in about so many results of each function, and seldom that."""
    rng = np.random.default_rng(n)
    softmax, layer_norm = [], []
    for scale in SCALES:
        count = max(values // n // len(SCALES) // 5, 8)
        softmax.append(_softmax_differences(_rows(rng, count, n, scale), scale).ravel())
        for epsilon in (1e-5, 1e-6, 1e-12):
            x = _norm_rows(rng, count, n, scale)
            layer_norm.append(_layer_norm_differences(x, scale, epsilon).ravel())
    for differences in (np.concatenate(softmax), np.concatenate(layer_norm)):
        assert np.abs(differences).max() <= 1
        if n >= LEAST_DISTINCT:
            assert 1e6 * np.count_nonzero(differences) / differences.size <= MOST_DIFFERENT


def test_the_reciprocal_is_right_to_16_bits_and_falls_for_every_mantissa() -> None:
    mantissas = np.arange(1 << 19, 1 << 20, dtype=np.int64)
    inverse, exponent = norm.reciprocal(mantissas)
    exact = 2.0 ** (17 + 19) / mantissas
    assert set(exponent.tolist()) == {19}
    assert (np.abs(inverse - exact) / exact).max() < 2.0**-16
    assert (np.diff(inverse) <= 0).all()
    assert (inverse.min(), inverse.max()) == (1 << 16, norm.INVERSE_MAX)


def test_the_inverse_root_is_right_to_16_bits_and_falls_for_every_mantissa() -> None:
    mantissas = np.arange(1 << 20, 1 << 21, dtype=np.int64)
    both = np.concatenate([mantissas, mantissas << 1])  # an even and an odd exponent
    inverse, exponent = norm.inverse_root(both)
    exact = 2.0 ** (17 + 10) / np.sqrt(both.astype(np.float64))
    assert set(exponent.tolist()) == {10}
    assert (np.abs(inverse - exact) / exact).max() < 2.0**-16
    assert (np.diff(inverse) <= 0).all()
    assert inverse.min() >= 1 << 16


@pytest.mark.parametrize("value", [1, 2, 3, 2**53 - 1, 2**53, 2**53 + 1, 2**61 + 1, 2**62 - 1])
def test_exponents_are_those_of_integers_where_float64_rounds_up(value: int) -> None:
    _, exponent = norm.reciprocal(np.array([value]))
    assert exponent[0] == value.bit_length() - 1


@pytest.mark.parametrize("scale", [1.0, 2.0**-8, 1 / 255, 0.0031, 3.7, 1 / 0.50001, 2.0000001])
def test_an_output_scale_is_right_to_16_bits_and_exact_for_powers_of_two(scale: float) -> None:
    held = norm.OutputScale.of(scale)
    assert 1 << 15 < held.mantissa <= 1 << 16
    error = held.mantissa / 2**16 * 2.0**held.exponent * scale - 1
    assert abs(error) <= 2.0**-16
    assert error == 0 or np.frexp(scale)[0] != 0.5


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_an_output_scale_that_is_none_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="not a positive finite number"):
        norm.OutputScale.of(scale)


@pytest.mark.parametrize("n", LENGTHS)
def test_softmax_and_layer_norm_are_within_a_step_of_onnxruntime(n: int) -> None:
    _assert_near(100_000, n)


@pytest.mark.nightly
@pytest.mark.parametrize("n", LENGTHS)
def test_ten_million_results_of_each_are_within_a_step_of_onnxruntime(n: int) -> None:
    _assert_near(1_300_000, n)


@pytest.mark.parametrize("n", LENGTHS)
def test_rows_of_equal_values_and_of_both_ends_are_within_a_step_of_onnxruntime(n: int) -> None:
    x = _edge_rows(np.random.default_rng(n), n)
    for scale in SCALES:
        assert np.abs(_softmax_differences(x, scale)).max() <= 1
        for epsilon in (1e-5, 1e-12):  # BERT's is the second one
            assert np.abs(_layer_norm_differences(x, scale, epsilon)).max() <= 1


def _assert_maps_near(values: int, n: int) -> None:
    """At most one step, and seldom that, in about so many results of maps, and in maps of equal
    values and of both ends. ONNX Runtime's InstanceNormalization is off by up to 29 steps in those
    of equal values: the canonical form is a LayerNormalization.
    """
    rng, count = np.random.default_rng(n), max(values // n // 15, 1)
    equal = np.repeat([[-128], [3], [127]], n, axis=1)
    ends, found = np.concatenate([equal, rng.choice([-128, 127], (1, n))]), []
    for scale in SCALES:
        for epsilon in (1e-5, 1e-6, 1e-12):
            x = np.concatenate([_norm_rows(rng, count, n, scale), ends])
            found.append(_layer_norm_differences(x, scale, epsilon).ravel())
    differences = np.concatenate(found)
    assert np.abs(differences).max() <= 1
    assert 1e6 * np.count_nonzero(differences) / differences.size <= MOST_DIFFERENT


@pytest.mark.parametrize("n", MAPS)
def test_a_map_is_normalised_within_a_step_of_onnxruntime(n: int) -> None:
    _assert_maps_near(300_000, n)


@pytest.mark.nightly
@pytest.mark.parametrize("n", MAPS)
def test_ten_million_results_of_maps_are_within_a_step_of_onnxruntime(n: int) -> None:
    _assert_maps_near(3_000_000, n)


@pytest.mark.parametrize("zero", [0, -128, 17])
@pytest.mark.parametrize("n", LENGTHS)
def test_rms_norm_is_within_a_step_of_the_real_function(n: int, zero: int) -> None:
    rng = np.random.default_rng(n + 200 + zero)
    scale, out_scale, epsilon = 0.0917, 2.0**-4, 1e-6
    x = np.concatenate([_rows(rng, max(60_000 // n, 6), n, scale), _edge_rows(rng, n)])
    gain = rng.normal(1, 0.4, n)
    real = (x - zero) * scale
    exact = real / np.sqrt((real**2).mean(-1, keepdims=True) + epsilon) * gain
    mult, bias, shift = norm.channel_records(gain, np.zeros(n), out_scale)
    squares = ((x - zero) ** 2).sum(-1, keepdims=True)
    factors = norm.rms_scaling(n, zero, squares, norm.Epsilon.of(epsilon, scale, n).value)
    got = norm.normalise(x, factors, mult=mult, bias=bias, shift=shift, zero_point=0)
    assert np.abs(got - np.clip(np.rint(exact / out_scale), -128, 127)).max() <= 1


def test_equal_values_normalise_to_the_offset_of_the_channel() -> None:
    x = np.repeat(np.arange(-128, 128)[:, None], 96, axis=1)
    offset = np.linspace(-7, 7, 96)
    mult, bias, shift = norm.channel_records(np.ones(96), offset, 2.0**-4)
    got = norm.normalise(
        x, _layer_norm(x, 1e-5, 0.05), mult=mult, bias=bias, shift=shift, zero_point=3
    )
    assert (got == np.clip(np.rint(offset * 16) + 3, -128, 127)).all()


def test_a_longest_row_keeps_within_the_widths_of_the_hardware() -> None:
    """41 bits for a sum of exponentials, 57 for a variance, 25 x 18 for products of a lane."""
    n = 65_536
    x = np.stack([np.full(n, 127), np.resize([-128, 127], n), np.full(n, -128)]).astype(np.int64)
    assert n * norm.exponentials(0.1)[0] < 1 << 41
    total, squares = x.sum(-1, keepdims=True), (x * x).sum(-1, keepdims=True)
    variance = (n * squares - total**2) << norm.VARIANCE_FRACTION
    assert int(variance.max()).bit_length() <= 57
    factors = norm.norm_scaling(n, total, squares, 1)
    assert int(factors.factor.max()).bit_length() <= norm.FACTOR_BITS


@pytest.mark.parametrize("epsilon", [0.0, 1e-15, 1e-3, 0.7])
@pytest.mark.parametrize("scale", [2.0**-4, 0.0137, 3.1])
@pytest.mark.parametrize("step", [2.0**-7, 0.0211, 1.0])
def test_every_quotient_of_a_division_is_within_a_step(scale: float, step: float, epsilon: float):
    """All int8 operands and divisors, whose negative ones count as zero."""
    steps = np.arange(-128, 128)
    divisor, x = (v.reshape(-1) for v in np.meshgrid(steps, steps))
    gain, _, places = norm.channel_records(np.ones(1), np.zeros(1), step)
    got = norm.divide(
        np.stack([divisor, x], axis=-1),
        norm.divisors(scale, epsilon),
        mult=int(gain[0]),
        shift=int(places[0]),
        zero_point=3,
    )[:, 1]
    below = np.maximum(divisor, 0) * scale + epsilon
    with np.errstate(divide="ignore", invalid="ignore"):
        real = np.clip(np.where(x == 0, 0.0, x * scale / below / step), -1e3, 1e3)
    expected = np.clip(np.rint(real) + 3, -128, 127)
    assert np.abs(expected - got).max() <= 1
    near_tie = np.abs(np.abs(real - np.trunc(real)) - 0.5) < 0.01
    assert (expected == got)[~near_tie].all()


def test_an_epsilon_beyond_the_divisors_is_refused():
    with pytest.raises(ValueError, match="too large for the scale"):
        norm.divisors(0.01, 3.0)
