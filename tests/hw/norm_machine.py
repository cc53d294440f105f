"""A small machine with a norm, and the passes of its layers, for tests."""

from pathlib import Path
from tempfile import TemporaryDirectory

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.units.norm_pass import NormOp

PASSES = (
    (NormOp.MAX, NormOp.EXPSUM, NormOp.SOFTMAX),
    (NormOp.MOMENTS, NormOp.NORMALISE),
    (NormOp.SQUARES, NormOp.NORMALISE),
    (NormOp.MAP_MOMENTS, NormOp.MAP_NORMALISE),
)
"""Of each kind of layer."""

NORM_MACHINE = """\
extends: opu-tiny
name: norms
description: opu-tiny with tables, permuting stores, a norm behind array and residual adder
buffers:
  param: {words: 512, banks: 2}
  table: {words: 512, banks: 2}
  norm: {words: 512, banks: 2}
dataflow:
  modules:
    table: {kind: table, bypass: true, exit: true}
    norm:  {kind: norm, operand: per_channel, exit: true}
    store: {kind: mem_wr, exit: true}
  edges:
    concat:  [pad, ipa, compare, pool, res_add, table, norm, store]
    add:     [compare, res_add, pool, table, norm, store]
    compare: [pool, res_add, store]
    pool:    [compare, res_add, store]
    res_add: [compare, pool, norm, table, store]
    norm:    [compare, table, store]
  operators:
    softmax:    [norm]
    layer_norm: [norm]
    rms_norm:   [norm]
    divide:     [norm]
    group_norm: [norm]
    table:      [table]
    permute:    [mem_wr]
"""


def _narrow(text: str) -> str:
    weights = "buffers:\n  weight: {words: 64, banks: 2, width: 8}"
    return text.replace("norms\ndescription", "narrow-norms\ndescription").replace(
        "buffers:", weights
    )


_NARROW = _narrow(NORM_MACHINE)
_SPLITS = NORM_MACHINE.replace("name: norms", "name: split-norms").replace(
    "operators:", "operators:\n    concat: [mem_rd]\n    split: [mem_rd]"
)


_WINDOWS = (
    NORM_MACHINE.replace("name: norms", "name: window-norms")
    .replace("buffers:", "array: {depthwise: true, window_cycles: 1}\nbuffers:")
    .replace("operators:", "operators:\n    transposed_conv: [ipa]")
)


_FOUR = (
    _SPLITS.replace("name: split-norms", "name: four-pixels")
    .replace(
        "buffers:",
        """word_channels: 16
array:
  units: 16
  multipliers: 4
  modes:
    - {ic: 16, oc: 4, px: 1}
    - {ic: 4, oc: 16, px: 1}
    - {ic: 8, oc: 4, px: 2}
    - {ic: 4, oc: 8, px: 2}
    - {ic: 4, oc: 4, px: 4}
post: {lanes: 8, keep: true}
buffers:
  weight: {words: 512, banks: 2, width: 8}""",
    )
    .replace("modules:", "modules:\n    upsample: {kind: upsample, bypass: true, exit: true}")
    .replace("norm, store]", "norm, upsample, store]")
    .replace("edges:", "edges:\n    table: [res_add, upsample, store]")
    .replace("operators:", "operators:\n    shuffle: [ipa]\n    upsample: [upsample]")
)


def four_pixel_machine() -> HwSpec:
    """Words of 16 channels, two or four pixels a cycle; half a word a cycle behind the array."""
    return _machine(_FOUR)


def quarter_norm_machine() -> HwSpec:
    """`four_pixel_machine` with a Softmax for each quarter of a word, 4 channels."""
    return _machine(
        _FOUR.replace("name: four-pixels", "name: quarter-norms").replace(
            "operators:", "operators:\n    grouped_softmax: [norm]"
        )
    )


def window_norm_machine() -> HwSpec:
    """Its array computes depthwise windows and transposed convolutions."""
    return _machine(_WINDOWS)


def norm_machine() -> HwSpec:
    return _machine(NORM_MACHINE)


def narrow_norm_machine() -> HwSpec:
    """A bank of weights holds 8 rows: those of 32 keys of 8 channels."""
    return _machine(_NARROW)


def split_norm_machine() -> HwSpec:
    """Heads are parts of maps."""
    return _machine(_SPLITS)


def narrow_split_norm_machine() -> HwSpec:
    """Heads are parts of maps, and 16 rows of weights fit: those of 64 keys of 8 channels."""
    return _machine(_narrow(_SPLITS))


def deep_norm_machine() -> HwSpec:
    """Its partial sums hold a map of as many values as sums have bits for."""
    return _machine(
        NORM_MACHINE.replace("name: norms", "name: deep-norms").replace(
            "buffers:",
            """buffers:
  psum: {words: 16384, banks: 2}
  output: {words: 8192, banks: 2}
  feature: {words: 32768, banks: 2}""",
        )
    )


def _machine(text: str) -> HwSpec:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "norms.yaml"
        path.write_text(text)
        return load_hw(str(path))
