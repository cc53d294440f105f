"""Operators on ONNX Runtime's own operands: with power-of-two scales the same integers, with free
ones at most one off. `benchmarks/ort_agreement.py` prints the rates on whole networks.
"""

from collections import defaultdict

import numpy as np
import pytest

from benchmarks.ort_agreement import Agreement, build, by_operator, keeps_promise, onnxruntime
from opu_fuse.dfg.interpret import RULES
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from tests.networks.attention_blocks import linear, transformer
from tests.networks.random_layers import draw, kinds_of

HW = load_hw("opu-light")


def agreements(model, inputs, scales):
    compiled = compile_model(model, HW, Options(scales=scales, calibration=inputs))
    once = {name: array[:1] for name, array in inputs.items()}
    expected = onnxruntime(compiled.dfg, compiled.bundle, once)
    return list(by_operator(compiled.dfg, expected, HW.numeric))


def normal_inputs(model):
    rng = np.random.default_rng(3)
    return {
        value.name: rng.normal(
            size=(1, *[d.dim_value for d in value.type.tensor_type.shape.dim[1:]])
        ).astype(np.float32)
        for value in model.graph.input
    }


@pytest.mark.nightly
def test_every_operator_keeps_the_promise():
    table = defaultdict(lambda: {"pow2": Agreement(), "free": Agreement()})
    layers = [draw(HW, seed) for seed in range(2 * len(kinds_of(HW)))]
    cases = [(layer.model, layer.inputs) for layer in layers]
    products = transformer(13, 8, 1, between="Relu"), linear(16, 4, 2)
    cases += [(model, normal_inputs(model)) for model in products]
    for model, inputs in cases:
        for scales in ("pow2", "free"):
            for op, found in agreements(model, inputs, scales):
                table[op][scales] += found
    seen = {op.partition(",")[0] for op in table}
    assert seen >= RULES.keys() & HW.dataflow.operators.keys() | {"split"}
    assert [op for op, found in table.items() if not keeps_promise(op, found)] == []
    assert sum(found["free"].differing for found in table.values()), "are the scales free at all?"


@pytest.mark.parametrize(
    ("op", "pow2", "free", "kept"),
    [
        ("conv", 0, 1, True),
        ("conv", 1, 1, False),
        ("conv", 0, 2, False),
        ("avg_pool, other counts", 1, 1, True),
        ("avg_pool, other counts", 2, 1, False),
    ],
)
def test_a_broken_promise_is_seen(op, pow2, free, kept):
    found = {
        scales: Agreement(values=10, differing=int(largest > 0), largest=largest)
        for scales, largest in (("pow2", pow2), ("free", free))
    }
    assert keeps_promise(op, found) is kept


@pytest.mark.filterwarnings("ignore:no calibration data")
def test_the_benchmark_knows_its_networks():
    assert [n.op_type for n in build("transposed").graph].count("ConvTranspose") == 2
    assert build("tiny_odd", 9).graph.inputs[0].shape == (1, 3, 9, 9)
