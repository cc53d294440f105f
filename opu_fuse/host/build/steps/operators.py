"""The ONNX operators that have a form of their own in C."""

from collections.abc import Mapping

from opu_fuse.host.build.steps.contractions import CONTRACTIONS
from opu_fuse.host.build.steps.elementwise import ELEMENTWISE, Lowering
from opu_fuse.host.build.steps.indices import (
    best_place,
    looked_up,
    one_hot,
)
from opu_fuse.host.build.steps.reductions import REDUCTIONS
from opu_fuse.host.build.steps.windows import convolution, pad, pool

OPERATORS: Mapping[str, Lowering] = {
    **ELEMENTWISE,
    **REDUCTIONS,
    **CONTRACTIONS,
    "Conv": convolution,
    "MaxPool": lambda site: pool(site, mean=False),
    "AveragePool": lambda site: pool(site, mean=True),
    "ArgMax": lambda site: best_place(site, largest=True),
    "ArgMin": lambda site: best_place(site, largest=False),
    "Gather": looked_up,
    "GatherElements": looked_up,
    "GatherND": looked_up,
    "OneHot": one_hot,
    "Pad": pad,
}
"""Operator of ONNX -> its nests."""
