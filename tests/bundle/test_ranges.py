"""The debug database: from an operator of the user's model to the instructions that run it."""

from dataclasses import astuple

import numpy as np

from opu_fuse.bundle.instruction_ranges import instruction_ranges
from opu_fuse.bundle.memory_image import segment_words
from opu_fuse.bundle.program import HostSegment, MachineSegment
from opu_fuse.hw.isa.encoding import decode_with_positions
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.report.json_trees import inspect_json
from opu_fuse.zoo import build
from tests.bundle.sample import sample_bundle

C, U = 1 << 31, 0


def segment(offset, words, groups):
    return MachineSegment(program_offset=offset, words=words, groups=groups, tiles=())


def test_interleaved_groups_have_a_range_for_every_run():
    words = np.array([C, U, C, C, U, U, C, C], np.uint32)
    found = instruction_ranges([segment(64, 8, (-1, 0, 1, 0, 0))], words, 64)
    assert {g: [astuple(r) for r in ranges] for g, ranges in found.items()} == {
        -1: [(0, 0, 0, 0, 0)],
        0: [(0, 1, 1, 1, 2), (0, 3, 4, 4, 7)],
        1: [(0, 2, 2, 3, 3)],
    }


def test_a_group_in_two_segments_counts_from_each_segments_start():
    words = np.array([U, C, 0, 0, U, U, C, C], np.uint32)  # the second begins at a full word
    host = HostSegment(inputs=(), outputs=(), ops=(), pieces=())
    segments = [segment(64, 2, (0,)), host, segment(80, 4, (0, 1))]
    found = instruction_ranges(segments, words, 64)
    assert [astuple(r) for r in found[0]] == [(0, 0, 0, 0, 1), (2, 0, 0, 0, 2)]
    assert [astuple(r) for r in found[1]] == [(2, 1, 1, 3, 3)]


def test_ranges_cover_every_instruction_and_word_of_a_compiled_program_once():
    bundle = compile_model(build("tiny_residual"), load_hw("opu-tiny")).bundle
    (number,) = [i for i, s in enumerate(bundle.segments) if isinstance(s, MachineSegment)]
    program = bundle.segments[number]
    assert isinstance(program, MachineSegment)
    _, positions = decode_with_positions(segment_words(bundle, program))
    owner = np.full(program.words, -1)
    counted = [-1] * len(program.groups)
    for group in bundle.groups:
        assert group.instructions
        for r in group.instructions:
            assert r.segment == number
            assert np.all(owner[r.first_word : r.last_word + 1] == -1), "a word of two groups"
            owner[r.first_word : r.last_word + 1] = group.index
            counted[r.first : r.last + 1] = [group.index] * (r.last - r.first + 1)
    assert tuple(counted) == program.groups
    assert tuple(owner[positions]) == program.groups


def test_inspect_leads_from_the_users_operator_to_its_instructions():
    sources = {s["name"]: s["operators"] for s in inspect_json(sample_bundle())["sources"]}
    instructions = [{"segment": 0, "first": 1, "last": 6, "first_word": 3, "last_word": 54}]
    assert sources == {
        "conv": [
            {"name": "conv", "group": 0, "instructions": instructions},
            {"name": "conv/bias", "group": None, "host_segment": None},
        ],
        "softmax": [{"name": "softmax", "group": None, "host_segment": 1}],
    }


def test_every_operator_of_a_compiled_model_is_found():
    bundle = compile_model(build("tiny_residual"), load_hw("opu-tiny")).bundle
    places = [o for s in inspect_json(bundle)["sources"] for o in s["operators"]]
    assert {o["name"] for o in places} == {op.name for g in bundle.groups for op in g.ops}
    assert all(o["instructions"] for o in places)
    names = {s["name"] for s in inspect_json(bundle)["sources"]}
    assert {"stem", "stem.bn", "stem.relu", "block1.add"} <= names
