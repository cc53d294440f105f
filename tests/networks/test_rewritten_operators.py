"""Operators of others that machines run in another form: with the roundings that the model has.

Float models are quantised here; the quantised ones say themselves what is rounded, in scales that
are powers of two, halved behind the operator, or any, with zero points.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model, partition_model
from opu_fuse.sim.compare.bounds import allowed_differences
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise

SAME, HALF, ANY = "same", "half", "any"
SCALES: Mapping[str, tuple[float, float, int, int]] = {
    SAME: (2.0**-5, 2.0**-5, 0, 0),
    HALF: (2.0**-5, 2.0**-6, 0, 0),
    ANY: (0.037, 0.0219, -128, -20),
}
"""Steps and zero points before and behind the operator."""
SIZE = (12, 8)


def network(
    body: str, quantised: str = "", *, size: tuple[int, int] = SIZE, **numbers: Any
) -> onnx.ModelProto:
    """A convolution of 8 channels, a Relu, and `body`, which makes y of t; `w` is its weight, of
    the shape given for it, an `axis` that of its scales. quantised: of SCALES.
    """
    rng = np.random.default_rng(5)
    shape, axis = numbers.pop("w", (1,)), numbers.pop("axis", None)
    steps = (shape[axis],) if axis is not None else ()
    before, behind, zero, end = SCALES.get(quantised, SCALES[SAME])
    data: dict[str, np.ndarray | np.generic] = {
        **{name: np.asarray(n) for name, n in numbers.items()},
        "v": rng.integers(-127, 128, (8, 8, 1, 1)).astype(np.int8),
        "vs": np.float32(2.0**-8),
        "wi": rng.integers(-127, 128, shape).astype(np.int8),
        "ws": np.exp2(-rng.integers(6, 9, steps).astype(np.float32)),
        "s1": np.float32(2.0**-5),
        "z1": np.int8(0),
        "s2": np.float32(before),
        "z2": np.int8(zero),
        "s3": np.float32(behind),
        "z3": np.int8(end),
    }
    pair = "{1} = QuantizeLinear ({0}, s{2}, z{2}) {3} = DequantizeLinear ({1}, s{2}, z{2}) "
    first, middle, last = "d = Identity (x) ", "t = Identity (r) ", "y = Identity (e) "
    if quantised:
        first, middle, last = (
            pair.format(*names)
            for names in (("x", "xq", 1, "d"), ("r", "rq", 2, "t"), ("e", "eq", 3, "y"))
        )
    body = re.sub(r"\by =", "e =", body)
    along = f"<axis = {axis}>" if axis is not None else ""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 8, {size[0]}, {size[1]}] x) => (float[A, B, C, D] y) {{
        vd = DequantizeLinear (v, vs) w = DequantizeLinear {along} (wi, ws) {first}
        c = Conv (d, vd) r = Relu (c) {middle} {body} {last} }}"""
    model = onnx.parser.parse_model(text)
    for name, array in data.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return model


BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "mean of channels": ("[m] y = ReduceMean <axes = [1]> (t)", {}),
    "mean of all": ("[m] y = ReduceMean (t)", {}),
    "mean of rows": ("[m] y = ReduceMean <axes = [2]> (t)", {}),
    "sum of channels": ("[m] y = ReduceSum (t, axes)", {"axes": [1]}),
    "sum of a map": ("[m] y = ReduceSum (t, axes)", {"axes": [2, 3]}),
    "average over 257x3": ("[m] y = GlobalAveragePool (t)", {"size": (257, 3)}),
    "average over 256x4": ("[m] y = GlobalAveragePool (t)", {"size": (256, 4)}),
    "average over 1x4096": ("[m] y = GlobalAveragePool (t)", {"size": (1, 4096)}),
    "half, of centres": ('[m] y = Resize <mode = "linear"> (t, , by)', {"by": (1, 1, 0.5, 0.5)}),
    "fourth, of centres": ('[m] y = Resize <mode = "linear"> (t, , by)', {"by": (1, 1, 0.25, 1)}),
    "half, nearest": (
        '[m] y = Resize <nearest_mode = "ceil"> (t, , by)',
        {"by": (1, 1, 0.5, 0.5)},
    ),
    "Einsum": ('[m] y = Einsum <equation = "bchw,cd->bdhw"> (t, w)', {"w": (8, 5), "axis": 1}),
    "Einsum, turned": ('[m] y = Einsum <equation = "nchw,oc->nhwo"> (t, w)', {"w": (5, 8)}),
    "dilated": (
        "[m] y = ConvTranspose <dilations = [2, 2], pads = [2, 2, 2, 2]> (t, w)",
        {"w": (8, 6, 3, 3), "axis": 1},
    ),
    "two groups": (
        "[m] y = ConvTranspose <group = 2, strides = [2, 2]> (t, w)",
        {"w": (8, 3, 2, 2), "axis": 1},
    ),
    "eight groups of two": (
        "[m] y = ConvTranspose <group = 8, strides = [2, 2]> (t, w)",
        {"w": (8, 2, 2, 2)},
    ),
    "two groups of one": ("[m] y = ConvTranspose <group = 2> (t, w)", {"w": (8, 1, 3, 3)}),
}
MOVING: dict[str, tuple[str, dict[str, Any]]] = {
    "maximum over 40x40": ("[m] y = GlobalMaxPool (t)", {"size": (40, 40)}),
    "maximum over 300x3": ("[m] y = GlobalMaxPool (t)", {"size": (300, 3)}),
    "maximum of rows": ("[m] y = ReduceMax <axes = [2]> (t)", {}),
    "maximum over 13x13 around": (
        "[m] y = MaxPool <kernel_shape = [13, 13], pads = [6, 6, 6, 6]> (t)",
        {"size": (20, 18)},
    ),
    "maximum over 70x3, every other": (
        "[m] y = MaxPool <kernel_shape = [70, 3], strides = [2, 1], pads = [9, 1, 0, 0]> (t)",
        {"size": (150, 9)},
    ),
    "Tile": ("[m] y = Tile (t, times)", {"times": [1, 3, 1, 1]}),
}
"""Values that keep their scale."""


