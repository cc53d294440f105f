"""Small maps stay on chip: the next layer reads them where post has put them. Where nobody else
reads them they are not stored.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opu_fuse.errors import InternalError
from opu_fuse.hw.isa.table import Engine, parameters_of
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.report.tables import check_lines
from opu_fuse.schedule.dependencies import synchronise
from opu_fuse.schedule.plan import MachineProgram
from opu_fuse.schedule.proofs import prove_no_race
from opu_fuse.sim.compare.runs import check, compare
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise
from opu_fuse.units.base import Space
from opu_fuse.zoo.builder import Net
from tests.exact import assert_exact
from tests.schedule.mutants import without_tokens
from tests.sim.random_instructions import instruction
from tests.written import written

TINY = load_hw("opu-tiny")
ORDERS = (None, 1, 2, 3)
ALONE = Options(cascades="never")
"""Maps of groups one after the other; cascades are for `test_cascades`."""
MACHINES = {
    "opu-tiny": TINY,
    "opu-light": load_hw("opu-light"),
    "opu-1024": load_hw("opu-1024"),
    "three banks": replace(
        TINY,
        name="three-banks",
        buffers=replace(TINY.buffers, feature=replace(TINY.buffers.feature, words=384, banks=3)),
    ),
}


def chain(channels, size=10):
    """Borders, strides, a pool, a residual; every layer but the last two on the one before."""
    net = Net("chain", seed=5)
    x = net.input("x", (1, channels, size, size))
    x = net.relu(net.conv(x, "first", out=channels, kernel=3, pads=1), "first.relu")
    y = net.conv(x, "second", out=channels, kernel=(1, 3), pads=(0, 0, 0, 2))
    y = net.max_pool(net.relu(y, "second.relu"), "second.pool", kernel=2, stride=1)
    y = net.conv(y, "third", out=2 * channels, kernel=2, stride=2, pads=1)
    z = net.relu(net.conv(y, "fourth", out=2 * channels, kernel=1), "fourth.relu")
    z = net.add(net.conv(z, "fifth", out=2 * channels, kernel=3, pads=1), y, "sum")
    return net.finish(net.conv(z, "last", out=channels, kernel=1))


def compiled(model, hw):
    found = compile_model(model, hw, ALONE)
    (program,) = (s for s in found.plan.segments if isinstance(s, MachineProgram))
    return found, program


def feature_loads(found, program):
    """Names of the groups that load features."""
    layers = {g: parts[0].layer.name for g, parts in found.plan.layers.items()}
    steps = zip(program.instructions, program.groups, strict=True)
    return [layers[g] for x, g in steps if (x.engine, x.opcode) == (Engine.LOAD, "feature")]


def names(found, groups):
    return [found.plan.layers[g][0].layer.name for g in sorted(groups)]


def kept(found):
    return names(found, found.plan.resident_groups)


@pytest.mark.parametrize("name", MACHINES)
def test_a_chain_of_small_layers_loads_features_once(name, rng):
    hw = MACHINES[name]
    model = chain(13 if hw.word_channels == 8 else 100, 7 if hw.word_channels == 8 else 10)
    found, program = compiled(model, hw)
    first, *others = [parts[0].layer.name for _, parts in sorted(found.plan.layers.items())]
    assert kept(found) == [first, *others[:-1]]
    assert set(feature_loads(found, program)) == {first}
    assert_exact(found, hw, rng, ORDERS)


def test_averages_of_fewer_values_at_the_border_go_to_their_places_on_chip(rng):
    """Corners, edges and middle are finished one after the other."""
    hw = TINY
    model = written(
        """<ir_version: 10, opset_import: ["" : 17]>
        g (float[1,8,5,6] x) => (float[1,8,5,6] y) <float[8,8,1,1] w, float[8,8,1,1] v>
        { a = Conv(x, w)  p = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(a)  y = Conv(p, v) }
        """,
        seed=3,
    )
    found, _ = compiled(model, hw)
    assert len(found.plan.layers[0][0].layer.by_count) == 4
    assert found.plan.resident_groups == {0}
    assert_exact(found, hw, rng)


def test_tiles_that_end_within_a_row_go_to_their_places_on_chip(rng):
    """Two pixels a word, four words of partial sums: a tile is half a row."""
    hw = load_hw("opu-light")
    psum = replace(hw.buffers.psum, words=2 * 4, banks=2)
    hw = replace(hw, buffers=replace(hw.buffers, psum=psum))
    net = Net("halves", seed=3)
    x = net.conv(net.input("x", (1, 16, 2, 16)), "first", out=16, kernel=1)
    found, _ = compiled(net.finish(net.conv(x, "second", out=16, kernel=1)), hw)
    ((first,), _) = found.plan.layers.values()
    assert (first.layer.shape.px, first.tile.rows, first.tile.cols) == (2, 1, 8)
    assert found.plan.resident_groups == {0}
    assert_exact(found, hw, rng)


@pytest.mark.usefixtures("closed_form_tiles")
def test_it_saves_time_and_reads():
    without = replace(TINY, name="without", post=replace(TINY.post, keep=False))
    on_chip, through_memory = (
        run_cycle(compile_model(chain(13, 7), hw, ALONE).bundle, hw) for hw in (TINY, without)
    )
    for counter in ("cycles", "dram_bytes_read"):
        before, now = through_memory.counters[counter], on_chip.counters[counter]
        assert now < before, f"{counter}: {before} through memory, {now} on chip"


def test_rows_of_a_map_in_several_tiles_are_loaded_once_the_first_tile_s_first():
    found, program = compiled(chain(8, 11), TINY)  # 121 words: a bank holds them, one tile does not
    first = min(found.plan.layers)
    assert found.plan.layers[first][0].pieces > 1
    steps = zip(program.instructions, program.groups, strict=True)
    order = [x for x, g in steps if g == first]
    loads = [x for x in order if x.opcode == "feature"]
    rows = [x.params["blocks"] * x.params["rows"] * x.params["run"] // 11 for x in loads]
    tile = found.plan.layers[first][0].tile.rows
    assert rows == [tile + 1, 11 - (tile + 1)], "windows of 3 rows, the first begins in the border"
    assert order.index(loads[0]) < order.index(next(x for x in order if x.opcode == "conv"))
    assert order.index(loads[1]) < order.index(next(x for x in order if x.engine is Engine.POST))


def branch(net, x):
    """The map of `first` is read by two layers; the second finds it where it was."""
    x = net.conv(x, "first", out=8, kernel=1)
    a = net.conv(x, "a", out=8, kernel=1)
    return net.add(a, net.conv(x, "b", out=8, kernel=3, pads=1), "sum")


def too_large(net, x):
    return net.conv(net.conv(x, "first", out=24, kernel=1), "second", out=8, kernel=1)


def shared_words(net, x):
    """Two maps of 96 channels: the second begins in the middle of a word of 64. Only the first is
    read whole by one layer.
    """
    a = net.conv(x, "first", out=96, kernel=1)
    b = net.conv(a, "second", out=96, kernel=1)
    return net.conv(net.concat([a, b], "joined"), "third", out=8, kernel=1)


def fire(net, x):
    """Three layers make the concatenated map one after the other, from a map that is kept, too."""
    x = net.conv(x, "first", out=64, kernel=1)
    parts = [net.conv(x, f"part{k}", out=out, kernel=k, pads=k // 2) for k, out in SIZES]
    return net.conv(net.concat(parts, "joined"), "last", out=70, kernel=3, pads=1)


SIZES = ((1, 64), (3, 128), (5, 100))


def grown(net, x):
    """The last layer reads a word whose halves two layers make, from different maps."""
    a = net.conv(x, "first", out=32, kernel=1)
    b = net.conv(a, "second", out=32, kernel=3, pads=1)
    return net.conv(net.concat([a, b], "joined"), "last", out=8, kernel=1)


def other_lanes(net, x):
    """The layer that is emitted last makes half of a word, the next one reads the other half."""
    parts = [net.conv(x, f"part{k}", out=out, kernel=1) for k, out in ((0, 10), (1, 6), (2, 16))]
    first, second = net.split(net.concat(parts, "joined"), "halves")
    y = net.concat([net.relu(first, "first.relu"), second], "again")
    return net.conv(y, "last", out=8, kernel=1)


def interrupted(net, x):
    """Another layer comes between the two that make the map."""
    a = net.conv(x, "first", out=64, kernel=1)
    b = net.conv(net.conv(x, "other", out=8, kernel=3), "second", out=64, kernel=3, pads=2)
    return net.conv(net.concat([a, b], "joined"), "last", out=8, kernel=1)


def plain(net, x):
    return net.conv(net.conv(x, "first", out=8, kernel=1), "second", out=8, kernel=1)


def added_later(net, x):
    first = net.conv(x, "first", out=8, kernel=1)
    y = net.conv(net.conv(first, "second", out=8, kernel=1), "third", out=8, kernel=1)
    return net.add(y, first, "sum")


ONE_BANK = replace(
    TINY, buffers=replace(TINY.buffers, feature=replace(TINY.buffers.feature, banks=1))
)
CASES = {
    "read twice": (branch, TINY, 1, 1),
    "larger than a bank": (too_large, TINY, 0, 0),
    "words shared with a neighbour": (shared_words, MACHINES["opu-1024"], 1, 0),
    "a word of two layers": (grown, MACHINES["opu-1024"], 1, 0),
    "other lanes of a word": (other_lanes, load_hw("opu-light"), 0, 0),
    "concatenated": (fire, MACHINES["opu-1024"], 4, 4),
    "concatenated, not in one go": (interrupted, MACHINES["opu-1024"], 1, 1),
    "one bank": (plain, ONE_BANK, 0, 0),
    "a machine without": (plain, replace(TINY, post=replace(TINY.post, keep=False)), 0, 0),
    "added later": (added_later, TINY, 2, 1),
    "the usual": (plain, TINY, 1, 1),
}


@pytest.mark.parametrize(("build", "hw", "count", "only"), CASES.values(), ids=CASES)
def test_what_cannot_stay_goes_through_memory(build, hw, count, only, rng):
    net = Net("case", seed=3)
    model = net.finish(build(net, net.input("x", (1, 8, 9, 9))))
    found = compile_model(model, hw, ALONE)
    assert len(found.plan.resident_groups) == count, kept(found)
    assert len(found.plan.not_stored) == only, names(found, found.plan.not_stored)
    assert_exact(found, hw, rng, ORDERS)
    everything = compile_model(model, hw, Options(reuse_memory=False, cascades="never"))
    assert everything.plan.resident_groups == found.plan.resident_groups
    assert not everything.plan.not_stored


@pytest.mark.parametrize("elsewhere", ["the user", "the host"])
def test_what_is_read_outside_the_machine_is_stored(elsewhere, rng):
    net = Net("case", seed=3)
    first = net.conv(net.input("x", (1, 8, 9, 9)), "first", out=8, kernel=1)
    other = net.sigmoid(first, "sigmoid") if elsewhere == "the host" else first
    found = compile_model(
        net.finish(net.conv(first, "second", out=8, kernel=1), other=other), TINY, ALONE
    )
    assert kept(found) == ["first"]
    assert not found.plan.not_stored
    assert_exact(found, TINY, rng, ORDERS)


def test_what_only_the_next_layer_reads_is_not_stored():
    model = chain(13, 7)
    found, program = compiled(model, TINY)
    groups = set(found.plan.layers)
    only = [name.split()[0] for name in names(found, found.plan.not_stored)]
    assert only == ["first", "second", "fourth", "fifth"], (
        "third is added later, last is the output"
    )
    steps = zip(program.instructions, program.groups, strict=True)
    to_maps = found.plan.constants_bytes  # what a tile leaves the one below lies in front
    stored = {g for x, g in steps if x.engine is Engine.STORE and x.dram >= to_maps}
    assert stored == groups - found.plan.not_stored
    everything = compile_model(model, TINY, Options(reuse_memory=False, cascades="never"))
    before, now = (run_cycle(c.bundle, TINY).counters for c in (everything, found))
    maps = {t.name: t.layout.size_bytes for t in everything.bundle.tensors}
    gone = maps.keys() - {t.name for t in found.bundle.tensors}
    saved = before["dram_bytes_written"] - now["dram_bytes_written"]
    assert saved == sum(maps[name] for name in gone) > 0
    assert now["dram_bytes_read"] < before["dram_bytes_read"], "fewer instruction words"
    assert now["cycles"] <= before["cycles"]


def test_a_check_looks_at_maps_on_chip_and_counts_those_that_a_run_cannot_show():
    found, _ = compiled(chain(13, 7), TINY)
    inputs = noise(found.bundle)
    result = run(found.bundle, TINY, inputs, capture=True)
    whole = check(found.bundle, inputs, result)
    assert whole.passed
    assert not whole.uncompared
    stored = {t.name for t in found.bundle.tensors}
    on_chip = {name for g in found.bundle.groups for name in g.outputs} - stored
    assert len(on_chip) == 4
    assert on_chip <= result.tensors.keys()
    for name in on_chip:
        wrong = {**result.tensors, name: result.tensors[name] ^ 1}
        assert not check(found.bundle, inputs, replace(result, tensors=wrong)).passed, name
    memory = {name: value for name, value in result.tensors.items() if name in stored}
    from_memory = replace(result, engine="rtl", tensors=memory)
    held = compare(found.bundle, result, from_memory)
    assert held.passed
    assert held.tensors == len(stored) + len(result.outputs)
    assert on_chip <= set(held.uncompared)
    assert any("resident in a buffer" in line for line in check_lines(held))


@pytest.mark.parametrize("name", ["output", "residual"])
def test_what_a_small_bank_does_not_hold_takes_turns(name, rng):
    """Blocks of a tile, each to its place on chip and in memory, each with its operand."""
    small = replace(getattr(TINY.buffers, name), words=40)
    hw = replace(TINY, name="small", buffers=replace(TINY.buffers, **{name: small}))
    net = Net("blocks", seed=3)
    x = net.conv(net.input("x", (1, 8, 4, 4)), "first", out=24, kernel=1)
    y = net.leaky_relu(net.conv(x, "second", out=24, kernel=1), "second.leaky", alpha=0.25)
    y = net.add(net.conv(y, "third", out=24, kernel=1), x, "sum")
    found, program = compiled(net.finish(net.conv(y, "last", out=24, kernel=1)), hw)
    assert kept(found) == ["first", "second + second.leaky", "third + sum"]
    posts = [x.params["blocks"] for x in program.instructions if x.engine is Engine.POST]
    assert (2, 1) in pairwise(posts)
    (result,) = assert_exact(found, hw, rng)
    assert not result.masks, "some blocks are shown nowhere"


def test_rows_longer_than_a_register_counts_go_through_memory():
    huge = replace(TINY.buffers, feature=replace(TINY.buffers.feature, words=1 << 18))
    hw = replace(TINY, buffers=huge)
    net = Net("wide", seed=3)
    x = net.conv(net.input("x", (1, 8, 1, 1100)), "first", out=480, kernel=1)  # 66 000 words a row
    found, _ = compiled(net.finish(net.conv(x, "second", out=8, kernel=1)), hw)
    assert not found.plan.resident_groups


@st.composite
def chains(draw):
    """A model of up to six layers with windows of all kinds, and a machine."""
    net = Net("drawn", seed=draw(st.integers(0, 99)))
    x = net.input(
        "x", (1, draw(st.integers(2, 20)), draw(st.integers(3, 11)), draw(st.integers(3, 11)))
    )
    for i in range(draw(st.integers(2, 6))):
        if min(x.shape[2:]) < 3:
            break
        kernel = draw(st.integers(1, 3))
        stride, pads = draw(st.integers(1, 2)), draw(st.integers(0, kernel - 1))
        if draw(st.integers(0, 4)) == 0:
            x = net.max_pool(x, f"n{i}", kernel=kernel, stride=stride, pads=pads)
        else:
            groups = x.channels if kernel > 1 and draw(st.booleans()) else 1
            out = x.channels if groups > 1 else draw(st.integers(2, 20))
            window = {"kernel": kernel, "stride": stride, "pads": pads, "groups": groups}
            x = net.conv(x, f"n{i}", out=out, centred=False, **window)
    return net.finish(x), draw(st.sampled_from(list(MACHINES)))


@given(chains())
@settings(max_examples=20, deadline=None)
def test_any_chain_is_exact_in_any_order(drawn):
    model, name = drawn
    found = compile_model(model, MACHINES[name], ALONE)
    assert_exact(found, MACHINES[name], np.random.default_rng(0), ORDERS[:2])


def test_every_token_of_a_kept_chain_is_needed():
    _, program = compiled(chain(13, 7), TINY)
    for mutant in without_tokens(program.instructions):
        with pytest.raises(InternalError, match="race proof"):
            prove_no_race(mutant, TINY)


def test_load_and_a_post_that_keeps_take_turns_at_the_write_port():
    one = dict.fromkeys(("out_rows", "out_cols", "blocks", "win_rows", "win_cols"), 1)
    one |= dict.fromkeys(("stride_y", "stride_x", "in_rows", "in_cols", "rows", "run"), 1)
    known = {e: {r.name for r in parameters_of(e)} for e in (Engine.POST, Engine.LOAD)}
    post, load = (
        instruction(engine, opcode, {n: v for n, v in (one | more).items() if n in known[engine]})
        for engine, opcode, more in (
            (Engine.POST, "run", {"keep": 1, "keep_at": 0}),
            (Engine.LOAD, str(Space.FEATURE), {"dst": 200}),
        )
    )
    for program in ([post, load], [load, post]):
        with pytest.raises(InternalError, match="write port"):
            prove_no_race(program, TINY)
        ordered = synchronise(program, TINY)
        assert ordered[1].waits == (program[0].engine,)
        prove_no_race(ordered, TINY)
