"""LSTM, GRU and RNN unrolled: the products with the inputs of all steps first, then one step after
the other.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from msgspec import Struct, field
from onnx import helper

from opu_fuse.host.build.linalg.site import TensorType

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_PLAIN = frozenset({"hidden_size", "direction", "layout", "linear_before_reset", "input_forget"})
"""Attributes that are known here; others may choose other functions."""
_ACTIVATIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_DIRECTIONS = {"forward": (1,), "reverse": (-1,), "bidirectional": (1, -1)}
_OPERANDS: Sequence[str] = ("x", "w", "r", "b", "lengths", "h", "c", "p")


class Unrolled(Struct):
    """The nodes of a recurrent operator, and constants of theirs by name."""

    prefix: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, op: str, *inputs: str, axis: int | None = None, results: int = 1) -> list[str]:
        """Names of a new node's results."""
        names = [f"{self.prefix}/{len(self.nodes)}.{n}" for n in range(results)]
        self.nodes.append(helper.make_node(op, inputs, names, axis=axis))
        return names

    def one(self, op: str, *inputs: str, axis: int | None = None) -> str:
        """The name of a new node's result."""
        return self.add(op, *inputs, axis=axis)[0]

    def constant(self, data: np.ndarray) -> str:
        """The name of new data."""
        name = f"{self.prefix}/constant {len(self.constants)}"
        self.constants[name] = np.array(data, order="C")
        return name


class _Cell(Struct, frozen=True):
    """What the steps of one direction share: weights (gates · H, I) and (gates · H, H), the biases
    after the products with the input and with the state, by gate.
    """

    u: Unrolled
    w: np.ndarray
    r: np.ndarray
    before: np.ndarray
    bias: np.ndarray
    linear: bool


def unrolled(
    node: onnx.NodeProto, types: Mapping[str, TensorType], constants: Mapping[str, np.ndarray]
) -> Unrolled | None:
    """None for another operator, and for forms that are not known: weights that are computed,
    lengths, peepholes, other activations.
    """
    if node.op_type not in _GATES:
        return None
    said = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    names = dict(zip(_OPERANDS, node.input, strict=False))
    w, r = (constants.get(names.get(key, "")) for key in "wr")
    shape = types[node.input[0]].shape
    if shape is None or w is None or r is None or not _plain(node.op_type, said):
        return None
    empty = np.zeros((len(w), 2 * w.shape[1]), w.dtype)
    b = constants.get(names["b"]) if names.get("b") else empty
    directions = _DIRECTIONS[said.get("direction", b"forward").decode()]
    if b is None or not _whole(names, constants, shape[0]) or len(directions) != len(w):
        return None
    u, linear = Unrolled(node.name or node.output[0]), bool(said.get("linear_before_reset", 0))
    rows: list[list[str]] = []
    ends: list[Sequence[str]] = []
    for n, sign in enumerate(directions):
        before, bias = np.split(b[n], 2)
        cell = _Cell(u, w[n], r[n], before, bias, linear)
        state = [_start(u, names.get(key), n, shape[1], r.shape[2]) for key in "hc"]
        shown, end = _steps(cell, node, state, range(shape[0])[::sign])
        rows.append(shown)
        ends.append(end)
    _results(u, node, rows, ends)
    return u


def _steps(
    cell: _Cell, node: onnx.NodeProto, state: Sequence[str], order: range
) -> tuple[list[str], Sequence[str]]:
    """The state shown at each time, and the last one."""
    u, shown = cell.u, [""] * len(order)
    x = u.one("MatMul", node.input[0], u.constant(cell.w.T))
    x = u.one("Add", x, u.constant(cell.before))
    for t in order:
        now = u.one("Gather", x, u.constant(np.array(t)), axis=0)
        state = _CELLS[node.op_type](cell, now, state)
        shown[t] = state[0]
    return shown, state


