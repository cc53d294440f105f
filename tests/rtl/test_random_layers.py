"""Random layers on every machine, a few in the normal tier and two hundred at night: golden model,
functional engine and RTL agree on every bit of every tensor, and every tensor holds values that
prove something. ONNX Runtime agrees, operator by operator (`benchmarks/ort_agreement.py`).

A layer is known by machine and seed: `pytest -m nightly -k "opu-tiny and 1117"` runs it alone.
OPU_FUSE_SEED (see the first lines of the output) chooses other layers.
"""

from dataclasses import replace

import pytest

from benchmarks.ort_agreement import Agreement, by_operator, keeps_promise, onnxruntime
from opu_fuse.hw.spec.load_spec import load_hw, spec_names
from opu_fuse.pipeline import Options, Program, compile_model
from tests.conftest import BASE_SEED
from tests.networks.quantised_elsewhere import quantised_elsewhere
from tests.networks.random_layers import draw
from tests.networks.test_families import Executed, hold_against_golden
from tests.rtl.session import dull_tensors, hold_bits, hold_rtl_against_functional

FEW, MANY = 8, 200  # in the normal tier, at night
QUANTISED = 40
REDRAWS, REDRAWN = 4, 1_000_000  # attempts, and how far their seeds are apart
LAYERS = [
    pytest.param(1000 * BASE_SEED + n, marks=pytest.mark.rtl if n < FEW else pytest.mark.nightly)
    for n in range(FEW + MANY)
]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("machine", spec_names())
def test_a_random_layer_has_the_golden_models_bits_on_rtl(machine, layer, rtl):
    hw = load_hw(machine)
    redrawn = 0
    while True:  # some draws make values that prove little
        drawn = draw(hw, layer + redrawn * REDRAWN)
        # Free scales cut off what no result depends on, as low values in front of a maximum.
        scales = drawn.scales if redrawn + 1 < REDRAWS else "pow2"
        options = Options(reuse_memory=False, scales=scales, calibration=drawn.inputs)
        compiled = compile_model(drawn.model, hw, options)
        functional = Program(bundle=compiled.bundle, hw=hw).run(drawn.inputs, capture=True)
        redrawn += 1
        if redrawn == REDRAWS or not dull_tensors(compiled.bundle, functional):
            break
    assert not compiled.partition.host, f"{drawn.kind}: {compiled.partition.host}"
    simulated = rtl(hw).run(compiled.bundle, drawn.inputs)
    hold_rtl_against_functional(compiled.bundle, functional, simulated)
    for n in range(functional.samples):
        sample = {name: array[n : n + 1] for name, array in drawn.inputs.items()}
        tensors = {name: array[n : n + 1] for name, array in functional.tensors.items()}
        result = replace(functional, tensors=tensors)
        hold_against_golden(Executed(hw=hw, compiled=compiled, inputs=sample, result=result))
        expected = onnxruntime(compiled.dfg, compiled.bundle, sample)
        for op, found in by_operator(compiled.dfg, expected, hw.numeric):
            assert keeps_promise(op, {"pow2": Agreement(), scales: found}), (op, found)


@pytest.mark.nightly
@pytest.mark.parametrize("layer", range(1000 * BASE_SEED, 1000 * BASE_SEED + QUANTISED))
@pytest.mark.parametrize("machine", [m for m in spec_names() if m != "opu-classic"])
def test_a_layer_that_came_quantised_has_the_golden_models_bits_on_rtl(machine, layer, rtl):
    """With zero points; the published machine has no multipliers for its scales."""
    hw = load_hw(machine)
    drawn = draw(hw, layer)
    inputs = {name: array[:1] for name, array in drawn.inputs.items()}
    model = quantised_elsewhere(drawn.model, inputs)
    compiled = compile_model(model, hw, Options(reuse_memory=False))
    result = Program(bundle=compiled.bundle, hw=hw).run(inputs, capture=True)
    hold_bits(compiled.bundle, result, rtl(hw).run(compiled.bundle, inputs))
    hold_against_golden(Executed(hw=hw, compiled=compiled, inputs=inputs, result=result))
