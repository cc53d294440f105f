"""Hypothesis strategy for random canonical graphs, as text (see tests/dfg/canonical.py)."""

from dataclasses import dataclass, field

from hypothesis import strategies as st

CONV = "Conv<kernel_shape=[3,3],pads=[1,1,1,1]>"
UNARY = {
    "relu": "Relu({})",
    "clip": "Clip({}, low, high)",
    "leaky": "LeakyRelu<alpha=0.125>({})",
    "leaky_steep": "LeakyRelu<alpha=0.1>({})",
    "sigmoid": "Sigmoid({})",
    "max_pool": "MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>({})",
    "avg_pool": "AveragePool<kernel_shape=[3,3],pads=[1,1,1,1],count_include_pad=1>({})",
    "conv": CONV + "({}, w, b)",
    "conv_plain": CONV + "({}, w)",
    "conv_grouped": "Conv<kernel_shape=[1,1],group=4>({}, wg, b)",
    "shift": "Add({}, k)",
    "scale": "Mul({}, k)",
    "pad_crop": None,
    "twice": "Add({0}, {0})",
}
BINARY = {"add": "Add({}, {})", "multiply": "Mul({}, {})", "concat": None}


@dataclass
class _Body:
    lines: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)

    def add(self, operator: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"[n{len(self.lines)}] {name} = {operator}")
        return name


@st.composite
def graphs(draw: st.DrawFn, most: int = 12) -> str:
    """Up to `most` steps over feature maps (1, 4, 6, 6), two inputs, heads with a dense layer, any
    values as outputs.
    """
    body = _Body(values=["x", "z"])
    for _ in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from([*UNARY, *BINARY]))
        # Recent values first: chains are what fusing is about.
        first = draw(st.sampled_from(body.values[-3:]))
        if kind in BINARY:
            second = draw(st.sampled_from(body.values))
            body.values.append(_binary(body, kind, first, second))
        elif kind == "pad_crop":
            fill = draw(st.sampled_from(["zero", "minus"]))
            padded = body.add(f"Pad({first}, pads, {fill})")
            body.values.append(body.add(f"MaxPool<kernel_shape=[3,3]>({padded})"))
        else:
            body.values.append(body.add(UNARY[kind].format(first)))
    outputs = draw(st.sets(st.sampled_from(body.values[2:]), min_size=1, max_size=3))
    names = [f"float[] {v}" for v in sorted(outputs)]
    if draw(st.booleans()):
        pooled = body.add(f"GlobalAveragePool({body.values[-1]})")
        flat = body.add(f"Reshape({pooled}, flat)")
        names.append(f"float[] {body.add(f'Gemm<transB=1>({flat}, wd, bd)')}")
    return (
        "random (float[1,4,6,6] x, float[1,4,6,6] z, float[4,4,3,3] w, float[4,1,1,1] wg,"
        " float[4,8,1,1] wc, float[4] b, float[5,4] wd, float[5] bd, float[4,1,1] k)"
        f" => ({', '.join(names)})"
        " <float low = {-0.5}, float high = {1.5}, float zero = {0.0}, float minus = {-0.25},"
        " int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 1}, int64[2] flat = {1, 4}>"
        " {\n" + "\n".join(body.lines) + " }"
    )


def _binary(body: _Body, kind: str, first: str, second: str) -> str:
    if kind == "concat":
        joined = body.add(f"Concat<axis=1>({first}, {second})")
        return body.add(f"Conv<kernel_shape=[1,1]>({joined}, wc, b)")
    return body.add(BINARY[kind].format(first, second))
