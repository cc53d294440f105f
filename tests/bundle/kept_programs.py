"""Program files kept beside the tests: every opu-fuse that says it reads their schema version must
run them as they were meant.

`python -m tests.bundle.kept_programs` writes the file of a new schema version, and the tensors of a
run. One that is there stays: it stands for the files that users have.
"""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

import opu_fuse
from opu_fuse import Program
from opu_fuse.bundle.program import OLDEST_SCHEMA, SCHEMA_VERSION
from opu_fuse.zoo.builder import Net

FOLDER = Path(__file__).with_name("kept")
VERSIONS = range(OLDEST_SCHEMA, SCHEMA_VERSION + 1)
PROGRAMS = {version: FOLDER / f"schema-{version}.opu" for version in VERSIONS}
MACHINE = "opu-light"
IMAGES = 2


def kept(version: int) -> tuple[Program, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The program, and the inputs and outputs of its run."""
    program = Program.load(PROGRAMS[version])
    with np.load(PROGRAMS[version].with_suffix(".npz")) as file:
        found = dict(file)
    bundle = program.bundle
    inputs, outputs = (
        {p.name: found[p.name] for p in ps} for ps in (bundle.inputs, bundle.outputs)
    )
    return program, inputs, outputs


def network() -> ir.Model:
    """Bytes, channels last; windows, tables, a gate, a difference, a concatenation; on the host a
    kernel and a model; the image is handed out, too.
    """
    net = Net("kept", seed=0)
    x = net.transpose(net.input("image", (1, 13, 11, 3)), "turned", (0, 3, 1, 2))
    x = net.conv(x, "stem", out=16, kernel=3, pads=1)
    x = net.max_pool(net.relu(x, "relu"), "pool", kernel=2, stride=2)
    y = net.swish(net.conv(x, "depthwise", out=16, kernel=3, pads=1, groups=16), "swish")
    gate = net.global_average_pool(y, "mean")
    gate = net.conv(gate, "excite", out=16, kernel=1, bias=True, centred=False, gain=2.0)
    y = net.multiply(y, net.sigmoid(gate, "sigmoid"), "scale")
    y = net.add(x, net.conv(y, "project", out=16, kernel=1, batch_norm="norm"), "sum")
    y = net.upsample(net.concat([x, net.leaky_relu(y, "leaky", alpha=0.3)], "concat"), "upsample")
    y = net.flatten(
        net.global_average_pool(net.conv(y, "head", out=16, kernel=1), "average"), "flat"
    )
    y = net.dense(y, "dense", out=10, centred=False)
    y = net._unary(y, "Softmax", "softmax", y.moments)
    model = net.finish(net.leaky_relu(net.multiply(y, y, "square"), "output", alpha=0.25))
    next(node for node in model.graph if node.name == "sum").op_type = "Sub"
    return handed_out(of_bytes(model))


def handed_out(model: ir.Model) -> ir.Model:
    """The same network, of which the image is an output, too."""
    given = model.graph.inputs[0]
    copy = ir.node("Identity", [given], name="copy")
    (again,) = copy.outputs
    again.name, again.type, again.shape = "image_again", given.type, given.shape
    model.graph.append(copy)
    model.graph.outputs.append(again)
    return model


def of_bytes(model: ir.Model) -> ir.Model:
    """The same network behind an image of bytes, of which it takes the mean off."""
    proto = ir.to_proto(model)
    graph, (given,) = proto.graph, proto.graph.input
    first, name = graph.node[0], given.name
    given.type.tensor_type.elem_type = onnx.TensorProto.UINT8
    graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(np.float32(64)), "byte_step"))
    graph.initializer.append(
        onnx.numpy_helper.from_array(np.array([1.9, 1.8, 1.6], np.float32), "byte_mean")
    )
    first.input[0] = "centred"
    for node in (
        onnx.helper.make_node("Sub", ["scaled", "byte_mean"], ["centred"], name="centre"),
        onnx.helper.make_node("Div", ["real", "byte_step"], ["scaled"], name="scale_bytes"),
        onnx.helper.make_node("Cast", [name], ["real"], name="cast", to=onnx.TensorProto.FLOAT),
    ):
        graph.node.insert(0, node)
    return ir.from_proto(proto)


def main() -> None:
    path = PROGRAMS[SCHEMA_VERSION]
    assert not path.exists(), f"{path} is kept"
    program = opu_fuse.compile(network(), opu_fuse.load_hw(MACHINE), batch=IMAGES)
    (port,) = program.bundle.inputs
    shape = (IMAGES, *port.shape[1:])
    inputs = {port.name: np.random.default_rng(0).integers(0, 256, shape).astype(port.dtype)}
    FOLDER.mkdir(exist_ok=True)
    program.save(path)
    np.savez(path.with_suffix(".npz"), allow_pickle=False, **inputs, **program.run(inputs).outputs)


if __name__ == "__main__":
    main()
