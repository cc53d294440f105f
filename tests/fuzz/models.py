"""ONNX files with changed bytes, attributes, names, shapes and structure.

A model is refused in one line, or compiled; then the functional engine runs it, and what it gives
is within the bound that `--check` states of what ONNX Runtime makes of the quantised model.
"""

import contextlib
import functools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, numpy_helper

from opu_fuse import zoo
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, Program, compile_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.ports import noise
from tests.fuzz.mutations import change_bytes, odd_number, one_of, rng_of
from tests.fuzz.worker import SECONDS_PER_CASE
from tests.networks import random_layers

BUDGET = 1 / 32
"""A program of so many instructions is compiled and run within the limit of a case."""

BASES = (
    *("tiny_residual", "tiny_odd"),
    *(f"opu-light {seed}" for seed in range(17)),
    *("quantised tiny_residual", "quantised tiny_odd"),
)
MACHINES = ("opu-tiny", "opu-classic", "opu-light", "opu-1024")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """base: place in `BASES`; changes: a seed each."""

    base: int
    changes: tuple[int, ...]
    machine: str


@functools.cache
def _base(base: int) -> bytes:
    import onnx_ir as ir

    kind, _, rest = BASES[base].rpartition(" ")
    if kind == "quantised":
        model = zoo.build(rest, image=8)
        return compile_model(model, load_hw("opu-tiny"), Options()).bundle.qdq
    if kind:
        return ir.to_proto(random_layers.draw(load_hw(kind), int(rest)).model).SerializeToString()
    return ir.to_proto(zoo.build(rest, image=8)).SerializeToString()


def model_bytes(case: Case) -> bytes:
    """The file of a case."""
    data = _base(case.base)
    for seed in case.changes:
        rng = rng_of(seed)
        model = ModelProto()
        try:
            model.ParseFromString(data)
            whole = rng.random() >= 0.15
        except Exception:  # noqa: BLE001 protobuf has its own class; bytes were changed before
            whole = False
        with contextlib.suppress(UnicodeDecodeError):  # names that became no text cannot be read
            if whole:
                _change_model(rng, model)
                data = model.SerializeToString()
                continue
        data = change_bytes(rng, data)
    return data


def _change_model(rng: np.random.Generator, model: ModelProto) -> None:
    graph = model.graph
    changes = (_nodes, _operands, _attribute, _attribute, _weights, _value, _value, _header)
    change = one_of(rng, changes)
    change(rng, model if change is _header else graph)


def _nodes(rng: np.random.Generator, graph: Any) -> None:
    """Dropped, doubled, moved or renamed."""
    if not graph.node:
        return
    at = int(rng.integers(len(graph.node)))
    match int(rng.integers(5)):
        case 0:
            del graph.node[at]
        case 1:
            graph.node.add().CopyFrom(graph.node[at])
        case 2:
            nodes = list(graph.node)
            rng.shuffle(nodes)
            del graph.node[:]
            graph.node.extend(nodes)
        case 3:
            other = one_of(rng, graph.node).op_type
            graph.node[at].op_type = one_of(rng, (other, "Foo", "", "If", "Softmax", "MatMul"))
        case _:
            graph.node[at].domain = one_of(rng, ("com.microsoft", "ai.onnx.ml", "x", ""))


def _names(graph: Any) -> list[str]:
    made = [name for node in graph.node for name in (*node.input, *node.output)]
    return [*made, *(t.name for t in graph.initializer), *(v.name for v in graph.input), "", "new"]


def _operands(rng: np.random.Generator, graph: Any) -> None:
    """Swapped, renamed, added or dropped."""
    nodes = [n for n in graph.node if n.input]
    if not nodes:
        return
    node = one_of(rng, nodes)
    side = node.output if rng.random() < 0.3 and node.output else node.input
    at, name = int(rng.integers(len(side))), one_of(rng, _names(graph))
    match int(rng.integers(4)):
        case 0:
            side[at] = name
        case 1:
            side.append(name)
        case 2:
            del side[at]
        case _:
            other = int(rng.integers(len(side)))
            side[at], side[other] = side[other], side[at]


def _attribute(rng: np.random.Generator, graph: Any) -> None:
    """Odd numbers, other lengths, other types, none."""
    found = [(n, a) for n in graph.node for a in n.attribute]
    if not found:
        return
    node, a = one_of(rng, found)
    kind = int(rng.integers(6))
    if a.type == AttributeProto.INTS and kind < 4:
        _ints(rng, a.ints, kind)
    elif a.type == AttributeProto.INT and kind < 4:
        a.i = _int64(odd_number(rng, a.i))
    elif a.type == AttributeProto.FLOAT and kind < 4:
        a.f = one_of(rng, (0.0, -1.0, 1e-38, 3e38, float("nan"), float("inf"), 0.1))
    elif a.type == AttributeProto.STRING and kind < 4:
        a.s = one_of(rng, (b"", b"SAME_UPPER", b"VALID", b"NOTSET", b"linear", b"\xff", b"x"))
    elif kind == 4:
        node.attribute.remove(a)
    else:
        a.name = one_of(rng, ("axis", "group", "pads", "strides", "x", "kernel_shape", a.name))


