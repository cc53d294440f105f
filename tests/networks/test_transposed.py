"""Transposed convolutions on the machine: phase by phase, the golden model's integers."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from opu_fuse.dfg.interpret import interpret
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.engine import run

FORMS = {
    "doubling": {"kernel_shape": (2, 2), "strides": (2, 2)},
    "3x3_with_output_padding": {
        "kernel_shape": (3, 3),
        "strides": (2, 2),
        "pads": (1, 1, 1, 1),
        "output_padding": (1, 1),
    },
    "4x4": {"kernel_shape": (4, 4), "strides": (2, 2), "pads": (1, 1, 1, 1)},
    "uneven": {
        "kernel_shape": (5, 4),
        "strides": (3, 2),
        "pads": (1, 0, 2, 1),
        "output_padding": (2, 1),
    },
    "phases_without_a_tap": {
        "kernel_shape": (1, 1),
        "strides": (2, 2),
        "output_padding": (1, 1),
    },
    "stride_1": {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)},
    "depthwise": {"kernel_shape": (4, 4), "strides": (2, 2), "pads": (1, 1, 1, 1), "group": 11},
}


def network(rng, form):
    """Conv, ConvTranspose, Relu with 11 channels in between, 13 or (depthwise) 11 behind."""
    per_group = 1 if "group" in form else 13
    weights = {
        "w0": rng.normal(size=(11, 3, 3, 3)),
        "w1": rng.normal(size=(11, per_group, *form["kernel_shape"])),
        "b1": rng.normal(size=per_group * form.get("group", 1)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], kernel_shape=(3, 3), pads=(1, 1, 1, 1)),
        helper.make_node("ConvTranspose", ["c", "w1", "b1"], ["t"], **form),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "transposed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 9, 7))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return ir.from_proto(onnx.shape_inference.infer_shapes(model))


@pytest.mark.parametrize("machine", ["opu-tiny", "opu-light"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore:no calibration data")
def test_every_phase_is_the_golden_models(form, machine, rng):
    hw = load_hw(machine)
    compiled = compile_model(network(rng, FORMS[form]), hw)
    assert not compiled.partition.host
    x = {"x": rng.normal(size=(1, 3, 9, 7)).astype(np.float32)}
    found = run(compiled.bundle, hw, x, capture=True).tensors
    golden = interpret(compiled.dfg, x, hw.numeric)
    output = compiled.dfg.outputs[0]
    expected = golden[output]
    assert len(np.unique(expected)) >= 32
    assert np.array_equal(found[compiled.dfg[output].value], expected)


def test_a_phase_multiplies_no_inserted_zero(rng):
    """Of the 16 kernel positions each phase of a 4x4 kernel with stride 2 uses four."""
    compiled = compile_model(network(rng, FORMS["4x4"]), load_hw("opu-tiny"))
    group = compiled.bundle.groups[1]
    assert group.macs == 11 * 13 * 16 * 9 * 7
