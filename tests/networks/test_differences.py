"""Sub of two computed maps is a sum that counts one of them negative."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse.bundle.manifest import manifest_of
from opu_fuse.bundle.program import OLDEST_SCHEMA
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model, partition_model
from opu_fuse.sim.engine import run
from tests.networks.held import hold, inputs_of
from tests.networks.quantised_elsewhere import quantised_elsewhere

MACHINES = ("opu-light", "opu-1024t", "opu-classic", "opu-tiny")
BODIES = {
    "of two convolutions": "a = Conv(x, w) b = Conv(x, v) y = Sub(a, b)",
    "of two convolutions, the other way": "a = Conv(x, w) b = Conv(x, v) y = Sub(b, a)",
    "of the input": "r = Relu(x) a = Conv(r, w) y = Sub(r, a)",
    "from the input": "r = Relu(x) a = Conv(r, w) y = Sub(a, r)",
    "and Relu": "a = Conv(x, w) b = Conv(x, v) s = Sub(a, b) y = Relu(s)",
    "of a sum": "a = Conv(x, w) b = Conv(x, v) s = Add(a, b) c = Conv(x, u) y = Sub(s, c)",
    "twice": "a = Conv(x, w) b = Conv(x, v) s = Sub(a, b) y = Sub(b, s)",
    "from a constant for each channel": "a = Conv(x, w) y = Sub(k, a)",
    "of pooled maps": "a = Conv(x, w) p = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(a)"
    " y = Sub(p, a)",
}


def model(body: str, seed: int = 0) -> ir.Model:
    text = f"""<ir_version: 10, opset_import: ["" : 17]>
        g (float[1,5,9,11] x) => (float[1,5,9,11] y) {{ {body} }}"""
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(seed)
    for name in "wvu":
        if f", {name})" in body:
            data = rng.normal(0.0, 0.5, (5, 5, 1, 1)).astype(np.float32)
            proto.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    if "Sub(k," in body:
        data = rng.normal(size=(5, 1, 1)).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(data, "k"))
    return ir.from_proto(proto)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_difference_runs_on_the_machine_with_onnx_runtimes_bits(machine, body, rng):
    hw = load_hw(machine)
    compiled = compile_model(model(body), hw)
    assert not compiled.partition.host
    hold(compiled, hw, inputs_of(compiled, rng))


ROUNDED = (*list(BODIES)[:2], "and Relu", "of a sum", "of pooled maps")
"""What that quantiser rounds in front of and behind every Sub."""


@pytest.mark.parametrize("body", [BODIES[name] for name in ROUNDED], ids=ROUNDED)
def test_models_of_others_keep_their_scales_and_the_partition(body, rng):
    hw = load_hw("opu-light")
    images = {"x": rng.standard_normal((1, 5, 9, 11)).astype(np.float32)}
    body = f"{body.replace('y =', 'd =')} y = Conv(d, u)"  # or nothing rounds the difference
    compiled = compile_model(quantised_elsewhere(model(body), images), hw)
    assert not compiled.partition.host
    _, floating = partition_model(model(body), hw)
    assert len(compiled.partition.groups) == len(floating.groups)
    hold(compiled, hw, images)


def test_free_scales_are_within_a_step(rng):
    hw = load_hw("opu-1024t")
    compiled = compile_model(model(BODIES["twice"]), hw, Options(scales="free"))
    hold(compiled, hw, inputs_of(compiled, rng))


@pytest.mark.parametrize(
    ("body", "host"),
    [
        ("p = GlobalAveragePool(x) c = Conv(x, w) y = Sub(c, p)", 1),
        ("a = GlobalAveragePool(x) b = GlobalMaxPool(x) d = Sub(a, b) y = Mul(x, d)", 1),
        ("s = Sigmoid(x) y = Sub(x, s)", 0),  # a function of one number
        ("c = Conv(x, w) y = Sub(c, c)", 0),
        ("c = Conv(x, w) y = Sub(k, c)", 0),  # folded into the layer
    ],
)
def test_what_is_no_difference_of_two_maps_stays_what_it_was(body, host):
    _, found = partition_model(model(body), load_hw("opu-light"))
    assert len(found.host) == host


def test_only_what_subtracts_needs_the_newer_program_file():
    for op, schema in (("Add", OLDEST_SCHEMA), ("Sub", 5)):
        body = f"a = Conv(x, w) b = Conv(x, v) y = {op}(a, b)"
        bundle = compile_model(model(body), load_hw("opu-tiny")).bundle
        assert manifest_of(bundle, "opu-tiny", {}).schema_version == schema


def test_where_the_operands_stand_makes_no_difference_to_the_instructions():
    """But for the bit that says which of them counts negative."""
    hw = load_hw("opu-tiny")
    first = compile_model(model("a = Conv(x, w) b = Conv(x, v) y = Sub(a, b)"), hw).bundle
    inputs = {"x": np.random.default_rng(0).standard_normal((1, 5, 9, 11)).astype(np.float32)}
    swapped = compile_model(model("a = Conv(x, w) b = Conv(x, v) y = Sub(b, a)"), hw).bundle
    one, other = (run(bundle, hw, inputs).outputs["y"] for bundle in (first, swapped))
    np.testing.assert_allclose(one, -other, atol=np.abs(one).max() / 64)
