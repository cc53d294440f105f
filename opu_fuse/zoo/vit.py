"""ViT-tiny (Dosovitskiy et al. 2021, Touvron et al. 2021), MobileViT-S (Mehta & Rastegari 2022)."""

import onnx_ir as ir

from opu_fuse.zoo.builder import Feature
from opu_fuse.zoo.tokens import TokenNet


def vit_tiny(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """Patches of 16 x 16 pixels, class token, 12 layers of 192 channels in 3 heads; [1, 1000]."""
    net = TokenNet("vit_tiny", seed=seed)
    x = net.input("input", (1, 3, *image))
    x = net.conv(x, "patch_embed", out=192, kernel=16, stride=16, bias=True)
    x = net.with_token(net.tokens(x, "patches"), "cls")
    x = net.plus_constant(x, "pos_embed", deviation=0.5)
    for index in range(12):
        x = net.encoder_layer(x, f"blocks.{index}", heads=3, hidden=768)
    x = net.take(net.layer_norm(x, "norm"), "pool", 0, axis=1)
    return net.finish(net.dense(x, "head", out=1000))


def mobilevit_s(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """Inverted residuals, and in three stages transformers over patches of 2 x 2 pixels; pixels at
    one position of all patches are a sequence. Output [1, 1000].
    """
    net = TokenNet("mobilevit_s", seed=seed)
    x = net.conv_swish(net.input("input", (1, 3, *image)), "stem", out=16, kernel=3, stride=2)
    x = _inverted(net, x, "stages.0", 32)
    for index, stride in enumerate((2, 1, 1)):
        x = _inverted(net, x, f"stages.1.{index}", 64, stride=stride)
    stages = ((96, 144, 2), (128, 192, 4), (160, 240, 3))
    for stage, (width, channels, depth) in enumerate(stages, start=2):
        x = _inverted(net, x, f"stages.{stage}.0", width, stride=2)
        x = _mobilevit_block(net, x, f"stages.{stage}.1", channels, depth)
    x = net.global_average_pool(net.conv_swish(x, "final", out=640), "avgpool")
    x = net.flatten(x, "flatten")
    return net.finish(net.dense(x, "head", out=1000, centred=False))


def _mobilevit_block(net: TokenNet, x: Feature, name: str, channels: int, depth: int) -> Feature:
    """Local convolution, transformer of `depth` layers, projection, and a fusion with the input."""
    y = net.conv_swish(x, f"{name}.conv_kxk", out=x.channels, kernel=3)
    y = net.conv(y, f"{name}.conv_1x1", out=channels, kernel=1)
    _, _, rows, cols = y.shape
    patches = (rows // 2) * (cols // 2)
    y = net.reshape(y, f"{name}.rows", (channels * rows // 2, 2, cols // 2, 2))
    y = net.transpose(y, f"{name}.patches", (0, 2, 1, 3))
    y = net.reshape(y, f"{name}.unfold", (1, channels, patches, 4))
    y = net.transpose(y, f"{name}.sequences", (0, 3, 2, 1))
    y = net.reshape(y, f"{name}.tokens", (4, patches, channels))
    for index in range(depth):
        y = _layer(net, y, f"{name}.transformer.{index}")
    y = net.layer_norm(y, f"{name}.norm")
    y = net.reshape(y, f"{name}.batch", (1, 4, patches, channels))
    y = net.transpose(y, f"{name}.channels", (0, 3, 2, 1))
    y = net.reshape(y, f"{name}.fold", (channels * rows // 2, cols // 2, 2, 2))
    y = net.transpose(y, f"{name}.pixels", (0, 2, 1, 3))
    y = net.reshape(y, f"{name}.map", (1, channels, rows, cols))
    y = net.conv_swish(y, f"{name}.conv_proj", out=x.channels)
    return net.conv_swish(
        net.concat([x, y], f"{name}.concat"), f"{name}.fusion", out=x.channels, kernel=3
    )


def _layer(net: TokenNet, x: Feature, name: str) -> Feature:
    """As `encoder_layer`, with Swish and an MLP of twice the channels."""
    y = net.attention(net.layer_norm(x, f"{name}.norm1"), f"{name}.attn", heads=4)
    x = net.add(x, y, f"{name}.add1")
    c = x.shape[-1]
    y = net.linear(net.layer_norm(x, f"{name}.norm2"), f"{name}.mlp.fc1", out=2 * c)
    y = net.linear(net.swish(y, f"{name}.mlp.act"), f"{name}.mlp.fc2", out=c)
    return net.add(x, y, f"{name}.add2")


def _inverted(net: TokenNet, x: Feature, name: str, out: int, *, stride: int = 1) -> Feature:
    wide = 4 * x.channels
    y = net.conv_swish(x, f"{name}.expand", out=wide)
    y = net.conv_swish(y, f"{name}.depthwise", out=wide, kernel=3, stride=stride, groups=wide)
    y = net.conv(y, f"{name}.project", out=out, kernel=1, batch_norm=f"{name}.project.bn")
    return net.add(x, y, f"{name}.add") if x.shape == y.shape else y
