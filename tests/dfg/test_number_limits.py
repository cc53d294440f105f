"""Numbers beyond a machine's registers: replaced where that changes no bit, else the operator runs
on the host with the reason.
"""

import numpy as np
import onnx
import pytest

from opu_fuse.fixedpoint import activate, requantize
from opu_fuse.hw.spec.hw_spec import Numeric
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, Program, compile_model, partition_model
from opu_fuse.quant import QuantParams
from opu_fuse.sim.compare.runs import check
from opu_fuse.units.comparator import COMPARATOR
from opu_fuse.units.operator import Operand, Operator
from opu_fuse.units.prelu import PRELU
from tests.some import some

HEADER = '<ir_version: 10, opset_import: ["" : 17]>'
MULTIPLIERS = Numeric(multiplier_bits=16, average_bits=16)
SHIFTS = Numeric(multiplier_bits=0, average_bits=16)
SUMS = np.concatenate([np.arange(-300, 301), [-(2**31), 2**31 - 1]])


def q(scale: float, zero: int = 0) -> QuantParams:
    return QuantParams(scale=(scale,), zero_point=zero)


def operator(op: str, ratio: float, zeros: tuple[int, int] = (0, 0), **attrs: float) -> Operator:
    """From scale `ratio` to scale 1."""
    x = Operand(name="x", shape=(1, 2, 1, 1), quant=q(ratio, zeros[0]), const=None, negative=False)
    y = Operand(name="y", shape=(1, 2, 1, 1), quant=q(1.0, zeros[1]), const=None, negative=False)
    slopes = np.array([0.5, -(2.0**20)], np.float32)
    k = Operand(name="k", shape=(2, 1, 1), quant=None, const=slopes, negative=False)
    operands = (x, k) if op == "prelu" else (x,)
    return Operator(name="n", op=op, attrs=attrs, operands=operands, result=y)


def real(values: np.ndarray, ratio: float, zero: int) -> np.ndarray:
    """In floats, rounded once."""
    return np.clip(np.rint(values * ratio) + zero, -128, 127).astype(np.int8)


@pytest.mark.parametrize("ratio", [65536.0, 1e5, 2.0**40, 1.7e30, 2.0**-40, 2.0**-60])
@pytest.mark.parametrize("zero", [-128, 0, 127])
@pytest.mark.parametrize("numeric", [MULTIPLIERS, SHIFTS], ids=["multipliers", "shifts"])
def test_a_factor_beyond_registers_has_one_within_that_gives_the_same_bits(ratio, zero, numeric):
    found = operator("relu", ratio).scaled(ratio, numeric.multiplier_bits)
    got = requantize(SUMS, found.mult, found.shift, zero)
    np.testing.assert_array_equal(got, real(SUMS.astype(np.float64), ratio, zero))


@pytest.mark.parametrize("ratio", [float("inf"), float("nan"), 0.0, -1.0])
def test_what_is_no_factor_stays_an_error(ratio):
    with pytest.raises(Exception, match=r"n: ratio .* is not a positive finite number"):
        operator("relu", 1.0).scaled(ratio, 16)


@pytest.mark.parametrize("zeros", [(0, 0), (-128, 127), (100, -128)])
@pytest.mark.parametrize(("op", "attrs"), [("relu", {}), ("leaky_relu", {"alpha": 2.0**-18})])
def test_so_have_the_slopes_of_an_activation(op, attrs, zeros):
    ratio = 2.0**18
    found = some(COMPARATOR.settings)(operator(op, ratio, zeros, **attrs), MULTIPLIERS).registers
    values = np.arange(-128, 128)
    got = activate(
        values,
        x_zero=zeros[0],
        y_zero=zeros[1],
        **{key: found[f"act_{key}"] for key in ("pos", "neg", "shift", "lo", "hi")},
    )
    centred = (values - zeros[0]).astype(np.float64)
    below = centred * attrs.get("alpha", 0.0)
    np.testing.assert_array_equal(got, real(np.where(centred < 0, below, centred), ratio, zeros[1]))


def test_so_have_the_slopes_of_channels():
    found = some(PRELU.settings)(operator("prelu", 2.0**18), MULTIPLIERS)
    values = np.arange(-128, 128).reshape(-1, 1)
    got = activate(
        values,
        x_zero=0,
        y_zero=0,
        pos=found.registers["prelu_pos"],
        neg=np.array(found.per_channel),
        shift=found.registers["prelu_shift"],
    )
    slopes = np.where(values < 0, np.array([[0.5, -(2.0**20)]]), 1.0)
    np.testing.assert_array_equal(got, real(values * slopes, 2.0**18, 0))


def model(scale: float, bias: int = 0) -> onnx.ModelProto:
    """A Conv with this scale for its second channel, a Relu, and a Conv like other people's."""
    return onnx.parser.parse_model(
        f"""{HEADER} g (float[1,2,4,4] x) => (float[1,2,4,4] y)
        <float s = {{0.25}}, int8 z = {{0}}, float[2] u = {{0.25,{scale}}}, int8[2] zs = {{0,0}},
         int8[2,2,1,1] w = {{1,2,3,-4}}, int32[2] b = {{1,{bias}}}, int32[2] bz = {{0,0}},
         float[2] bs = {{0.0625,{scale / 4}}}> {{
            a = QuantizeLinear(x, s, z)  d = DequantizeLinear(a, s, z)
            v = DequantizeLinear<axis=0>(w, u, zs)  c = DequantizeLinear<axis=0>(b, bs, bz)
            [first] e = Conv(d, v, c)  f = QuantizeLinear(e, s, z)  g = DequantizeLinear(f, s, z)
            k = DequantizeLinear(w, s, z)  [second] h = Conv(g, k)
            i = QuantizeLinear(h, s, z)  y = DequantizeLinear(i, s, z) }}"""
    )


def on_host(given: onnx.ModelProto, machine: str) -> dict[str, str]:
    """What runs on the host and why, by compile and partition alike; what runs has ONNX Runtime's
    bits.
    """
    hw = load_hw(machine)
    made, (dfg, found) = compile_model(given, hw, Options()), partition_model(given, hw)
    x = {"x": np.random.default_rng(3).normal(0, 8, (1, 2, 4, 4)).astype(np.float32)}
    result = Program(bundle=made.bundle, hw=hw).run(x, capture=True)
    assert check(made.bundle, x, result).passed
    told = [
        {d[h.node].name: h.why.message for h in p.host}
        for d, p in ((made.dfg, made.partition), (dfg, found))
    ]
    assert told[0] == told[1]
    return told[0]


@pytest.mark.parametrize("machine", ["opu-tiny", "opu-classic"])
@pytest.mark.parametrize("scale", [2.0**40, 2.0**-60])
def test_a_channel_in_a_scale_of_its_own_runs_on_the_machine(machine, scale):
    assert on_host(model(scale), machine) == {}


@pytest.mark.parametrize(
    ("given", "machine", "why"),
    [
        (model(0.3), "opu-classic", "is not a power of two"),
        (model(0.25, 2**31 - 1), "opu-tiny", "its accumulator can reach 2147484543, 32 bits hold"),
    ],
    ids=["shifts", "sums"],
)
def test_one_operator_whose_numbers_no_register_holds_goes_to_the_host_alone(given, machine, why):
    found = on_host(given, machine)
    assert {name for name in found if not name.endswith("/bias")} == {"first"}
    assert why in found["first"]
