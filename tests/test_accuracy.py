"""What `opu-fuse accuracy` says of a trained network is so, and bad input gets one line."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import opu_fuse
from opu_fuse.bundle.accuracy import WORTHWHILE, Accuracy, OutputLoss, Remedy
from opu_fuse.cli.main import main
from opu_fuse.errors import UserError
from opu_fuse.frontend.prepare import prepare
from opu_fuse.frontend.qdq_reference import reference, session
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.report.accuracy import accuracy_lines
from opu_fuse.zoo import build
from tests.some import some

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
MODEL, CALIBRATION = DIGITS / "digits.onnx", DIGITS / "calibration.npz"
COUNT = 12


@pytest.fixture(scope="module")
def held_out() -> tuple[np.ndarray, np.ndarray]:
    data = np.load(DIGITS / "heldout.npz")
    return data["images"][:COUNT], data["labels"][:COUNT]


@pytest.fixture(scope="module")
def found(held_out) -> Accuracy:
    images, labels = held_out
    return opu_fuse.accuracy(
        MODEL,
        load_hw("opu-tiny"),
        data={"image": images},
        labels=labels,
        calibration=CALIBRATION,
    )


def decibels(exact, got):
    return 10 * np.log10(np.square(exact).sum() / np.square(got - exact).sum())


def test_ratios_are_those_of_onnx_runtime_on_both_models(found, held_out):
    images, _ = held_out
    qdq = prepare(MODEL, calibration=CALIBRATION).qdq
    names = ["pool1", "block.conv2", "logits"]
    plain = session(ir.to_proto(prepare(MODEL, quantised=False).canonical), names[:2])
    exact = [plain.run(names, {"image": image[None]}) for image in images]
    ratios = {t.name: t.ratio for t in found.tensors}
    scales = {t.name: t.scale for t in found.tensors}
    for i, name in enumerate(names):
        wanted = np.array([one[i] for one in exact], np.float64)
        outputs = [reference(some(qdq), {"image": image[None]}) for image in images]
        tensor = next(n for n in outputs[0] if n.startswith(f"{name}_QuantizeLinear_Output"))
        ints = np.array([one[tensor] for one in outputs], np.float64)
        assert ratios[name] == pytest.approx(decibels(wanted, ints * scales[name]), abs=1e-3)


def test_the_worst_tensor_stands_first_and_the_worst_layer_is_named(found):
    ratios = [t.ratio for t in found.tensors if t.ratio is not None]
    assert ratios == sorted(ratios)
    own = {t.layer: t.own for t in found.tensors if t.own is not None}
    assert found.worst_layer == min(own, key=own.__getitem__) == "block.conv1"


def test_a_layer_alone_loses_only_what_it_loses_itself(found):
    by_name = {t.name: t for t in found.tensors}
    assert by_name["flatten"].ratio is not None
    assert by_name["flatten"].own is None, "it only moves"
    assert by_name["relu1"].own == by_name["relu1"].ratio, "its operand is exact"
    assert by_name["pool2"].own > by_name["pool2"].ratio


@pytest.mark.parametrize("scales", ["pow2", "free"])
def test_what_a_relu_cuts_off_is_no_loss_of_the_layer_before(scales):
    """With free scales int8 holds nothing below zero there."""
    found = opu_fuse.accuracy(
        MODEL, load_hw("opu-tiny"), calibration=CALIBRATION, scales=scales, remedies=False
    )
    layers = {t.name: (t.layer, t.op) for t in found.tensors}
    assert layers["relu1"] == ("conv1", "conv")
    assert layers["pool2"] == ("block.add", "add")
    assert not {"conv1", "block.add", "relu3"} & layers.keys()
    assert min(t.own for t in found.tensors if t.own is not None) > 28.0


def test_classes_and_labels(found, held_out):
    (output,) = found.outputs
    assert (output.name, output.agreement, output.right, output.float_right) == ("logits", 1, 1, 1)
    images, labels = held_out
    wrong = np.where(np.arange(COUNT) < 3, 9 - labels, labels)
    again = opu_fuse.accuracy(
        MODEL,
        load_hw("opu-tiny"),
        data={"image": images},
        labels=wrong,
        calibration=CALIBRATION,
        remedies=False,
    )
    assert again.outputs[0].right == again.outputs[0].float_right == 0.75
    assert again.remedies == ()


def test_what_was_tried_is_what_the_option_does(found, held_out):
    images, _ = held_out
    tried = {r.option: r for r in found.remedies}
    helpful = [o for o in ("--scales free", "--bias-correction") if tried[o].gain >= WORTHWHILE]
    assert helpful == ["--scales free", "--bias-correction"], "so they are tried together"
    assert set(tried) == {
        *("--scales free", "--bias-correction", "--equalisation"),
        "--keep-float block.conv1",
        "--scales free --bias-correction",
    }
    few = {"image": images[:8]}
    after = opu_fuse.accuracy(
        MODEL,
        load_hw("opu-tiny"),
        data=few,
        calibration=CALIBRATION,
        scales="free",
        remedies=False,
    )
    assert tried["--scales free"].after == pytest.approx(after.outputs[0].ratio)
    assert tried["--scales free"].after > tried["--scales free"].before


def test_the_cost_of_what_was_tried_is_that_of_compiling_with_it(found, held_out):
    tried = {r.option: r for r in found.remedies}
    for option, changed in (
        ("--scales free", {"scales": "free"}),
        ("--keep-float block.conv1", {"keep_float": ("block.conv1",)}),
    ):
        options = replace(Options(calibration=CALIBRATION), **changed)
        made = compile_model(MODEL, load_hw("opu-tiny"), options)
        assert tried[option].cycles == sum(g.cycles for g in made.bundle.groups)
        assert tried[option].host_operators == len(made.partition.host)
    assert tried["--keep-float block.conv1"].host_operators > found.host_operators == 0


def loss(*remedies, ratio=25.0):
    return Accuracy(
        model="m",
        machine="opu-tiny",
        scales="pow2",
        samples=4,
        tensors=(),
        outputs=(OutputLoss(name="y", ratio=ratio, agreement=None),),
        cycles=1000,
        host_operators=1,
        remedies=remedies,
    )


def remedy(
    option: str,
    after: float | None,
    *,
    cycles: int = 1000,
    host: int = 1,
    before: float | None = 25.0,
) -> Remedy:
    return Remedy(option=option, before=before, after=after, cycles=cycles, host_operators=host)


@pytest.mark.parametrize(
    ("remedies", "line"),
    [
        ([remedy("--a", 25.4)], "no change: no tried option gains 0.5 dB"),
        ([remedy("--a", 31.0)], "--a: gains 6.0 dB, the same cycles"),
        (
            [remedy("--k", 40.0, cycles=900, host=3), remedy("--a", 28.0, cycles=1010)],
            "--a: gains 3.0 dB, 10 (1.0 %) more machine cycles",
        ),
        (
            [remedy("--k", 40.0, cycles=950, host=3), remedy("--a", 25.1)],
            "--k: gains 15.0 dB, 2 operators more on the host CPU; 50 (5.0 %) fewer machine cycles",
        ),
        ([remedy("--a", None)], "--a: removes all noise, the same cycles"),
        ([remedy("--a", None, before=None)], "no change: no tried option gains 0.5 dB"),
    ],
)
def test_the_recommendation_is_the_largest_gain_that_costs_no_host_operator(remedies, line):
    assert f"recommended: {line}" in accuracy_lines(loss(*remedies))


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (46.0, "very good; output y has 46.0 dB, an error of 0.5 %"),
        (40.0, "very good; output y has 40.0 dB, an error of 1.0 %"),
        (30.0, "good; output y has 30.0 dB, an error of 3.2 %"),
        (20.0, "fair: check the task's own metric; output y has 20.0 dB, an error of 10.0 %"),
        (-3.0, "unusable; output y has -3.0 dB, an error of 141.3 %"),
        (None, "exact"),
    ],
)
def test_the_verdict_says_what_the_ratio_means(ratio, words):
    lines = list(accuracy_lines(loss(ratio=ratio)))
    assert f"verdict: {words}" in lines
    assert any(line.startswith("SNR: power of the signal") for line in lines)


def test_a_machine_of_shifters_is_not_told_to_multiply():
    found = opu_fuse.accuracy(build("tiny_residual"), load_hw("opu-classic"))
    assert not [r for r in found.remedies if "free" in r.option]


def test_an_operator_kept_in_floats_runs_on_the_host():
    options = Options(keep_float=("block.conv1", "pool1"), calibration=CALIBRATION)
    made = compile_model(MODEL, load_hw("opu-tiny"), options)
    reasons = {made.dfg[op.node].name: op.reason for op in made.partition.host}
    assert "as asked" in reasons["block.conv1"]
    assert "as asked" in reasons["pool1"], "although its values are rounded"
    weights = {t.name: t for t in some(made.prepared.qdq).graph.initializer}
    conv = next(n for n in some(made.prepared.qdq).graph.node if n.name == "block.conv1")
    assert weights[conv.input[1]].data_type == onnx.TensorProto.FLOAT
    image = {"image": np.load(CALIBRATION)["image"][:1]}
    result = opu_fuse.Program(bundle=made.bundle, hw=load_hw("opu-tiny")).run(image)
    wanted = reference(some(made.prepared.qdq), image)["logits"]
    np.testing.assert_allclose(result.outputs["logits"].reshape(wanted.shape), wanted, atol=0)


def test_an_operator_is_kept_by_the_name_in_the_file():
    """The batch norm of the file lies in the convolution."""
    folded = next(n for n in onnx.load(MODEL).graph.node if n.op_type == "BatchNormalization")
    made = prepare(MODEL, keep_float=[folded.name], calibration=CALIBRATION)
    assert [n.name for n in made.canonical.graph if "opu_fuse.float" in n.metadata_props] == [
        "conv1"
    ]


LABELS = np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"labels": LABELS}, ("labels", "expected 4 integers", "float32")),
        ({"labels": np.zeros(3, np.int64)}, ("expected 4 integers", "shape 3")),
        ({"data": {"image": np.zeros((2, 1, 9, 9), np.float32)}}, ("'image'", "9x9")),
        ({"data": "nothing"}, ("nothing", "no such file or folder")),
        ({"keep_float": ("blok.conv1",)}, ("'blok.conv1'", "'block.conv1'")),
        ({"model": prepare(MODEL).qdq}, ("quantised already",)),
    ],
)
def test_what_does_not_fit_is_one_line(options, words):
    given = {"data": {"image": np.zeros((4, 1, 8, 8), np.float32)}} | options
    with pytest.raises(UserError) as caught:
        opu_fuse.accuracy(given.pop("model", MODEL), load_hw("opu-tiny"), **given)
    line = str(caught.value)
    assert all(word in line for word in words), line
    assert "\n" not in line


def test_free_scales_need_a_machine_that_multiplies():
    with pytest.raises(UserError, match="multipliers"):
        opu_fuse.accuracy(MODEL, load_hw("opu-classic"), scales="free")


def test_a_quantised_model_keeps_what_it_says():
    with pytest.raises(UserError, match="quantised already"):
        prepare(some(prepare(MODEL, calibration=CALIBRATION).qdq), keep_float=["conv1"])


def called(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["opu-fuse", "accuracy", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code, capsys.readouterr()


def test_the_command_prints_a_table_or_json(monkeypatch, capsys, tmp_path, held_out):
    np.save(tmp_path / "x.npy", held_out[0])
    np.save(tmp_path / "labels.npy", held_out[1])
    command = [MODEL, "--hw", "opu-tiny", "--calibration", CALIBRATION]
    command += ["--data", tmp_path / "x.npy", "--labels", tmp_path / "labels.npy"]
    code, printed = called(monkeypatch, capsys, *command, "--no-remedies")
    assert code in (0, None), printed.err
    assert re.search(r"block\.conv2 +│ conv +│ machine +│ +\d+\.\d", printed.out), printed.out
    assert "right 100.00 % (float 100.00 %)" in printed.out
    assert "largest loss in one layer: block.conv1" in printed.out
    code, printed = called(monkeypatch, capsys, *command, "--json", "--keep-float", "conv1")
    tree = json.loads(printed.out)
    assert code in (0, None)
    assert printed.err == ""
    assert {t["name"]: t["place"] for t in tree["tensors"]}["relu1"] == "host"
    assert tree["remedies"]
    assert None in [t["own"] for t in tree["tensors"]]
    assert "image" not in [t["name"] for t in tree["tensors"]], "only conv1 reads it"


def test_without_data_noise_is_told_of_once(caplog):
    opu_fuse.accuracy(build("tiny_residual"), load_hw("opu-tiny"), remedies=False)
    assert sum("no calibration data" in r.message for r in caplog.records) == 1


def test_an_output_that_is_no_number_is_refused():
    text = """<ir_version: 10, opset_import: ["" : 17]>
    g (float[1,3,6,6] x) => (float[1,3,6,6] y, float[1,3,6,6] root)
    { y = Relu(x)  [s] root = Sqrt(x) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    words = "output 'root': the float model computes NaN or infinity for it; measure on inputs"
    with pytest.raises(UserError, match=words):
        opu_fuse.accuracy(model, load_hw("opu-tiny"), remedies=False, keep_float=("s",))


def test_the_bar_never_goes_back():
    told = []
    opu_fuse.accuracy(
        MODEL,
        load_hw("opu-tiny"),
        calibration=CALIBRATION,
        progress=lambda what, share: told.append((what, share)),
    )
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert 0.0 <= shares[0] < shares[-1] < 1.0
    assert {"sample 100 of 100", "try --scales free"} <= {what for what, _ in told}


@pytest.mark.parametrize(("scales", "largest"), [("pow2", 127 / 64), ("free", 1.0)])
def test_clipped_are_values_that_the_integers_do_not_hold(scales, largest):
    """Zeros behind a Relu are exact, although int8 may have them at its lower end."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1,1,4,4] x) => (float[1,1,4,4] y) { y = Relu(x) }""")
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 1, 4, 4)
    options = {"calibration": {"x": x}, "scales": scales, "remedies": False}
    hw = load_hw("opu-tiny")

    def clipped(data):
        found = opu_fuse.accuracy(ir.from_proto(model), hw, data={"x": data}, **options)
        return {t.name: t.clipped for t in found.tensors}["y"]

    assert clipped(x) == 0.0
    assert clipped(3 * x) == np.mean(3 * x > largest + 0.01)
