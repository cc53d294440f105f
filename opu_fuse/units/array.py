"""The inner-product array, and REQUANT after it: accumulators to int8."""

import numpy as np

from opu_fuse import fixedpoint
from opu_fuse.model.operator_record import Pattern
from opu_fuse.units.base import KNOWN, Field, ModuleKind, Site, Stage, Unit
from opu_fuse.units.params import PostParams

SCALES = np.dtype([("bias", "<i4"), ("mult", "<u2"), ("shift", "i1"), ("zero", "i1")])
"""Constants of a channel: `rne((acc + bias) * mult / 2**shift)`."""

PARAM_WORDS = SCALES.itemsize
"""Parameter words of the scales of a channel block."""


def _run(value: np.ndarray, p: PostParams, site: Site) -> np.ndarray:
    result = site.parameters(SCALES)
    total = value + result["bias"].astype(np.int64)
    return fixedpoint.requantize(total, result["mult"], result["shift"], p["requant_zero"])


ARRAY = Unit(
    module="opu_array",
    doc="inner products of a map and weights",
    runs={
        ModuleKind.IPA: (
            *("conv", "dense", "shuffle", "transposed_conv", "avg_pool"),
            *("matmul", "transpose"),
        ),
    },
    pattern=Pattern.OUT_EWISE_FUSABLE,
    forms={
        "Conv": "constant weights (o, i, h, w), a constant bias and explicit pads",
        "ConvTranspose": "constant weights (i, o, h, w) in one scale or one for each output "
        "channel, a constant bias, and shapes that are known",
        "Gemm": "an operand of one row, (1, n), not transposed, or of rows that a Reshape makes of "
        "one image, (1, h, w, n), constant weights, a constant bias",
        "MatMul": "an operand of one row, (1, n), or of one image, (1, l, n) or (1, h, w, n), and "
        "constant weights (n, m); two computed operands of up to 256 heads (32 "
        "where the host cuts them) and 1024 sequences",
        "Attention": f"{KNOWN}, without a cache, a window, or scores as a result",
        "RotaryEmbedding": f"{KNOWN}, and constant cosines, sines and positions",
    },
)

REQUANT = Unit(
    module="opu_requant",
    doc="bias, multiplier and shift per channel: accumulators to int8",
    runs={},
    stage=Stage.REQUANT,
    shared=(
        Field(14, "param", 22, "parameter buffer word of block 0"),
        Field(22, "requant_zero", -8, "zero point after REQUANT"),
    ),
    record=SCALES,
    run=_run,
)
