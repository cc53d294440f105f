"""Maps with a scale for each channel, in front of depthwise convolutions: on the machine, with ONNX
Runtime's bits.
"""

import numpy as np
import pytest

from opu_fuse.bundle.program import Bundle, HostSegment
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim import engine
from opu_fuse.sim.compare.runs import check
from tests.frontend.test_foreign_qdq_pairs import IMAGE, PLAIN, RNG, SHARED, right, written

STEPS = np.array([1, 0.5, 2, 0.25, 1, 4], np.float32) / 32
CONSTANTS = SHARED | {
    "steps": STEPS,
    "none": np.zeros(6, np.uint8),
    "middle": np.zeros(6, np.int8),
    "own": np.arange(6, dtype=np.uint8),
    "rows": np.array([1, 0.5, 2, 1, 0.25, 1], np.float32) / 128,
    "b": RNG.integers(-256, 257, 6).astype(np.float32) / 256,
    "d": RNG.integers(-99, 100, (6, 1, 3, 3)).astype(np.int8),
    "twice": RNG.integers(-99, 100, (12, 1, 3, 3)).astype(np.int8),
    "t": np.float32(2**-7),
    "e": RNG.integers(-256, 257, 6).astype(np.float32) / 256,
    "low": np.float32(0),
    "six": np.float32(6),
    "half": np.float32(0.5),
}
SUMS = (
    f"{PLAIN} w_r = DequantizeLinear<axis=0>(w, rows)  c = Conv<pads=[1,1,1,1]>(x_r, w_r, b) "
    " d_r = DequantizeLinear(d, t) "
)
RELU = " m = Relu(c) "
PAIR = (
    " m_q = QuantizeLinear<axis=1>(m, steps, none)"
    " m_r = DequantizeLinear<axis=1>(m_q, steps, none) "
)
LAYER = " k = Conv<group=6, pads=[1,1,1,1]>(m_r, d_r, e) "
END = " k_q = QuantizeLinear(k, s, z)  y = DequantizeLinear(k_q, s, z)"
PORTS = "(float[1,4,6,5] x) => (float[1,{},6,5] y)"


def hosted(bundle: Bundle) -> bool:
    return any(isinstance(s, HostSegment) for s in bundle.segments)


def compiled(nodes: str, *, channels: int = 6, **constants: np.ndarray) -> Bundle:
    """Its program, which gives what ONNX Runtime gives."""
    return right(written(PORTS.format(channels), nodes, CONSTANTS | constants), IMAGE)


FORMS = {
    "a Relu": SUMS + RELU + PAIR + LAYER + END,
    "nothing": SUMS.replace(" c = ", " m = ") + PAIR.replace("none", "middle") + LAYER + END,
    "limits beyond the integers": f"{SUMS} m = Clip(c, low, big) {PAIR}{LAYER}{END}",
    "no lower limit": SUMS + " m = Clip(c, , big) " + PAIR.replace("none", "middle") + LAYER + END,
    "a pair for each of two readers": (
        f"{SUMS}{RELU}{PAIR}{LAYER} n_q = QuantizeLinear<axis=1>(m, steps, none)"
        " n_r = DequantizeLinear<axis=1>(n_q, steps, none)"
        " j = Conv<group=6, pads=[1,1,1,1]>(n_r, d_r)  j_q = QuantizeLinear(j, s, z)"
        " j_r = DequantizeLinear(j_q, s, z)  k_q = QuantizeLinear(k, s, z)"
        " k_r = DequantizeLinear(k_q, s, z)  a = Add(j_r, k_r)  a_q = QuantizeLinear(a, s, z)"
        " y = DequantizeLinear(a_q, s, z)"
    ),
}


@pytest.mark.parametrize("nodes", FORMS.values(), ids=FORMS)
def test_the_scales_move_into_both_layers(nodes: str):
    assert not hosted(compiled(nodes, big=np.asarray(np.float32(2**10))))


def test_a_layer_with_several_filters_for_each_channel():
    nodes = f"{SUMS} v_r = DequantizeLinear(twice, t) {RELU}{PAIR}" + END.replace("(k,", "(l,")
    layer = " l = Conv<group=6, pads=[1,1,1,1]>(m_r, v_r) "
    compiled(nodes.replace(" k_q", f"{layer} k_q"), channels=12)


def test_scales_that_are_no_powers_of_two():
    steps = RNG.uniform(0.01, 0.1, 6).astype(np.float32)
    model = written(PORTS.format(6), FORMS["a Relu"], CONSTANTS | {"steps": steps})
    hw = load_hw("opu-light")
    bundle = compile_model(model, hw).bundle
    assert not hosted(bundle)
    result = engine.run(bundle, hw, {"x": IMAGE}, capture=True)
    assert check(bundle, {"x": IMAGE}, result).passed


@pytest.mark.parametrize("nodes", [
    SUMS + RELU + PAIR.replace("none", "own") + LAYER + END,
    f"{SUMS} m = Clip(c, low, half) {PAIR}{LAYER}{END}",
    f"{SUMS} m = HardSwish(c) {PAIR}{LAYER}{END}",
    f"{SUMS}{RELU}{PAIR} k = Conv<pads=[1,1,1,1]>(m_r, d_r) {END}",
    f"{SUMS}{RELU}{PAIR}{LAYER} o = Relu(m_r)  k_p = Add(k, o) " + END.replace("(k,", "(k_p,"),
], ids=["zero points", "a limit", "a curve", "a full layer", "another reader"])  # fmt: skip
def test_what_cannot_move_runs_on_the_host(nodes: str):
    full = RNG.integers(-9, 9, (6, 6, 3, 3)).astype(np.int8)
    assert hosted(compiled(nodes) if "group" in nodes else compiled(nodes, d=full))


def test_a_scale_that_no_multiplier_reaches_runs_on_the_host():
    steps = np.where(np.arange(6) == 3, np.float32(2**-30), STEPS).astype(np.float32)
    assert hosted(compiled(FORMS["a Relu"], steps=steps))
