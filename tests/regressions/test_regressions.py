"""Small models that were once computed wrongly, or not at all; most were found by fuzzing.

Right means: ONNX Runtime's own outputs, and every int8 tensor that the engine shows. The reference
reads nothing of ours but the quantised model.
"""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import opu_fuse
from opu_fuse.bundle.program import HostSegment
from opu_fuse.sim.compare import check
from opu_fuse.sim.ports import noise

FOLDER = Path(__file__).parent
LAYOUT = ("opu-1024", "opu-micro", "opu-light", "opu-classic")
RIGHT = {
    # the same map twice in a concatenation: its lanes had the weights of the last place
    **dict.fromkeys(("gd1", "h100_min", "h101_min", "h111_min", "n48_min"), LAYOUT),
    # concatenations that share operands: the later one was read at the place of the first
    **dict.fromkeys(("cd1", "cc2", "cd4", "classic_concat_wrong"), LAYOUT),
    # a constant was taken for a map in memory, a stage for two
    "classic_weight": ("opu-classic",),
    "lone_add": LAYOUT,
    "lone_mul2": LAYOUT,
    "relu_relu": LAYOUT,
    **dict.fromkeys(("rse_sigmoid", "rse_hardsigmoid", "se_residual"), ("opu-light", "opu-1024")),
    # a joined concatenation was looked at before its last part was there
    "n302_min": ("opu-1024", "opu-light"),
    "concat_prelu2": ("opu-1024", "opu-classic"),
}


def reference(qdq, inputs):
    """Every int8 tensor and every output, by name."""
    model = onnx.load_from_string(qdq)
    outputs = {o.name for o in model.graph.output}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.output[0] not in outputs:
            model.graph.output.append(onnx.helper.make_empty_tensor_value_info(node.output[0]))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


@pytest.mark.parametrize(
    ("model", "machine"), [(m, machine) for m, machines in RIGHT.items() for machine in machines]
)
def test_what_was_wrong_once_is_right_in_every_tensor(model, machine):
    hw = opu_fuse.load_hw(machine)
    program = opu_fuse.compile(FOLDER / f"{model}.onnx", hw)
    inputs = noise(program.bundle)
    result = program.run(inputs, capture=True)
    expected = reference(program.bundle.qdq, inputs)
    for name, array in result.outputs.items():
        assert np.array_equal(array, expected[name].reshape(array.shape)), name
    shown = {t.name: t.qdq_name for t in program.bundle.tensors}
    shown |= {s.name: s.qdq_name for g in program.bundle.groups for s in g.stages}
    hosts = (s for s in program.bundle.segments if isinstance(s, HostSegment))
    shown |= {value: name for s in hosts for value, name in s.rounded}
    compared = [name for name in result.tensors if shown.get(name)]
    assert compared
    for name in compared:
        made = result.masks.get(name, np.array(True))
        got = result.tensors[name]
        wrong = made & (got != expected[shown[name]].reshape(got.shape))
        assert not wrong.any(), f"{name}: {np.count_nonzero(wrong)} of {wrong.size}"
    assert check(program.bundle, inputs, result).passed
