"""Constructs of other people's models, rebuilt from public bug reports; a file is named after its
construct.

Right means: what ONNX Runtime computes on the user's own file, with no optimisation, within the
noise that int8 costs; every quantised tensor as `--check` promises; and only these operators on the
host.
"""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from msgspec import Struct

import opu_fuse
from opu_fuse.errors import UserError
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.ports import noise

FOLDER = Path(__file__).parent / "found"
MACHINES = ("opu-light", "opu-1024t")


class Runs(Struct, frozen=True, kw_only=True):
    """host: operators that remain there, by their ONNX operator; machines: the ones to try;
    decibels: least signal-to-noise ratio of an output against the user's file, with seeded normal
    data for calibration and input.
    """

    host: tuple[str, ...] = ()
    machines: tuple[str, ...] = MACHINES
    decibels: float = 26.0


class Refused(Struct, frozen=True, kw_only=True):
    """says: parts of the one-line message."""

    says: tuple[str, ...]


FOUND: dict[str, Runs | Refused] = {
    "batch_4": Refused(says=("input 'x' has batch 4", "batch=4")),
    "contrib_op_hides_shape_of_conv": Runs(),
    "convtranspose_dilation_2": Runs(),
    "convtranspose_two_groups": Runs(decibels=22.0),  # its largest result is not in the noise seen
    "depthwise_kernel31_on_14x14": Runs(machines=("opu-light", "opu-tiny")),
    "einsum_as_1x1_conv": Runs(),
    "fusedconv_saved_by_ort": Runs(),
    "gap_256x3_window_over_255": Runs(machines=(*MACHINES, "opu-tiny", "opu-micro")),
    "glu_split_sigmoid_mul": Runs(),
    "gmax_40x40": Runs(machines=(*MACHINES, "opu-tiny", "opu-classic")),
    "gmax_56x56": Runs(machines=(*MACHINES, "opu-tiny", "opu-classic")),
    "heads_whose_products_have_more_tiles": Runs(machines=("opu-1024a",)),
    "input_is_also_output": Runs(),
    "loop_constant_trip_count": Runs(),
    "mean_over_channels": Runs(),
    "preprocess_uint8_channels_last": Runs(),
    "qdq_concat_operands_of_different_scales": Runs(),
    "qdq_maxpool_changes_scale": Runs(),
    "qdq_resize_nearest_changes_scale": Runs(),
    "qdq_weights_int8_zero_point_7": Runs(),
    "qonnx_quant_nodes": Runs(),
    "reducemean_noop_empty_axes": Runs(),
    "resize_linear_half_pixel_down_by_2": Runs(),
    "saved_by_ort_level_extended": Runs(),
    "sparse_initializer": Runs(),
    "split_to_sequence_equal_parts": Runs(),
    "split_to_sequence_opset17": Runs(),
    "sub_of_two_maps": Runs(),
    "tcn_chomp_slice_at_end": Runs(),
}


def test_every_file_has_an_expected_result():
    assert sorted(FOUND) == sorted(path.stem for path in FOLDER.glob("*.onnx"))


@pytest.mark.parametrize(
    ("name", "machine"),
    [(n, m) for n, want in FOUND.items() if isinstance(want, Runs) for m in want.machines],
)
@pytest.mark.filterwarnings("ignore")
def test_it_runs_with_the_users_numbers(name, machine):
    want = FOUND[name]
    assert isinstance(want, Runs)
    path, hw = FOLDER / f"{name}.onnx", opu_fuse.load_hw(machine)
    done = compile_model(str(path), hw)
    host = (done.dfg[op.node] for op in done.partition.host)
    assert sorted(n.op.removeprefix("host:") for n in host) == sorted(want.host)
    program = opu_fuse.Program(bundle=done.bundle, hw=hw)
    inputs = noise(program.bundle)
    result = program.run(inputs, capture=True)
    if done.bundle.groups:
        assert check(program.bundle, inputs, result).passed
    for output, right in of_the_users_file(path, inputs).items():
        assert decibels(right, result.outputs[output]) >= want.decibels, output


@pytest.mark.parametrize("name", [n for n, want in FOUND.items() if isinstance(want, Refused)])
def test_it_is_refused_with_the_way_out(name):
    want = FOUND[name]
    assert isinstance(want, Refused)
    with pytest.raises(UserError) as error:
        opu_fuse.compile(str(FOLDER / f"{name}.onnx"), "opu-light")
    for part in want.says:
        assert part in str(error.value)


def of_the_users_file(path: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    model = onnx.load(path)
    if path.stem == "qonnx_quant_nodes":  # ONNX Runtime has no Quant
        model = converted_to_qcdq(model)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    data = model.SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in model.graph.output]
    return dict(zip(names, map(np.asarray, session.run(names, inputs)), strict=True))


def converted_to_qcdq(model: onnx.ModelProto) -> onnx.ModelProto:
    """The network of `qonnx_quant_nodes` with QuantizeLinear and DequantizeLinear, by hand."""
    (weight,) = (t for t in model.graph.initializer if t.name == "c1")
    constants = {
        "w": onnx.numpy_helper.to_array(weight),
        "ws": np.float32(0.01),
        "xs": np.float32(0.03),
        "ys": np.float32(0.02),
        "i": np.int8(0),
        "u": np.uint8(0),
    }
    converted = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[1,3,12,12] x) => (float[1,8,12,12] y) {
        wi = QuantizeLinear(w, ws, i)  wr = DequantizeLinear(wi, ws, i)
        xi = QuantizeLinear(x, xs, i)  xr = DequantizeLinear(xi, xs, i)
        c = Conv<pads=[1,1,1,1]>(xr, wr)  r = Relu(c)
        yi = QuantizeLinear(r, ys, u)  y = DequantizeLinear(yi, ys, u) }""")
    tensors = (onnx.numpy_helper.from_array(data, name) for name, data in constants.items())
    converted.graph.initializer.extend(tensors)
    return converted


def decibels(right: np.ndarray, got: np.ndarray) -> float:
    """Signal to noise; infinite where nothing differs."""
    right, noise = right.astype(np.float64), got.astype(np.float64) - right.astype(np.float64)
    power = np.sum(noise**2)
    return float(10 * np.log10(np.sum(right**2) / power)) if power else np.inf
