"""Networks held against what knows better: the golden model, ONNX Runtime, images one by one."""

import numpy as np

from opu_fuse.pipeline import Options, Program, compile_model
from opu_fuse.sim.compare.runs import check, compare
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise
from tests.networks.test_families import Executed, hold_against_golden


def hold(compiled, hw, inputs):
    """Every tensor of a run against the golden model and ONNX Runtime."""
    result = Program(bundle=compiled.bundle, hw=hw).run(inputs, capture=True)
    hold_against_golden(Executed(hw=hw, compiled=compiled, inputs=inputs, result=result))
    assert check(compiled.bundle, inputs, result).passed


def inputs_of(compiled, rng, samples=1):
    return {
        p.name: rng.standard_normal((samples, *p.shape[1:])).astype(np.float32)
        for p in compiled.bundle.inputs
    }


def hold_each_image(model, hw):
    """Three images together against one by one. Returns what runs three."""
    one, three = (compile_model(model, hw, Options(batch=n)) for n in (1, 3))
    images = noise(three.bundle)
    expected = run(one.bundle, hw, images, capture=True)
    found = run(three.bundle, hw, images, capture=True, shuffle=3)
    compared = compare(one.bundle, expected, found)
    assert compared.passed, compared.first
    return three
