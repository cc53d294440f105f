"""Turned layers on machines: the golden model's bits, ONNX Runtime's results, no work twice."""

import numpy as np
import pytest

import opu_fuse
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule.plan import MachineProgram
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.cycle.run import run_cycle
from tests.exact import assert_batch_has_single_bits, assert_exact
from tests.hw.norm_machine import norm_machine, split_norm_machine
from tests.networks import attention_blocks as blocks
from tests.schedule.forced_heads import forced_heads
from tests.schedule.forced_pipelines import forced_pipelines

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

MODELS = {
    "tokens": blocks.transformer(16, 64, 8),
    "keys of others": blocks.cross(48, heads=8),
    "rows": blocks.windows(3, 16, 64, 4),
    "masked rows": blocks.windows(4, 16, 64, 2, spelling="split", masked=True),
}
MACHINES = {"heads are copied": norm_machine, "heads are parts": split_norm_machine}


def turned(found):
    """Groups of turned layers of a compiled model."""
    anchors = {g: part.layer.anchor for g, (part, *_) in found.plan.layers.items()}
    return {
        g for g, node in anchors.items() if node is not None and found.dfg[node].is_turned_layer
    }


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", MODELS)
def test_turned_layers_have_the_golden_models_bits_in_every_order(name, machine, rng):
    hw = MACHINES[machine]()
    found = compile_model(MODELS[name], hw)
    assert turned(found)
    assert_exact(found, hw, rng, (None, 1, 2))


@pytest.mark.parametrize("force", [forced_pipelines, forced_heads])
def test_arranged_heads_have_them_too(force, rng):
    hw = split_norm_machine()
    with force():
        found = compile_model(MODELS["keys of others"], hw)
    assert turned(found)
    assert_exact(found, hw, rng, (None, 1))


@pytest.mark.parametrize("scales", ["pow2", "free", "pow2-asymmetric"])
@pytest.mark.parametrize("name", ["tokens", "rows"])
def test_results_are_onnx_runtimes(name, scales):
    program = opu_fuse.compile(MODELS[name], load_hw("opu-1024a"), scales=scales)
    (port,) = program.bundle.inputs
    x = {port.name: np.random.default_rng(3).normal(size=port.shape).astype(np.float32)}
    checked = check(program.bundle, x, program.run(x, capture=True))
    assert checked.passed
    assert checked.mismatches == 0 or scales == "free"


def test_images_of_a_batch_have_the_bits_of_each(rng):
    hw = split_norm_machine()
    for name in ("tokens", "rows"):
        one, two = (compile_model(MODELS[name], hw, Options(batch=n)) for n in (1, 2))
        assert turned(two)
        assert_batch_has_single_bits(one, two, hw, rng)


def test_values_are_transposed_after_a_layer_that_is_equalised():
    x = np.random.default_rng(3).normal(size=(4, 16, 64)).astype(np.float32)
    options = Options(calibration={"x": x}, equalisation=True)
    assert not turned(compile_model(MODELS["tokens"], split_norm_machine(), options))


def test_heads_use_the_tokens_that_others_have_loaded():
    hw = load_hw("opu-1024a")
    found = compile_model(blocks.encoder_layer(197, 192, 3), hw)
    groups = turned(found)
    loads = [
        group
        for program in found.plan.segments
        if isinstance(program, MachineProgram)
        for x, group in zip(program.instructions, program.groups, strict=True)
        if x.engine is Engine.LOAD and x.opcode == "weight" and group in groups
    ]
    assert len(groups) == 3
    assert 0 < len({*loads}) < 3


def test_a_layer_of_vit_tiny_takes_fewer_cycles_with_them(monkeypatch):
    hw, model = load_hw("opu-1024a"), blocks.encoder_layer(197, 192, 3)
    found = compile_model(model, hw)
    cycles = run_cycle(found.bundle, hw).counters["cycles"]
    predicted = sum(group.cycles for group in found.bundle.groups)
    assert predicted == pytest.approx(cycles, rel=0.01)
    monkeypatch.setattr("opu_fuse.frontend.canonical.products.turned_heads", lambda *_: None)
    before = compile_model(model, hw)
    assert cycles < 0.99 * run_cycle(before.bundle, hw).counters["cycles"]
    macs = [sum(group.macs for group in each.bundle.groups) for each in (found, before)]
    assert macs[0] == macs[1]
