"""A sum or a product with constants runs where a normalisation does: it is one."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run

INPUT = {"x": np.arange(-128, 128, dtype=np.float32).reshape(1, 4, 8, 8) / 64}
SINGLE = ["Mul(r, k)", "Add(r, k)", "Sub(r, k)", "Div(r, k)"]
CHANNELS = ["Mul(r, c)", "Add(r, c)"]


def model(body):
    """Behind a Relu, so that no convolution takes it up."""
    text = f"""<ir_version: 10, opset_import: ["" : 17]>
        g (float[1,4,8,8] x) => (float[1,4,8,8] y)
        <float k = {{0.375}}, float[4,1,1] c = {{0.25, -1.5, 0.5, 3.0}},
         float[4,1,1,1] w = {{1.0, -1.0, 0.5, 2.0}}>
        {{ r = Relu(x) {body} }}"""
    return ir.from_proto(onnx.parser.parse_model(text))


def compiled(body, hw, **options):
    return compile_model(model(body), hw, Options(calibration=INPUT, **options))


@pytest.mark.parametrize("strategy", ["none", "matched", "optimal", "dominator"])
@pytest.mark.parametrize("call", ["Mul(r, k)", "Add(r, c)"])
def test_every_strategy_finds_the_module_before_the_array(call, strategy):
    made = compiled(f"[m] y = {call}", load_hw("opu-1024t"), strategy=strategy)
    names = {made.dfg[m.node].name: m.module for g in made.partition.groups for m in g.matches}
    assert names["m"] == "mul_pre"


@pytest.mark.parametrize("call", SINGLE + CHANNELS)
def test_its_results_are_onnx_runtimes(call):
    hw = load_hw("opu-1024t")
    body = f"[m] m = {call} [f] f = Conv<group=4>(m, w) [y] y = Relu(f)"
    made = compiled(body, hw)
    assert made.partition.host == ()
    found = check(made.bundle, INPUT, run(made.bundle, hw, INPUT, capture=True))
    assert found.passed
    assert found.mismatches == 0


@pytest.mark.parametrize("scales", ["free", "pow2"])
def test_two_behind_each_other_run_one_by_one(scales):
    hw = load_hw("opu-1024")
    made = compiled("m = Mul(r, k) a = Add(m, k) y = Clip(a, k, )", hw, scales=scales)
    assert made.partition.host == ()
    assert check(made.bundle, INPUT, run(made.bundle, hw, INPUT, capture=True)).passed


@pytest.mark.parametrize(("call", "module"), [("Add(r, c)", "add_pre"), ("Mul(r, c)", "mul_pre")])
def test_modules_of_its_own_come_first(call, module):
    """The published machine has an adder and a multiplier, and normalises nothing."""
    made = compiled(f"y = {call}", load_hw("opu-classic"))
    assert [m.module for g in made.partition.groups for m in g.matches] == ["compare", module]


@pytest.mark.parametrize(
    "body",
    ["[m] m = Mul(x, k) y = Softmax(m)", "s = Softmax(x) [m] y = Mul(s, k)"],
)
def test_between_operators_of_the_host_it_is_no_pass_of_its_own(body):
    """As the scale of an attention."""
    made = compiled(body, load_hw("opu-1024t"))
    assert "m" in {made.dfg[op.node].name for op in made.partition.host}


def test_behind_a_function_it_stays_part_of_the_table():
    made = compiled("s = Sigmoid(r) m = Mul(s, k) y = Add(m, k)", load_hw("opu-1024t"))
    assert "table" in [m.module for g in made.partition.groups for m in g.matches]
    assert len([n for n in made.dfg.nodes if n.op == "table"]) == 1


def test_a_machine_that_only_multiplies_by_gates_says_what_it_lacks(tmp_path):
    path = tmp_path / "machine.yaml"
    path.write_text("extends: opu-1024t\nname: g\ndataflow: {operators: {batch_norm: null}}\n")
    made = compiled("[m] y = Mul(r, c)", load_hw(path))
    (host,) = made.partition.host
    assert host.why.reason == (
        "c is a constant; module se takes feature maps; make c an input of the model"
    )
