"""The quantised model in ONNX Runtime: the result of every QuantizeLinear, and the outputs.

Optimisations are off, so the model is computed as it is written: with power-of-two scales,
float32 sums of int8 products are exact below 2**24 and QuantizeLinear rounds them once, as the
machine does. Nothing is fused into 8-bit kernels, whose intermediate saturation depends on the
processor.
"""

import contextlib
from collections.abc import Collection, Generator, Mapping

import numpy as np
import onnx
from msgspec import Struct

from opu_fuse.bundle.file import QDQ
from opu_fuse.bundle.program import Bundle
from opu_fuse.errors import ProgramError
from opu_fuse.host.run.segment import session

NAME = "onnxruntime (QDQ model, optimisations off)"
_OWN = ":own"
"""Suffix of a tensor computed from substituted operands, next to the substituted tensor itself."""


class Expected(Struct, frozen=True, kw_only=True):
    """tensors: int8 by name of QuantizeLinear's output; outputs: of the model, in its own types."""

    tensors: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]


class Reference:
    """The quantised model of a bundle, ready to run. Raises ProgramError if there is none."""

    def __init__(self, bundle: Bundle) -> None:
        if not bundle.qdq:
            raise ProgramError(
                bundle.model, "holds no quantised model to check against", "compile it again"
            )
        self._where = f"{bundle.model}: {QDQ}"
        with _sound(self._where, "is no model that ONNX Runtime can load"):
            self.model = onnx.load_from_string(bundle.qdq)
            self._types = _rounded_types(self.model)
            self._session = session(_showing(self.model, self._types).SerializeToString())
        outputs = {o.name for o in self.model.graph.output}
        if missing := [port.name for port in bundle.outputs if port.name not in outputs]:
            raise ProgramError(
                self._where, f"has no output {missing[0]!r}, the program has", "compile it again"
            )
        self.zero_points = {name: zero for name, (zero, _) in self._types.items()}
        self.names = tuple(self._types)

    def run(self, inputs: Mapping[str, np.ndarray]) -> Expected:
        """One sample -> everything; uint8 tensors are shifted by 128."""
        names = [o.name for o in self._session.get_outputs()]
        with _sound(self._where, "does not run in ONNX Runtime on the program's inputs"):
            result = dict(zip(names, self._session.run(names, dict(inputs)), strict=True))
        outputs = {o.name: result[o.name] for o in self.model.graph.output}
        return Expected(tensors={n: as_int8(result[n]) for n in self.names}, outputs=outputs)

    def from_operands(
        self, inputs: Mapping[str, np.ndarray], tensors: Mapping[str, np.ndarray]
    ) -> Expected:
        """Run the model with some tensors (int8, by name) substituted for all that read them.

        Each operator is so checked by itself: a difference does not propagate to its successors.
        """
        model = _cut(self.model, self._types, tensors.keys())
        feeds = dict(inputs)
        for name, array in tensors.items():
            feeds[name] = _from_int8(array, self._types[name][1])
        names = [o.name for o in model.graph.output]
        with _sound(self._where, "does not run in ONNX Runtime on the program's tensors"):
            arrays = session(model.SerializeToString()).run(names, feeds)
        results = dict(zip(names, arrays, strict=True))
        own = {n: results[n + _OWN] if n in tensors else results[n] for n in self.names}
        outputs = {
            o.name: results[o.name + _OWN if o.name in tensors else o.name]
            for o in self.model.graph.output
        }
        return Expected(tensors={n: as_int8(a) for n, a in own.items()}, outputs=outputs)


@contextlib.contextmanager
def _sound(where: str, what: str) -> Generator[None]:
    """What the compiler wrote runs; what does not was changed."""
    try:
        yield
    except Exception as error:  # protobuf and ONNX Runtime have error classes of their own
        help_ = "give inputs that the model takes, or compile it again"
        raise ProgramError(where, what, help_) from error


def as_int8(array: np.ndarray) -> np.ndarray:
    """Convert uint8 to int8: uint8 with zero point z equals int8 with zero point z - 128."""
    if array.dtype == np.uint8:
        return (array.astype(np.int16) - 128).astype(np.int8)
    return array


def _from_int8(array: np.ndarray, kind: int) -> np.ndarray:
    if kind == onnx.TensorProto.UINT8:
        return (array.astype(np.int16) + 128).astype(np.uint8)
    return array


def _rounded_types(model: onnx.ModelProto) -> dict[str, tuple[int, int]]:
    """(zero point as int8, ONNX type) of every 8-bit QuantizeLinear output of an activation, by
    name in graph order.
    """
    constants = {i.name: i for i in model.graph.initializer}
    results: dict[str, tuple[int, int]] = {}
    for node in model.graph.node:
        if node.op_type != "QuantizeLinear" or node.input[0] in constants:
            continue
        zero = constants.get(node.input[2]) if len(node.input) > 2 else None
        said = next((a.i for a in node.attribute if a.name == "output_dtype"), 0)
        kind = zero.data_type if zero is not None else said or onnx.TensorProto.UINT8
        if kind not in (onnx.TensorProto.INT8, onnx.TensorProto.UINT8):
            continue
        none = np.zeros(1, onnx.helper.tensor_dtype_to_np_dtype(kind))
        value = onnx.numpy_helper.to_array(zero) if zero is not None else none
        results[node.output[0]] = int(as_int8(value).reshape(-1)[0]), kind
    return results


def _showing(
    model: onnx.ModelProto, types: Mapping[str, tuple[int, int]], hidden: Collection[str] = ()
) -> onnx.ModelProto:
    """A copy that has all rounded tensors but the hidden among its
    outputs.
    """
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    outputs = {o.name for o in shown.graph.output}
    for name, (_, kind) in types.items():
        if name not in outputs and name not in hidden:
            shown.graph.output.append(onnx.helper.make_tensor_value_info(name, kind, None))
    return shown


def _cut(
    model: onnx.ModelProto, types: Mapping[str, tuple[int, int]], substituted: Collection[str]
) -> onnx.ModelProto:
    """The model with the substituted tensors as inputs; their producers write `<name>:own`."""
    cut = _showing(model, types, substituted)
    graph = cut.graph
    for node in graph.node:
        if node.op_type == "QuantizeLinear" and node.output[0] in substituted:
            node.output[0] += _OWN
    others = [o for o in graph.output if o.name not in substituted]
    own = [onnx.helper.make_tensor_value_info(n + _OWN, types[n][1], None) for n in substituted]
    graph.ClearField("output")
    graph.output.extend([*others, *own])
    graph.input.extend(
        onnx.helper.make_tensor_value_info(n, types[n][1], None) for n in substituted
    )
    return cut
