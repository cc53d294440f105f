"""Calibration methods, equalisation and bias correction: what each does to a network's numbers."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import opu_fuse
from opu_fuse import zoo
from opu_fuse.cli.main import main
from opu_fuse.errors import ModelError, SpecError, UserError
from opu_fuse.frontend.choice_names import Method, MethodLike, Scales, ScalesLike
from opu_fuse.frontend.editing import constant
from opu_fuse.frontend.prepare import prepare
from opu_fuse.frontend.qdq_reference import session
from opu_fuse.frontend.quantization.activation_ranges import Range
from opu_fuse.frontend.quantization.calibration_methods import ends
from opu_fuse.frontend.quantization.choose_scales import activation_quants
from opu_fuse.frontend.quantization.qparam_range import covering, free_quant, relative_error
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from tests.some import some

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
GIVEN = [method for method in Method if method != "mse"]


def of(values: np.ndarray) -> Range:
    return Range(
        low=float(values.min()), high=float(values.max()), samples=values.astype(np.float32)
    )


def test_max_holds_all_and_percentile_leaves_out_the_rare():
    values = np.concatenate([np.linspace(-1.0, 2.0, 100_000), [50.0, -9.0]])
    assert ends([of(values)], "max") == (-9.0, 50.0)
    low, high = ends([of(values)], "percentile")
    assert -1.0 <= low < -0.99
    assert 1.99 < high <= 2.0


def test_entropy_gives_a_few_values_far_out_up_and_keeps_an_even_span(rng: np.random.Generator):
    bulk = rng.laplace(size=100_000)
    bulk[:2] = 60.0
    low, high = ends([of(bulk)], "entropy")
    assert high < 50.0
    assert low < 0.0
    low, high = ends([of(rng.uniform(-1.0, 1.0, 100_000))], "entropy")
    assert high - low > 1.8


@pytest.mark.parametrize("method", GIVEN)
def test_several_maps_of_one_scale_are_all_held_and_zero_is_inside(method: str):
    parts = [of(np.linspace(3.0, 4.0, 1000)), of(np.linspace(-2.0, -1.0, 1000))]
    low, high = ends(parts, method)
    assert low <= -1.3
    assert high >= 2.7
    assert ends(parts[:1], method)[0] == 0.0
    assert ends([of(np.zeros(10))], method) == (0.0, 0.0)


@pytest.mark.parametrize("method", GIVEN)
@pytest.mark.parametrize("kind", ["even", "bell", "tails", "relu", "gate"])
def test_the_default_never_loses_more_than_another_method(
    method: str, kind: str, rng: np.random.Generator
):
    bell = rng.normal(size=50_000)
    values = {
        "even": rng.uniform(-3.0, 1.0, 50_000),
        "bell": bell,
        "tails": rng.standard_t(3, 50_000),
        "relu": np.maximum(bell, 0.0),
        "gate": 1.0 / (1.0 + np.exp(-3.0 * bell)),
    }[kind]
    default, other = free_quant([of(values)]), covering(*ends([of(values)], method))
    losses = [relative_error(values, q.per_tensor, q.zero_point) for q in (default, other)]
    assert losses[0] <= 1.02 * losses[1]


@pytest.mark.parametrize("method", GIVEN)
@pytest.mark.parametrize("scales", ["pow2", "free"])
def test_a_program_with_each_method_has_onnx_runtimes_bits(method: MethodLike, scales: ScalesLike):
    options = Options(
        scales=scales, calibration=DIGITS / "calibration.npz", calibration_method=method
    )
    hw = opu_fuse.load_hw("opu-tiny")
    made = compile_model(DIGITS / "digits.onnx", hw, options)
    image = {"image": np.load(DIGITS / "heldout.npz")["images"][:1]}
    found = check(made.bundle, image, run(made.bundle, hw, image, capture=True))
    assert found.passed
    assert scales == "free" or found.mismatches == 0
    usual = compile_model(
        DIGITS / "digits.onnx", hw, Options(scales=scales, calibration=DIGITS / "calibration.npz")
    )
    assert [n.quant for n in made.dfg.nodes] != [n.quant for n in usual.dfg.nodes]


NETWORKS = {
    "digits": (DIGITS / "digits.onnx", "opu-tiny"),
    "odd": ("tiny_odd", "opu-tiny"),  # uneven padding, leaky relu
    "dense": ("densenet_small", "opu-1024"),  # normalisations in front of layers
}


@pytest.mark.parametrize("name", NETWORKS)
def test_powers_of_two_with_zero_points_have_onnx_runtimes_bits(name, rng: np.random.Generator):
    given, machine = NETWORKS[name]
    hw, model = opu_fuse.load_hw(machine), given if isinstance(given, Path) else zoo.build(given)
    made = compile_model(model, hw, Options(scales="pow2-asymmetric"))
    quants = [n.quant for n in made.dfg.nodes if n.quant is not None]
    assert all(np.log2(s) % 1.0 == 0.0 for q in quants for s in q.scale)
    relus = [n.quant for n in made.dfg.nodes if n.op == "relu" and n.quant is not None]
    assert {q.zero_point for q in relus} <= {-128}
    assert any(q.zero_point for q in quants)
    (entry,) = made.bundle.inputs
    image = {entry.name: rng.normal(size=entry.shape).astype(np.float32)}
    found = check(made.bundle, image, run(made.bundle, hw, image, capture=True))
    assert (found.passed, found.mismatches) == (True, 0)


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.9), (-1.9, 0.0), (-1.9, 1.8), (-0.5, 3.0)])
def test_zero_points_are_used_where_they_give_finer_steps(method: str, low: float, high: float):
    """Half of the steps are below zero without them."""
    graph = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 4] x) => (float[1, 4] y) '
        "{ y = Relu (x) }"
    ).graph
    values = of(np.linspace(low, high, 20_001))
    steps = {}
    for scales in ("pow2", "pow2-asymmetric"):
        found = activation_quants(graph, {"x": values}, scales=scales, method=method)["x"]
        steps[scales] = found.per_tensor
        ends = [(q - found.zero_point) * found.per_tensor for q in (-128, 127)]
        assert ends[0] <= 0.97 * low
        assert ends[1] >= 0.97 * high
    gained = 1.0 if (low, high) == (-1.9, 1.8) else 2.0
    assert steps["pow2"] / steps["pow2-asymmetric"] == gained


def test_a_machine_of_shifters_takes_no_zero_points():
    with pytest.raises(SpecError, match="pow2-asymmetric scales need multipliers; compile with"):
        compile_model(
            DIGITS / "digits.onnx",
            opu_fuse.load_hw("opu-classic"),
            Options(scales="pow2-asymmetric"),
        )


SEPARABLE = """g (float[1, 8, 6, 6] x) => (float[1, 4, 3, 3] y) {
    a = Conv (x, w, b) c = Relu (a) d = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (c)
    e = Conv <group = 8, pads = [1, 1, 1, 1]> (d, v) f = Relu (e) y = Conv (f, u)
}"""
Text = Callable[..., onnx.ModelProto]


@pytest.fixture
def separable(onnx_text: Text, rng: np.random.Generator) -> onnx.ModelProto:
    """Its eight channels differ by factors of up to 300."""
    spread = np.float32(2.0 ** np.linspace(-8, 0.3, 8)).reshape(8, 1, 1, 1)
    return onnx_text(
        SEPARABLE,
        w=(rng.normal(size=(8, 8, 1, 1)) * spread).astype(np.float32),
        b=(rng.normal(size=8) * spread.reshape(8)).astype(np.float32),
        v=rng.normal(size=(8, 1, 3, 3)).astype(np.float32),
        u=(rng.normal(size=(4, 8, 1, 1)) / spread.reshape(1, 8, 1, 1)).astype(np.float32),
    )


@pytest.fixture
def data(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.normal(size=(8, 1, 8, 6, 6)).astype(np.float32)}


def weights(model: ir.Model) -> dict[str, np.ndarray]:
    found = {n.outputs[0].name: constant(n.inputs[1]) for n in model.graph if n.op_type == "Conv"}
    return {name: w for name, w in found.items() if name and w is not None}


def test_equalised_channels_have_one_size_and_the_network_its_floats(separable, data):
    before, after = (
        prepare(separable, quantised=False, calibration=data, equalisation=on).canonical
        for on in (False, True)
    )
    runs = [session(ir.to_proto(m), ["d"]) for m in (before, after)]
    maps, outputs = (
        [np.stack([np.asarray(r.run([name], {"x": x})[0]) for x in data["x"]]) for r in runs]
        for name in ("d", "y")
    )
    first, second = outputs
    assert np.array_equal(first, second)
    sizes = [np.abs(m).max(axis=(0, 1, 3, 4)) for m in maps]
    assert sizes[0].max() / sizes[0].min() > 100.0
    assert sizes[1].max() / sizes[1].min() <= 2.0
    factors = (weights(before)["a"] / weights(after)["a"])[:, 0, 0, 0]
    assert np.array_equal(np.exp2(np.rint(np.log2(factors))), factors)


def test_equalised_channels_lose_less(separable, data):
    exact = session(separable).run
    wanted = np.stack([np.asarray(exact(["y"], {"x": x})[0]) for x in data["x"]])
    noise = []
    for on in (False, True):
        qdq = prepare(separable, calibration=data, scales="free", equalisation=on).qdq
        assert qdq is not None
        rounded = session(qdq).run
        got = np.stack([np.asarray(rounded(["y"], {"x": x})[0]) for x in data["x"]])
        noise.append(np.square(got - wanted).sum())
    assert noise[1] < 0.1 * noise[0]


@pytest.mark.parametrize(
    "changed",
    [
        ("c = Relu (a)", "c = Clip (a, low, high)"),  # 6 is 6 whatever the factor
        ("c = Relu (a)", "c = Add (a, x)"),
        ("Conv (x, w, b)", "Conv (x, w, b) shared = Conv (x, w, b)"),
        ("float[1, 4, 3, 3] y", "float[1, 4, 3, 3] y, float[1, 8, 3, 3] d"),
    ],
)
def test_what_does_not_commute_or_is_shared_is_left_alone(changed, separable, data, onnx_text):
    given = {t.name: onnx.numpy_helper.to_array(t) for t in separable.graph.initializer}
    model = onnx_text(
        SEPARABLE.replace(*changed), **given, low=np.float32(0.0), high=np.float32(6.0)
    )
    if "shared" in changed[1]:
        model.graph.output.append(onnx.helper.make_tensor_value_info("shared", 1, (1, 8, 6, 6)))
    plain, equal = (
        prepare(model, quantised=False, calibration=data, equalisation=on).canonical
        for on in (False, True)
    )
    first = next(iter(weights(plain)))
    assert np.array_equal(weights(plain)[first], weights(equal)[first])


def test_no_channel_grows_in_front_of_a_prelu_to_grow_behind_it(
    separable, data, onnx_text, rng: np.random.Generator
):
    """It lost 20 dB on a trained network: all that PRelu left of the channel was 2^-12 of it."""
    given = {t.name: onnx.numpy_helper.to_array(t) for t in separable.graph.initializer}
    given["b"] = given["b"].copy()
    given["b"][7] = -30.0
    slopes = np.array([0.1] * 7 + [2.0**-12], np.float32).reshape(8, 1, 1)
    model = onnx_text(SEPARABLE.replace("Relu (a)", "PRelu (a, p)", 1), **given, p=slopes)
    equal = prepare(model, quantised=False, calibration=data, equalisation=True).canonical
    run = session(ir.to_proto(equal), ["a", "c"]).run
    maps = [run(["a", "c"], {"x": x}) for x in data["x"]]
    before, behind = (np.abs(np.stack(m)).max(axis=(0, 1, 3, 4)) for m in zip(*maps, strict=True))
    assert behind[7] < 0.01 * behind.max(), "dead, as it was"
    assert before.max() < 60.0
    assert before.max() / before.min() < 40.0, "the others have grown"


def test_equalisation_wants_real_inputs(separable):
    with pytest.raises(
        ModelError, match="equalisation measures the channels of maps; pass calibration"
    ):
        prepare(separable, equalisation=True)


@pytest.mark.parametrize("scales", ["pow2", "free"])
def test_corrected_biases_take_the_mean_error_off(scales, separable, data):
    """Of the layer without a bias, too: means of its channels over samples and places."""
    uneven = {"x": np.abs(data["x"]) + 1.0}
    exact = session(separable, ["a"])
    wanted = np.stack([np.asarray(exact.run(["a"], {"x": x})[0]) for x in uneven["x"]])
    off = []
    for on in (False, True):
        made = prepare(separable, calibration=uneven, scales=scales, bias_correction=on)
        assert made.qdq is not None
        # before its rounding, of the rounded weights and inputs
        shown = next(n for n in made.qdq.graph.node if n.op_type == "Conv").output[0]
        rounded = session(made.qdq, [shown])
        got = np.stack([np.asarray(rounded.run([shown], {"x": x})[0]) for x in uneven["x"]])
        off.append(np.abs((got - wanted).mean(axis=(0, 1, 3, 4))) / np.abs(wanted).max())
        convs = [n for n in made.qdq.graph.node if n.op_type == "Conv"]
        assert [len(n.input) for n in convs] == ([3, 3, 3] if on else [3, 2, 2])
    assert off[1].mean() < 0.3 * off[0].mean()


def test_a_corrected_program_has_onnx_runtimes_bits(separable, data):
    hw = opu_fuse.load_hw("opu-light")
    options = Options(calibration=data, bias_correction=True, equalisation=True)
    made = compile_model(separable, hw, options)
    image = {"x": data["x"][0]}
    found = check(made.bundle, image, run(made.bundle, hw, image, capture=True))
    assert (found.passed, found.mismatches) == (True, 0)
    assert not made.partition.host


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "median"}, "calibration method 'median': there is no such choice; use one of"),
        ({"method": "max"}, "calibration method 'max': the model is quantised already"),
        ({"scales": Scales.FREE}, "scales 'free': the model is quantised already; give the float"),
        ({"bias_correction": True}, "bias correction: the model is quantised already"),
        ({"equalisation": True}, "equalisation: the model is quantised already"),
    ],
)
def test_what_cannot_be_is_one_line(options, words, separable, data):
    model = separable if options.get("method") == "median" else prepare(separable).qdq
    with pytest.raises(UserError, match=words):
        prepare(some(model), **options)


def test_the_command_takes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = []
    others = ("--calibration-method", "max", "--bias-correction", "--equalisation")
    for options in ((), ("--scales", "pow2-asymmetric", *others)):
        out = tmp_path / f"{len(made)}.opu"
        command = ["compile", DIGITS / "digits.onnx", "--hw", "opu-tiny", "-o", out]
        command += ["--calibration", DIGITS / "calibration.npz", *options]
        monkeypatch.setattr("sys.argv", ["opu-fuse", *map(str, command)])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code in (0, None)
        made.append(out.read_bytes())
    assert made[0] != made[1]
