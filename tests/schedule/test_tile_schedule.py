"""One tile schedule: what is timed is what is emitted, operation by operation."""

import pytest

from opu_fuse import zoo
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule import plan
from opu_fuse.tile_schedule.sink import TileSink
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.timing import segment_cycles as segments
from tests.networks.attention_blocks import linear
from tests.networks.gated import network
from tests.networks.test_pooling_halos import POOLS, pooled
from tests.schedule.test_batch_blocks import separable
from tests.schedule.test_large_layers import large_window

OPERATIONS = {name for name in vars(TileSink) if not name.startswith("_")}

CASES = {
    "tiles": (lambda: zoo.build("tiny_tiles"), "opu-tiny", {"cascades": "never"}),
    "residuals": (lambda: zoo.build("tiny_residual"), "opu-light", {"cascades": "never"}),
    "fused stack, im2row": (lambda: zoo.build("tiny_odd"), "opu-1024", {"cascades": "always"}),
    "halo": (lambda: pooled(POOLS["padding above"], rows=122, cols=46), "opu-1024", {}),
    "gate": (lambda: network("block"), "opu-light", {}),
    "banks used together": (lambda: large_window("depthwise 21x21"), "opu-tiny", {}),
    "weights that are a map": (lambda: linear(16, 4, 2), "opu-1024", {"cascades": "never"}),
    "batch": (lambda: separable(24, (9, 9), residual=True), "opu-tiny", {"batch": 4}),
}


def recorder(sink, logs):
    """A sink of that class, whose operations are noted in a list of `logs`."""

    class Recorder(sink):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.log = []
            logs.append(self.log)

    def noted(name):
        operation = getattr(sink, name)

        def call(self, *arguments):
            values = arguments[:-1] if name in {"copy", "compute"} else arguments  # without `Read`
            self.log.append((name, *map(plain, values)))
            return operation(self, *arguments)

        return call

    for name in OPERATIONS:
        setattr(Recorder, name, noted(name))
    return Recorder


def plain(value):
    """Layers by what they make, all other arguments as they are."""
    return (value.output, value.images) if isinstance(value, TiledLayer) else value


@pytest.fixture
def both(monkeypatch):
    """Operations of all time sinks and all emit sinks, in the order in which they were made."""
    timed, emitted = [], []
    monkeypatch.setattr(segments, "TimeSink", recorder(segments.TimeSink, timed))
    monkeypatch.setattr(plan, "EmitSink", recorder(plan.EmitSink, emitted))
    return timed, emitted


@pytest.mark.parametrize("name", CASES)
def test_the_cycles_told_are_those_of_the_operations_emitted(name, both):
    build, machine, options = CASES[name]
    compile_model(build(), load_hw(machine), Options(**options))
    timed, emitted = both
    told = [log for log in timed[-len(emitted) :] if log]
    assert told == emitted
    assert sum(map(len, emitted)) > 10


def test_the_cases_have_every_operation(both):
    for build, machine, options in CASES.values():
        compile_model(build(), load_hw(machine), Options(**options))
    _, emitted = both
    assert {name for log in emitted for name, *_ in log} == OPERATIONS
