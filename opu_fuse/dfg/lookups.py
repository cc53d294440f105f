"""What the port of an input of bytes looks up: the numbers that the model makes of each byte.

ONNX Runtime computes the model's own nodes, on images that hold every byte in every channel; they
are believed only where each pixel of them has what the table says, so a mean image is no table.
"""

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from opu_fuse.dfg.graph import Lookup
from opu_fuse.dfg.host import constant_inputs, run_graph
from opu_fuse.dfg.types import type_of
from opu_fuse.model.composites import const_array
from opu_fuse.model.entrances import MOVES
from opu_fuse.turn import BYTES, Turn

_LARGEST = 1 << 24
"""Elements of an image: each is computed a few times while the network is compiled."""


def lookup_of(given: ir.Value, nodes: Sequence[ir.Node], turn: Turn | None) -> Lookup | None:
    """Of the nodes of an entrance (`model/entrances.py`); turn: what else the port does. None where
    they do more than the two together can.
    """
    kind, shape = type_of(given), type_of(nodes[-1].outputs[0])
    if kind is None or shape is None or kind.shape is None or shape.shape is None:
        return None
    outside, inside = kind.shape, shape.shape
    size = int(np.prod(outside))
    if size > _LARGEST or size != np.prod(inside):
        return None
    numbers = np.arange(size, dtype=np.float32).reshape(outside)  # exact up to 2**24
    moves = [node for node in nodes if node.op_type in MOVES]
    found = _run(moves, numbers).reshape(inside) if moves else numbers
    turned = numbers.reshape(inside) if turn is None else turn.inside(numbers)
    first = turned[0, :, 0, 0].tolist()
    channels = [first.index(n) if n in first else -1 for n in found[0, :, 0, 0].tolist()]
    if -1 in channels or not np.array_equal(turned[:, channels], found):
        return None
    lowest = int(np.iinfo(kind.dtype.numpy()).min)
    reals = _computed(given, nodes, found.astype(np.int64), outside, lowest)
    return None if reals is None else Lookup(channels=tuple(channels), lowest=lowest, reals=reals)


def _computed(
    given: ir.Value,
    nodes: Sequence[ir.Node],
    places: np.ndarray,
    outside: Sequence[int],
    lowest: int,
) -> np.ndarray | None:
    """(channels, 256) float32, None where pixels of one channel differ. places: of each value of
    the map, in the user's array.
    """
    channels, pixels = places.shape[1], places[0, 0].size
    pixel = np.arange(pixels).reshape(places.shape[2:])
    reals = np.zeros((channels, BYTES), np.float32)
    at = np.arange(channels)[:, np.newaxis, np.newaxis]
    images = range(0, BYTES, pixels) if pixels < BYTES else (0, 1)  # two: no pixel has its own rule
    shown = [np.broadcast_to((pixel + first) % BYTES, places.shape[1:]) for first in images]
    made = []
    for bytes_ in shown:
        array = np.zeros(int(np.prod(outside)), np.int16)
        array[places[0]] = bytes_ + lowest
        image = array.astype(type_of(given).dtype.numpy()).reshape(outside)  # type: ignore[union-attr]  # the caller has looked at it
        made.append(_run(nodes, image)[0])
        reals[at, bytes_] = made[-1]
    same = all(
        np.array_equal(reals[at, b], m, equal_nan=True) for b, m in zip(shown, made, strict=True)
    )
    return reals if same and np.isfinite(reals).all() else None


def _run(nodes: Sequence[ir.Node], array: np.ndarray) -> np.ndarray:
    """What nodes that read each other's results, and others between that are left out, make."""
    protos: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    last = "given"
    for number, node in enumerate(nodes):
        proto = ir.serde.serialize_node(node)
        data = [i for i, v in enumerate(node.inputs) if v is not None and const_array(v) is None]
        proto.input[data[0]] = last
        last = f"made_{number}"
        del proto.output[:]
        proto.output.append(last)
        protos.append(proto)
        constants |= constant_inputs(node, ())
    graph = helper.make_graph(
        protos,
        "entrance",
        [
            helper.make_tensor_value_info(
                "given", helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
        ],
        [helper.make_empty_tensor_value_info(last)],
        [numpy_helper.from_array(data, name) for name, data in constants.items()],
    )
    opsets = nodes[0].graph.opset_imports if nodes[0].graph is not None else {"": 17}
    return run_graph(graph, opsets, {"given": array})[0]
