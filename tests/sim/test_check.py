"""`--check` says how far each tensor may be from ONNX Runtime's, and fails beyond it."""

import tracemalloc
from dataclasses import replace

import numpy as np
import onnx
import pytest

import opu_fuse
from opu_fuse.frontend.qdq_reference import session
from opu_fuse.report.tables import check_lines
from opu_fuse.sim.compare.bounds import (
    AVERAGES,
    CONSTANTS,
    EXACT,
    SCALES,
    allowed_differences,
    allowed_of_outputs,
)
from opu_fuse.sim.compare.runs import _near, check
from opu_fuse.sim.compare.tensor_sources import tensor_sources
from opu_fuse.sim.ports import noise
from tests.some import some
from tests.written import written

HW = opu_fuse.load_hw("opu-1024")
HEADER = '<ir_version: 10, opset_import: ["" : 17]>'
CONV = f"""{HEADER} g (float[1,3,12,12] x) => (float[1,8,12,12] y)
<float[8,3,1,1] w, float[8,8,1,1] v> {{ a = Conv(x, w)  r = Relu(a)  y = Conv(r, v) }}"""
AVERAGE = f"{HEADER} g (float[1,8,6,7] x) => (float[1,8,1,1] y) {{ y = GlobalAveragePool(x) }}"
ALL_ON_HOST = "  everything runs on the host CPU: no quantised tensor to compare"
ON_HOST = f"{HEADER} g (float[1,5] x) => (float[1,5] y) {{ y = Softmax(x) }}"


def checked(text, change=lambda result: result, **options):
    model = written(text, seed=5)
    program = opu_fuse.compile(model, HW, **options)
    inputs = noise(program.bundle)
    return check(program.bundle, inputs, change(program.run(inputs, capture=True)))


def moved(name, by):
    """One element of a tensor in memory off by some steps, and of the output made from it."""

    def change(result):
        tensor = result.tensors[name].copy()
        at = np.unravel_index(np.argmax(np.abs(tensor.astype(int))), tensor.shape)
        tensor[at] -= by * np.sign(tensor[at])
        outputs = dict(result.outputs)
        if name in outputs:
            steps = tensor.astype(np.float32) - result.tensors[name]
            step = np.ptp(outputs[name]) / np.ptp(result.tensors[name].astype(int))
            outputs[name] = (outputs[name] + steps * step).astype(np.float32)
        return replace(result, tensors={**result.tensors, name: tensor}, outputs=outputs)

    return change


def test_with_powers_of_two_nothing_may_differ():
    found = checked(CONV)
    assert found.passed
    assert (found.mismatches, found.outputs, found.loose) == (0, 1, {})
    assert list(check_lines(found))[1] == "  allowed: no difference in 4 tensors"


def test_a_large_output_is_not_copied():
    large = ON_HOST.replace("1,5", "1,4,1024,1024")
    program = opu_fuse.compile(onnx.parser.parse_model(large), HW)
    inputs = noise(program.bundle)
    result = program.run(inputs, capture=True)
    tracemalloc.start()
    check(program.bundle, inputs, result)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < result.outputs["y"].nbytes


@pytest.mark.parametrize("name", ["x", "a", "r"])
def test_one_step_where_none_is_allowed_fails_and_names_the_tensor(name):
    found = checked(CONV, moved(name, 1))
    assert not found.passed
    assert some(found.first).tensor == name
    assert some(found.first).mismatches == 1


def test_an_output_beside_its_tensor_is_compared_too():
    found = checked(CONV, lambda r: replace(r, outputs={"y": r.outputs["y"] * 1.01}))
    assert not found.passed
    assert some(found.first).tensor == "output y"
    assert found.mismatches == 0, "the tensor in memory is right"


@pytest.mark.parametrize(("by", "passed"), [(0, True), (1, True), (-1, True), (2, False)])
def test_an_average_over_42_values_may_be_one_step_off(by, passed):
    found = checked(AVERAGE, moved("y", by))
    assert found.passed is passed
    assert found.loose == {AVERAGES: 1}
    assert any("one step" in line and AVERAGES in line for line in check_lines(found))


