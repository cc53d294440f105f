"""Gates before the array on RTL: the functional engine's bits, the cycle engine's cycles."""

import numpy as np
import pytest

from opu_fuse.frontend.choice_names import Scales
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, Program, compile_model
from opu_fuse.sim.cycle.run import MemoryOptions
from opu_fuse.sim.runner import RtlOptions
from tests.dfg.canonical import canonical
from tests.networks import test_constant_maps as maps
from tests.networks.gated import NETWORKS, NOT_IN_FRONT, in_front, network
from tests.networks.quantised_elsewhere import quantised_elsewhere
from tests.rtl.machines import write_machine
from tests.rtl.session import hold_bits

pytestmark = pytest.mark.rtl


@pytest.fixture(scope="module")
def hw(tmp_path_factory):
    return load_hw(write_machine("gates", tmp_path_factory.mktemp("specs")))


@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in NOT_IN_FRONT])
def test_gates_have_the_functional_engines_bits(name, hw, rng, rtl):
    shape = (1, NETWORKS[name][0], 9, 7)
    inputs = {"x": rng.standard_normal(shape).astype(np.float32)}
    of_reals, of_integers = network(name), quantised_elsewhere(network(name), inputs)
    for model, scales in ((of_reals, Scales.FREE), (of_integers, Scales.POW2)):
        compiled = compile_model(model, hw, Options(reuse_memory=False, scales=scales))
        assert in_front(compiled)
        functional = Program(bundle=compiled.bundle, hw=hw).run(inputs, capture=True)
        hold_bits(compiled.bundle, functional, rtl(hw).run(compiled.bundle, inputs))


@pytest.mark.parametrize("name", ["several blocks of channels", "two readers"])
def test_products_with_constant_maps_have_them_too(name, hw, rng, rtl):
    given = maps.model(maps.PRODUCTS[name], maps.WEIGHTS)
    compiled = compile_model(given, hw, Options(reuse_memory=False))
    assert not compiled.partition.host
    inputs = {"x": rng.standard_normal((1, 3, 6, 5)).astype(np.float32)}
    functional = Program(bundle=compiled.bundle, hw=hw).run(inputs, capture=True)
    hold_bits(compiled.bundle, functional, rtl(hw).run(compiled.bundle, inputs))


SHORT = """g (float[1,{c},1,2] x, float[1,{c},1,1] g, float[4,{c},1,1] w)
    => (float[1,4,1,2] y) {{ p = Mul(x, g) y = Conv(p, w) }}"""
"""Two pixels, one tap, few results: a block is swept sooner than the next gate comes."""


@pytest.mark.parametrize(("latency", "share"), [(0, 1.0), (40, 0.5)])
@pytest.mark.parametrize("name", ["block", "several words", "short"])
def test_gates_take_the_cycle_engines_cycles(name, latency, share, hw):
    model = canonical(SHORT.format(c=90)) if name == "short" else network(name)
    compiled = compile_model(model, hw)
    assert in_front(compiled)
    program = Program(bundle=compiled.bundle, hw=hw)
    speed = share * hw.dram.bus_bytes
    inputs = {p.name: np.ones(p.shape, np.float32) for p in compiled.bundle.inputs}
    simulated = program.run(
        inputs, engine="rtl", rtl=RtlOptions(latency=latency, bytes_per_cycle=speed)
    )
    timed = program.run(
        engine="cycle", memory=MemoryOptions(latency=latency, bytes_per_cycle=speed)
    )
    assert timed.counters["cycles"] == simulated.counters["cycles"]
    assert timed.trace == simulated.trace
