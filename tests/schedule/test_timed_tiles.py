"""Layers at which the array waits have tiles for which it waits less: the same bits, sooner."""

from math import inf

import pytest
from msgspec.structs import replace

from benchmarks.attention_networks import convnext
from opu_fuse import zoo
from opu_fuse.bundle.derived_facts import instruction_texts
from opu_fuse.exploring.design import WHOLE
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule import plan, timed_tiles
from opu_fuse.schedule.emitted_units import planned_units
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.tile_schedule.traversal import TileSchedule
from opu_fuse.timing.segment_cycles import Trials, cycles, timed
from opu_fuse.timing.time_sink import TimeSink
from tests.exact import assert_batch_has_single_bits, assert_exact
from tests.networks.narrow_branches import block
from tests.schedule.planned import stacks

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")
HW = load_hw("opu-1024a")


def stage(depth=2):
    """Blocks of ConvNeXt-T's third stage."""
    return convnext(56, (384,), (depth,))


def with_tiles_of_the_closed_form(monkeypatch, model, hw=HW):
    with monkeypatch.context() as patched:
        patched.setattr(plan, "with_tiles_without_waits", lambda tiling, _: tiling)
        return compile_model(model, hw)


def tiles_of(found):
    return {parts[0].layer.name: parts[0].tile for parts in found.plan.layers.values()}


def instructions(found):
    """Assembly of a program. Its first and last instruction have the hash of the machine."""
    (segment,) = found.bundle.segments
    return instruction_texts(found.bundle, segment)[1:-1]


def cycles_of(found):
    return run_cycle(found.bundle, HW).counters["cycles"]


def test_windows_norms_and_products_wait_less_for_each_other(monkeypatch, rng):
    before = with_tiles_of_the_closed_form(monkeypatch, stage())
    after = compile_model(stage(), HW)
    assert tiles_of(after) != tiles_of(before)
    assert cycles_of(after) < 0.995 * cycles_of(before)
    assert_exact(after, HW, rng, (None, 1))


def test_a_layer_that_waits_for_post_takes_higher_tiles_and_is_faster(monkeypatch, rng):
    model = block(16, 8, (80, 80), first=32)
    before, after = with_tiles_of_the_closed_form(monkeypatch, model), compile_model(model, HW)
    (name,) = [name for name in tiles_of(after) if name.startswith("last")]
    assert tiles_of(after)[name].rows > tiles_of(before)[name].rows
    assert cycles_of(after) < 0.99 * cycles_of(before)
    assert_exact(after, HW, rng)


def test_a_tile_that_moves_more_bytes_saves_a_tenth_of_their_time(monkeypatch):
    hw = load_hw("opu-1024")
    model = zoo.build("resnet18")
    found = [with_tiles_of_the_closed_form(monkeypatch, model, hw), compile_model(model, hw)]
    monkeypatch.setattr(timed_tiles, "_TRAFFIC", 0.0)
    found.append(compile_model(model, hw))
    counted = [run_cycle(each.bundle, hw).counters for each in found]
    closed, usual, fastest = (c["dram_bytes_read"] + c["dram_bytes_written"] for c in counted)
    assert usual < 1.01 * closed
    assert fastest > 1.1 * closed
    assert counted[2]["cycles"] < counted[1]["cycles"] < counted[0]["cycles"]


def test_what_they_take_is_predicted():
    found = compile_model(stage(), HW)
    predicted = sum(group.cycles for group in found.bundle.groups)
    assert predicted == pytest.approx(run_cycle(found.bundle, HW).counters["cycles"], rel=0.02)


def test_a_batch_has_the_bits_of_its_images(rng):
    model = convnext(32, (64,), (1,))
    one, two = (compile_model(model, HW, Options(batch=images)) for images in (1, 2))
    assert_batch_has_single_bits(one, two, HW, rng)


def test_equal_blocks_are_timed_once(monkeypatch):
    timed = []
    real = Trials.cycles
    monkeypatch.setattr(Trials, "cycles", lambda *given: timed.append(1) or real(*given))
    compile_model(stage(4), HW)
    few = len(timed)
    timed.clear()
    compile_model(stage(7), HW)
    assert few
    assert len(timed) == few


def searched(monkeypatch, model, hw):
    """A compiled model, and groups for which tiles are timed."""
    groups = []
    real = timed_tiles._Search.retile

    def noted(search, units, at):
        groups.extend(units[at].groups)
        real(search, units, at)

    with monkeypatch.context() as patched:
        patched.setattr(timed_tiles._Search, "retile", noted)
        return compile_model(model, hw), set(groups)


def test_no_tiles_are_timed_for_layers_of_stacks_nor_where_memory_or_array_always_works(
    monkeypatch,
):
    hw = load_hw("opu-light")
    found, groups = searched(monkeypatch, zoo.build("mobilenet_v2"), hw)
    stacked = {group for stack in stacks(found.plan) for group in stack.groups}
    (units,) = planned_units(found.plan, hw)
    assert len(stacked) > 15
    assert groups
    assert not stacked & groups
    assert len(groups) < 0.5 * (len(found.plan.layers) - len(stacked))
    times = timed(units, hw)
    assert sum(times.idle) < 0.05 * sum(times.spent.values())


def test_cycles_in_which_another_tile_could_help():
    """Not those in which the array computes or memory moves bytes."""
    (units,) = planned_units(compile_model(stage(), HW).plan, HW)
    sink = TimeSink(HW)
    TileSchedule(HW, sink).units(units)
    idle = timed(units, HW).idle
    assert len(idle) == len(units)
    assert sum(idle) <= sink.counted - max(sink.swept, sink.memory.used)


@pytest.mark.parametrize("machine", ["opu-1024a", "opu-light"])
def test_what_is_shared_or_given_up_changes_no_time(monkeypatch, machine):
    """What tiles of a layer share is timed once, and those that are too late not to the end."""
    late = []
    real = Trials.cycles

    def checked(trials, units, shared, limit=inf):
        result, whole = real(trials, units, shared, limit), cycles(units, trials._hw)
        assert result == whole or (result == inf and whole > limit)
        late.append(result == inf)
        return result

    monkeypatch.setattr(Trials, "cycles", checked)
    compile_model(block(16, 8, (80, 80), first=32), load_hw(machine))
    compile_model(zoo.build("mobilenet_v2", image=64), load_hw(machine))
    assert any(late)
    assert not all(late)


@pytest.mark.parametrize("name", ["tiny_residual", "tiny_odd", "squeezenet"])
def test_a_norm_unit_that_a_network_does_not_use_changes_no_program(name):
    """Else a search of machines would take the unit for what the scheduler does with it."""
    machines = [hw for hw in (WHOLE.spec(), replace(WHOLE, without=("norms",)).spec()) if hw]
    whole, bare = (instructions(compile_model(zoo.build(name), hw)) for hw in machines)
    assert whole == bare