def _plain(op: str, said: Mapping[str, object]) -> bool:
    functions = said.get("activations") or []
    assert isinstance(functions, list)
    usual = [f.decode() for f in functions] == [*_ACTIVATIONS[op]] * (
        len(functions) // len(_ACTIVATIONS[op])
    )
    unusual = said.get("layout", 0) or said.get("input_forget", 0)
    return usual and not unusual and said.keys() <= _PLAIN | {"activations"}


def _whole(names: Mapping[str, str], constants: Mapping[str, np.ndarray], steps: int) -> bool:
    """Every sequence has all steps, and there are no peepholes."""
    lengths = constants.get(names.get("lengths", ""))
    every = not names.get("lengths") or (lengths is not None and bool((lengths == steps).all()))
    return every and not names.get("p")


def _start(u: Unrolled, name: str | None, direction: int, batch: int, hidden: int) -> str:
    if not name:
        return u.constant(np.zeros((batch, hidden), np.float32))
    return u.one("Gather", name, u.constant(np.array(direction)), axis=0)


def _gates(cell: _Cell, x: str, h: str, count: int) -> list[str]:
    u = cell.u
    product = u.one("Add", u.one("MatMul", h, u.constant(cell.r.T)), u.constant(cell.bias))
    gates = u.one("Add", x, product)
    return u.add("Split", gates, results=count, axis=-1) if count > 1 else [gates]


def _lstm(cell: _Cell, x: str, state: Sequence[str]) -> list[str]:
    u = cell.u
    i, o, f, c = _gates(cell, x, state[0], 4)
    i, o, f = (u.one("Sigmoid", g) for g in (i, o, f))
    c = u.one("Add", u.one("Mul", f, state[1]), u.one("Mul", i, u.one("Tanh", c)))
    return [u.one("Mul", o, u.one("Tanh", c)), c]


def _gru(cell: _Cell, x: str, state: Sequence[str]) -> list[str]:
    """The reset gate works on the state before its product, or (linear_before_reset) after it."""
    u, hidden, h = cell.u, len(cell.r) // 3, state[0]
    parts = u.add("Split", x, results=3, axis=-1)

    def product(value: str, gate: int) -> str:
        rows = slice(gate * hidden, (gate + 1) * hidden)
        whole = u.one("MatMul", value, u.constant(cell.r[rows].T))
        return u.one("Add", whole, u.constant(cell.bias[rows]))

    z, r = (u.one("Sigmoid", u.one("Add", parts[n], product(h, n))) for n in (0, 1))
    new = u.one("Mul", r, product(h, 2)) if cell.linear else product(u.one("Mul", r, h), 2)
    new = u.one("Tanh", u.one("Add", parts[2], new))
    rest = u.one("Mul", u.one("Sub", u.constant(np.ones(1, np.float32)), z), new)
    return [u.one("Add", rest, u.one("Mul", z, h)), h]


def _rnn(cell: _Cell, x: str, state: Sequence[str]) -> list[str]:
    (gate,) = _gates(cell, x, state[0], 1)
    return [cell.u.one("Tanh", gate), state[1]]


_CELLS: Mapping[str, Callable[[_Cell, str, Sequence[str]], list[str]]] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN": _rnn,
}


def _results(
    u: Unrolled, node: onnx.NodeProto, rows: Sequence[Sequence[str]], ends: Sequence[Sequence[str]]
) -> None:
    """Y (steps, directions, batch, hidden), and the last states."""
    first = u.constant(np.array([0]))
    whole = [*node.output, "", "", ""]
    if whole[0]:
        second = u.constant(np.array([0, 1]))
        sequences = [
            u.one("Concat", *(u.one("Unsqueeze", h, second) for h in shown), axis=0)
            for shown in rows
        ]
        u.nodes.append(helper.make_node("Concat", sequences, [whole[0]], axis=1))
    for n, name in enumerate(whole[1:3]):
        if name:
            last = [u.one("Unsqueeze", end[n], first) for end in ends]
            u.nodes.append(helper.make_node("Concat", last, [name], axis=0))
