"""Trains the small CNN whose ONNX file is in examples/digits, in plain numpy, in under a minute.

    python examples/train_digits.py [--output examples/digits] [--epochs 40]

Data: scikit-learn's 1 797 handwritten digits, 8x8 pixels, scaled to 0..1; 1 437 are trained on
(shifted by up to one pixel), 360 are held out. Written: digits.onnx, heldout.npz (images float32
[360, 1, 8, 8], labels int64 [360]) and calibration.npz (100 training images under the input's name,
"image").

The network: 3x3 convolutions 1 -> 8 -> 16, max pooling, a residual block of two 3x3 convolutions,
max pooling, one dense layer; batch norm after every convolution, exported as it was trained.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

SEED = 7
HELD_OUT = 360
CALIBRATION = 100
BATCH = 32
LEARNING_RATE = 4e-3
WEIGHT_DECAY = 1e-3
BN_MOMENTUM = 0.9
EPSILON = 1e-5

Arrays = dict[str, np.ndarray]
"""Feature maps are [image, row, column, channel] here; the export transposes to ONNX's order."""


class Conv:
    """3x3 convolution, stride 1, padding 1, no bias. Weight: [ky, kx, ic, oc] flattened to two
    axes."""

    def __init__(self, rng: np.random.Generator, ic: int, oc: int) -> None:
        scale = np.sqrt(2.0 / (9 * ic))
        self.weights: Arrays = {"weight": rng.normal(0.0, scale, (9 * ic, oc)).astype(np.float32)}
        self.gradients: Arrays = {}

    def forward(self, x: np.ndarray, *, training: bool) -> np.ndarray:
        n, h, w, c = x.shape
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        taps = [padded[:, ky : ky + h, kx : kx + w] for ky in range(3) for kx in range(3)]
        columns = np.concatenate(taps, axis=3).reshape(n * h * w, 9 * c)
        if training:
            self._columns, self._shape = columns, x.shape
        return (columns @ self.weights["weight"]).reshape(n, h, w, -1)

    def backward(self, dy: np.ndarray) -> np.ndarray:
        n, h, w, c = self._shape
        rows = dy.reshape(n * h * w, -1)
        self.gradients = {"weight": self._columns.T @ rows}
        spread = (rows @ self.weights["weight"].T).reshape(n, h, w, 9, c)
        dx = np.zeros((n, h + 2, w + 2, c), np.float32)
        for tap in range(9):
            ky, kx = divmod(tap, 3)
            dx[:, ky : ky + h, kx : kx + w] += spread[:, :, :, tap]
        return dx[:, 1:-1, 1:-1]


class BatchNorm:
    """Per channel; running statistics for inference."""

    def __init__(self, channels: int) -> None:
        self.weights: Arrays = {
            "gamma": np.ones(channels, np.float32),
            "beta": np.zeros(channels, np.float32),
        }
        self.statistics: Arrays = {
            "mean": np.zeros(channels, np.float32),
            "var": np.ones(channels, np.float32),
        }
        self.gradients: Arrays = {}

    def forward(self, x: np.ndarray, *, training: bool) -> np.ndarray:
        mean, var = self.statistics["mean"], self.statistics["var"]
        if training:
            mean, var = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
            for name, batch in (("mean", mean), ("var", var)):
                old = self.statistics[name]
                self.statistics[name] = BN_MOMENTUM * old + (1.0 - BN_MOMENTUM) * batch
        self._inverse = 1.0 / np.sqrt(var + np.float32(EPSILON))
        self._normal = (x - mean) * self._inverse
        return self._normal * self.weights["gamma"] + self.weights["beta"]

    def backward(self, dy: np.ndarray) -> np.ndarray:
        count = np.float32(dy.size // dy.shape[3])
        dgamma = (dy * self._normal).sum(axis=(0, 1, 2))
        dbeta = dy.sum(axis=(0, 1, 2))
        self.gradients = {"gamma": dgamma, "beta": dbeta}
        centred = dy - (dbeta + self._normal * dgamma) / count
        return centred * (self._inverse * self.weights["gamma"])


class Relu:
    """max(x, 0)."""

    def __init__(self) -> None:
        self.weights: Arrays = {}
        self.gradients: Arrays = {}

    def forward(self, x: np.ndarray, *, training: bool) -> np.ndarray:
        del training
        self._on = x > 0.0
        return x * self._on

    def backward(self, dy: np.ndarray) -> np.ndarray:
        return dy * self._on


class MaxPool:
    """2x2, stride 2."""

    def __init__(self) -> None:
        self.weights: Arrays = {}
        self.gradients: Arrays = {}

    def forward(self, x: np.ndarray, *, training: bool) -> np.ndarray:
        del training
        n, h, w, c = x.shape
        blocks = x.reshape(n, h // 2, 2, w // 2, 2, c)
        y = blocks.max(axis=(2, 4))
        first = (blocks == y[:, :, None, :, None]).astype(np.float32)
        self._share = first / first.sum(axis=(2, 4), keepdims=True)  # ties share the gradient
        return y

    def backward(self, dy: np.ndarray) -> np.ndarray:
        n, h, w, c = dy.shape
        return (self._share * dy[:, :, None, :, None]).reshape(n, 2 * h, 2 * w, c)


class Dense:
    """Flattens, then multiplies."""

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int) -> None:
        scale = np.sqrt(1.0 / inputs)
        self.weights: Arrays = {
            "weight": rng.normal(0.0, scale, (outputs, inputs)).astype(np.float32),
            "bias": np.zeros(outputs, np.float32),
        }
        self.gradients: Arrays = {}

    def forward(self, x: np.ndarray, *, training: bool) -> np.ndarray:
        del training
        self._shape, self._rows = x.shape, x.reshape(len(x), -1)
        return self._rows @ self.weights["weight"].T + self.weights["bias"]

    def backward(self, dy: np.ndarray) -> np.ndarray:
        self.gradients = {"weight": dy.T @ self._rows, "bias": dy.sum(axis=0)}
        return (dy @ self.weights["weight"]).reshape(self._shape)


class Chain:
    """Layers one after the other."""

    def __init__(self, **layers: object) -> None:
        self.layers = layers

    def forward(self, x: np.ndarray, *, training: bool) -> np.ndarray:
        for layer in self.layers.values():
            x = layer.forward(x, training=training)  # type: ignore[attr-defined]  # only layers with weights get here
        return x

    def backward(self, dy: np.ndarray) -> np.ndarray:
        for layer in reversed(self.layers.values()):
            dy = layer.backward(dy)  # type: ignore[attr-defined]  # only layers with weights get here
        return dy

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, object]]:
        """(name, layer) of every layer that is not a chain itself."""
        for name, layer in self.layers.items():
            if isinstance(layer, Chain):
                yield from layer.leaves(f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}", layer