@pytest.mark.parametrize(("by", "passed"), [(1, True), (3, False)])
def test_free_scales_may_be_one_step_off_for_each_operator(by, passed):
    """One more than the convolution made of its own rounding: two could be one."""
    found = checked(CONV, moved("y", by), scales="free")
    assert found.passed is passed
    assert found.loose == {SCALES: 2}, "a relu with one scale rounds nothing, nor does the input"


@pytest.mark.parametrize("samples", [1, 3])
def test_values_without_an_axis_of_samples_are_compared_too(samples):
    """The host rounds a matrix and a single number beside a map that differs by a step."""
    text = f"""{HEADER} g (float[1,8,6,7] x) => (float[1,8,1,1] y, float[8,42] m, float t)
        <float f = {{0.03}}, int8 z = {{1}}, int64[2] n = {{8, 42}}> {{
        a = QuantizeLinear(x, f, z)  b = DequantizeLinear(a, f, z)  c = GlobalAveragePool(b)
        e = QuantizeLinear(c, f, z)  y = DequantizeLinear(e, f, z)  r = Reshape(x, n)
        s = Sin(r)  p = QuantizeLinear(s, f, z)  m = DequantizeLinear(p, f, z)
        u = ReduceMax<keepdims = 0>(m)  v = QuantizeLinear(u, f, z)
        t = DequantizeLinear(v, f, z) }}"""
    program = opu_fuse.compile(onnx.parser.parse_model(text), HW)
    inputs = {"x": np.concatenate([*noise(program.bundle).values()] * samples)}
    result = program.run(inputs, capture=True)
    assert check(program.bundle, inputs, result).passed
    assert {(samples, 8, 42), (samples,)} <= {a.shape for a in result.tensors.values()}

    def moved(by: int):
        tensors = {n: a + np.int8(by * (a.ndim == 4)) for n, a in result.tensors.items()}
        return check(program.bundle, inputs, replace(result, tensors=tensors))

    assert moved(1).mismatches
    assert not moved(2).passed


def test_nothing_quantised_is_no_failure_and_nothing_shown_is_one():
    found = checked(ON_HOST)
    assert found.passed
    assert (found.tensors, found.outputs) == (0, 1)
    assert ALL_ON_HOST in check_lines(found)
    hidden = checked(CONV, lambda r: replace(r, tensors={}))
    assert not hidden.compared
    assert not hidden.passed


def test_where_the_host_rounds_its_input_alone_outputs_are_compared():
    text = f"""{HEADER} g (float[1,3,8,8] x) => (float[1,4,8,8] y)
        <float s = {{0.03}}, int8 z = {{0}}, float[4,3,1,1] w> {{
        q = QuantizeLinear(x, s, z)  r = DequantizeLinear(q, s, z)  y = Conv(r, w) }}"""
    found = checked(text)
    assert (found.passed, found.tensors, found.outputs) == (True, 0, 1)
    assert ALL_ON_HOST in check_lines(found)
    off = checked(text, lambda r: replace(r, outputs={n: a + 1 for n, a in r.outputs.items()}))
    assert not off.passed


