"""Networks with attention, built in code with seeded weights.

`NETWORKS` has one builder per network. Each takes sizes, so that tests can build small ones
(`SMALL`), and the spellings of `attention_builder.Builder`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto

from benchmarks.attention_builder import Builder, Value
from opu_fuse import zoo
from opu_fuse.zoo.yolo11 import yolo11n


def vit(
    size: int = 224, patch: int = 16, c: int = 192, heads: int = 3, depth: int = 12, **how: Any
) -> onnx.ModelProto:
    """ViT-tiny: class token, positions, head of the class token."""
    b = Builder(**how)
    x = _encoded(b, size, patch, c, heads, depth, tokens=1)
    x = b.op("Gather", x, b.const(0, np.int64), shape=(1, c), axis=1)
    return b.model(_head(b, x))


def _encoded(
    b: Builder, size: int, patch: int, c: int, heads: int, depth: int, *, tokens: int
) -> Value:
    """Encoder of image patches after some tokens of its own; all get positions."""
    x = b.conv(b.input(1, 3, size, size), c, patch, patch)
    n = math.prod(b.shapes[x][2:])
    x = b.transpose(b.reshape(x, 1, c, n), 0, 2, 1)
    x = b.concat(1, *(b.normal(1, 1, c) for _ in range(tokens)), x)
    x = b.op("Add", x, b.normal(1, n + tokens, c, std=0.5))
    for _ in range(depth):
        x = b.encoder_layer(x, heads)
    return b.layer_norm(x)


def deit(
    size: int = 224, patch: int = 16, c: int = 384, heads: int = 6, depth: int = 12, **how: Any
) -> onnx.ModelProto:
    """DeiT-small: a second token for distillation, with a head of its own; the heads' mean."""
    b = Builder(**how)
    x = _encoded(b, size, patch, c, heads, depth, tokens=2)
    first, second = (
        _head(b, b.op("Squeeze", b.slice(x, 1, i, i + 1), b.const([1], np.int64), shape=(1, c)))
        for i in range(2)
    )
    return b.model(b.op("Div", b.op("Add", first, second), b.const(2.0)))


