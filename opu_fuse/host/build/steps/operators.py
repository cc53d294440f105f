"""The ONNX operators that have a form of their own in C."""

from collections.abc import Mapping

from opu_fuse.host.build.steps.choices import (
    best_place,
    looked_up,
    one_hot,
    padded,
    running,
    triangle,
)
from opu_fuse.host.build.steps.contractions import CONTRACTIONS
from opu_fuse.host.build.steps.elementwise import ELEMENTWISE, Lowering
from opu_fuse.host.build.steps.reductions import REDUCTIONS
from opu_fuse.host.build.steps.windows import convolution, pool

OPERATORS: Mapping[str, Lowering] = {
    **ELEMENTWISE,
    **REDUCTIONS,
    **CONTRACTIONS,
    "Conv": convolution,
    "MaxPool": lambda site: pool(site, mean=False),
    "AveragePool": lambda site: pool(site, mean=True),
    "ArgMax": lambda site: best_place(site, largest=True),
    "ArgMin": lambda site: best_place(site, largest=False),
    "CumSum": lambda site: running(site, "add"),
    "CumProd": lambda site: running(site, "mul"),
    "Gather": looked_up,
    "GatherElements": looked_up,
    "GatherND": looked_up,
    "OneHot": one_hot,
    "Pad": padded,
    "Trilu": triangle,
}
"""Operator of ONNX -> its nests."""