def given(body: str, more: Mapping[str, Any], quantised: str = "") -> onnx.ModelProto:
    kinds = {"axes": np.int64, "times": np.int64, "by": np.float32}
    numbers: dict[str, Any] = {
        n: np.array(v, kinds[n]) if n in kinds else v for n, v in more.items()
    }
    return network(body, quantised, **numbers)


def runs(model: onnx.ModelProto, machine: str) -> None:
    hw = load_hw(machine)
    made = compile_model(model, hw)
    assert [op.reason for op in made.partition.host] == []
    inputs = noise(made.bundle)
    assert check(made.bundle, inputs, run(made.bundle, hw, inputs, capture=True)).passed


@pytest.mark.parametrize("quantised", ["", *SCALES])
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.filterwarnings("ignore")
def test_they_run_with_the_models_own_roundings(name, quantised):
    runs(given(*BODIES[name], quantised), "opu-light")


@pytest.mark.parametrize("quantised", ["", SAME])
@pytest.mark.parametrize("name", MOVING)
def test_what_moves_values_rounds_nothing(name, quantised):
    model = given(*MOVING[name], quantised)
    hw = load_hw("opu-micro")
    made = compile_model(model, hw)
    assert not made.partition.host
    inputs = noise(made.bundle)
    found = check(made.bundle, inputs, run(made.bundle, hw, inputs, capture=True))
    assert found.mismatches == 0


@pytest.mark.parametrize("machine", ["opu-tiny", "opu-1024", "opu-1024t", "opu-classic"])
@pytest.mark.parametrize("name", ["maximum over 40x40", "maximum over 13x13 around"])
def test_maxima_fit_every_machine(name, machine):
    runs(given(*MOVING[name]), machine)


@pytest.mark.parametrize("machine", ["opu-tiny", "opu-1024t", "opu-micro"])
@pytest.mark.parametrize("name", ["average over 257x3", "average over 256x4", "mean of channels"])
def test_averages_fit_machines_with_multipliers(name, machine):
    runs(given(*BODIES[name], SAME), machine)


def test_a_machine_of_shifters_leaves_odd_means_to_the_host():
    """A mean over six channels of a quantised model is rounded once; a shift would be another."""
    body = "[a] a = Slice (t, first, last, one) [m] y = ReduceMean <axes = [1]> (a)"
    places = {"first": [0], "last": [6], "one": [1]}
    model = network(body, SAME, size=SIZE, **{n: np.array(v, np.int64) for n, v in places.items()})
    made = compile_model(model, load_hw("opu-classic"))
    assert any("divides by 6" in op.reason for op in made.partition.host)


def test_parts_are_told_and_small_windows_stay_whole():
    large = partition_model(given(*MOVING["maximum over 40x40"]), load_hw("opu-light"))[1]
    assert "m" in large.rewrites
    small = given("[m] y = GlobalMaxPool (t)", {"size": (20, 20)})
    assert not partition_model(small, load_hw("opu-light"))[1].rewrites
    assert partition_model(small, load_hw("opu-tiny"))[1].rewrites.keys() == {"m"}


@pytest.mark.parametrize("strategy", ["none", "dominator"])
def test_the_published_strategies_keep_the_users_pool(strategy):
    made = compile_model(
        given(*MOVING["maximum over 40x40"]), load_hw("opu-light"), Options(strategy=strategy)
    )
    assert [made.dfg[op.node].name for op in made.partition.host] == ["m"]


@pytest.mark.parametrize("images", [1, 3])
def test_parts_run_with_several_images(images):
    hw = load_hw("opu-tiny")
    made = compile_model(given(*MOVING["maximum over 40x40"]), hw, Options(batch=images))
    inputs = noise(made.bundle)
    found = check(made.bundle, inputs, run(made.bundle, hw, inputs, capture=True))
    assert (found.passed, found.mismatches) == (True, 0)


def test_a_dilated_maximum_that_is_too_large_is_not_parted():
    body = "[m] y = MaxPool <kernel_shape = [20, 20], dilations = [2, 2]> (t)"
    _, found = partition_model(given(body, {"size": (60, 60)}), load_hw("opu-light"))
    assert len(found.host) == 1
    assert not found.rewrites


def test_a_window_that_the_array_cannot_pad_says_so():
    """An average of 300 columns whose padding does not count has many divisors."""
    body = "[m] y = AveragePool <kernel_shape = [1, 300], pads = [0, 9, 0, 9]> (t)"
    _, found = partition_model(given(body, {"size": (1, 900)}), load_hw("opu-light"))
    assert any("padding is not counted" in op.reason for op in found.host)


@pytest.mark.parametrize(("axes", "steps"), [([1], 0), ([2], 1), ([3], 0), ([2, 3], 1), ([], 1)])
def test_a_mean_may_be_off_by_what_its_own_count_allows(axes, steps):
    """Of 8 channels, 12 rows, 8 columns: the count of all that is averaged, and of nothing else."""
    given = f"<axes = {axes}>" if axes else ""
    model = network(f"[m] y = ReduceMean {given} (t)", SAME)
    found = allowed_differences(model, {"rq": (1, 8, *SIZE), "xq": (1, 8, *SIZE)})
    assert found["eq"].steps == steps