def _ints(rng: np.random.Generator, ints: Any, kind: int) -> None:
    if not ints or kind == 0:
        ints.append(_int64(odd_number(rng)))
    elif kind == 1:
        del ints[int(rng.integers(len(ints)))]
    else:
        at = int(rng.integers(len(ints)))
        ints[at] = _int64(odd_number(rng, ints[at]))


def _int64(value: int) -> int:
    return min(max(value, -(1 << 63)), (1 << 63) - 1)


def _weights(rng: np.random.Generator, graph: Any) -> None:
    """Another type, shape, value or length."""
    if not graph.initializer:
        return
    t = one_of(rng, graph.initializer)
    match int(rng.integers(6)):
        case 0:
            t.data_type = int(one_of(rng, (*TensorProto.DataType.values(), 99)))
        case 1 if t.dims:
            at = int(rng.integers(len(t.dims)))
            t.dims[at] = _int64(odd_number(rng, t.dims[at]))
        case 2:
            t.raw_data = change_bytes(rng, t.raw_data)
        case 3:
            _odd_values(rng, t)
        case 4:
            graph.initializer.remove(t)
        case _:
            t.name = one_of(rng, _names(graph))


def _odd_values(rng: np.random.Generator, t: TensorProto) -> None:
    try:
        array = np.array(numpy_helper.to_array(t))
    except (ValueError, TypeError, KeyError, RuntimeError, AssertionError):
        return  # other changes have been here
    if array.dtype.kind != "f" or not array.size:
        return
    values = (0.0, np.nan, np.inf, 1e30, 1e-30, -1.0)
    if rng.random() < 0.5:
        array.reshape(-1)[int(rng.integers(array.size))] = one_of(rng, values)
    else:
        array[...] = one_of(rng, values)
    t.CopyFrom(numpy_helper.from_array(array, t.name))


def _value(rng: np.random.Generator, graph: Any) -> None:
    """What is declared of an input, output or value inside."""
    declared = [*graph.input, *graph.output, *graph.value_info]
    if not declared:
        return
    v = one_of(rng, declared)
    dims = v.type.tensor_type.shape.dim
    match int(rng.integers(6)):
        case 0 | 1 if dims:
            at = int(rng.integers(len(dims)))
            dims[at].dim_value = _int64(odd_number(rng, dims[at].dim_value))
        case 2 if dims:
            del dims[int(rng.integers(len(dims)))]
        case 3:
            dims.add().dim_value = _int64(odd_number(rng, 1))
        case 4:
            v.type.tensor_type.elem_type = int(one_of(rng, TensorProto.DataType.values()))
        case _:
            v.name = one_of(rng, _names(graph))


def _header(rng: np.random.Generator, model: ModelProto) -> None:
    match int(rng.integers(4)):
        case 0 if model.opset_import:
            model.opset_import[0].version = _int64(odd_number(rng, model.opset_import[0].version))
        case 1:
            model.ir_version = _int64(odd_number(rng, model.ir_version))
        case 2 if model.graph.output:
            model.graph.output.add().CopyFrom(one_of(rng, model.graph.output))
        case _:
            del model.opset_import[:]


class Models:
    """See the head of this file."""

    name, share = "models", 1.0

    def draw(self, seed: int) -> Case:
        rng = rng_of(seed)
        changes = tuple(int(n) for n in rng.integers(1 << 31, size=int(rng.integers(1, 4))))
        base, machine = int(rng.integers(len(BASES))), one_of(rng, MACHINES)
        return Case(base=base, changes=changes, machine=machine)

    def machines(self, case: Case) -> Sequence[str]:
        return [case.machine]

    def seconds(self, case: Case) -> float:
        return SECONDS_PER_CASE

    def judge(self, case: Case, machine: str) -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(model_bytes(case))
            bundle = compile_model(path, load_hw(machine), Options(budget=BUDGET)).bundle
        program = Program(bundle=bundle, hw=load_hw(machine))
        inputs = noise(bundle)
        result = program.run(inputs, capture=True)
        if not bundle.qdq:
            return None
        found = check(bundle, inputs, result)
        return None if found.passed or not found.tensors else str(found.first)

    def smaller(self, case: Case, machine: str) -> Iterator[Case]:
        for i in range(len(case.changes)):
            yield replace(case, changes=case.changes[:i] + case.changes[i + 1 :])

    def write(self, case: Case, folder: Path) -> None:
        (folder / "model.onnx").write_bytes(model_bytes(case))


KIND = Models()
