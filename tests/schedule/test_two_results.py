"""Passes that compute a map and its norm: a residual sum is stored, and normalised on chip."""

import numpy as np
import pytest

from benchmarks.attention_networks import vit
from opu_fuse import pipeline
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule import two_results
from opu_fuse.schedule.plan import MachineProgram
from opu_fuse.schedule.plan_text import plan_lines, tiling_lines
from opu_fuse.schedule.tile_trace import explain_tiles
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.sim.engine import run
from tests.exact import assert_batch_has_single_bits, assert_exact
from tests.hw.norm_machine import four_pixel_machine, norm_machine
from tests.networks.narrow_branches import upsampled
from tests.networks.residual_streams import STREAMS, stream

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")


@pytest.fixture(scope="module")
def machine():
    return norm_machine()


@pytest.fixture
def always(monkeypatch):
    """Every pair that a pass can compute is chosen."""
    monkeypatch.setattr(two_results, "fastest", lambda now, others, *_: next(others, now))


def instructions(found, group, engine):
    return [
        x
        for program in found.plan.segments
        if isinstance(program, MachineProgram)
        for x, of in zip(program.instructions, program.groups, strict=True)
        if of == group and x.engine is engine
    ]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm", "softmax"])
@pytest.mark.parametrize("kind", STREAMS)
def test_a_sum_and_its_norm_have_the_golden_models_bits_in_every_order(kind, norm, machine, rng):
    found = compile_model(stream(kind, norm, 12), machine)
    assert found.plan.two_results
    assert_exact(found, machine, rng, (None, 1, 2))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("channels", [2, 7, 8, 13, 24])
@pytest.mark.parametrize("size", [(1, 1), (1, 2), (1, 37), (6, 9)])
def test_they_do_for_odd_channels_and_few_pixels(channels, size, machine, rng):
    found = compile_model(stream("residual", "layer_norm", channels, size), machine)
    assert found.plan.two_results
    assert_exact(found, machine, rng, (None, 1))


@pytest.mark.usefixtures("always")
def test_the_norm_loads_no_map_and_computes_no_product(machine):
    found = compile_model(stream("residual", "layer_norm", 12), machine)
    ((first, norm),) = found.plan.two_results.items()
    assert not instructions(found, norm, Engine.COMPUTE)
    assert instructions(found, first, Engine.COMPUTE)
    loads = instructions(found, norm, Engine.LOAD)
    assert {x.opcode for x in loads} == {"param", "residual"}  # the operand of the sum, once
    assert "residual" not in {x.opcode for x in instructions(found, first, Engine.LOAD)}


@pytest.mark.usefixtures("always")
def test_weights_are_stored_and_products_counted_once(machine):
    found = compile_model(stream("residual", "layer_norm", 12), machine)
    ((first, norm),) = found.plan.two_results.items()
    ours, theirs = (found.plan.layers[group][0] for group in (first, norm))
    assert ours.params - ours.weights >= 12 * 12
    assert theirs.params == theirs.weights
    macs = [group.macs for group in found.bundle.groups]
    assert sum(macs) == 25 * 12 * (6 + 12 + 12)


@pytest.mark.usefixtures("always")
def test_the_native_engine_has_their_bits(machine, rng):
    found = compile_model(stream("two layers", "layer_norm", 13, (6, 9)), machine)
    (port,) = found.bundle.inputs
    x = {port.name: rng.normal(size=port.shape).astype(np.float32)}
    engines = "functional", "native"
    ours, theirs = (run(found.bundle, machine, x, engine=e).outputs for e in engines)
    for name, y in ours.items():
        np.testing.assert_array_equal(y, theirs[name])


@pytest.mark.usefixtures("always")
def test_images_of_a_batch_have_the_bits_of_each(machine, rng):
    model = stream("residual", "layer_norm", 13, (3, 5))
    once, twice = (compile_model(model, machine, Options(batch=n)) for n in (1, 2))
    assert twice.plan.two_results
    assert_batch_has_single_bits(once, twice, machine, rng)


@pytest.mark.usefixtures("always")
def test_reports_say_so(machine):
    found = compile_model(stream("residual", "layer_norm", 12), machine)
    ((first, norm),) = found.plan.two_results.items()
    _, ours, theirs, _ = found.bundle.groups
    assert theirs.name.endswith(f" (second result of group {ours.index})")
    assert theirs.inputs == ours.outputs
    assert theirs.cycles == 0 < ours.cycles
    of = f"tiles of group {norm}: "
    lines = [line for line in tiling_lines(found.plan, machine) if line.startswith(of)]
    assert lines[0].endswith(f", in the passes of group {first}")
    text = "\n".join(plan_lines(found.dfg, found.plan))
    assert "reads the partial sums of the group before" in text
    name = found.dfg[found.plan.layers[first][0].output].name
    text = "\n".join(explain_tiles(found.dfg, found.partition, found.plan, machine, name))
    assert "taken for two results" in text
    assert "its passes have two results, its own and that of " in text


@pytest.mark.usefixtures("always")
def test_other_passes_leave_the_norm_alone(machine, rng):
    """A pool, an upsample, or a norm before: what is stored are not the sums on chip."""
    for kind in ("pooled", "normalised"):
        found = compile_model(stream(kind, "layer_norm", 12), machine)
        assert not found.plan.two_results, kind
        assert_exact(found, machine, rng)


@pytest.fixture(scope="module")
def blocks():
    """Two blocks of ViT-tiny."""
    return vit(224, 16, 192, 3, 2)


@pytest.fixture(scope="module")
def chosen(blocks):
    return compile_model(blocks, load_hw("opu-1024a"))


def test_a_vit_takes_them_and_is_faster(blocks, chosen, monkeypatch):
    hw = load_hw("opu-1024a")
    assert len(chosen.plan.two_results) >= 2
    monkeypatch.setattr(pipeline, "with_two_results", lambda _, __, tiling, ___: tiling)
    alone = compile_model(blocks, hw)
    before, now = (run_cycle(c.bundle, hw).counters["cycles"] for c in (alone, chosen))
    assert now < 0.99 * before


def test_the_prediction_is_near_the_cycle_engine(chosen):
    cycles = run_cycle(chosen.bundle, load_hw("opu-1024a")).counters["cycles"]
    predicted = sum(group.cycles for group in chosen.bundle.groups)
    assert predicted == pytest.approx(cycles, rel=0.03)


@pytest.mark.usefixtures("always")
def test_a_machine_without_norms_keeps_its_tiling():
    hw = load_hw("opu-tiny")
    found = compile_model(stream("residual", "layer_norm", 12), hw)
    assert not found.plan.two_results


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("channels", "size"), [(20, (9, 7)), (3, (1, 1)), (16, (6, 40))])
def test_a_map_is_stored_upsampled_by_the_pass_that_computes_it(channels, size, rng):
    hw = four_pixel_machine()
    found = compile_model(upsampled(channels, size), hw)
    ((_, second),) = found.plan.two_results.items()
    assert not instructions(found, second, Engine.COMPUTE)
    assert found.plan.layers[second][0].shape.upsample == (2, 2)
    assert_exact(found, hw, rng, (None, 1, 2))
