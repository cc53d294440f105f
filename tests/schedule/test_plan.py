"""What a plan promises of its programs, besides their bits."""

from dataclasses import replace
from types import SimpleNamespace

import onnx
import pytest

from opu_fuse.errors import DoesNotFit, InternalError, UserError
from opu_fuse.hw.encoding import encode
from opu_fuse.hw.isa import Engine
from opu_fuse.hw.load import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.schedule import plan
from opu_fuse.schedule.dependencies import synchronise
from opu_fuse.schedule.job import Job
from opu_fuse.schedule.plan import HostWork
from opu_fuse.schedule.tensors import require_countable
from opu_fuse.zoo.builder import Net

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")
TINY = load_hw("opu-tiny")


def compiled(hw=TINY):
    net = Net("two", seed=3)
    x = net.conv(net.input("x", (1, 8, 6, 6)), "first", out=8, kernel=3, pads=1)
    return compile_model(net.finish(net.conv(x, "second", out=8, kernel=1)), hw)


def test_a_window_as_large_as_the_memory_fits():
    window = compiled().plan.window_bytes
    assert compiled(replace(TINY, dram=replace(TINY.dram, capacity=window))).plan
    with pytest.raises(UserError, match=f"take {window} bytes"):
        compiled(replace(TINY, dram=replace(TINY.dram, capacity=window - 1)))


def test_where_only_the_places_of_channels_change_the_machine_is_not_started():
    text = """<ir_version: 10, opset_import: ["" : 17]>
        g (float[1,4,6,6] x) => (float[1,2,6,6] y, float[1,2,6,6] z) <int64[2] parts = {2,2}>
        { a, b = Split<axis=1>(x, parts)  y = Softmax(a)  z = Softmax(b) }"""
    found = compile_model(onnx.parser.parse_model(text), load_hw("opu-1024"))
    assert found.partition.groups
    assert [type(segment) for segment in found.plan.segments] == [HostWork]


def test_blocks_may_lie_as_far_apart_as_an_instruction_can_say():
    found = compiled()
    node, use = next(iter(found.plan.uses.items()))

    def require(words):
        layout = replace(use.place.layout, rows=words, cols=1)
        place = replace(use.place, layout=layout)
        require_countable(found.dfg, {node: replace(use, place=place)})

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


def test_a_map_that_is_on_chip_only_is_not_loaded():
    job = SimpleNamespace(source=None, layer=SimpleNamespace(name="conv1"))
    with pytest.raises(InternalError, match="conv1 loads a map that is on chip only"):
        Job.loaded.fget(job)
