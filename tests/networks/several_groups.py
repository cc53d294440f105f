"""GroupNorms of several groups and InstanceNorms, as exporters of PyTorch write them."""

import numpy as np
import onnx

from tests.networks.attention_blocks import with_constants

_BETWEEN = """r = Reshape(s, line)  i = InstanceNormalization<epsilon=0.001>(r, one, zero)
  o = Reshape(i, image)  m = Mul(o, gain)  n = Add(m, offset)"""
"""A GroupNorm before opset 21."""
_FORMS = {
    "between": (_BETWEEN, 17),
    "group": ("n = GroupNormalization<epsilon=0.001, num_groups={groups}>(s, gains, offsets)", 21),
    "instance": ("n = InstanceNormalization<epsilon=0.001>(s, gains, offsets)", 17),
}


def grouped(
    channels: int,
    groups: int,
    size: tuple[int, int],
    *,
    form: str = "between",
    scaled: bool = True,
    constants: dict[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """Layer, norm, function and layer on (1, 3, *size). scaled: by factors and offsets of channels;
    constants: instead of the usual ones.
    """
    rng, c = np.random.default_rng(channels), channels
    norm, opset = _FORMS[form]
    shape, header = f"{size[0]},{size[1]}", f'<ir_version: 8, opset_import: ["" : {opset}]>'
    text = f"""{header} g (float[1,3,{shape}] x) => (float[1,4,{shape}] y) {{
  s = Conv<pads=[1,1,1,1]>(x, w)  {norm.format(groups=groups)}  f = Relu(n)  y = Conv(f, v) }}"""
    gain, offset = 1 + 0.2 * scaled * rng.normal(size=c), scaled * rng.normal(size=c)
    each = {
        "w": rng.normal(size=(c, 3, 3, 3)) * (1 + np.arange(c).reshape(-1, 1, 1, 1) % 3),
        "v": rng.normal(size=(4, c, 1, 1)) / np.sqrt(c),
        "line": np.array([0, groups, -1]),
        "image": np.array([1, c, *size]),
        "one": np.ones(groups),
        "zero": np.zeros(groups),
        "gain": gain.reshape(-1, 1, 1),
        "offset": offset.reshape(-1, 1, 1),
        "gains": gain,
        "offsets": offset,
    }
    return with_constants(text, each | (constants or {}))


def line(channels: int, length: int) -> onnx.ModelProto:
    """An InstanceNorm of a signal (Wav2Vec 2.0)."""
    rng, c = np.random.default_rng(channels), channels
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
  g (float[1,2,{length}] x) => (float[1,4,{length}] y) {{
  s = Conv(x, w)  i = InstanceNormalization(s, one, zero)  m = Mul(i, gain)  n = Add(m, offset)
  f = Relu(n)  y = Conv(f, v) }}"""
    return with_constants(
        text,
        {
            "w": rng.normal(size=(c, 2, 1)),
            "v": rng.normal(size=(4, c, 1)) / np.sqrt(c),
            "one": np.ones(c),
            "zero": np.zeros(c),
            "gain": 1 + 0.2 * rng.normal(size=(c, 1)),
            "offset": rng.normal(size=(c, 1)),
        },
    )
