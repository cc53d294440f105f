"""Ten models on all five machines: the golden model's bits on every tensor, in an order of
execution that only the counters hold; and on the host nothing but what a machine has no module for.
"""

from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from opu_fuse import zoo
from opu_fuse.frontend.prepare import Prepared, prepare
from opu_fuse.hw.spec.load_spec import load_hw, spec_names
from opu_fuse.pipeline import Program, compile_prepared
from tests.networks.test_families import Executed, hold_against_golden
from tests.tiers import by_night

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
SEEDS = 20

# Networks and the reduced rows and columns of their images.
MODELS = {
    "digits": 8,
    "resnet18": 32,
    "resnet20": 32,
    "mobilenet_v1_025": 64,
    "mobilenet_v2": 32,
    "squeezenet": 64,
    "shufflenet_v2": 32,
    "yolov3_tiny": 64,
    "unet": 16,
    "densenet_small": 16,
}
MACHINES = spec_names()

ABSENT = "no module of this machine runs it"
# By machine: operators that any of the models leaves on the host, and why.
HOST: dict[str, dict[str, str]] = {
    "opu-1024": {},
    "opu-1024-lean": {"batch_norm": ABSENT},
    "opu-1024a": {},
    "opu-1024t": {},
    "opu-classic": dict.fromkeys(("batch_norm", "clip", "shuffle", "split"), ABSENT),
    "opu-light": {},
    "opu-micro": {
        "add": "add a module of kind res_adder",
        **dict.fromkeys(("batch_norm", "upsample"), ABSENT),
    },
    "opu-tiny": dict.fromkeys(("batch_norm", "concat", "shuffle", "split", "upsample"), ABSENT),
    "opu-ulx3s": dict.fromkeys(("batch_norm", "concat", "shuffle", "split", "upsample"), ABSENT),
}


@lru_cache(maxsize=1)
def prepared(name: str) -> Prepared:
    """One of `MODELS`, quantised; the tests of a model follow each other."""
    return prepare(DIGITS if name == "digits" else zoo.build(name, image=MODELS[name]))


UNORDERED_BY_NIGHT = MODELS.keys() - {"digits", "resnet20", "unet", "squeezenet"}
OFTEN = {("resnet20", "opu-tiny"), ("unet", "opu-micro"), ("squeezenet", "opu-light")}
BY_NIGHT = {c for c in product(MODELS, MACHINES) if c[0] != "digits" and c[1] != "opu-1024"} - OFTEN


@pytest.mark.parametrize(("name", "machine"), by_night(product(MODELS, MACHINES), BY_NIGHT))
def test_a_model_runs_bit_for_bit_or_says_what_its_machine_lacks(name, machine, rng):
    hw = load_hw(machine)
    compiled = compile_prepared(prepared(name), hw)
    dfg, host = compiled.dfg, compiled.partition.host
    kinds = {dfg[op.node].op for op in host}
    assert kinds == HOST[machine].keys() & {n.op for n in dfg.calls if n.owner is None}
    assert all(HOST[machine][dfg[op.node].op] in op.reason for op in host)
    inputs = {
        p.name: rng.standard_normal(p.shape).astype(np.float32) for p in compiled.bundle.inputs
    }
    shuffle = (list(MODELS).index(name) * len(MACHINES) + MACHINES.index(machine)) % SEEDS
    result = Program(bundle=compiled.bundle, hw=hw).run(inputs, capture=True, shuffle=shuffle)
    hold_against_golden(Executed(hw=hw, compiled=compiled, inputs=inputs, result=result))


@pytest.mark.parametrize(
    ("name", "machine"),
    by_night(
        product(MODELS, ("opu-1024", "opu-classic")),
        [*product(MODELS, ["opu-classic"]), *product(UNORDERED_BY_NIGHT, ["opu-1024"])],
    ),
)
def test_any_order_that_the_counters_allow_gives_the_same_bits(name, machine, rng):
    """Twenty samples of the same inputs, each in an order of its own."""
    program = Program(bundle=compile_prepared(prepared(name), hw := load_hw(machine)).bundle, hw=hw)
    once = {p.name: rng.standard_normal(p.shape).astype(np.float32) for p in program.bundle.inputs}
    expected = program.run(once).outputs
    found = program.run({n: np.repeat(x, SEEDS, axis=0) for n, x in once.items()}, shuffle=0)
    assert found.samples == SEEDS
    for output, values in found.outputs.items():
        assert np.array_equal(values, np.repeat(expected[output], SEEDS, axis=0)), output
