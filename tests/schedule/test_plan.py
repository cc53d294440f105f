"""What a plan promises of its programs, besides their bits."""

import dataclasses
from collections import Counter
from math import ceil

import onnx
import pytest
from msgspec.structs import replace

from opu_fuse.errors import DoesNotFit, InternalError, UserError
from opu_fuse.hw.isa.encoding import encode
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule import plan
from opu_fuse.schedule.dependencies import synchronise
from opu_fuse.schedule.emit_sink import EmitSink
from opu_fuse.schedule.plan import MachineProgram
from opu_fuse.schedule.segment_order import HostWork
from opu_fuse.schedule.tensors import require_countable
from opu_fuse.zoo.builder import Net
from tests.exact import assert_exact
from tests.schedule.test_tile_trace import chain_and_one

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")
TINY = load_hw("opu-tiny")


def compiled(hw=TINY):
    net = Net("two", seed=3)
    x = net.conv(net.input("x", (1, 8, 6, 6)), "first", out=8, kernel=3, pads=1)
    return compile_model(net.finish(net.conv(x, "second", out=8, kernel=1)), hw)


def with_memory(size):
    return dataclasses.replace(TINY, dram=dataclasses.replace(TINY.dram, capacity=size))


def test_a_window_as_large_as_the_memory_fits():
    window = compiled().plan.window_bytes
    assert compiled(
        dataclasses.replace(TINY, dram=dataclasses.replace(TINY.dram, capacity=window))
    ).plan
    with pytest.raises(UserError, match=f"take {window} bytes"):
        compiled(
            dataclasses.replace(TINY, dram=dataclasses.replace(TINY.dram, capacity=window - 1))
        )


def test_programs_lie_right_behind_each_other_at_the_end_of_the_window():
    """In words of 4 bytes; each begins at a multiple of 64, the window ends at one of 4096."""
    net = Net("apart", seed=3)
    x = net.conv(net.input("x", (1, 8, 20, 20)), "first", out=8, kernel=3, pads=1)
    x = net.conv(net.sigmoid(x, "host"), "second", out=8, kernel=1)
    found = compile_model(net.finish(x), TINY).plan
    first, second = (s for s in found.segments if isinstance(s, MachineProgram))
    assert first.program_offset == found.program_offset
    assert 4 * len(first.words) > 256, "a byte more or less a word would not show"
    assert second.program_offset == ceil((first.program_offset + 4 * len(first.words)) / 64) * 64
    end = second.program_offset + 4 * len(second.words)
    assert found.window_bytes == ceil(end / 4096) * 4096


def test_where_only_the_places_of_channels_change_the_machine_is_not_started():
    text = """<ir_version: 10, opset_import: ["" : 17]>
        g (float[1,4,6,6] x) => (float[1,2,6,6] y, float[1,2,6,6] z)
        <float s = {0.25}, int8 o = {0}, int64[2] parts = {2,2}>
        { q = QuantizeLinear(x, s, o)  r = DequantizeLinear(q, s, o)  a, b = Split<axis=1>(r, parts)
          c = QuantizeLinear(a, s, o)  d = DequantizeLinear(c, s, o)  y = Softmax(d)
          e = QuantizeLinear(b, s, o)  f = DequantizeLinear(e, s, o)  z = Softmax(f) }"""
    found = compile_model(onnx.parser.parse_model(text), load_hw("opu-1024"))
    assert found.partition.groups
    assert [type(segment) for segment in found.plan.segments] == [HostWork]


def test_blocks_may_lie_as_far_apart_as_an_instruction_can_say():
    found = compiled()
    node, use = next(iter(found.plan.uses.items()))

    def require(words):
        layout = dataclasses.replace(use.storage.layout, rows=words, cols=1)
        storage = replace(use.storage, layout=layout)
        require_countable(found.dfg, {node: replace(use, storage=storage)})

    most = (1 << 22) - 1
    require(most)
    with pytest.raises(DoesNotFit, match=f"has {most + 1} words, instructions count {most}"):
        require(most + 1)


def without_tokens(plain, *_):
    return tuple(plain)


def with_a_token_too_many(plain, hw, conflicts):
    *body, end = synchronise(plain, hw, conflicts)
    at = next(i for i, x in enumerate(body) if x.engine is Engine.STORE)
    body[at] = replace(body[at], waits=(Engine.LOAD, Engine.COMPUTE, Engine.POST))
    return (*body, end)


def one_register_wrong(synchronised):
    wrong = next(i for i, x in enumerate(synchronised) if x.opcode == "conv")
    x = synchronised[wrong]
    other = replace(x, params={**x.params, "pad_value": 1 - x.params["pad_value"]})
    return encode([*synchronised[:wrong], other, *synchronised[wrong + 1 :]])


@pytest.mark.parametrize(
    ("name", "damaged", "proof"),
    [
        ("synchronise", without_tokens, "race proof"),
        ("synchronise", with_a_token_too_many, "deadlock proof"),
        ("encode", one_register_wrong, "encoding proof"),
    ],
)
def test_no_program_is_given_away_without_its_proofs(name, damaged, proof, monkeypatch):
    monkeypatch.setattr(plan, name, damaged)
    with pytest.raises(InternalError, match=proof):
        compiled()


def test_maps_inside_a_cascade_have_no_place_in_memory():
    found = compile_model(chain_and_one(), TINY, Options(cascades="always")).plan
    names = {group: parts[0].layer.name for group, parts in found.layers.items()}
    assert {names[group] for group in found.not_stored} == {"first", "second"}


def test_constants_of_a_layer_are_loaded_once_for_all_its_tiles():
    net = Net("tiles", seed=3)
    x = net.conv(net.input("x", (1, 8, 24, 24)), "conv", out=8, kernel=1)
    found = compile_model(net.finish(net.sigmoid(x, "act")), load_hw("opu-light")).plan
    ((layer,),) = found.layers.values()
    assert layer.pieces == 3
    (program,) = (s for s in found.segments if isinstance(s, MachineProgram))
    loads = Counter(x.opcode for x in program.instructions if x.engine is Engine.LOAD)
    assert loads == {"feature": 3, "weight": 1, "param": 1, "table": 1}


@pytest.mark.usefixtures("closed_form_tiles")
def test_no_more_blocks_are_finished_at_once_than_the_bank_of_what_is_added_holds(rng):
    """It has 16 words, two blocks of a tile of three; the output bank holds eight."""
    residual = dataclasses.replace(TINY.buffers.residual, words=2 * 16, banks=2)
    hw = dataclasses.replace(TINY, buffers=dataclasses.replace(TINY.buffers, residual=residual))
    net = Net("added", seed=3)
    x = net.input("x", (1, 24, 4, 4))
    found = compile_model(net.finish(net.add(net.conv(x, "conv", out=24, kernel=1), x, "sum")), hw)
    ((layer,),) = found.plan.layers.values()
    assert (layer.tile.rows * layer.tile.cols, layer.tile.blocks) == (8, 3)
    assert_exact(found, hw, rng)


def test_a_map_that_is_on_chip_only_is_not_loaded():
    net = Net("alone", seed=3)
    found = compile_model(
        net.finish(net.conv(net.input("x", (1, 8, 4, 4)), "conv1", out=8, kernel=1)), TINY
    )
    ((layer,),) = found.plan.layers.values()
    placement = found.plan.placements[layer.source]
    assert EmitSink(TINY, {layer.source: placement})._placement_of(layer) is placement
    with pytest.raises(InternalError, match="conv1 loads a map that is not in DRAM"):
        EmitSink(TINY, {layer.output: placement})._placement_of(layer)
