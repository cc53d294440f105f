"""A program of many processes may fork behind a run: the fork runs programs of its own."""

import multiprocessing

import numpy as np
import onnx

import opu_fuse
from opu_fuse.sim.host import KEPT
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
