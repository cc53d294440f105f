"""A whole random network: inputs, a number of steps, outputs."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto

from tests.fuzz import attention, joins, large_windows, layers, moves, norms, reforms
from tests.fuzz.pointwise import activate
from tests.fuzz.sketch import MOST_ELEMENTS, Sketch, Value
from tests.fuzz.tokens import tokens

Steps = Mapping[Callable[[Sketch, Value], Value], float]


def repeated(s: Sketch, x: Value) -> Value:
    """The same few operators over and over, each reading the last: what goes one further with every
    round of a pass shows.
    """
    cheap = (activate, activate, moves.turn, moves.view, moves.pad, moves.split, joins.residual)
    motif = [s.pick(cheap) for _ in range(s.number(1, 3))]
    for step in motif * s.number(4, 10):
        made = step(s, x)
        if made.elements <= MOST_ELEMENTS and len(made.shape) == 4:
            x = made
    return x


STEPS: Steps = {
    layers.conv: 9.0,
    layers.conv_transpose: 1.0,
    layers.pool: 2.5,
    layers.global_pool: 0.5,
    layers.batch_norm: 1.5,
    activate: 7.0,
    joins.residual: 3.0,
    joins.summed: 0.7,
    joins.gate: 1.2,
    joins.broadcast: 0.5,
    joins.linear_unit: 0.6,
    joins.concat: 3.5,
    joins.concat_elsewhere: 0.2,
    joins.dense_block: 0.4,
    joins.branches: 0.6,
    moves.split: 1.2,
    moves.cut: 0.6,
    moves.crop: 0.6,
    moves.roll: 0.4,
    moves.class_token: 0.4,
    moves.shuffle: 0.7,
    moves.permute: 0.7,
    moves.pad: 1.0,
    moves.resize: 1.0,
    moves.turn: 0.4,
    moves.view: 0.5,
    moves.depth_space: 0.3,
    moves.expand: 0.3,
    attention.attention: 0.6,
    norms.norm: 0.8,
    reforms.reduction: 0.4,
    reforms.einsum: 0.4,
    reforms.tile: 0.2,
    reforms.shrink: 0.4,
    reforms.large_maximum: 0.3,
    large_windows.large_depthwise: 0.15,
    large_windows.large_mean: 0.1,
    large_windows.large_global_pool: 0.15,
    repeated: 0.4,
    tokens: 1.0,
}
OPSETS = (13, 14, 15, 16, 17, 17, 18, 18, 19, 20, 21, 23)
STALE_SHARE = 0.01
"""Networks that declare a wrong shape for a value inside."""


def draw_model(rng: np.random.Generator, steps: Steps = STEPS) -> onnx.ModelProto:
    """A float model, or one with integer inputs. steps: how often each is drawn."""
    s = Sketch(rng, int(rng.choice(OPSETS)))
    _inputs(s)
    weights = np.array(list(steps.values()))
    kinds = list(steps)
    for _ in range(s.number(1, 4) if s.chance(0.35) else s.number(3, 11)):
        step = kinds[rng.choice(len(kinds), p=weights / weights.sum())]
        made = step(s, _operand(s))
        if made.elements <= 2 * MOST_ELEMENTS and len(made.shape) == 4:
            s.maps.append(made)
    outputs = _outputs(s)
    model = s.model(outputs)
    if s.chance(STALE_SHARE):
        _declare_wrongly(s, model)
    return model


def _operand(s: Sketch) -> Value:
    """Mostly one of the last."""
    if s.chance(0.6):
        return s.maps[-1]
    return s.pick(s.maps[-4:]) if s.chance(0.6) else s.pick(s.maps)


def _inputs(s: Sketch) -> None:
    for _ in range(int(s.pick((1, 1, 1, 1, 1, 2, 2, 3)))):
        if s.maps and s.chance(0.6):
            size = list(s.maps[0].size)
        else:
            longest = 40 if s.chance(0.08) else int(s.pick((4, 9, 14, 20)))
            size = [s.number(1, longest) for _ in range(2)]
            if s.chance(0.5):
                size[1] = size[0]
        most = MOST_ELEMENTS // (size[0] * size[1])
        shape = (1, s.pick((1, 3, 3, 4)) if s.chance(0.3) else s.channels(most), *size)
        if s.chance(0.06):
            _integer_input(s, shape)
        elif s.chance(0.1):
            x = s.input((1, *shape[2:], shape[1]))
            s.maps[-1] = s.node("Transpose", (x,), shape, perm=[0, 3, 1, 2])
        else:
            s.input(shape)


def _integer_input(s: Sketch, shape: tuple[int, ...]) -> None:
    """Pixels as cameras give them: rows × columns × channels now and then."""
    kind = int(s.pick((TensorProto.UINT8, TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32)))
    nhwc = s.chance(0.3)
    given = (1, *shape[2:], shape[1]) if nhwc else shape
    x = s.input(given, kind)
    if kind != TensorProto.INT32 and s.chance(0.4):
        zero = s.constant(np.array(0, np.uint8 if kind == TensorProto.UINT8 else np.int8))
        y = s.same("DequantizeLinear", x, s.constant(np.array(2.0**-5, np.float32)), zero)
    else:
        y = s.same("Cast", x, to=TensorProto.FLOAT)
        y = s.same("Mul", y, s.constant(np.array(1 / 64, np.float32)))
        by_channel = (shape[1],) if nhwc else (shape[1], 1, 1)
        if s.chance(0.5):
            y = s.same("Sub", y, s.numbers(by_channel if s.chance(0.5) else (1,), 0.0, 2.0))
        if s.chance(0.3):
            y = s.same("Div", y, s.numbers(by_channel, 0.5, 2.0))
        if s.chance(0.2):  # blue first
            order = s.ints(*reversed(range(shape[1])))
            y = s.node("Gather", (y, order), y.shape, axis=3 if nhwc else 1)
    if nhwc:
        y = s.node("Transpose", (y,), shape, perm=[0, 3, 1, 2])
    s.maps.append(y)


def _outputs(s: Sketch) -> list[tuple[str, int]]:
    """What nobody reads (at most four), sometimes more; sometimes a head behind the last map."""
    if s.chance(0.3):
        _head(s)
    outputs = s.unread()[-4:] or [s.maps[-1].name]
    found: list[tuple[str, int]] = []
    for name in outputs:
        if s.chance(0.04) and len(s.shapes[name]) in {2, 4}:
            x = Value(name, s.shapes[name])
            made = layers.reduced_index(s, x)
            found.append((made.name, TensorProto.INT64))
        elif s.chance(0.15) and len(s.shapes[name]) == 4:
            found.append((_turned(s, Value(name, s.shapes[name])).name, TensorProto.FLOAT))
        else:
            found.append((name, TensorProto.FLOAT))
    if s.chance(0.15):  # one that is read inside as well
        found.append((s.pick(s.maps).name, TensorProto.FLOAT))
    if s.chance(0.08):
        found.append((_passed_on(s).name, TensorProto.FLOAT))
    floats = {n for n, kind in found if kind == TensorProto.FLOAT}
    return _once(
        [(n, k) for n, k in found if n not in s.inputs or (n in floats and s.chance(0.3))]
        or [(s.same("Relu", s.maps[-1]).name, TensorProto.FLOAT)]
    )


def _passed_on(s: Sketch) -> Value:
    """An input, or something that is moved of it for an output of the model alone."""
    floats = [x for x in s.maps if x.name in s.inputs]
    if not floats:
        return s.maps[-1]
    x = s.pick(floats)
    way = s.number(0, 3)
    if way == 0:
        return s.same("Identity", x)
    if way == 1:
        y = s.node("Transpose", (x,), (1, *x.size, x.channels), perm=[0, 2, 3, 1])
        return moves.reshape(s, y, (1, y.elements)) if s.chance(0.5) else y
    if way == 2:
        return s.node("Concat", (x, x), (1, 2 * x.channels, *x.size), axis=1)
    return moves.reshape(s, x, (1, x.elements))


def _turned(s: Sketch, x: Value) -> Value:
    """Channels last, as frameworks that compute so hand it out; heads of detectors as a list."""
    c, (h, w) = x.channels, x.size
    y = s.node("Transpose", (x,), (1, h, w, c), perm=[0, 2, 3, 1])
    return moves.reshape(s, y, (1, h * w, c)) if s.chance(0.4) else y


def _once(outputs: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    return list(dict(outputs).items())


def _head(s: Sketch) -> None:
    x = s.maps[-1]
    if x.size != (1, 1) and s.chance(0.6):
        x = layers.global_pool(s, x)
    y = layers.dense(s, x)
    if s.chance(0.3):
        s.same("Softmax", y, axis=-1)


def _declare_wrongly(s: Sketch, model: onnx.ModelProto) -> None:
    """The shape of a value inside, a row less or more: as editors leave it that change sizes."""
    inside = [
        v
        for n in model.graph.node
        for v in n.output
        if len(s.shapes.get(v, ())) == 4 and v not in {o.name for o in model.graph.output}
    ]
    if not inside:
        return
    name = str(s.pick(inside))
    shape = [*s.shapes[name]]
    axis = s.number(1, 3)
    shape[axis] = max(1, shape[axis] + int(s.pick((-2, -1, 1, 2))))
    info = onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    model.graph.value_info.append(info)