Q = "QuantizeLinear(f, s, z)"
THREE = (
    "p = MaxPool<kernel_shape=[2,2]>(d)  q = QuantizeLinear(p, s, z)  e = DequantizeLinear(q, s, z)"
)
ODD = "q = QuantizeLinear(x, u, z)  e = DequantizeLinear(q, u, z)"
BOUNDS = {
    "a convolution": (f"f = Conv(d, w)  t = {Q}", EXACT.why),
    "9 values": (f"f = AveragePool<kernel_shape=[3,3]>(d)  t = {Q}", AVERAGES),
    "4 values": (f"f = AveragePool<kernel_shape=[2,2]>(d)  t = {Q}", EXACT.why),
    "4 values, fewer at the border": (
        f"f = AveragePool<kernel_shape=[2,2], pads=[1,1,1,1]>(d)  t = {Q}",
        AVERAGES,
    ),
    "4 values, padding counted": (
        f"f = AveragePool<kernel_shape=[2,2], pads=[1,1,1,1], count_include_pad=1>(d)  t = {Q}",
        EXACT.why,
    ),
    "a whole map of 16": (f"f = GlobalAveragePool(d)  t = {Q}", EXACT.why),
    "a map of 3 x 3": (
        f"{THREE}  f = GlobalAveragePool(e)  t = {Q}",
        AVERAGES,
    ),
    "a mean of a map whose shape is not known": (
        f"g = Relu(x)  f = ReduceMean<keepdims=1>(g, rows_cols)  t = {Q}",
        AVERAGES,
    ),
    "another scale": ("f = Relu(d)  t = QuantizeLinear(f, u, z)", SCALES),
    "one odd scale throughout": (
        f"{ODD}  f = Relu(e)  t = QuantizeLinear(f, u, z)",
        EXACT.why,
    ),
    "a fine normalisation": (
        f"f = BatchNormalization<epsilon=0.0>(d, fine, zeros, zeros, ones)  t = {Q}",
        CONSTANTS,
    ),
    "a bias on the accumulator's grid": (f"f = Conv(d, v, on)  t = {Q}", EXACT.why),
    "a bias between its steps": (f"f = Conv(d, v, off)  t = {Q}", CONSTANTS),
    "a bias between pairs on that grid": (f"f = Conv(d, v, on_r)  t = {Q}", EXACT.why),
    "one between its steps, where int8 holds finer weights": (
        f"f = Conv(d, v, off_r)  t = {Q}",
        EXACT.why,
    ),
    "one between its steps, and large weights": (f"f = Conv(d, large, off_r)  t = {Q}", CONSTANTS),
    "the same as a sum": (f"g = Conv(d, large)  f = Add(g, off_r)  t = {Q}", CONSTANTS),
    "a bias that the model rounds itself": (
        (
            "bq = QuantizeLinear(last, fine_s, z)  b = DequantizeLinear(bq, fine_s, z)"
            f"  f = Conv(d, large, b)  t = {Q}"
        ),
        CONSTANTS,
    ),
    "a weight that the model rounds itself": (
        (
            "vq = QuantizeLinear<axis=0>(w, halves, zs)"
            f"  k = DequantizeLinear<axis=0>(vq, halves, zs)  f = Conv(d, k, off_r)  t = {Q}"
        ),
        EXACT.why,
    ),
    "channels of zeros": (
        f"k = DequantizeLinear<axis=0>(wq, dead, zs)  f = Conv(d, k, off)  t = {Q}",
        SCALES,
    ),
    "a scale for each channel that is read": (
        (
            "c = QuantizeLinear(x, halves, zs)  e = DequantizeLinear(c, halves, zs)"
            "  k = DequantizeLinear<axis=0>(deep, quarters, zzzz)"
            f"  f = Conv<group=2>(e, k, on4)  t = {Q}"
        ),
        EXACT.why,
    ),
    "a linear Resize by six": (
        f'f = Resize<mode="linear">(d, , by_six)  t = {Q}',
        AVERAGES,
    ),
    "a linear Resize by two": (f'f = Resize<mode="linear">(d, , by_two)  t = {Q}', EXACT.why),
    "a scale for each filter of a turned group": (
        (
            "k = DequantizeLinear<axis=1>(wq, halves, zs)"
            f"  f = ConvTranspose<group=2>(d, k, steps)  t = {Q}"
        ),
        EXACT.why,
    ),
    "one that does not fit the weight's": (
        (
            "c = QuantizeLinear(x, halves, zs)  e = DequantizeLinear(c, halves, zs)"
            f"  k = DequantizeLinear<axis=0>(three, thirds, zzz)  f = Conv(e, k, on3)  t = {Q}"
        ),
        CONSTANTS,
    ),
    "a dense layer's": (f"g = MatMul(d, large)  f = Add(off_r, g)  t = {Q}", CONSTANTS),
    "a slope of 1638/2**15": (f"f = LeakyRelu<alpha=0.04998779296875>(d)  t = {Q}", EXACT.why),
    "a slope between those": (f"f = LeakyRelu<alpha=0.05>(d)  t = {Q}", CONSTANTS),
    "a slope without end": (f"f = LeakyRelu<alpha=inf>(d)  t = {Q}", CONSTANTS),
    "a sum with a constant": (f"f = Add(d, on)  t = {Q}", CONSTANTS),
    "a coarse normalisation": (
        f"f = BatchNormalization<epsilon=0.0>(d, coarse, zeros, zeros, ones)  t = {Q}",
        EXACT.why,
    ),
}


