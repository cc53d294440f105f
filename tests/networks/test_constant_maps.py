"""Sums and products with constants that differ between pixels (positions, masks, rotations): these
are maps in DRAM.
"""

from collections.abc import Mapping

import numpy as np
import onnx
import onnx.parser
import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model, partition_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def model(text: str, weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    header = '<ir_version: 8, opset_import: ["" : 17]>\n'
    parsed = onnx.parser.parse_model(header + text)
    words = text.replace("(", " ").replace(")", " ").replace(",", " ").split()
    for name, data in weights.items():
        if name in words:
            parsed.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    return parsed


WEIGHTS = {
    "w": normal(7, 3, 1, 1),
    "v": normal(7, 7, 1, 1),
    "u": normal(5, 3, 1, 1),
    "wide": normal(70, 3, 1, 1),
    "map": normal(1, 7, 6, 5),
    "no_batch": normal(7, 6, 5),
    "rows": normal(6, 1),
    "columns": normal(5),
    "wide_map": normal(1, 70, 6, 5),
    "image": normal(3, 6, 5),
}
CONV = "g (float[1, 3, 6, 5] x) => (float[1, 7, 6, 5] y) { a = Conv (x, w)"
CASES = {
    "one value for each element": f"{CONV} y = Add (a, map) }}",
    "one value for each row": f"{CONV} b = Relu (a) y = Add (rows, b) }}",
    "one value for each column": f"{CONV} y = Sub (a, columns) }}",
    "two readers": f"{CONV} b = Add (a, no_batch) c = Conv (b, v) d = Add (no_batch, c) "
    "y = Relu (d) }",
    "of an input": "g (float[1, 3, 6, 5] x) => (float[1, 3, 6, 5] y) { y = Add (x, image) }",
    "several blocks of channels": "g (float[1, 3, 6, 5] x) => (float[1, 70, 6, 5] y) "
    "{ a = Conv (x, wide) y = Add (a, wide_map) }",
    "before a pool": "g (float[1, 3, 6, 5] x) => (float[1, 7, 3, 2] y) { a = Conv (x, w) "
    "b = Add (a, map) y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b) }",
    "before a concat": "g (float[1, 3, 6, 5] x) => (float[1, 12, 6, 5] y) { a = Conv (x, w) "
    "b = Add (a, map) c = Conv (x, u) y = Concat <axis = 1> (b, c) }",
}


PRODUCTS = {name: text.replace("Add", "Mul") for name, text in CASES.items() if "Add" in text}


@pytest.mark.parametrize("machine", ["opu-tiny", "opu-1024", "opu-light"])
@pytest.mark.parametrize("name", CASES)
def test_the_machine_adds_constant_maps(name: str, machine: str):
    _runs(CASES[name], machine)


@pytest.mark.parametrize("machine", ["opu-light", "opu-1024a"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_the_machine_multiplies_by_constant_maps(name: str, machine: str):
    _runs(PRODUCTS[name], machine)


def _runs(text: str, machine: str) -> None:
    hw, network = load_hw(machine), model(text, WEIGHTS)
    compiled = compile_model(network, hw)
    assert {compiled.dfg[op.node].op for op in compiled.partition.host} <= {"concat"}
    inputs = noise(compiled.bundle)
    assert check(compiled.bundle, inputs, run(compiled.bundle, hw, inputs, capture=True)).passed
    _, floating = partition_model(network, hw)
    assert len(floating.groups) == len(compiled.partition.groups)


def test_a_batch_adds_the_same_map_to_every_image():
    hw = load_hw("opu-light")
    network = model(CASES["two readers"], WEIGHTS)
    one, several = (compile_model(network, hw, Options(batch=n)).bundle for n in (1, 3))
    images = {name: np.concatenate([data] * 3) for name, data in noise(one).items()}
    images["x"][1:] *= 0.5
    together = run(several, hw, images).outputs["y"]
    for number in range(3):
        alone = run(one, hw, {"x": images["x"][number : number + 1]}).outputs["y"]
        np.testing.assert_array_equal(together[number : number + 1], alone)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_a_quantised_constant_keeps_its_bits(kind: str):
    zero = 7 if kind == "int8" else 100
    text = f"""g (float[1, 3, 6, 5] x) => (float[1, 3, 6, 5] y) {{
        a = QuantizeLinear (x, s, z) b = DequantizeLinear (a, s, z)
        c = DequantizeLinear (p, t, {kind}_zero) d = Add (b, c)
        e = QuantizeLinear (d, s, z) y = DequantizeLinear (e, s, z) }}"""
    rng = np.random.default_rng(1)
    limits = np.iinfo(kind)
    weights = {
        "s": np.array(0.03125, np.float32),
        "z": np.array(3, np.int8),
        "t": np.array(0.0125, np.float32),
        f"{kind}_zero": np.array(zero, kind),
        "p": rng.integers(limits.min, limits.max, (3, 6, 5)).astype(kind),
    }
    hw = load_hw("opu-light")
    compiled = compile_model(model(text, weights), hw)
    assert not compiled.partition.host
    inputs = noise(compiled.bundle)
    assert check(compiled.bundle, inputs, run(compiled.bundle, hw, inputs, capture=True)).passed


def test_a_mask_of_minus_infinity_leaves_less_than_a_step_to_what_it_masks():
    mask = np.triu(np.full((5, 5), -np.inf, np.float32), 1)
    given = model(
        "g (float[1, 3, 5, 5] x) => (float[1, 7, 5, 5] y) "
        "{ a = Conv (x, w) m = Add (a, mask) y = Softmax <axis = 3> (m) }",
        {**WEIGHTS, "mask": mask},
    )
    hw = load_hw("opu-tiny")
    bundle = compile_model(given, hw).bundle
    inputs = noise(bundle)
    result = run(bundle, hw, inputs, capture=True)
    assert check(bundle, inputs, result).passed
    assert (result.outputs["y"][..., 0, 1:] < 1 / 256).all()


def test_a_norm_whose_scale_is_computed_keeps_its_own_operands():
    given = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 17]>
        g (float[1, 6, 8] x, float[8] gain) => (float[1, 6, 8] y)
        { y = LayerNormalization <axis = -1> (x, gain) }"""
    )
    hw = load_hw("opu-tiny")
    bundle = compile_model(given, hw).bundle
    inputs = noise(bundle)
    assert check(bundle, inputs, run(bundle, hw, inputs, capture=True)).passed
