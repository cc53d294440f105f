"""A program of many processes may fork behind a run: the fork runs programs of its own."""

import multiprocessing

import numpy as np
import onnx
import pytest

import opu_fuse
from opu_fuse.errors import RunError
from opu_fuse.host.run.segment import KEPT, may_trap
from opu_fuse.sim.ports import noise

HW = opu_fuse.load_hw("opu-tiny")
SECONDS = 30  # a program takes milliseconds


def program(size):
    """One whose operator runs in ONNX Runtime, like no other of another size."""
    text = f"""<ir_version: 10, opset_import: ["" : 17]>
    g (float[1,{size}] x) => (float[1,{size}] y) {{ y = Softmax(x) }}"""
    return opu_fuse.compile(onnx.parser.parse_model(text), HW)


def result(made):
    return made.run(noise(made.bundle)).outputs["y"]


def test_a_fork_does_not_wait_for_the_sessions_of_its_parent():
    """It would when it puts theirs out of the cache by its own."""
    for size in range(2, 2 + KEPT):
        result(program(size))
    others = [program(size) for size in range(20, 20 + KEPT)]
    context = multiprocessing.get_context("fork")
    found = context.Queue()
    child = context.Process(target=lambda: found.put([result(p) for p in others]), daemon=True)
    child.start()
    arrays = found.get(timeout=SECONDS)
    child.join(SECONDS)
    assert all(np.array_equal(a, result(p)) for a, p in zip(arrays, others, strict=True))


def division(op, kind="int64", divisor="d"):
    text = f"""<ir_version: 10, opset_import: ["" : 17]>
    g ({kind}[2] x, {kind}[2] d) => ({kind}[2] y, {kind}[2] z)
    <{kind}[2] two = {{2, 2}}, {kind}[2] one = {{-1, 1}}>
    {{ y = {op}(x, {divisor})  z = Identity(d) }}"""
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_a_division_that_ends_a_process_ends_in_one_line(op):
    """Of the least integer by -1, on x86; elsewhere it may have a result."""
    made = opu_fuse.compile(division(op), HW)
    least = np.full(2, np.iinfo(np.int64).min)
    found = made.run({"x": np.array([7, -9]), "d": np.array([2, 4])}).outputs["y"]
    assert found.tolist() == ([3, -2] if op == "Div" else [1, 3])
    try:
        made.run({"x": least, "d": np.array([-1, 2])})
    except RunError as error:
        text = str(error)
        assert f"host operator {op}_0" in text
        assert "cannot run it on these values: crashed (SIGFPE); check the inputs" in text


@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_a_division_by_a_computed_zero_ends_in_one_line(op, capfd):
    made = opu_fuse.compile(division(op), HW)
    with pytest.raises(RunError, match=r"Integer .* by zero; check the inputs") as e:
        made.run({"x": np.array([7, -9]), "d": np.array([2, 0])})
    assert "\n" not in str(e.value)
    assert capfd.readouterr().err == "", "ONNX Runtime says it in a log of its own, too"


@pytest.mark.parametrize(
    ("kind", "divisor", "traps"),
    [("int64", "d", True), ("int32", "one", True), ("int64", "two", False), ("int8", "d", False),
     ("uint64", "d", False), ("float", "d", False)],
)  # fmt: skip
def test_other_divisions_need_no_process_of_their_own(kind, divisor, traps):
    assert may_trap(division("Div", kind, divisor).SerializeToString()) is traps