@pytest.mark.parametrize("case", BOUNDS)
def test_what_is_allowed_follows_from_the_operators_before_a_rounding(case):
    body, why = BOUNDS[case]
    model = onnx.parser.parse_model(
        f"""{HEADER} g (float[1,2,4,4] x) => (int8[1,2,4,4] t)
        <float s = {{0.25}}, float u = {{0.3}}, int8 z = {{0}}, float[2,2,1,1] w = {{1,2,3,4}},
         float[2] fine = {{0.1,1}}, float[2] coarse = {{0.75,1}}, float[2] zeros = {{0,0}},
         float[2] ones = {{1,1}}, float[2] on = {{0.125,1}}, float[2] off = {{0.3,1}},
         int8[2,2,1,1] wq = {{1,2,3,4}}, int8[2,2,1,1] wide = {{1,2,3,64}},
         int8[2] biases = {{8,16}}, int8[2] between = {{4,7}}, float half = {{0.5}},
         float fine_s = {{0.015625}}, float[2] halves = {{0.5,0.25}}, int8[2] zs = {{0,0}},
         float[2] last = {{1,0.3}}, float[2] dead = {{0.5,0}}, int8[4,1,1,1] deep = {{1,2,3,4}},
         float[4] quarters = {{0.25,0.25,0.5,0.5}}, int8[4] zzzz = {{0,0,0,0}},
         float[4] steps = {{0.125,0.0625,0.125,0.0625}},
         float[4] on4 = {{0.125,1,0.25,1}}, int8[3,2,1,1] three = {{1,2,3,4,5,6}},
         float[3] thirds = {{0.5,0.5,0.5}}, int8[3] zzz = {{0,0,0}}, float[3] on3 = {{0,1,2}},
         int64[2] rows_cols = {{2,3}}, float[4] by_six = {{1,1,6,6}},
         float[4] by_two = {{1,1,2,2}}>
        {{ v = DequantizeLinear(wq, half, z)  large = DequantizeLinear(wide, half, z)
           on_r = DequantizeLinear(biases, fine_s, z)
           off_r = DequantizeLinear(between, fine_s, z)  i = QuantizeLinear(x, s, z)
           d = DequantizeLinear(i, s, z)  {body} }}"""
    )
    shapes = {"i": (1, 2, 4, 4), "q": (1, 2, 3, 3)}
    found = allowed_differences(model, shapes)["t"]
    assert (found.steps, found.why) == (int(bool(why)), why)


@pytest.mark.parametrize(("norms", "steps"), [((), 0), (("GroupNormalization",), 1)])
def test_statistics_of_a_map_are_allowed_a_step_where_the_machine_computes_them(norms, steps):
    model = onnx.parser.parse_model(
        f"""{HEADER} g (float[1,2,4,4] x) => (int8[1,2,4,4] t)
        <float s = {{0.25}}, int8 z = {{0}}, float[2] ones = {{1,1}}, float[2] zeros = {{0,0}}>
        {{ i = QuantizeLinear(x, s, z)  d = DequantizeLinear(i, s, z)
           f = InstanceNormalization(d, ones, zeros)  t = QuantizeLinear(f, s, z) }}"""
    )
    shapes = {"i": (1, 2, 4, 4), "t": (1, 2, 4, 4)}
    assert allowed_differences(model, shapes, norms=norms)["t"].steps == steps


