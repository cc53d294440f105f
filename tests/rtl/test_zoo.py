"""Whole networks on the RTL of every machine: the functional engine's bits in every stored tensor,
with values that prove something. What stays on the host, and why, `tests/networks/test_machines.py`
says of the same models.
"""

from itertools import product

import numpy as np
import pytest

from opu_fuse.bundle.program import MachineSegment
from opu_fuse.frontend.prepare import prepare
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, Program, compile_prepared
from opu_fuse.zoo import efficientnet
from opu_fuse.zoo.builder import Net
from tests.bundle.kept_programs import VERSIONS, kept
from tests.networks.test_machines import MACHINES, MODELS, prepared
from tests.networks.test_transposed import FORMS, network
from tests.rtl.machines import write_machine
from tests.rtl.session import Session, hold_rtl_against_functional
from tests.tiers import by_night

pytestmark = [pytest.mark.rtl, pytest.mark.filterwarnings("ignore:no calibration data")]


LONG = (
    *(("resnet18", "opu-tiny"), ("resnet18", "opu-micro")),
    *((name, "opu-ulx3s") for name in MODELS if name != "digits"),  # opu-tiny, deeper
    *((name, "opu-1024t") for name in MODELS),  # opu-1024's but for what the next test is about
)


ONCE = "opu-1024"
"""The gate has the digits on every machine, the others on this one."""
BY_NIGHT = {c for c in product(MODELS, MACHINES) if c[0] != "digits" and c[1] != ONCE} | {*LONG}


def hold_prepared(model, session: Session, rng):
    """Every stored tensor can be compared at the end: memory is not used twice."""
    bundle = compile_prepared(model, session.hw, Options(reuse_memory=False)).bundle
    inputs = {p.name: rng.standard_normal(p.shape).astype(np.float32) for p in bundle.inputs}
    functional = Program(bundle=bundle, hw=session.hw).run(inputs, capture=True)
    hold_rtl_against_functional(bundle, functional, session.run(bundle, inputs))
    return bundle


@pytest.mark.parametrize(("name", "machine"), by_night(product(MODELS, MACHINES), BY_NIGHT))
def test_a_network_on_rtl_has_the_functional_engines_bits(name, machine, rtl, rng):
    hold_prepared(prepared(name), rtl(load_hw(machine)), rng)


@pytest.mark.parametrize("machine", ["opu-light", "opu-1024t", "every-module"])
def test_squeeze_and_excite_blocks_on_rtl_have_the_functional_engines_bits(
    machine, rtl, rng, tmp_path
):
    """EfficientNet's blocks: strided without, then with a residual connection."""
    net = Net("squeeze_and_excite", seed=0)
    x = net.conv(net.input("x", (1, 16, 32, 32)), "stem", out=24, kernel=3, pads=1)
    x = efficientnet._block(net, x, "first", 6, 5, 2, 40)
    x = efficientnet._block(net, x, "second", 6, 3, 1, 40)
    session = rtl(load_hw(write_machine(machine, tmp_path)))
    bundle = hold_prepared(prepare(net.finish(x)), session, rng)
    assert all(isinstance(s, MachineSegment) for s in bundle.segments), "not all on the machine"


@pytest.mark.parametrize("machine", ["opu-light", "opu-micro", "opu-tiny"])
@pytest.mark.parametrize("form", FORMS)
def test_a_transposed_convolution_on_rtl_has_the_functional_engines_bits(form, machine, rtl, rng):
    hold_prepared(prepare(network(rng, FORMS[form])), rtl(load_hw(machine)), rng)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_kept_program_file_runs_on_rtl_as_it_was_meant(version, rtl):
    """Of every schema version that is read: tests/bundle/kept_programs.py."""
    program, inputs, outputs = kept(version)
    found = rtl(program.hw).run(program.bundle, inputs).outputs
    for name, expected in outputs.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-5)  # floats of ONNX Runtime
