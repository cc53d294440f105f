"""Whole networks on the RTL, through AXI from reset: the functional engine's bits."""

import numpy as np
import pytest

from opu_fuse import zoo
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, Program, compile_model
from opu_fuse.sim.compare.runs import check, compare
from tests.frontend.test_insert_requantise import X
from tests.frontend.test_insert_requantise import model as requantised
from tests.rtl.session import hold_rtl_against_functional
from tests.schedule.planned import stacks
from tests.schedule.test_fused_stacks import inverted
from tests.some import some

pytestmark = pytest.mark.rtl

NETWORKS = {
    "tiny_residual": "a residual connection",
    "tiny_odd": "odd channel counts and asymmetric padding",
    "tiny_tiles": "several ragged tiles in rows, columns and channels",
}


@pytest.fixture(scope="module")
def machine():
    return load_hw("opu-tiny")


def compiled(name, hw, *, reuse_memory=False):
    """reuse_memory=False: every tensor that a group makes can be compared at the end."""
    options = Options(reuse_memory=reuse_memory)
    return Program(bundle=compile_model(zoo.build(name), hw, options).bundle, hw=hw)


def inputs_of(program, rng, samples):
    return {
        p.name: rng.standard_normal((samples, *p.shape[1:])).astype(np.float32)
        for p in program.bundle.inputs
    }


@pytest.mark.parametrize("name", NETWORKS)
def test_network_on_rtl_has_the_functional_engines_bits(name, machine, rng):
    program = compiled(name, machine)
    inputs = inputs_of(program, rng, samples=2)
    functional = program.run(inputs, capture=True)
    rtl = program.run(inputs, engine="rtl", capture=True)
    hold_rtl_against_functional(program.bundle, functional, rtl)


@pytest.mark.parametrize("name", ["max pool in two scales", "three pairs", "max pool of a relu"])
def test_what_rounds_anew_has_the_same_bits(name, machine):
    given = requantised(name, "zero points")
    bundle = compile_model(given, machine, Options(reuse_memory=False)).bundle
    program = Program(bundle=bundle, hw=machine)
    functional, rtl = (program.run(X, engine=e, capture=True) for e in ("functional", "rtl"))
    hold_rtl_against_functional(bundle, functional, rtl)
    assert check(bundle, X, rtl).passed


def test_maps_that_are_on_chip_only_have_the_same_bits(machine, rng):
    program = compiled("tiny_residual", machine, reuse_memory=True)
    stored = {r.group for r in program.run(engine="cycle").trace if r.engine == "store"}
    assert stored < {g.index for g in program.bundle.groups}, "every group stores"
    inputs = inputs_of(program, rng, samples=2)
    functional, rtl = (program.run(inputs, engine=e, capture=True) for e in ("functional", "rtl"))
    found = compare(program.bundle, functional, rtl)
    assert found.passed, found.first
    assert rtl.counters["cycles"] == 2 * program.run(engine="cycle").counters["cycles"]


def test_layers_computed_together_have_the_same_bits(machine, rng):
    """Rows that others take turns with, in rings, some of them written twice."""
    found = compile_model(inverted(6, (9, 7), 14), machine, Options(cascades="always"))
    assert any(r.again for t in stacks(found.plan) for r in some(t.stack).line_buffers)
    program = Program(bundle=found.bundle, hw=machine)
    inputs = inputs_of(program, rng, samples=1)
    functional, rtl = (program.run(inputs, engine=e, capture=True) for e in ("functional", "rtl"))
    held = compare(program.bundle, functional, rtl)
    assert held.passed, held.first
    assert rtl.counters["cycles"] == program.run(engine="cycle").counters["cycles"]


def test_loading_overlaps_computing(machine, rng):
    """Most of what is loaded in a layer of many tiles is loaded while the array is busy."""
    program = compiled("tiny_tiles", machine)
    trace = program.run(inputs_of(program, rng, samples=1), engine="rtl").trace
    many = max(program.bundle.groups, key=lambda g: sum(r.group == g.index for r in trace)).index
    load, compute = (_busy(trace, many, engine) for engine in ("load", "compute"))
    overlap = len(load & compute) / len(load)
    assert overlap > 0.6, f"only {overlap:.0%} of the load cycles overlap computing"


def _busy(trace, group, engine):
    return {
        cycle
        for r in trace
        if r.group == group and r.engine == engine
        for cycle in range(r.start, r.end)
    }