class Residual(Chain):
    """x + chain(x)."""

    def forward(self, x: np.ndarray, *, training: bool) -> np.ndarray:
        return x + super().forward(x, training=training)

    def backward(self, dy: np.ndarray) -> np.ndarray:
        return dy + super().backward(dy)


def network(rng: np.random.Generator) -> Chain:
    """The untrained network."""
    return Chain(
        conv1=Conv(rng, 1, 8),
        bn1=BatchNorm(8),
        relu1=Relu(),
        conv2=Conv(rng, 8, 16),
        bn2=BatchNorm(16),
        relu2=Relu(),
        pool1=MaxPool(),
        block=Residual(
            conv1=Conv(rng, 16, 16),
            bn1=BatchNorm(16),
            relu1=Relu(),
            conv2=Conv(rng, 16, 16),
            bn2=BatchNorm(16),
        ),
        relu3=Relu(),
        pool2=MaxPool(),
        fc=Dense(rng, 64, 10),
    )


class Adam:
    """Adam with decoupled weight decay."""

    def __init__(self, net: Chain) -> None:
        self._net = net
        self._step = 0
        self._moments: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = {}

    def step(self, rate: float) -> None:
        self._step += 1
        for name, layer in self._net.leaves():
            for key, gradient in layer.gradients.items():  # type: ignore[attr-defined]  # only layers with weights get here
                weight = layer.weights[key]  # type: ignore[attr-defined]  # only layers with weights get here
                m, v = self._moments.get((name, key), (np.zeros_like(weight),) * 2)
                m = 0.9 * m + 0.1 * gradient
                v = 0.999 * v + 0.001 * np.square(gradient)
                self._moments[name, key] = (m, v)
                m_hat, v_hat = m / (1.0 - 0.9**self._step), v / (1.0 - 0.999**self._step)
                decay = WEIGHT_DECAY if key == "weight" else 0.0
                step = m_hat / (np.sqrt(v_hat) + 1e-8) + decay * weight
                layer.weights[key] = (weight - rate * step).astype(np.float32)  # type: ignore[attr-defined]  # only layers with weights get here


