"""Sums whose scales lie so far apart that the machine's factors cannot hold both."""

from typing import cast

import numpy as np
import pytest

from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.integer import settings
from opu_fuse.dfg.islands import float_reason
from opu_fuse.hw.spec.hw_spec import Numeric
from opu_fuse.quant import META_KEY, QuantParams
from opu_fuse.units.base import Stage
from opu_fuse.units.params import ResidualRegisters
from opu_fuse.units.residual import combine
from tests.dfg.canonical import canonical
from tests.some import some

SUM = """g (float[1,1,256,256] p, float[1,1,256,256] q) => (float[1,1,256,256] y) {
    [sum] y = Add(p, q) }"""
NUMERIC = Numeric(multiplier_bits=16, average_bits=16)


def summed(**quants):
    """(DFG of a sum, its position) with (scale, zero point) of p, q and y."""
    model = canonical(SUM)
    for value in (*model.graph.inputs, *model.graph.outputs):
        scale, zero_point = quants[some(value.name)]
        value.meta[META_KEY] = QuantParams(scale=(scale,), zero_point=zero_point)
    dfg = build_dfg(model, quantised=True)
    return dfg, next(n.index for n in dfg.calls)


def most_apart(dfg, index, quants):
    """Steps between the machine's sums and the real ones, rounded, over all pairs of int8."""
    p, q = np.meshgrid(np.arange(-128, 128), np.arange(-128, 128))
    registers = settings(dfg, index, Stage.RESIDUAL, NUMERIC).registers
    got = combine(p, q, cast("ResidualRegisters", registers))
    (p_scale, p_zero), (q_scale, q_zero), (y_scale, y_zero) = quants.values()
    real = ((p - p_zero) * p_scale + (q - q_zero) * q_scale) / y_scale
    return np.abs(got - np.clip(np.rint(real) + y_zero, -128, 127)).max()


@pytest.mark.parametrize(("p", "q", "y", "promised"), [
    ((0.3, 5), (0.7, -3), (0.5, 0), 1),
    ((0.3, -128), (76.5, 0), (0.3, -128), 1),
    ((2.0**-4, 0), (2.0**-6, 0), (2.0**-5, 0), 0),
    ((2.0**-6, 0), (2.0**8, 0), (2.0**-7, 0), 0),
    ((1.0, 0), (2.0**-17, 0), (1.0, 0), 0),  # too small to change a whole number of steps
])  # fmt: skip
def test_sums_on_the_machine_keep_the_promise(p, q, y, promised):
    quants = {"p": p, "q": q, "y": y}
    dfg, index = summed(**quants)
    assert float_reason(dfg, index) is None
    assert most_apart(dfg, index, quants) <= promised


@pytest.mark.parametrize(("p", "q", "y", "promised"), [
    ((0.00105931, -12), (1.0, 0), (0.00057792, -128), 1),
    ((1.0, 0), (0.00105931, -12), (0.00057792, -128), 1),
    ((2.0**-8, 0), (2.0**8, 0), (2.0**-7, 0), 0),
    ((2.0**-17, 0), (0.5, 0), (1.0, 0), 0),  # decides where the other lies between two steps
])  # fmt: skip
def test_sums_that_would_break_it_stay_on_the_host(p, q, y, promised):
    quants = {"p": p, "q": q, "y": y}
    dfg, index = summed(**quants)
    assert "16 bits do not hold both" in some(float_reason(dfg, index))
    assert most_apart(dfg, index, quants) > promised


def test_a_step_larger_than_any_factor_stays_on_the_host():
    dfg, index = summed(p=(1.0, 0), q=(70000.0, 0), y=(1.0, 0))
    reason = float_reason(dfg, index)
    assert reason == "sum adds steps of 1 and 70000 of its own, more than 16 bits hold"


def test_a_layer_that_is_rounded_only_behind_its_function_says_so():
    model = canonical("""g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float[2,2,1,1] w = {1,2,3,4}> {
        [layer] c = Conv(x, w)  [act] y = Elu(c) }""")
    for value in (*model.graph.inputs, *model.graph.outputs):
        value.meta[META_KEY] = QuantParams(scale=(0.5,))
    dfg = build_dfg(model, quantised=True)
    reason = float_reason(dfg, next(n.index for n in dfg.calls if n.name == "layer"))
    assert reason is not None
    assert "no QuantizeLinear before the Elu that reads it, only after that" in reason
