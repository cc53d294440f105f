"""Averages without padding run as depthwise windows where that is faster: the same bits, fewer
cycles.
"""

from dataclasses import replace

import onnx_ir as ir
import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.schedule.segment_order import HostWork
from tests.networks.test_families import execute, hold_against_golden
from tests.written import written

AVERAGES = {  # attributes of an average -> whether the array sums it up
    "kernel_shape=[2,2]": True,
    "kernel_shape=[4,3], strides=[2,3]": True,
    "kernel_shape=[2,2], strides=[2,2]": True,
    "kernel_shape=[1,1], strides=[2,2]": False,
    "kernel_shape=[2,2], pads=[1,1,1,1]": False,
    "kernel_shape=[5,5]": False,
}


def model(attributes, after=""):
    text = (
        '<ir_version: 10, opset_import: ["" : 17]> g (float[1,70,12,15] x) => (float[A,B,C,D] y) '
        f"{{ a = MaxPool<kernel_shape=[2,2]>(x) m = AveragePool<{attributes}>(a) y = "
        f"{after or 'Identity'}(m) }}"
    )
    return ir.from_proto(written(text, seed=1))


def opcodes(compiled):
    work = [s for s in compiled.plan.segments if not isinstance(s, HostWork)]
    return {x.opcode for s in work for x in s.instructions}


@pytest.mark.parametrize("machine", ["opu-1024a", "opu-light"])
@pytest.mark.parametrize("attributes", AVERAGES)
def test_an_average_has_the_golden_models_bits_wherever_it_runs(attributes, machine, rng):
    hw = load_hw(machine)
    run = execute(model(attributes), rng, hw)
    assert ("depthwise" in opcodes(run.compiled)) == AVERAGES[attributes]
    hold_against_golden(run)


def test_an_array_without_windows_leaves_averages_to_the_pool():
    assert "depthwise" not in opcodes(
        compile_model(model("kernel_shape=[2,2]"), load_hw("opu-1024"))
    )


def test_an_average_with_a_function_after_it_stays_in_its_group():
    """What may follow a pool need not be what may follow the array."""
    compiled = compile_model(model("kernel_shape=[2,2]", "Relu"), load_hw("opu-1024a"))
    assert "depthwise" not in opcodes(compiled)


def test_a_machine_that_only_shifts_sums_powers_of_two():
    hw = load_hw("opu-light")
    shifts = replace(hw, numeric=replace(hw.numeric, multiplier_bits=0))
    for kernel, summed in ("[2,2]", True), ("[3,3]", False):
        compiled = compile_model(model(f"kernel_shape={kernel}"), shifts)
        assert ("depthwise" in opcodes(compiled)) == summed, kernel


def test_it_takes_fewer_cycles():
    hw = load_hw("opu-1024a")
    pooled = replace(hw, array=replace(hw.array, depthwise=False, window_cycles=1))
    cycles = [
        sum(
            group.cycles for group in compile_model(model("kernel_shape=[2,2]"), spec).bundle.groups
        )
        for spec in (hw, pooled)
    ]
    assert cycles[0] < cycles[1]