def digits() -> tuple[np.ndarray, np.ndarray]:
    """All images, float32 [1797, 8, 8, 1] in 0..1, and labels; in a fixed shuffled order."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(SEED).permutation(len(data.target))
    images = (data.images[order] / 16.0).astype(np.float32)[..., None]
    return images, data.target[order].astype(np.int64)


def train(images: np.ndarray, labels: np.ndarray, epochs: int) -> Chain:
    """Trains on all images; the learning rate falls along a cosine."""
    rng = np.random.default_rng(SEED)
    net = network(rng)
    optimiser = Adam(net)
    for epoch in range(epochs):
        order = rng.permutation(len(images))
        batches = len(order) // BATCH
        rate = LEARNING_RATE * 0.5 * (1.0 + np.cos(np.pi * epoch / epochs))
        total = 0.0
        for batch in np.array_split(order, batches):
            logits = net.forward(_shifted(rng, images[batch]), training=True)
            probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
            probabilities /= probabilities.sum(axis=1, keepdims=True)
            rows = np.arange(len(batch))
            total -= float(np.log(probabilities[rows, labels[batch]] + 1e-12).mean())
            probabilities[rows, labels[batch]] -= 1.0
            net.backward(probabilities / len(batch))
            optimiser.step(rate)
        if epoch % 5 == 4 or epoch == epochs - 1:
            print(f"epoch {epoch + 1:3d}  loss {total / batches:.4f}")
    return net


def accuracy(net: Chain, images: np.ndarray, labels: np.ndarray) -> float:
    """Share of images that the float network names rightly."""
    return float(np.mean(net.forward(images, training=False).argmax(axis=1) == labels))


def export(net: Chain) -> ir.Model:
    """The trained network as ONNX: input "image" [n, 1, 8, 8], output "logits" [n, 10]."""
    layers = dict(net.leaves())
    nodes: list[ir.Node] = []
    constants: list[ir.Value] = []

    def constant(name: str, data: np.ndarray) -> ir.Value:
        tensor = ir.tensor(np.ascontiguousarray(data, np.float32), name=name)
        value = ir.Value(
            name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=tensor.shape
        )
        constants.append(value)
        return value

    def add(op: str, name: str, *inputs: ir.Value, **attributes: object) -> ir.Value:
        node = ir.node(op, list(inputs), attributes or None, name=name)  # type: ignore[arg-type]  # ints and lists
        node.outputs[0].name = name
        nodes.append(node)
        return node.outputs[0]

    def conv_bn(x: ir.Value, conv: str, bn: str) -> ir.Value:
        rows = layers[conv].weights["weight"]  # type: ignore[attr-defined]  # only layers with weights get here
        weight = constant(
            f"{conv}.weight", rows.reshape(3, 3, -1, rows.shape[1]).transpose(3, 2, 0, 1)
        )
        x = add("Conv", conv, x, weight, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        norm = {**layers[bn].weights, **layers[bn].statistics}  # type: ignore[attr-defined]  # only layers with weights get here
        parts = [constant(f"{bn}.{key}", norm[key]) for key in ("gamma", "beta", "mean", "var")]
        return add("BatchNormalization", bn, x, *parts, epsilon=EPSILON)

    def pool(x: ir.Value, name: str) -> ir.Value:
        return add("MaxPool", name, x, kernel_shape=[2, 2], strides=[2, 2])

    image = ir.val("image", ir.DataType.FLOAT, ["n", 1, 8, 8])
    x = add("Relu", "relu1", conv_bn(image, "conv1", "bn1"))
    x = pool(add("Relu", "relu2", conv_bn(x, "conv2", "bn2")), "pool1")
    y = add("Relu", "block.relu1", conv_bn(x, "block.conv1", "block.bn1"))
    y = add("Add", "block.add", conv_bn(y, "block.conv2", "block.bn2"), x)
    x = add("Flatten", "flatten", pool(add("Relu", "relu3", y), "pool2"))
    fc = layers["fc"].weights  # type: ignore[attr-defined]  # only layers with weights get here
    columns = fc["weight"].reshape(10, 2, 2, 16).transpose(0, 3, 1, 2).reshape(10, 64)
    weight, bias = constant("fc.weight", columns), constant("fc.bias", fc["bias"])
    logits = add("Gemm", "fc", x, weight, bias, transB=1)
    logits.name, logits.dtype, logits.shape = "logits", ir.DataType.FLOAT, ir.Shape(["n", 10])
    graph = ir.Graph(
        [image],
        [logits],
        nodes=nodes,
        initializers=constants,
        opset_imports={"": 17},
        name="digits",
    )
    return ir.Model(graph, ir_version=8, producer_name="opu-fuse examples")


def _shifted(rng: np.random.Generator, images: np.ndarray) -> np.ndarray:
    """Every image moved by -1, 0 or 1 pixel in both directions, filled with zeros."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    dy, dx = rng.integers(0, 3, (2, len(images)))
    moved = [p[y : y + 8, x : x + 8] for p, y, x in zip(padded, dy, dx, strict=True)]
    return np.stack(moved)


def main() -> None:
    """Train, report, write the three files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "digits")
    parser.add_argument("--epochs", type=int, default=40)
    options = parser.parse_args()
    start = time.monotonic()
    images, labels = digits()
    held_out, training = slice(0, HELD_OUT), slice(HELD_OUT, None)
    net = train(images[training], labels[training], options.epochs)
    score = accuracy(net, images[held_out], labels[held_out])
    options.output.mkdir(parents=True, exist_ok=True)
    nchw = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    proto = ir.to_proto(export(net))
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, options.output / "digits.onnx")
    np.savez_compressed(
        options.output / "heldout.npz", images=nchw[held_out], labels=labels[held_out]
    )
    np.savez_compressed(options.output / "calibration.npz", image=nchw[training][:CALIBRATION])
    seconds = time.monotonic() - start
    print(f"accuracy on {HELD_OUT} held-out images: {100.0 * score:.2f} %, {seconds:.0f} s")


if __name__ == "__main__":
    main()
