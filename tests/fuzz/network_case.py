"""A network with all that a run of it depends on, drawn from one seed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.fuzz.careless import careless
from tests.fuzz.machines import SHARES, SHIFTERS
from tests.fuzz.onnxruntime_runs import roundings, values_of
from tests.fuzz.quantised import by_onnxruntime, draw_style, quantised
from tests.fuzz.random_network import STEPS, Steps, draw_model
from tests.fuzz.sketch import LARGEST, TooLargeError, needed
from tests.fuzz.writing import draw_writing, written

_MARK = 0x0F05
_SAMPLE_SEED = 7
_ARRAYS: dict[int, type[np.generic]] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.UINT8: np.uint8,
    TensorProto.INT8: np.int8,
    TensorProto.INT32: np.int32,
    TensorProto.INT64: np.int64,
    TensorProto.BOOL: np.bool_,
}
_MOST_OF_SUMS = 1e12
"""Of floats that are rounded to int8 next: a bias may have any scale."""
_TRIES = 4
"""Of placing pairs: ONNX Runtime does not run every type everywhere."""
LONGEST_CONSTANT = 16
"""Constants with more elements are written as their shapes alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCase:
    """model: as given to `compile`. exact: its scales, or those it will get, are powers of two.
    quantised: it arrives as QDQ. reuse_memory, cascades, strategy, scales: options of compile.
    shuffle: seed of another order to run in. cycle, rtl, file: on these engines too; through a
    program file. canonical: the float graphs are compared as well. batch: images that a second
    program runs together, 1 for none. writing: how it is written before it is compiled, a key of
    `writing.WRITINGS`.
    """

    seed: int
    model: bytes
    machines: tuple[str, ...]
    scales: str = "pow2"
    quantised: bool = False
    exact: bool = True
    reuse_memory: bool = True
    cascades: str = "auto"
    strategy: str = "matched"
    shuffle: int | None = None
    cycle: bool = False
    rtl: bool = False
    file: bool = False
    canonical: bool = False
    batch: int = 1
    writing: str = ""

    def proto(self) -> onnx.ModelProto:
        return onnx.load_from_string(self.model)

    def given(self) -> onnx.ModelProto:
        """As `compile` gets it."""
        return written(self.proto(), self.writing, self.seed)

    def inputs(self, samples: int = 1, salt: int = 0) -> dict[str, np.ndarray]:
        """The same arrays for equal ports, whatever else is in the model."""
        return sample_inputs(self.proto(), np.random.default_rng([self.seed, _SAMPLE_SEED, salt]))

    def images(self, count: int) -> dict[str, np.ndarray]:
        """Different samples, along the first axis of every input."""
        samples = [self.inputs(salt=2 + n) for n in range(count)]
        return {name: np.concatenate([s[name] for s in samples]) for name in samples[0]}

    def text(self) -> str:
        """What a person needs: options, and the graph without the numbers of its weights."""
        proto = self.proto()
        lines = [
            f"seed {self.seed}, machines {self.machines}, opset {proto.opset_import[0].version}",
            f"scales {self.scales}, strategy {self.strategy}, cascades {self.cascades}",
            f"reuse_memory {self.reuse_memory}",
            f"shuffle {self.shuffle}, cycle {self.cycle}, rtl {self.rtl}, file {self.file}",
            f"batch {self.batch}, writing {self.writing!r}",
        ]
        lines += [f"input {_port(i)}" for i in proto.graph.input]
        lines += [_node(n) for n in proto.graph.node]
        lines += [f"output {_port(o)}" for o in proto.graph.output]
        lines += [_constant(i) for i in proto.graph.initializer]
        lines += [f"declared {_port(v)}" for v in proto.graph.value_info]
        return "\n".join(lines) + "\n"


def draw(seed: int, steps: Steps = STEPS, *, carelessly: bool = False) -> NetworkCase:
    """The case of a seed. Networks that ONNX Runtime refuses, or whose values or sizes leave all
    bounds, are drawn again. steps: as for `draw_model`. carelessly: quantised by `careless`.
    """
    for attempt in range(50):
        rng = np.random.default_rng([seed, attempt, _MARK])
        try:
            model = draw_model(rng, steps)
        except TooLargeError:
            continue
        if not _runs(model, rng):
            continue
        case = _case(seed, model, rng, carelessly=carelessly)
        if not carelessly or any(n.op_type == "DequantizeLinear" for n in case.proto().graph.node):
            return case
    raise AssertionError(f"seed {seed}: no network that ONNX Runtime runs")


