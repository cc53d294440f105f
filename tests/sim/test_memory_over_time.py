"""Memory over time: bytes add up, and a word is occupied from its write to its last read."""

import numpy as np
import pytest

from opu_fuse import zoo
from opu_fuse.bundle.memory_image import segment_words
from opu_fuse.hw.isa.encoding import decode
from opu_fuse.hw.isa.footprint import footprint
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile as compile_program
from opu_fuse.sim.memory_over_time import memory_over_time


@pytest.fixture(scope="module", params=["tiny_residual", "tiny_odd"])
def seen(request):
    program = compile_program(zoo.build(request.param), load_hw("opu-tiny"))
    run = program.run(engine="cycle")
    return program, run, memory_over_time(program.bundle, program.hw, run, spans=50)


def test_bytes_are_those_of_the_groups(seen):
    _, run, found = seen
    widths = np.diff(found.cycles)
    assert (found.read * widths).sum() == pytest.approx(sum(g.dram_bytes_read for g in run.groups))
    stored = sum(g.dram_bytes_written for g in run.groups)
    assert (found.written * widths).sum() == pytest.approx(stored)
    assert found.cycles[-1] == run.segment_starts[max(run.segment_starts)] + max(
        r.end for r in run.trace if r.segment == max(run.segment_starts)
    )


def test_no_span_moves_more_than_the_memory_can(seen):
    program, _, found = seen
    assert (found.read + found.written).max() <= program.hw.dram.bytes_per_cycle * 1.25


def test_words_are_occupied_from_their_write_to_their_last_read(seen):
    """Word by word from the lists of what touches it, without the arrays of the product."""
    program, run, found = seen
    times = {(r.segment, r.instruction): r for r in run.trace}
    free, begins = {}, {}
    for r in run.trace:
        begins[r.segment, r.instruction] = max(r.start, free.get(r.engine, 0))
        free[r.engine] = r.end
    (segment,) = program.bundle.segments
    touched = {}
    for place, x in enumerate(decode(segment_words(program.bundle, segment))):
        for access in footprint(x, program.hw):
            adds = access.write and x.engine.name == "COMPUTE" and x.params["accumulate"]
            for start, end in access.intervals if access.space.value != "dram" else ():
                for word in range(start, end):
                    entry = (place, access.write, bool(adds))
                    touched.setdefault((access.space.value, word), []).append(entry)
    expected = {name: np.zeros(50, int) for name in found.on_chip}
    for (space, _), accesses in touched.items():
        writes = [i for i, (_, write, adds) in enumerate(accesses) if write and not adds]
        for this, following in zip(writes, [*writes[1:], len(accesses)], strict=True):
            reads = [p for p, write, _ in accesses[this + 1 : following] if not write]
            if reads:
                born = begins[0, accesses[this][0]]
                dead = max(times[0, p].end for p in reads)
                at = found.cycles[1:]
                expected[space] += (at >= born) & (at < dead)
    for name, words in expected.items():
        assert found.on_chip[name].tolist() == words.tolist(), name
    assert found.on_chip["weight"].max() > 0


def test_a_memory_never_holds_more_than_it_has(seen):
    _, _, found = seen
    for name, words in found.on_chip.items():
        assert 0 <= words.min() <= words.max() <= found.capacity[name]
