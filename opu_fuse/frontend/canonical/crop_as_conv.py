"""A crop that no operator absorbs becomes a pass of the array.

The pads of a ConvTranspose crop its result. A depthwise 1x1 ConvTranspose with weights of one is
only the crop, and requantises if the model does. Crops of a model input are rewritten too, unless
the result is moved on to a model output, where nothing is quantised. The host crops maps that it
computes. This rewrite replaces an operator of the user's graph, so only strategies that ask for it
run it (`REWRITES`).
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.fold_crops import cut_of
from opu_fuse.frontend.canonical.gather_as_conv import convolve
from opu_fuse.frontend.canonical.space_depth_as_conv import is_computed
from opu_fuse.frontend.editing import quant_of, standard_nodes, static_shape
from opu_fuse.frontend.unrounded import is_passed_on
from opu_fuse.model.rolls import is_rolled, rolls
from opu_fuse.model.shifts import shift_of


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = False
    for node in standard_nodes(model.graph, "Slice"):
        cut, x, y = cut_of(node), node.inputs[0], node.outputs[0]
        shape = static_shape(x)
        if cut is None or x is None or shape is None or shape[0] != 1:
            continue
        is_float = {quant is None for quant in (quant_of(x), quant_of(y))}
        if len(is_float) > 1 or not (is_computed(x) or x.is_graph_input()):
            continue
        if any(shift_of(use.node) for use in y.uses()):
            continue  # one operator with the Pad
        if rolls(model.graph) and is_rolled(y):
            continue  # one operator with the Concat
        if is_passed_on(y):
            continue
        ones = np.ones((shape[1], 1, 1, 1), np.int8)
        convolve(model.graph, node, "ConvTranspose", x, ones, 1, pads=cut, group=shape[1])
        changed = True
    return changed
