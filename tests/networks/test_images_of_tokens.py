"""Tokens that become images and back, as in TinyViT and RT-DETR, on a machine with norms."""

import onnx
import pytest

from benchmarks.attention_builder import Builder
from tests.networks.test_attention import on_host, run

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

VIEWS = {"host:Reshape", "reshape"}


def block(channels: int, rows: int, cols: int) -> onnx.ModelProto:
    """TinyViT: an MLP of tokens, whose image (1, h, w, c) a depthwise convolution reads."""
    b = Builder()
    x = b.conv(b.input(1, 3, rows, cols), channels, 3, 1, 1)
    for _ in range(2):
        y = b.transpose(b.reshape(x, 1, channels, rows * cols), 0, 2, 1)
        y = b.op("Add", y, b.mlp(b.layer_norm(y), 2))
        y = b.reshape(y, 1, rows, cols, channels)
        x = b.conv(b.transpose(y, 0, 3, 1, 2), channels, 3, 1, 1, groups=channels)
    return b.model(x)


def positions(channels: int, rows: int, cols: int) -> onnx.ModelProto:
    """RT-DETR: positions are added to an image's pixels in a row."""
    b = Builder()
    x = b.conv(b.input(1, 3, rows, cols), channels, 3, 1, 1)
    y = b.transpose(b.reshape(x, 1, channels, rows * cols), 0, 2, 1)
    z = b.linear(b.op("Add", y, b.normal(1, rows * cols, channels)), channels)
    y = b.transpose(b.op("Add", y, z), 0, 2, 1)
    return b.model(b.conv(b.reshape(y, 1, channels, rows, cols), 5, 1))


def head(channels: int, rows: int, cols: int) -> onnx.ModelProto:
    """TinyViT: a norm of the mean of all pixels."""
    b = Builder(gemm=True)
    x = b.conv(b.input(1, 3, rows, cols), channels, 3, 1, 1)
    x = b.op("GlobalAveragePool", x, shape=(1, channels, 1, 1))
    x = b.layer_norm(b.transpose(x, 0, 2, 3, 1))
    return b.model(b.linear(b.reshape(x, 1, channels), 7))


@pytest.mark.parametrize("size", [(12, 3, 5), (7, 4, 4), (70, 5, 1)], ids=str)
@pytest.mark.parametrize("network", [block, positions, head])
def test_images_of_tokens_leave_views_alone_to_the_host(network, size: tuple[int, int, int]):
    program, _, checked = run(network(*size), "opu-1024a")
    assert {op.op for op in on_host(program)} <= VIEWS
    assert checked.passed
