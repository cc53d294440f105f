"""What compiles, runs: a program that engines would refuse is a bug of the compiler."""

import dataclasses

import numpy as np
import pytest
from msgspec.structs import replace

from opu_fuse import pipeline, zoo
from opu_fuse.bundle.verify_program import self_check
from opu_fuse.errors import InternalError
from opu_fuse.hw.isa.encoding import decode
from opu_fuse.hw.isa.table import Engine
from tests.bundle.sample import HW, sample_bundle

BUNDLE = sample_bundle()
PROGRAM = decode(BUNDLE.words)
POST = next(i for i, x in enumerate(PROGRAM) if x.engine is Engine.POST)


def with_params(number, **changes):
    program = list(PROGRAM)
    x = program[number]
    program[number] = replace(x, params={**x.params, **changes})
    return program


def test_a_sound_program_passes():
    self_check(BUNDLE, HW, [PROGRAM])


@pytest.mark.parametrize(
    ("register", "value", "why"),
    [
        (
            "order",
            0x22,
            "has order 0x22, which the graph of opu-tiny has not: compare appears twice",
        ),
        ("blocks", 0, "has blocks = 0, at least 1 is needed"),
        ("out", 127, "writes word 128 of the output buffer, which holds 128 words"),
    ],
)
def test_an_instruction_that_would_stop_the_machine_is_named_with_its_group(register, value, why):
    with pytest.raises(InternalError) as error:
        self_check(BUNDLE, HW, [with_params(POST, **{register: value})])
    text = str(error.value)
    assert "self-check of the program" in text
    assert "group 0 conv: conv (conv on ipa), relu (relu on compare)" in text
    assert f"instruction {POST} (post.run) {why}" in text


def test_what_reading_would_refuse_is_found_as_well():
    wrong = dataclasses.replace(
        BUNDLE, tensors=(dataclasses.replace(BUNDLE.tensors[0], offset=1 << 30), BUNDLE.tensors[1])
    )
    with pytest.raises(InternalError, match=r"tensor x at bytes .* is outside the feature maps"):
        self_check(wrong, HW, [PROGRAM])


def test_compile_checks_its_own_program(monkeypatch):
    build = pipeline.build_bundle

    def forgetful(*arguments):
        return dataclasses.replace(build(*arguments), constants=np.zeros(1 << 24, np.uint8))

    monkeypatch.setattr(pipeline, "build_bundle", forgetful)
    with pytest.raises(InternalError, match="constant bytes reach into the program"):
        pipeline.compile_model(zoo.build("tiny_odd"), HW)


def test_compile_refuses_instructions_that_engines_refuse(monkeypatch):
    monkeypatch.setattr("opu_fuse.hw.isa.faults.illegal", lambda *_: "is forbidden today")
    with pytest.raises(InternalError, match=r"instruction 0 \(fetch\.check\) is forbidden today"):
        pipeline.compile_model(zoo.build("tiny_odd"), HW)
