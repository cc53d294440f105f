"""Whose the memory window is (docs/bring-up.md, "Running a program"): constants and words are
written once, inputs before every run, and everything else may hold anything.
"""

import numpy as np
import pytest

from opu_fuse import zoo
from opu_fuse.bundle.memory_image import initial_image, read_tensor, segment_words, write_tensor
from opu_fuse.bundle.program import MachineSegment
from opu_fuse.hw.isa.encoding import decode
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.functional.machine import Machine

NETWORKS = ("tiny_residual", "tiny_tiles", "tiny_odd")


@pytest.fixture(params=NETWORKS, scope="module")
def run(request):
    """A program, and what runs its machine segments on a window: outputs of the machine."""
    hw = load_hw("opu-tiny")
    bundle = compile_model(zoo.build(request.param), hw).bundle
    named = {tensor.name: tensor for tensor in bundle.tensors}
    given = [named[port.value] for port in bundle.inputs if port.value in named]
    results = [named[port.value] for port in bundle.outputs if port.value in named]
    machine = [s for s in bundle.segments if isinstance(s, MachineSegment)]
    assert given
    assert results
    assert len(machine) == 1

    def run(window, inputs):
        for tensor, values in zip(given, inputs, strict=True):
            write_tensor(window, tensor, values)
        Machine(hw, window).run(decode(segment_words(bundle, machine[0])))
        return [read_tensor(window, tensor, bundle.batch) for tensor in results]

    return bundle, given, run


def drawn(given, rng):
    return [rng.integers(-128, 128, t.shape).astype(np.int8) for t in given]


def test_a_run_needs_constants_words_and_its_inputs_and_nothing_else(run, rng):
    bundle, given, on = run
    window = initial_image(bundle)
    maps = slice(bundle.constants.size, bundle.program_offset)
    for _ in range(3):
        inputs = drawn(given, rng)
        expected = on(initial_image(bundle), inputs)
        window[maps] = rng.integers(256, size=maps.stop - maps.start)  # what anyone left there
        for ours, right in zip(on(window, inputs), expected, strict=True):
            assert np.array_equal(ours, right)


def test_a_run_changes_neither_words_nor_what_others_read_of_the_constants(run, rng):
    """Twice in one window, the second time with other inputs: as in a fresh one."""
    bundle, given, on = run
    window = initial_image(bundle)
    words = window[bundle.program_offset :].copy()
    for _ in range(2):
        inputs = drawn(given, rng)
        for ours, right in zip(on(window, inputs), on(initial_image(bundle), inputs), strict=True):
            assert np.array_equal(ours, right)
    assert np.array_equal(window[bundle.program_offset :], words)


def test_an_input_may_be_gone_after_a_run(rng):
    """Its place is given to later maps: the page says that inputs are written before each run."""
    hw = load_hw("opu-tiny")
    bundle = compile_model(zoo.build("tiny_residual"), hw).bundle
    named = {tensor.name: tensor for tensor in bundle.tensors}
    lost = []
    (segment,) = (s for s in bundle.segments if isinstance(s, MachineSegment))
    for port in bundle.inputs:
        tensor = named[port.value]
        window = initial_image(bundle)
        write_tensor(
            window, tensor, values := rng.integers(-128, 128, tensor.shape).astype(np.int8)
        )
        Machine(hw, window).run(decode(segment_words(bundle, segment)))
        lost.append(not np.array_equal(read_tensor(window, tensor, bundle.batch), values))
    assert all(lost)
