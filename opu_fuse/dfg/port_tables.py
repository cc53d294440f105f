"""Lookup tables of byte inputs: the number that the model's preprocessing computes for each byte.

ONNX Runtime executes the model's own nodes on images that hold every byte in every channel. A table
is accepted only where every pixel agrees with it, so subtracting a mean image is no table.
"""

import logging
from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from opu_fuse.dfg.graph import Lookup
from opu_fuse.dfg.value_types import type_of
from opu_fuse.io_layout import BYTES, AxisPermutation
from opu_fuse.model.known_values import const_array
from opu_fuse.model.operator_sets import REARRANGES
from opu_fuse.quant import META_KEY, QuantParams

_LARGEST = 1 << 24
"""Elements of an image: each is computed a few times while the network is compiled."""

log = logging.getLogger(__name__)


def lookup_of(
    outer: ir.Value, nodes: Sequence[ir.Node], turn: AxisPermutation | None
) -> Lookup | None:
    """The table of the nodes that preprocess an input.

    turn: permutation that the port applies as well. None where the nodes do more than table and
    permutation can, or ONNX Runtime rejects them.
    """
    outside, inside = type_of(outer), type_of(nodes[-1].outputs[0])
    if outside is None or inside is None or outside.shape is None or inside.shape is None:
        return None
    size = int(np.prod(outside.shape))
    if size > _LARGEST or size != np.prod(inside.shape):
        return None
    numbers = np.arange(size, dtype=np.float32)  # exact up to 2**24
    permuted = numbers.reshape(inside.shape) if turn is None else turn.inside(numbers)
    moves = [node for node in nodes if node.op_type in REARRANGES]
    try:
        indices = _run(moves, numbers.reshape(outside.shape)).reshape(inside.shape)
        channels = _channels(permuted, indices)
        image = np.zeros(outside.shape, outside.dtype.numpy())
        quant = outer.meta.get(META_KEY)
        reals = None if channels is None else _computed(nodes, indices.astype(int), image, quant)
    except Exception as error:  # noqa: BLE001  ONNX Runtime raises classes of its own
        log.debug("no table for input %s: %s", outer.name, error)
        return None
    if channels is None or reals is None:
        return None
    return Lookup(channels=channels, lowest=int(np.iinfo(image.dtype).min), reals=reals)


def _channels(permuted: np.ndarray, indices: np.ndarray) -> tuple[int, ...] | None:
    """Per channel of the map, the equal channel of the permuted array; None without."""
    first = {number: channel for channel, number in enumerate(permuted[0, :, 0, 0].tolist())}
    results = [first.get(number, -1) for number in indices[0, :, 0, 0].tolist()]
    whole = -1 not in results and np.array_equal(permuted[:, results], indices)
    return tuple(results) if whole else None


def _computed(
    nodes: Sequence[ir.Node], indices: np.ndarray, image: np.ndarray, quant: QuantParams | None
) -> np.ndarray | None:
    """(channels, 256) float32, None where pixels of one channel differ, or a number is none.
    indices: index of each value of the map in the user's array. image: such an array. quant: its
    quantisation, where bytes represent other numbers.
    """
    _, channels, *size = indices.shape
    pixels, lowest = size[0] * size[1], np.iinfo(image.dtype).min
    # Every byte is seen at several pixels, neighbours among them: no pixel has a rule of its own.
    firsts = [0, 1, 85, 170]
    if pixels < BYTES:
        starts = range(0, BYTES, pixels)
        firsts = [start + shift for shift in range(min(pixels, 4)) for start in starts]
    reals = np.zeros((channels, BYTES), np.float32)
    rows = np.arange(channels)[:, np.newaxis, np.newaxis]
    runs: list[tuple[np.ndarray, np.ndarray]] = []
    for first in firsts:
        shown = (np.arange(first, first + pixels) % BYTES).reshape(size)
        image.reshape(-1)[indices[0]] = (shown + lowest).astype(image.dtype)
        result = _run(nodes, image if quant is None else quant.dequantize(image))[0]
        reals[rows, shown] = result
        runs.append((shown, result))
    same = all(np.array_equal(reals[rows, shown], result) for shown, result in runs)
    return reals if same and np.isfinite(reals).all() else None


def _run(nodes: Sequence[ir.Node], array: np.ndarray) -> np.ndarray:
    """The result of a chain of nodes on an array: each reads the result of its predecessor.

    Nodes between them in the model are skipped.
    """
    if not nodes:
        return array
    from opu_fuse.dfg.ort_operator import constant_inputs, run_graph  # starts ONNX Runtime

    protos: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    names = [f"preprocessed:{number}" for number in range(len(nodes) + 1)]
    for node, read, written in zip(nodes, names[:-1], names[1:], strict=True):
        proto = ir.serde.serialize_node(node)
        computed = [v is not None and const_array(v) is None for v in node.inputs]
        proto.input[computed.index(True)] = read
        proto.output[:] = [written]
        protos.append(proto)
        constants |= constant_inputs(node, ())
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    graph = helper.make_graph(
        protos,
        "preprocessing",
        [helper.make_tensor_value_info(names[0], kind, array.shape)],
        [helper.make_empty_tensor_value_info(names[-1])],
        [numpy_helper.from_array(data, name) for name, data in constants.items()],
    )
    opsets = nodes[0].graph.opset_imports if nodes[0].graph is not None else {"": 17}
    return run_graph(graph, opsets, {names[0]: array})[0]