@pytest.mark.parametrize(("largest", "steps"), [(64, 3), (63, 0)])
def test_a_bias_between_steps_of_coarse_sums_is_allowed_what_it_moves_them_by(largest, steps):
    """Sums in steps of 1, results of 0.25: a bias of 0.5 becomes 0."""
    model = onnx.parser.parse_model(
        f"""{HEADER} g (float[1,2,4,4] x) => (int8[1,2,4,4] t)
        <float s = {{0.25}}, float four = {{4}}, int8 z = {{0}}, float[2] b = {{3, 0.5}},
         int8[2,2,1,1] wq = {{1,2,3,{largest}}}> {{
           w = DequantizeLinear(wq, four, z)  i = QuantizeLinear(x, s, z)
           d = DequantizeLinear(i, s, z)  f = Conv(d, w, b)  t = QuantizeLinear(f, s, z) }}"""
    )
    shapes = {"i": (1, 2, 4, 4), "t": (1, 2, 4, 4)}
    assert allowed_differences(model, shapes)["t"].steps == steps


@pytest.mark.parametrize("kind", ["z16", "output_dtype"], ids=["zero point", "attribute"])
def test_a_hidden_step_before_an_output_of_int16_is_allowed_all_steps_that_it_is(kind):
    """A step of 0.25 is 256 steps of 2**-10, more than int8 has."""
    last = "fine, z16" if kind == "z16" else "fine"
    attribute = "" if kind == "z16" else "<output_dtype = 5>"
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (float[1,1,4,4] x) => (int16[1,1,4,4] y)
        <float s = {{0.25}}, float fine = {{0.0009765625}}, int8 z = {{0}}, int16 z16 = {{0}},
         float[1] b = {{0.1}}, int8[1,1,1,1] wq = {{64}}> {{
           w = DequantizeLinear(wq, s, z)  i = QuantizeLinear(x, s, z)
           d = DequantizeLinear(i, s, z)  f = Conv(d, w, b)  t = QuantizeLinear(f, s, z)
           r = DequantizeLinear(t, s, z)  y = QuantizeLinear{attribute}(r, {last}) }}"""
    )
    shapes = dict.fromkeys("ity", (1, 1, 4, 4))
    found = allowed_differences(model, shapes, shown=("i",))
    assert (found["t"].steps, found["y"].steps) == (1, 256)


COARSE = {
    "of a pool": "m = GlobalMaxPool(d)  f = Conv(m, w, b)",
    "of integers that are written as floats": "f = Conv(d, floats, b)",
}


@pytest.mark.parametrize("body", COARSE.values(), ids=COARSE)
def test_so_it_is_behind_other_forms_of_what_is_summed(body):
    """Sums in steps of 1, results of 0.25: halves of a step are two."""
    model = onnx.parser.parse_model(
        f"""{HEADER} g (float[1,2,4,4] x) => (int8[1,2,4,4] t)
        <float s = {{0.25}}, float four = {{4}}, int8 z = {{0}}, float[2] b = {{3, 0.5}},
         int8[2,2,1,1] wq = {{1,2,3,64}}, float[2,2,1,1] floats = {{4,8,12,256}}> {{
           w = DequantizeLinear(wq, four, z)  i = QuantizeLinear(x, s, z)
           d = DequantizeLinear(i, s, z)  {body}  t = QuantizeLinear(f, s, z) }}"""
    )
    shapes = {"i": (1, 2, 4, 4), "t": (1, 2, 4, 4)}
    assert allowed_differences(model, shapes)["t"].steps == 3


@pytest.mark.parametrize(("factor", "steps"), [(0.3, 1), (100.1, 4)])
def test_factors_of_16_bits_move_results_by_many_steps_where_one_is_worth_many(factor, steps):
    """400.4 steps of the result for one of the operand: 25625.6 / 2**6, and 0.4 / 2**6 of 255 steps
    of the operand are 1.6; any other factor as large may be off by half of 2**-6: 4 with 256.
    """
    model = onnx.parser.parse_model(
        f"""{HEADER} g (float[1,1,4,4] x) => (int8[1,1,4,4] t)
        <float s = {{1}}, float fine = {{0.25}}, int8 z = {{0}}, float[1] k = {{{factor}}},
         float[1] b = {{0}}, float[1] m = {{0}}, float[1] v = {{1}}> {{
           i = QuantizeLinear(x, s, z)  d = DequantizeLinear(i, s, z)
           f = BatchNormalization<epsilon = 0.0>(d, k, b, m, v)
           t = QuantizeLinear(f, fine, z) }}"""
    )
    shapes = {"i": (1, 1, 4, 4), "t": (1, 1, 4, 4)}
    assert allowed_differences(model, shapes)["t"].steps == steps


def test_gaps_that_no_float_holds_are_compared_in_silence():
    """Scales of a careless model reach to the ends of what floats hold."""
    large = np.array([3e38, 1], np.float32)
    assert _near(large, large, 0, 1e39).all()
    assert not _near(large, -large, 0, 0.0).all()


@pytest.mark.parametrize(("hidden", "steps"), [("0.25", 1), ("0.3", 255)])
def test_scales_that_are_no_numbers_allow_what_may_differ_and_nothing_else(hidden, steps):
    """A damaged model: a weight has such a scale; what is read is exact, or a step off."""
    model = onnx.parser.parse_model(
        f"""{HEADER} g (float[1,2,4,4] x) => (int8[1,2,4,4] t)
        <float s = {{0.25}}, float u = {{{hidden}}}, float none, int8 z = {{0}},
         int8[2,2,1,1] wq = {{1,2,3,4}}> {{
           v = DequantizeLinear(wq, none, z)
           i = QuantizeLinear(x, s, z)  d = DequantizeLinear(i, s, z)  r = Relu(d)
           q = QuantizeLinear(r, u, z)  e = DequantizeLinear(q, u, z)
           f = Conv(e, v)  t = QuantizeLinear(f, s, z) }}"""
    )
    (declared,) = (v for v in model.graph.value_info if v.name == "none")
    model.graph.value_info.remove(declared)
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(np.asarray(np.float32(np.nan)), "none")
    )
    allowed = allowed_differences(model, {"i": (1, 2, 4, 4), "q": (1, 2, 4, 4)}, {"i"})
    assert allowed["t"].steps == steps


@pytest.mark.parametrize(("op", "steps"), [("Relu(e)", 1), ("Add(e, d)", 2)])
def test_a_hidden_step_may_become_two_where_sums_lie_between_steps(op, steps):
    """0.5 and 1.5 are one apart and round to 0 and 2; what only moves stays one apart."""
    model = onnx.parser.parse_model(
        f"""{HEADER} g (float[1,2,4,4] x) => (int8[1,2,4,4] t)
        <float s = {{0.25}}, int8 z = {{0}}> {{
           i = QuantizeLinear(x, s, z)  d = DequantizeLinear(i, s, z)
           f = LeakyRelu<alpha=0.3>(d)  q = QuantizeLinear(f, s, z)
           e = DequantizeLinear(q, s, z)  g = {op}  t = QuantizeLinear(g, s, z) }}"""
    )
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("i", "q", "t"), (1, 2, 4, 4))
    assert allowed_differences(model, shapes, {"i", "t"})["t"].steps == steps


def test_an_output_may_be_off_by_what_its_hidden_rounding_may_be():
    """A port that permutes axes shows no rounded tensor, and every scale here is odd."""
    model = onnx.parser.parse_model(
        f"""{HEADER} g (float[1,23,13,9] x) => (float[1,9,23,13] y)
        <float s = {{0.0281}}, float a = {{0.0152}}, float b = {{0.0433}}, float c = {{0.0305}},
         int8 zs = {{-11}}, int8 lowest = {{-128}}, int8 zb = {{-52}}> {{
           i = QuantizeLinear(x, s, zs)  d = DequantizeLinear(i, s, zs)
           m = Transpose<perm=[0,3,1,2]>(d)  r = Relu(m)
           q = QuantizeLinear(r, a, lowest)  e = DequantizeLinear(q, a, lowest)
           f = Add(m, e)  t = QuantizeLinear(f, b, zb)  h = DequantizeLinear(t, b, zb)
           k = Relu(h)  o = QuantizeLinear(k, c, lowest)  y = DequantizeLinear(o, c, lowest) }}"""
    )
    shapes = {"i": (1, 23, 13, 9)} | dict.fromkeys(("q", "t", "o"), (1, 9, 23, 13))
    allowed = allowed_differences(model, shapes, {"i"})
    assert allowed_of_outputs(model, allowed, {"i"})["y"] == pytest.approx(
        allowed["o"].steps * 0.0305
    )
    assert allowed_of_outputs(model, allowed, {"i", "o"})["y"] == 0
    program = opu_fuse.compile(model, HW)
    inputs = {"x": np.random.default_rng(5).uniform(-3, 4, (1, 23, 13, 9)).astype(np.float32)}
    result = program.run(inputs, capture=True)
    assert check(program.bundle, inputs, result).first is None
    (reference,) = session(model).run(None, inputs)
    assert np.any(result.outputs["y"] != reference), "nothing was allowed"


def test_a_value_is_not_taken_for_the_padded_one_that_is_read_in_its_place():
    """It is rounded twice, so its own pair stays; the pool takes the Pad."""
    model = onnx.parser.parse_model(
        f"""{HEADER} g (float[1,3,6,6] x) => (float[1,3,3,3] y)
        <float s = {{0.03}}, float t = {{0.02}}, int8 z = {{-3}},
         int64[8] p = {{0, 0, 1, 0, 0, 0, 0, 1}}> {{
           a = QuantizeLinear(x, s, z)  b = DequantizeLinear(a, s, z)  c = Relu(b)
           d = QuantizeLinear(c, s, z)  e = DequantizeLinear(d, s, z)
           f = QuantizeLinear(e, t, z)  g = DequantizeLinear(f, t, z)
           h = Pad(g, p)  i = QuantizeLinear(h, t, z)  j = DequantizeLinear(i, t, z)
           k = AveragePool<kernel_shape=[2,2], strides=[2,2]>(j)
           l = QuantizeLinear(k, t, z)  y = DequantizeLinear(l, t, z) }}"""
    )
    program = opu_fuse.compile(model, opu_fuse.load_hw("opu-tiny"))
    assert "i" not in {place.qdq_name for place in tensor_sources(program.bundle)}
    inputs = noise(program.bundle)
    assert check(program.bundle, inputs, program.run(inputs, capture=True)).passed


def test_weights_that_simulate_rounding_in_blocks_are_checked_too():
    """QuantizeLinear with `block_size` has a scale for every block: no scale of channels."""
    header = HEADER.replace("17", "21")
    model = written(
        f"""{header} g (float[1,4,6,6] x) => (float[1,3,6,6] y)
        <float[3,4,1,1] w, float[3] b, float s = {{0.0625}}, int8 z = {{0}}> {{
          q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)
          p = QuantizeLinear<axis = 1, block_size = 2>(w, t, o)
          v = DequantizeLinear<axis = 1, block_size = 2>(p, t, o)
          c = Conv(d, v, b)  r = QuantizeLinear(c, s, z)  y = DequantizeLinear(r, s, z)
        }}""",
        seed=5,
    )
    scales = np.linspace(0.01, 0.02, 6, dtype=np.float32).reshape(3, 2, 1, 1)
    for name, data in (("t", scales), ("o", np.zeros((3, 2, 1, 1), np.int8))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    program = opu_fuse.compile(model, HW)
    inputs = noise(program.bundle)
    assert check(program.bundle, inputs, program.run(inputs, capture=True)).passed