def _windows(b: Builder, x: Value, w: int) -> Value:
    n, rows, cols, c = b.shapes[x]
    x = b.transpose(b.reshape(x, n, rows // w, w, cols // w, w, c), 0, 1, 3, 2, 4, 5)
    return b.reshape(x, rows // w * (cols // w), w * w, c)


def _whole(b: Builder, x: Value, w: int, rows: int, cols: int) -> Value:
    c = b.shapes[x][-1]
    x = b.transpose(b.reshape(x, 1, rows // w, cols // w, w, w, c), 0, 1, 3, 2, 4, 5)
    return b.reshape(x, 1, rows, cols, c)


def rolled(b: Builder, x: Value, shift: int) -> Value:
    """A map (1, h, w, c) rolled back along rows and columns: each is two parts, exchanged."""
    for axis in (1, 2):
        size = b.shapes[x][axis]
        first = shift % size
        x = b.concat(axis, b.slice(x, axis, first, size), b.slice(x, axis, 0, first))
    return x


def swin(
    size: int = 224,
    c: int = 96,
    window: int = 7,
    depths: Sequence[int] = (2, 2, 6, 2),
    heads: Sequence[int] = (3, 6, 12, 24),
    **how: Any,
) -> onnx.ModelProto:
    """Swin-T: windows of tokens are a batch; every second layer has shifted windows and a mask."""
    b = Builder(**how)
    x = b.transpose(b.conv(b.input(1, 3, size, size), c, 4, 4), 0, 2, 3, 1)
    x = b.layer_norm(x)
    for stage, (depth, h) in enumerate(zip(depths, heads, strict=True)):
        if stage:
            x = b.concat(
                3,
                *(
                    b.slice(b.slice(x, 1, i, 1 << 30, 2), 2, j, 1 << 30, 2)
                    for j in (0, 1)
                    for i in (0, 1)
                ),
            )
            x = b.linear(b.layer_norm(x), b.shapes[x][-1] // 2, bias=False)
        _, rows, cols, c = b.shapes[x]
        for layer in range(depth):
            shift = window // 2 if layer % 2 and rows > window else 0
            y = b.layer_norm(x)
            y = _windows(b, rolled(b, y, shift) if shift else y, window)
            y = _whole(b, b.attention(y, h, bias=True, scale="q"), window, rows, cols)
            x = b.op("Add", x, rolled(b, y, -shift) if shift else y)
            x = b.op("Add", x, b.mlp(b.layer_norm(x)))
    x = b.layer_norm(x)
    x = b.op("ReduceMean", x, shape=(1, b.shapes[x][-1]), axes=[1, 2], keepdims=0)
    return b.model(_head(b, x))


def _head(b: Builder, x: Value, classes: int = 1000) -> Value:
    c = b.shapes[x][-1]
    inputs = (x, b.normal(classes, c, std=c**-0.5), b.normal(classes, std=0.1))
    return b.op("Gemm", *inputs, shape=(1, classes), transB=1)


def convnext(
    size: int = 224,
    dims: Sequence[int] = (96, 192, 384, 768),
    depths: Sequence[int] = (3, 3, 9, 3),
    **how: Any,
) -> onnx.ModelProto:
    """ConvNeXt-T: LayerNorm over channels, channels last inside a block."""
    b = Builder(**how)
    x = b.input(1, 3, size, size)
    for stage, (c, depth) in enumerate(zip(dims, depths, strict=True)):
        if stage:
            x = b.conv(_norm_channels(b, x), c, 2, 2)
        else:
            x = _norm_channels(b, b.conv(x, c, 4, 4))
        for _ in range(depth):
            y = b.conv(x, c, 7, 1, 3, groups=c)
            y = b.mlp(b.layer_norm(b.transpose(y, 0, 2, 3, 1)))
            y = b.transpose(b.op("Mul", b.normal(c, std=0.2, mean=0.5), y), 0, 3, 1, 2)
            x = b.op("Add", y, x)
    x = b.op("GlobalAveragePool", x, shape=(1, dims[-1], 1, 1))
    x = b.layer_norm(b.reshape(x, 1, dims[-1]))
    return b.model(_head(b, x))


def _norm_channels(b: Builder, x: Value) -> Value:
    return b.transpose(b.layer_norm(b.transpose(x, 0, 2, 3, 1)), 0, 3, 1, 2)


def segformer(
    size: int = 224,
    dims: Sequence[int] = (32, 64, 160, 256),
    heads: Sequence[int] = (1, 2, 5, 8),
    reductions: Sequence[int] = (8, 4, 2, 1),
    depth: int = 2,
    width: int = 256,
    **how: Any,
) -> onnx.ModelProto:
    """SegFormer-B0 with its all-MLP head: keys and values are fewer tokens than queries."""
    b = Builder(**how)
    x, maps = b.input(1, 3, size, size), []
    for stage, (c, h, r) in enumerate(zip(dims, heads, reductions, strict=True)):
        x = b.conv(x, c, 3 if stage else 7, 2 if stage else 4, 1 if stage else 3)
        _, _, rows, cols = b.shapes[x]
        x = b.layer_norm(_tokens(b, x))
        for _ in range(depth):
            y = keys = b.layer_norm(x)
            if r > 1:
                keys = b.layer_norm(_tokens(b, b.conv(_map(b, y, rows, cols), c, r, r)))
            x = b.op("Add", x, b.attention(y, h, keys=keys, scale="scores"))
            y = b.linear(b.layer_norm(x), 4 * c)
            y = _tokens(b, b.conv(_map(b, y, rows, cols), 4 * c, 3, 1, 1, groups=4 * c))
            x = b.op("Add", x, b.linear(b.gelu(y), c))
        x = _map(b, b.layer_norm(x), rows, cols)
        maps.append(x)
    full = b.shapes[maps[0]][2:]
    parts = []
    for m in maps:
        _, _, rows, cols = b.shapes[m]
        y = _map(b, b.linear(_tokens(b, m), width), rows, cols)
        scales = b.const([1, 1, full[0] / rows, full[1] / cols])
        how_to = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
        parts.append(
            y
            if (rows, cols) == full
            else b.op("Resize", y, "", scales, shape=(1, width, *full), **how_to)
        )
    x = b.op("Relu", b.conv(b.concat(1, *parts), width, 1))
    return b.model(b.conv(x, 19, 1))


def _tokens(b: Builder, x: Value) -> Value:
    _, c, rows, cols = b.shapes[x]
    return b.transpose(b.reshape(x, 1, c, rows * cols), 0, 2, 1)


def _map(b: Builder, x: Value, rows: int, cols: int) -> Value:
    return b.reshape(b.transpose(x, 0, 2, 1), 1, b.shapes[x][-1], rows, cols)


def mobilevit(
    size: int = 256,
    dims: Sequence[int] = (144, 192, 240),
    depths: Sequence[int] = (2, 4, 3),
    channels: Sequence[int] = (32, 64, 96, 128, 160),
    **how: Any,
) -> onnx.ModelProto:
    """MobileViT-S: the patches' positions are a batch of token sequences."""
    b = Builder(**how)
    x = b.silu(b.conv(b.input(1, 3, size, size), 16, 3, 2, 1))
    x = _inverted(b, x, channels[0], 1)
    x = _inverted(b, x, channels[1], 2)
    for _ in range(2):
        x = _inverted(b, x, channels[1], 1)
    for d, depth, c in zip(dims, depths, channels[2:], strict=True):
        x = _inverted(b, x, c, 2)
        _, _, rows, cols = b.shapes[x]
        y = b.conv(b.silu(b.conv(x, c, 3, 1, 1)), d, 1)
        y = b.transpose(b.reshape(y, d * rows // 2, 2, cols // 2, 2), 0, 2, 1, 3)
        y = b.reshape(b.transpose(b.reshape(y, 1, d, -1, 4), 0, 3, 2, 1), 4, -1, d)
        for _ in range(depth):
            y = b.op("Add", y, b.attention(b.layer_norm(y), 4))
            z = b.linear(b.silu(b.linear(b.layer_norm(y), 2 * d)), d)
            y = b.op("Add", y, z)
        y = b.layer_norm(y)
        y = b.transpose(b.reshape(y, 1, 4, -1, d), 0, 3, 2, 1)
        y = b.transpose(b.reshape(y, d * rows // 2, cols // 2, 2, 2), 0, 2, 1, 3)
        y = b.silu(b.conv(b.reshape(y, 1, d, rows, cols), c, 1))
        x = b.silu(b.conv(b.concat(1, x, y), c, 3, 1, 1))
    x = b.silu(b.conv(x, 4 * channels[-1], 1))
    x = b.op("GlobalAveragePool", x, shape=(1, 4 * channels[-1], 1, 1))
    return b.model(_head(b, b.reshape(x, 1, 4 * channels[-1])))


def _inverted(b: Builder, x: Value, out: int, stride: int) -> Value:
    c = b.shapes[x][1]
    y = b.silu(b.conv(x, 4 * c, 1))
    y = b.silu(b.conv(y, 4 * c, 3, stride, 1, groups=4 * c))
    y = b.conv(y, out, 1)
    return b.op("Add", x, y) if b.shapes[x] == b.shapes[y] else y


def bert(
    n: int = 128, c: int = 128, heads: int = 2, depth: int = 2, vocabulary: int = 30522, **how: Any
) -> onnx.ModelProto:
    """BERT-tiny: norms after the residual sums, word and position embeddings."""
    b = Builder(**how)
    words = b.input(1, n, dtype=TensorProto.INT64)
    x = b.op("Gather", b.normal(vocabulary, c), words, shape=(1, n, c), axis=0)
    x = b.layer_norm(b.op("Add", x, b.normal(1, n, c, std=0.5)), epsilon=1e-12)
    for _ in range(depth):
        y = b.attention(x, heads, keys=x, scale="scores")
        x = b.layer_norm(b.op("Add", y, x), epsilon=1e-12)
        x = b.layer_norm(b.op("Add", b.mlp(x), x), epsilon=1e-12)
    return b.model(x)


def whisper(
    mels: int = 80, frames: int = 3000, c: int = 384, heads: int = 6, depth: int = 4, **how: Any
) -> onnx.ModelProto:
    """Whisper-tiny's encoder: two convolutions of lines, then tokens of every second frame."""
    b = Builder(**how)
    x = b.gelu(b.conv1d(b.input(1, mels, frames), c, 3, 1, 1))
    x = b.transpose(b.gelu(b.conv1d(x, c, 3, 2, 1)), 0, 2, 1)
    x = b.op("Add", x, b.normal(*b.shapes[x][1:], std=0.5))
    for _ in range(depth):
        y = b.layer_norm(x)
        x = b.op("Add", x, b.attention(y, heads, keys=y))
        x = b.op("Add", x, b.mlp(b.layer_norm(x)))
    return b.model(b.layer_norm(x))


NETWORKS: Mapping[str, Callable[..., onnx.ModelProto]] = {
    "vit_tiny": vit,
    "deit_small": deit,
    "swin_tiny": swin,
    "mobilevit_s": mobilevit,
    "convnext_tiny": convnext,
    "segformer_b0": segformer,
    "bert_tiny": bert,
    "whisper_tiny": whisper,
    "yolo11n": lambda **_: ir.to_proto(zoo.build("yolo11n")),
}
SMALL: Mapping[str, Callable[..., onnx.ModelProto]] = {
    "vit_tiny": lambda **how: vit(12, 4, 16, 2, 1, **how),
    "deit_small": lambda **how: deit(12, 4, 12, 2, 2, **how),
    "swin_tiny": lambda **how: swin(24, 12, 3, (2, 1), (2, 4), **how),
    "mobilevit_s": lambda **how: mobilevit(64, (16, 24, 32), (1, 1, 1), (4, 8, 12, 16, 20), **how),
    "convnext_tiny": lambda **how: convnext(16, (12, 20), (1, 1), **how),
    "segformer_b0": lambda **how: segformer(32, (8, 16), (1, 2), (2, 1), 1, 12, **how),
    "bert_tiny": lambda **how: bert(7, 16, 2, 1, 256, **how),
    "whisper_tiny": lambda **how: whisper(5, 26, 16, 2, 1, **how),
    "yolo11n": lambda **_: ir.to_proto(yolo11n(seed=0, image=(32, 32), width=4, classes=5)),
}
"""The same networks of a few blocks and channels, for tests."""
