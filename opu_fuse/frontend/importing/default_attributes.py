"""Adds default attributes that onnx's shape inference does not apply."""

import onnx
from onnx import helper

from opu_fuse.model.opsets import STANDARD

_DEFAULTS = {"MeanVarianceNormalization": {"axes": [0, 2, 3]}}
"""onnx expands this function without its default, and then infers no shape for its result."""


def add_default_attributes(graph: onnx.GraphProto) -> None:
    """Add the missing default attributes to the nodes of a graph."""
    for node in graph.node:
        known = _DEFAULTS.get(node.op_type, {}) if node.domain in STANDARD else {}
        existing = {attribute.name for attribute in node.attribute}
        missing = [name for name in known if name not in existing]
        node.attribute.extend(helper.make_attribute(name, known[name]) for name in missing)
