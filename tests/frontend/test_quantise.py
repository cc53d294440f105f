"""What our quantiser promises: standard QDQ, powers of two, ties, exact biases, living tensors."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from opu_fuse import zoo
from opu_fuse.errors import ModelError
from opu_fuse.frontend.prepare import Prepared, prepare
from opu_fuse.frontend.qdq_reference import Reference, reference
from opu_fuse.quant import META_KEY, QuantParams
from tests.some import some

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
Replay = Callable[[ir.Model, Mapping[str, np.ndarray]], dict[str, np.ndarray]]
MOVES = {
    *("Relu", "Clip", "MaxPool", "AveragePool", "Pad", "Resize"),
    *("Reshape", "Transpose", "Concat", "Split"),
}
SMALL = ("tiny_residual", "tiny_odd", "tiny_tiles")
NETWORKS = {
    **dict.fromkeys(SMALL, None),
    "resnet18": 64,
    "tiny_yolov2": 96,
    "unet": 32,
    "densenet_small": 16,
    "shufflenet_v2": 64,
}


@pytest.fixture(scope="module")
def prepared() -> Callable[..., Prepared]:
    """Prepared zoo networks, each made once."""
    made: dict[tuple[str, str], Prepared] = {}

    def get(name: str, scales: str = "pow2") -> Prepared:
        if (name, scales) not in made:
            made[name, scales] = prepare(zoo.build(name, image=NETWORKS[name]), scales=scales)
        return made[name, scales]

    return get


def image(model: ir.Model, seed: int = 9) -> dict[str, np.ndarray]:
    (value,) = model.graph.inputs
    shape = [int(d) for d in value.shape or ()]  # type: ignore[arg-type]  # dimensions were fixed by `load`
    return {value.name or "": np.random.default_rng(seed).standard_normal(shape, np.float32)}


def annotations(model: ir.Model) -> list[tuple[str, QuantParams]]:
    values = [*model.graph.inputs, *model.graph.initializers.values()]
    values += [v for node in model.graph for v in node.outputs]
    return [(v.name or "", v.meta[META_KEY]) for v in values if META_KEY in v.meta]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_result_is_a_valid_onnx_model_that_runs(prepared: Callable[..., Prepared], name: str):
    qdq = prepared(name).qdq
    onnx.checker.check_model(some(qdq), full_check=True)
    assert {n.domain for n in some(qdq).graph.node} == {""}
    session = ort.InferenceSession(
        some(qdq).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    session.run(None, image(prepared(name).canonical))


@pytest.mark.parametrize("name", NETWORKS)
def test_every_scale_is_a_power_of_two_and_every_zero_point_zero(
    prepared: Callable[..., Prepared], name: str
):
    found = annotations(prepared(name).canonical)
    assert found
    assert [n for n, q in found if not q.is_pow2 or q.zero_point] == []


@pytest.mark.parametrize("scales", ["pow2", "free"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_value_is_rounded_and_moves_share_their_scale(
    prepared: Callable[..., Prepared], name: str, scales: str
):
    for node in prepared(name, scales).canonical.graph:
        result = node.outputs[0].meta.get(META_KEY)
        assert result is not None, node.name
        if node.op_type in MOVES:
            assert some(node.inputs[0]).meta[META_KEY] == result, node.name


@pytest.mark.parametrize("scales", ["pow2", "free"])
@pytest.mark.parametrize("name", NETWORKS)
def test_biases_are_int32_in_the_scale_of_the_accumulator(
    prepared: Callable[..., Prepared], name: str, scales: str
):
    floating = prepare(zoo.build(name, image=NETWORKS[name]), quantised=False).canonical
    reals = {n.name: n for n in floating.graph}
    count = 0
    for node in prepared(name, scales).canonical.graph:
        if node.op_type not in {"Conv", "Gemm"} or len(node.inputs) < 3:
            continue
        count += 1
        x, w, b = (some(v).meta[META_KEY] for v in node.inputs)
        assert (b.bits, b.axis, w.axis) == (32, 0, 0)
        expected = np.float32(x.per_tensor) * np.asarray(w.scale, np.float32)
        np.testing.assert_array_equal(np.asarray(b.scale, np.float32), expected)
        integers = some(some(node.inputs[2]).const_value).numpy()
        real = some(some(reals[node.name].inputs[2]).const_value).numpy().astype(np.float64)
        assert integers.dtype == np.int32
        assert (
            np.abs(integers * expected.astype(np.float64) - real).max() <= 0.5001 * expected.max()
        )
    assert count > 2


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_use_the_range_of_int8(prepared: Callable[..., Prepared], name: str):
    for node in prepared(name).canonical.graph:
        if node.op_type not in {"Conv", "Gemm"}:
            continue
        weight = some(some(node.inputs[1]).const_value).numpy()
        rows = np.abs(weight.astype(np.int16)).reshape(len(weight), -1)
        assert rows.max(axis=1).min() > 40, f"{node.name}: a channel wastes more than a bit"
        assert np.mean(rows >= 127) < 0.05, f"{node.name} is saturated"


@pytest.mark.parametrize("scales", ["pow2", "free"])
@pytest.mark.parametrize("name", NETWORKS)
def test_tensors_are_alive_and_not_saturated(
    prepared: Callable[..., Prepared], name: str, scales: str
):
    result = prepared(name, scales)
    assert result.qdq is not None
    values = reference(result.qdq, image(result.canonical))
    integers = {n: v for n, v in values.items() if v.dtype == np.int8}
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in result.qdq.graph.initializer}
    rounding = [n for n in result.qdq.graph.node if n.op_type == "QuantizeLinear"]
    zeros = {n.output[0]: constants[n.input[2]] for n in rounding}
    cut_off_behind = {
        v.meta.get("opu_fuse.tensor")
        for node in result.canonical.graph
        for v in node.outputs
        if v.uses() and all(u.node.op_type in {"Relu", "Clip", "MaxPool"} for u in v.uses())
    }
    assert len(integers) == len(rounding)
    for tensor, value in integers.items():
        enough = 32 if value.size > 500 else 8
        assert np.unique(value).size >= enough, tensor
        saturated = np.sum((value == 127) | ((value == -128) & (zeros[tensor] != -128)))
        assert saturated <= max(0.05 * value.size, 1) or tensor in cut_off_behind, tensor


@pytest.mark.parametrize("name", NETWORKS)
def test_annotations_say_what_the_qdq_model_computes(
    prepared: Callable[..., Prepared], replayed: Replay, name: str
):
    result = prepared(name)
    inputs = image(result.canonical)
    assert result.qdq is not None
    expected, got = reference(result.qdq, inputs), replayed(result.canonical, inputs)
    assert set(got) == set(expected)
    for tensor, value in got.items():
        np.testing.assert_array_equal(value, expected[tensor], err_msg=tensor)


@pytest.mark.parametrize("name", NETWORKS)
def test_float_and_int8_form_have_the_same_graph(
    prepared: Callable[..., Prepared], print_nodes: Callable[[ir.Model], str], name: str
):
    floating = prepare(zoo.build(name, image=NETWORKS[name]), quantised=False)
    integer = prepared(name).canonical
    assert floating.qdq is None
    assert print_nodes(floating.canonical) == print_nodes(integer)
    origins = [n.metadata_props["opu_fuse.source"] for n in floating.canonical.graph]
    assert origins == [n.metadata_props["opu_fuse.source"] for n in integer.graph]
    assert annotations(floating.canonical) == []


def test_the_same_model_gives_the_same_bytes():
    one, two = (prepare(zoo.build("tiny_residual")).qdq for _ in range(2))
    assert one is not None
    assert two is not None
    assert one.SerializeToString(deterministic=True) == two.SerializeToString(deterministic=True)


def test_a_bias_shared_by_two_convolutions_is_split(onnx_text: Callable[..., onnx.ModelProto]):
    rng = np.random.default_rng(2)
    model = prepare(
        onnx_text(
            """g (float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y) {
                a = Conv (x, w, b) c = Mul (a, eight) d = Relu (c) y = Conv (d, w, b)
            }""",
            w=rng.standard_normal((4, 4, 1, 1)).astype(np.float32),
            b=rng.standard_normal(4).astype(np.float32),
            eight=np.asarray(8.0, np.float32),
        )
    ).canonical
    first, second = (n.inputs[2] for n in model.graph if n.op_type == "Conv")
    assert some(first).meta[META_KEY].scale != some(second).meta[META_KEY].scale


@pytest.mark.parametrize("scales", ["pow2", "free"])
@pytest.mark.parametrize("outputs", [4, 6])
def test_a_weight_of_a_convolution_and_a_transposed_one_has_the_scales_of_each(
    outputs: int, scales: str, onnx_text: Callable[..., onnx.ModelProto]
):
    """Their output channels lie along different axes: a channel of each is given weights so small
    that the scales of the others lose them.
    """
    w = np.full((outputs, 4, 1, 1), 1.0, np.float32)
    w[1] = w[:, 2] = 1 / 1024
    prepared = prepare(
        onnx_text(
            """g (float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y, float[1, A, 6, 6] d) {
                a = Conv (x, w) y = ConvTranspose (a, w) d = Conv (x, w)
            }""",
            w=w,
        ),
        scales=scales,
    )
    there, back, again = (n.inputs[1] for n in prepared.canonical.graph)
    assert again is there
    for value, axis in ((there, 0), (back, 1)):
        rows = np.moveaxis(some(some(value).const_value).numpy(), axis, 0)
        assert (np.abs(rows).reshape(len(rows), -1).max(axis=1) > 60).all()
        assert some(value).meta[META_KEY].axis == axis


def test_a_channel_without_weights_keeps_its_bias(onnx_text: Callable[..., onnx.ModelProto]):
    weight = np.random.default_rng(2).standard_normal((4, 4, 1, 1)).astype(np.float32)
    weight[1] = 0.0
    bias = np.asarray([0.1, 3.3, -0.2, 1e-9], np.float32)
    text = "g (float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y) { y = Conv (x, w, b) }"
    prepared = prepare(onnx_text(text, w=weight, b=bias))
    integers = prepared.canonical.graph[0].inputs[2]
    real = some(integers).meta[META_KEY].dequantize(some(some(integers).const_value).numpy())
    np.testing.assert_allclose(real[:3], bias[:3], atol=0.01)
    assert prepared.qdq is not None
    y = reference(prepared.qdq, image(prepared.canonical))["y"]
    np.testing.assert_allclose(y[0, 1], 3.3, atol=0.05)


def test_a_huge_bias_fits_int32(onnx_text: Callable[..., onnx.ModelProto]):
    weight = np.full((4, 4, 1, 1), 1e-6, np.float32)
    bias = np.asarray([1e6, -1e6, 1.0, 0.0], np.float32)
    text = "g (float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y) { y = Conv (x, w, b) }"
    integers = prepare(onnx_text(text, w=weight, b=bias)).canonical.graph[0].inputs[2]
    real = some(integers).meta[META_KEY].dequantize(some(some(integers).const_value).numpy())
    np.testing.assert_allclose(real[:2], bias[:2], rtol=1e-6)


def test_an_average_that_cancels_out_is_zero(onnx_text: Callable[..., onnx.ModelProto]):
    """float32 leaves 1e-8 of it; a scale for that would make the result a matter of the order of
    a sum.
    """
    text = """g (float[1,3,5,7] x) => (float[1,3] y) {
        mean = GlobalAveragePool(x)
        centred = Sub(x, mean)
        none = GlobalAveragePool(centred)
        y = Flatten(none)
    }"""
    quants = dict(annotations(prepare(onnx_text(text)).canonical))
    assert quants["y"].per_tensor == quants["none"].per_tensor == 2.0**-7
    assert quants["mean"].per_tensor < 2.0**-7


def test_operators_of_the_host_stay_float(onnx_text: Callable[..., onnx.ModelProto]):
    text = """g (float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y) {
        a = Relu (x) b = Softmax <axis = 1> (a) c = Erf (b) y = Relu (c)
    }"""
    model = prepare(onnx_text(text)).canonical
    rounded = {n.op_type: META_KEY in n.outputs[0].meta for n in model.graph}
    assert [n.op_type for n in model.graph] == ["Relu", "Softmax", "Erf", "Relu"]
    assert rounded["Softmax"] is False
    assert rounded["Erf"] is True, "the relu behind it cannot run on a machine"


def test_digits_lose_at_most_half_a_point():
    data = np.load(DIGITS / "heldout.npz")
    images, labels = data["images"], data["labels"]
    assert images.shape == (360, 1, 8, 8)
    floating = ort.InferenceSession(DIGITS / "digits.onnx", providers=["CPUExecutionProvider"])
    logits = floating.run(None, {"image": images})[0]
    float_accuracy = np.mean(np.asarray(logits).argmax(axis=1) == labels)
    assert float_accuracy >= 0.97
    for scales in ("pow2", "free"):
        prepared = prepare(
            DIGITS / "digits.onnx", calibration=DIGITS / "calibration.npz", scales=scales
        )
        assert prepared.warnings == ()
        assert prepared.qdq is not None
        session = Reference(prepared.qdq)
        right = [
            session.run({"image": x[None]})["logits"].argmax() == label
            for x, label in zip(images, labels, strict=True)
        ]
        assert np.mean(right) >= float_accuracy - 0.005, scales


def test_a_reference_run_says_what_is_wrong_with_its_inputs():
    prepared = prepare(zoo.build("tiny_odd"))
    assert prepared.qdq is not None
    with pytest.raises(ModelError, match=r"reference run: .*input.*missing.*; pass arrays"):
        reference(prepared.qdq, {})
    with pytest.raises(ModelError, match=r"reference run: .*dimensions.*; pass arrays"):
        reference(prepared.qdq, {"input": np.zeros((1, 3, 4, 4), np.float32)})
