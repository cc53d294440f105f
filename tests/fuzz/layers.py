"""What computes: convolutions, dense layers, pools, normalisations. One map in, one map out."""

import math

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.fuzz.sketch import MOST_ELEMENTS, MOST_MACS, Sketch, Value


def conv(s: Sketch, x: Value, *, out: int = 0, kernel: int = 7, stride: int = 3) -> Value:
    """Any form; out: channels, drawn if 0."""
    kind = "full" if out else s.pick(("full",) * 6 + ("depthwise",) * 3 + ("grouped",))
    c = x.channels
    groups, per_group = _groups(s, c, str(kind))
    form, size = _window(s, x.size, kernel, stride)
    k = form["kernel_shape"]
    taps = math.prod(k) * c // groups
    most = min(MOST_MACS // max(taps * math.prod(size), 1), MOST_ELEMENTS // math.prod(size))
    if not out:
        out = groups * per_group if kind != "full" else s.channels(max(most, 1))
    weight = s.weight((out, c // groups, *k), taps)
    operands = [x, weight]
    if s.chance(0.6):
        operands.append(s.numbers((out,), -0.4, 0.4))
    if groups > 1 or s.chance(0.1):
        form["group"] = groups
    for name, plain in (("strides", [1, 1]), ("dilations", [1, 1]), ("kernel_shape", k)):
        if form.get(name) == plain and s.chance(0.5):
            form.pop(name)
    return s.node("Conv", operands, (1, out, *size), **form)


def pointwise(s: Sketch, x: Value, out: int) -> Value:
    """A 1×1 convolution: what makes channels equal."""
    operands = [x, s.weight((out, x.channels, 1, 1), x.channels)]
    if s.chance(0.5):
        operands.append(s.numbers((out,), -0.4, 0.4))
    return s.node("Conv", operands, (1, out, *x.size))


def _groups(s: Sketch, c: int, kind: str) -> tuple[int, int]:
    """Groups, and output channels of each."""
    if kind == "depthwise" and c > 1:
        return c, 2 if c < 40 and s.chance(0.15) else 1
    divisors = [g for g in range(2, c) if c % g == 0]
    if kind == "grouped" and divisors:
        return int(s.pick(divisors)), s.number(1, 6)
    return 1, s.channels(48)


def _window(
    s: Sketch, size: tuple[int, int], kernel: int, stride: int, *, dilated: bool = True
) -> tuple[dict, list[int]]:
    """Attributes of a sliding window on an image, and the size of the result."""
    k = [int(s.pick([n for n in (1, 1, 2, 3, 3, 3, 5, 7) if n <= kernel])) for _ in size]
    if s.chance(0.6):
        k = [k[0], k[0]]
    d = [s.number(2, 3) if dilated and s.chance(0.12) else 1 for _ in size]
    step = [1] * 2 if s.chance(0.55) else [s.number(1, stride) for _ in size]
    reach = [(a - 1) * b + 1 for a, b in zip(k, d, strict=True)]
    form: dict = {"kernel_shape": k, "strides": step, "dilations": d}
    how = s.pick(("pads",) * 6 + ("half",) * 4 + ("SAME_UPPER", "SAME_LOWER", "VALID", "none"))
    fits = all(n >= r for n, r in zip(size, reach, strict=True))
    if how in {"SAME_UPPER", "SAME_LOWER"}:  # ONNX Runtime runs these without gaps only
        form |= {"auto_pad": how, "dilations": [1, 1]}
        form["strides"] = step = [min(pair) for pair in zip(step, k, strict=True)]
        return form, [-(-n // a) for n, a in zip(size, step, strict=True)]
    if how in {"VALID", "none"} and fits:
        if how == "VALID":
            form["auto_pad"] = how
        return form, [(n - r) // a + 1 for n, r, a in zip(size, reach, step, strict=True)]
    low = [max(0, -(-(r - n) // 2)) for n, r in zip(size, reach, strict=True)]
    pads = [
        max(low[i % 2], reach[i % 2] // 2 if how == "half" else s.number(0, reach[i % 2] // 2))
        for i in range(4)
    ]
    form["pads"] = pads
    made = [(n + pads[i] + pads[i + 2] - reach[i]) // step[i] + 1 for i, n in enumerate(size)]
    return form, made


def conv_transpose(s: Sketch, x: Value) -> Value:
    c = x.channels
    k = [s.number(1, 4) for _ in range(2)]
    step = [s.number(1, 3) for _ in range(2)]
    d = [2 if s.chance(0.06) else 1 for _ in range(2)]
    reach = [(a - 1) * b + 1 for a, b in zip(k, d, strict=True)]
    larger = [max(pair) for pair in zip(step, d, strict=True)]
    more = [s.number(0, n - 1) if s.chance(0.3) else 0 for n in larger]
    pads = [s.number(0, (reach[i % 2] - 1) // 2) for i in range(4)]
    size = [
        (n - 1) * step[i] + reach[i] + more[i] - pads[i] - pads[i + 2] for i, n in enumerate(x.size)
    ]
    if min(size) < 1:
        pads, size = [0] * 4, [(n - 1) * step[i] + reach[i] + more[i] for i, n in enumerate(x.size)]
    groups = int(s.pick([1, 1, 1, c, *(g for g in range(2, min(c, 5)) if c % g == 0)]))
    most = MOST_ELEMENTS // math.prod(size)
    each = 1 if groups == c else s.channels(max(1, min(most, 64) // groups))
    taps = max(c // groups * math.prod(k) / math.prod(step), 1.0)
    operands = [x, s.weight((c, each, *k), taps)]
    if s.chance(0.6):
        operands.append(s.numbers((each * groups,), -0.4, 0.4))
    form = {"strides": step, "pads": pads, "output_padding": more, "dilations": d, "group": groups}
    return s.node("ConvTranspose", operands, (1, each * groups, *size), **form)


def pool(s: Sketch, x: Value) -> Value:
    """Max or average, with every attribute."""
    op = str(s.pick(("MaxPool", "MaxPool", "AveragePool")))
    dilated = op == "MaxPool" or s.opset >= 19
    form, size = _window(s, x.size, 5, 3, dilated=dilated and s.chance(0.3))
    if op == "AveragePool":
        form["count_include_pad"] = s.number(0, 1)
    if not dilated or form["dilations"] == [1, 1]:
        form.pop("dilations")
    k = form["kernel_shape"]
    pads = form.get("pads")
    if pads and any(p >= k[i % 2] for i, p in enumerate(pads)):
        form["pads"] = pads = [min(p, k[i % 2] - 1) for i, p in enumerate(pads)]
        size = _floor(form, x.size)
        if min(size) < 1:
            return x
    if "auto_pad" not in form and s.chance(0.2):
        form["ceil_mode"] = 1
        size = _ceil(form, x.size)
        if size != measured(s, op, x, form):  # ONNX's inference and its text disagree
            return x
    return s.node(op, (x,), (1, x.channels, *size), **form)


def _floor(form: dict, size: tuple[int, int]) -> list[int]:
    d = form.get("dilations", [1, 1])
    reach = [(a - 1) * b + 1 for a, b in zip(form["kernel_shape"], d, strict=True)]
    pads, step = form["pads"], form["strides"]
    return [(n + pads[i] + pads[i + 2] - reach[i]) // step[i] + 1 for i, n in enumerate(size)]


def _ceil(form: dict, size: tuple[int, int]) -> list[int]:
    """Windows that would begin behind the image and its left padding are left out."""
    d, pads = form.get("dilations", [1, 1]), form.get("pads", [0, 0, 0, 0])
    step, made = form.get("strides", [1, 1]), []
    for i, n in enumerate(size):
        reach = (form["kernel_shape"][i] - 1) * d[i] + 1
        count = -(-(n + pads[i] + pads[i + 2] - reach) // step[i]) + 1
        made.append(count - ((count - 1) * step[i] >= n + pads[i]))
    return made


def measured(s: Sketch, op: str, x: Value, form: dict) -> list[int]:
    """Rows and columns that ONNX's shape inference gives: rules for ceil_mode are its own."""
    node = helper.make_node(op, ["x"], ["y"], **form)
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "one", [info], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", s.opset)])
    shape = onnx.shape_inference.infer_shapes(model).graph.output[0].type.tensor_type.shape
    return [d.dim_value for d in shape.dim][2:]


def global_pool(s: Sketch, x: Value) -> Value:
    op = str(s.pick(("GlobalAveragePool",) * 3 + ("GlobalMaxPool", "ReduceMean", "ReduceMax")))
    shape = (1, x.channels, 1, 1)
    if op.startswith("Global"):
        return s.node(op, (x,), shape)
    return reduced(s, op, x, (2, 3), shape)


def reduced(s: Sketch, op: str, x: Value, axes: tuple[int, ...], shape: tuple[int, ...]) -> Value:
    """A reduction that keeps its dimensions; where axes stand depends on the opset."""
    if s.opset >= 18:
        return s.node(op, (x, s.ints(*axes)), shape, keepdims=1)
    return s.node(op, (x,), shape, axes=list(axes), keepdims=1)


def batch_norm(s: Sketch, x: Value) -> Value:
    c = (x.channels,)
    sign = s.rng.choice([-1.0, 1.0], c, p=[0.2, 0.8])
    factor = s.constant((s.rng.uniform(0.4, 1.6, c) * sign).astype(np.float32))
    rest = (s.numbers(c, -0.5, 0.5), s.numbers(c, -0.4, 0.4), s.numbers(c, 0.4, 2.0))
    return s.same("BatchNormalization", x, factor, *rest, epsilon=float(s.pick((1e-5, 1e-3))))


def dense(s: Sketch, x: Value) -> Value:
    """A head: flattened, then Gemm or MatMul; the result has two dimensions."""
    n = math.prod(x.shape)
    flat = s.node("Flatten", (x,), (1, n)) if s.chance(0.6) else reshape(s, x, (1, n))
    for _ in range(1 if s.chance(0.7) else 2):
        out = s.channels(max(MOST_MACS // flat.shape[1] // 2, 1))
        k = flat.shape[1]
        if s.chance(0.6):
            turned = s.number(0, 1)
            weight = s.weight((out, k) if turned else (k, out), k)
            operands = [flat, weight, *([s.numbers((out,), -0.3, 0.3)] if s.chance(0.7) else [])]
            alpha = {"alpha": 0.5} if s.chance(0.05) else {}
            flat = s.node("Gemm", operands, (1, out), transB=turned, **alpha)
        else:
            flat = s.node("MatMul", (flat, s.weight((k, out), k)), (1, out))
            if s.chance(0.6):
                flat = s.same("Add", flat, s.numbers((out,), -0.3, 0.3))
        if s.chance(0.4):
            flat = s.same(str(s.pick(("Relu", "LeakyRelu", "Sigmoid", "Tanh"))), flat)
    return flat


def reshape(s: Sketch, x: Value, shape: tuple[int, ...]) -> Value:
    given = [*shape]
    if s.chance(0.4):
        given[s.number(0, len(shape) - 1)] = -1
    return s.node("Reshape", (x, s.ints(*given)), shape)


def reduced_index(s: Sketch, x: Value) -> Value:
    """An output of integers: ArgMax along the channels."""
    shape = (x.shape[0], 1, *x.shape[2:])
    return s.node("ArgMax", (x,), shape, axis=1, keepdims=1)
