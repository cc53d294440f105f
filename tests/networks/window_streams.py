"""Residual streams whose norms are computed further in windows, and whose sums are normalised."""

import numpy as np
import onnx

from tests.networks.attention_blocks import with_constants
from tests.networks.permuted_pixels import roll

_HEADER = '<ir_version: 11, opset_import: ["" : 23]>'
_NORM = (
    "{y}t = Transpose<perm=[0,2,3,1]>({x}) "
    "{y}m = LayerNormalization<axis=-1,epsilon=1e-6>({y}t, g, o) "
    "{y} = Transpose<perm=[0,3,1,2]>({y}m) "
)
_EXCHANGE = "Transpose<perm=[0,1,2,4,3,5]>"


def _block(x: str, y: str, *, shifted: bool, back: str = "ba") -> str:
    """A block of the stream x (in rows) to y: windows of its norm, and a layer of the norm of the
    sum. back: how windows are put back; with other axes they are not where they were.
    """
    p = y
    there = roll(f"{p}n", f"{p}r", 2, 3) if shifted else f"{p}r = Identity({p}n)"
    again = roll(f"{p}h", f"{p}e", 3, 2).replace("two", "last") if shifted else ""
    last = f"{p}h" if shifted else f"{p}e"
    return f"""{_NORM.format(x=x, y=f"{p}n")} {there}
  {p}a = Reshape({p}r, wa) {p}b = {_EXCHANGE}({p}a) {p}c = Reshape({p}b, wm) {p}d = Conv({p}c, u)
  {p}f = Reshape({p}d, {back}) {p}g = {_EXCHANGE}({p}f) {last} = Reshape({p}g, bm) {again}
  {p}s = Add({x}, {p}e) {_NORM.format(x=f"{p}s", y=f"{p}v")}
  {p}i = Conv({p}v, v) {p}j = Relu({p}i) {p}k = Conv({p}j, u) {y} = Add({p}s, {p}k)"""


def stream(
    channels: int,
    counts: tuple[int, int] = (2, 3),
    sides: tuple[int, int] = (3, 2),
    *,
    shifted: tuple[bool, ...] = (False,),
    also: str = "",
    back: str = "ba",
) -> onnx.ModelProto:
    """x (1, 6, h, w) -> y, z: blocks of a stream. counts, sides: windows down and across, and their
    rows and columns; also: the name of a value that is a second output; back: of the first block.
    """
    (i, j), (h, w), c = counts, sides, channels
    body, at = "a0 = Conv(x, w) f0 = Relu(a0) s0 = Conv(f0, v) b0 = Add(s0, f0)", "b0"
    for number, moved in enumerate(shifted, 1):
        body += _block(at, f"b{number}", shifted=moved, back="ba" if number > 1 else back)
        at = f"b{number}"
    second = f", float[1,{c},{i * h},{j * w}] z" if also else ""
    body += f" y = Relu({at})" + (f" z = Identity({also})" if also else "")
    rng, size = np.random.default_rng(channels), f"1,{{}},{i * h},{j * w}"
    shapes = {
        "wa": [1, c, i, h, j, w],
        "wm": [1, c, i * j, h * w],
        "ba": [1, c, i, j, h, w],
        "other": [1, c, j, i, h, w],
        "bm": [1, c, i * h, j * w],
    }
    bounds = {"zero": 0, "two": 2, "last": -2, "end": 1 << 30, "ax2": 2, "ax3": 3}
    return with_constants(
        f"""{_HEADER} g (float[{size.format(6)}] x) => (float[{size.format(c)}] y{second}) {{
  {body} }}""",
        {
            "w": rng.normal(size=(c, 6, 1, 1)) * 0.8,
            **{name: rng.normal(size=(c, c, 1, 1)) / np.sqrt(c) for name in "uv"},
            "g": rng.normal(1, 0.4, c),
            "o": rng.normal(0, 0.5, c),
            **{name: np.array(shape) for name, shape in shapes.items()},
            **{name: np.array([value]) for name, value in bounds.items()},
        },
    )
