"""Defaults of operators that onnx's inference does not know: written out before it looks."""

import onnx
from onnx import helper

from opu_fuse.model.opsets import STANDARD

_DEFAULTS = {"MeanVarianceNormalization": {"axes": [0, 2, 3]}}
"""It is a function, whose body onnx makes without the default: then no shape is known behind it."""


def spell_out_defaults(graph: onnx.GraphProto) -> None:
    """Change a graph in place."""
    for node in graph.node:
        known = _DEFAULTS.get(node.op_type, {}) if node.domain in STANDARD else {}
        given = {attribute.name for attribute in node.attribute}
        missing = [name for name in known if name not in given]
        node.attribute.extend(helper.make_attribute(name, known[name]) for name in missing)
