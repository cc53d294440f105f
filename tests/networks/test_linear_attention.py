"""Linear attention with its division, and talking heads: all on a machine with norms."""

import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from tests.hw.norm_machine import norm_machine
from tests.networks import attention_blocks as blocks
from tests.networks.test_attention import on_host, operators, run

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

DIVIDED = {
    "one head": blocks.divided(7, (3, 5), 1, 3),
    "three heads": blocks.divided(16, (4, 4), 3, 5),
    "transposed": blocks.divided(9, (5, 3), 2, 4, transposed=True),
    "a column of pixels": blocks.divided(8, (7, 1), 2, 6),
}
VIEWS = {"host:Reshape", "reshape"}


@pytest.mark.parametrize("scales", ["pow2", "free"])
@pytest.mark.parametrize("case", DIVIDED)
def test_a_machine_with_norms_divides_as_onnxruntime(case: str, scales: str):
    program, _, checked = run(DIVIDED[case], "opu-1024a", scales=scales)
    assert {op.op for op in on_host(program)} <= VIEWS
    assert operators(program).count("divide") == (1, 3, 2, 2)[[*DIVIDED].index(case)]
    assert checked.passed


def test_every_engine_divides_alike():
    program, result, _ = run(DIVIDED["three heads"], "opu-1024a")
    _, shuffled, _ = run(DIVIDED["three heads"], "opu-1024a", shuffle=3)
    for name, tensor in result.tensors.items():
        assert (shuffled.tensors[name] == tensor).all()
    assert "divide" in operators(program)


def test_a_head_wider_than_a_word_is_divided_by_the_host():
    program, _, checked = run(blocks.divided(8, (3, 3), 1, 7), norm_machine())
    assert "divide" not in operators(program)
    assert checked.passed


def test_a_machine_that_does_not_divide_leaves_the_quotients_to_the_host():
    program, _, checked = run(DIVIDED["three heads"], "opu-1024t")
    assert "host:Div" in {op.op for op in on_host(program)}
    assert checked.passed


@pytest.mark.parametrize("heads", [2, 3])
def test_talking_heads_are_convolutions_on_the_machine(heads: int):
    program, _, checked = run(blocks.talking(12, 3, heads, 5), "opu-1024a")
    assert {op.op for op in on_host(program)} <= VIEWS
    assert operators(program).count("softmax") == heads
    assert operators(program).count("conv") >= 2 * heads
    assert checked.passed


@pytest.mark.parametrize("machine", ["opu-1024", "opu-light"])
def test_talking_heads_have_the_bits_of_onnxruntime_with_norms_on_the_host(machine: str):
    program, _, checked = run(blocks.talking(10, 3, 2, 4), load_hw(machine))
    assert "host:Softmax" in {op.op for op in on_host(program)}
    assert checked.passed