def _case(
    seed: int, model: onnx.ModelProto, rng: np.random.Generator, *, carelessly: bool
) -> NetworkCase:
    scales, is_quantised, exact = "pow2", False, True
    way = rng.random()
    if carelessly or 0.25 <= way < 0.4:
        for _ in range(_TRIES):
            found, pow2 = careless(model, sample_inputs(model, rng), rng)
            if _runs(found, rng, _MOST_OF_SUMS):
                model, is_quantised = found, rounds(found)
                exact = pow2 or not is_quantised
                break
    elif way < 0.25:
        scales, exact = "free", False
    elif way < 0.65:
        style = draw_style(rng)
        found = quantised(model, sample_inputs(model, rng), style)
        if _runs(found, rng, _MOST_OF_SUMS) and rounds(found):
            model, is_quantised, exact = found, True, style.exact
    elif way < 0.69:
        unsigned, symmetric = rng.random(2) < 0.5
        weights = str(rng.choice(["int8", "uint8", "asymmetric"]))
        sample = sample_inputs(model, rng)
        try:
            found = by_onnxruntime(
                model,
                sample,
                unsigned=unsigned or weights == "uint8",  # it refuses int8 beside uint8 weights
                symmetric=symmetric,
                weights=weights,
            )
        except Exception:  # noqa: BLE001 its quantiser knows fewer graphs than it says
            found = model
        if rounds(found) and _runs(found, rng):
            model, is_quantised, exact = found, True, False
    names = list(SHARES)
    shifts = 1.0 if exact else 0.2 if is_quantised else 0.0
    shares = np.array([SHARES[n] * (shifts if n in SHIFTERS else 1.0) for n in names])
    chosen = rng.choice(len(names), 3 if rng.random() < 0.5 else 2, False, shares / shares.sum())
    strategies = ["matched"] * 30 + ["optimal"] * 4 + ["dominator", "dominator", "none", "greedy"]
    return NetworkCase(
        seed=seed,
        model=model.SerializeToString(),
        machines=tuple(names[i] for i in chosen),
        scales=scales,
        quantised=is_quantised,
        exact=exact,
        reuse_memory=bool(rng.random() < 0.4),
        strategy=str(rng.choice(strategies)),
        shuffle=int(rng.integers(1000)) if rng.random() < 0.3 else None,
        cycle=bool(rng.random() < 0.15),
        file=bool(rng.random() < 0.1),
        canonical=bool(rng.random() < 0.25),
        batch=_batch(model, rng),
        cascades=str(rng.choice(["auto", "always"], p=[0.6, 0.4])),
        writing="" if is_quantised else draw_writing(rng),
    )


def _batch(model: onnx.ModelProto, rng: np.random.Generator) -> int:
    """More than one in every sixth network, where inputs are single images."""
    drawn = int(rng.integers(2, 5)) if rng.random() < 0.17 else 1
    shapes = [i.type.tensor_type.shape.dim for i in model.graph.input]
    return drawn if all(len(s) and s[0].dim_value == 1 for s in shapes) else 1


def sample_inputs(model: onnx.ModelProto, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """One sample: noise around a mean per channel; integers as pixels are."""
    found = {}
    for port in model.graph.input:
        kind = _ARRAYS[port.type.tensor_type.elem_type]
        shape = [d.dim_value for d in port.type.tensor_type.shape.dim]
        if kind is np.float32:
            means = rng.normal(0.0, 0.5, (shape[:2] + [1] * (len(shape) - 2))[: len(shape)])
            found[port.name] = (rng.normal(0.0, 0.8, shape) + means).astype(np.float32)
        elif kind is np.bool_:
            found[port.name] = rng.random(shape) < 0.5
        else:
            low, high = (0, 256) if kind is np.uint8 else (-100, 128)
            found[port.name] = rng.integers(low, high, shape).astype(kind)
    return found


def rounds(model: onnx.ModelProto) -> bool:
    """Whether a model rounds what it computes: of constants alone that does not make it int8, nor
    does a pair that no output needs.
    """
    kept = needed(model.graph.node, [output.name for output in model.graph.output])
    return not roundings(model).keys().isdisjoint(name for n in kept for name in n.output)


def _runs(model: onnx.ModelProto, rng: np.random.Generator, most: float = 1e4) -> bool:
    try:
        values = values_of(model, sample_inputs(model, rng))
    except Exception:  # noqa: BLE001 ONNX Runtime's classes are its own
        return False
    if _macs(model, values) > LARGEST:
        return False
    for output in model.graph.output:
        shape = tuple(d.dim_value for d in output.type.tensor_type.shape.dim)
        if values[output.name].shape != shape:
            return False
    floats = [a for a in values.values() if a.dtype == np.float32]
    return all(np.isfinite(a).all() and np.abs(a).max(initial=0.0) < most for a in floats)


def _macs(model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> int:
    """Multiply-accumulates with constant weights, of a float model."""
    sizes = {i.name: math.prod(i.dims) for i in model.graph.initializer}
    return sum(
        sizes.get(n.input[1], 0) * math.prod(values[n.output[0]].shape[2:])
        for n in model.graph.node
        if n.op_type in {"Conv", "ConvTranspose", "Gemm", "MatMul"}
    )


def _port(info: onnx.ValueInfoProto) -> str:
    kind = TensorProto.DataType.Name(info.type.tensor_type.elem_type).lower()
    return f"{info.name}: {kind}{[d.dim_value for d in info.type.tensor_type.shape.dim]}"


def _node(node: onnx.NodeProto) -> str:
    form = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    given = "".join(f", {k}={v}" for k, v in form.items())
    return f"{', '.join(node.output)} = {node.op_type}({', '.join(node.input)}{given})"


def _constant(tensor: onnx.TensorProto) -> str:
    data = onnx.numpy_helper.to_array(tensor)
    numbers = f" = {data.reshape(-1).tolist()}" if data.size <= LONGEST_CONSTANT else ""
    return f"constant {tensor.name}: {data.dtype}{list(data.shape)}{numbers}"
