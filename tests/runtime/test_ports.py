"""libopu packs inputs and unpacks outputs as the engines in Python do, whatever the axes."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from opu_fuse.bundle.file import to_bytes
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim import engine
from opu_fuse.sim.ports import noise
from tests.runtime.libopu import File, Session, Status

HW = load_hw("opu-tiny")
ORDERS = {
    "channels first": (0, 1, 2, 3),
    "channels last": (0, 3, 1, 2),
    "columns first": (0, 1, 3, 2),
}
LONG, SHORT, SINGLE = 300, 7, 1
"""Columns: more than libopu converts at a time, a few, and one."""


def port_model(dtype, order, channels, cols):
    """A 1×1 convolution whose input and output have their axes in another order."""
    inverse = [order.index(axis) for axis in range(4)]
    x, y = ([(1, c, 5, cols)[axis] for axis in inverse] for c in (channels, channels + 1))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    weights = np.random.default_rng(1).normal(0, 0.1, (channels + 1, channels, 1, 1))
    nodes = [
        helper.make_node("Cast", ["x"], ["real"], to=1),
        helper.make_node("Transpose", ["real"], ["image"], perm=order),
        helper.make_node("Conv", ["image", "w"], ["map"]),
        helper.make_node("Transpose", ["map"], ["y"], perm=inverse),
    ]
    graph = helper.make_graph(
        nodes,
        "ports",
        [helper.make_tensor_value_info("x", kind, x)],
        [helper.make_tensor_value_info("y", 1, y)],
        [numpy_helper.from_array(weights.astype(np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize(
    ("dtype", "channels", "cols"),
    [
        ("float32", 3, LONG),
        ("float32", 21, SHORT),
        ("float32", 21, SINGLE),
        ("uint8", 3, LONG),
        ("uint8", 21, SHORT),
    ],
)
def test_ports_in_any_order_of_axes_have_the_bits_of_python(dtype, channels, cols, order):
    model = port_model(dtype, order, channels, cols)
    onnx.checker.check_model(model)
    bundle = compile_model(model, HW).bundle
    inputs = noise(bundle, 4)
    expected = engine.run(bundle, HW, inputs).outputs["y"]
    session = Session(File(to_bytes(bundle, HW)))
    status, got = session.run([inputs["x"]])
    assert status is Status.OK
    assert got["y"].tobytes() == expected.tobytes()
    if dtype == "float32":
        inputs["x"].flat[-1] = np.nan
        assert session.run([inputs["x"]])[0] is Status.NAN
