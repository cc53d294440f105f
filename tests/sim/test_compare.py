"""Comparing: against ONNX Runtime and against another run; what differs is found and named."""

from dataclasses import replace

import numpy as np
import pytest

from opu_fuse.errors import ProgramError
from opu_fuse.sim.compare.runs import check, compare, is_dull
from opu_fuse.sim.engine import run
from tests.bundle.sample import HW, OUT, SIZE, C, sample_bundle, sample_input

POST = 5


@pytest.fixture
def result():
    return run(sample_bundle(), HW, sample_input(samples=4), capture=True)


def changed(result, name, index, by=1):
    """The run with one element of one tensor off."""
    tensor = result.tensors[name].copy()
    tensor[index] = np.clip(int(tensor[index]) + by, -128, 127)
    return replace(result, tensors={**result.tensors, name: tensor})


def test_the_functional_engine_equals_onnx_runtime_in_every_quantised_tensor(result):
    found = check(sample_bundle(), sample_input(samples=4), result)
    assert found.passed
    assert (found.tensors, found.mismatches, found.max_abs_diff) == (4, 0, 0)
    assert found.elements == 4 * C * (3 * SIZE * SIZE + OUT * OUT)
    assert found.uncompared == ()
    assert "onnxruntime" in found.reference


def test_a_wrong_weight_is_found_where_it_first_shows(result):
    bundle = sample_bundle()
    constants = bundle.constants.copy()
    constants[0] ^= 0x40
    wrong = run(replace(bundle, constants=constants), HW, sample_input(samples=4), capture=True)
    found = check(bundle, sample_input(samples=4), wrong)
    assert not found.passed
    assert found.first is not None
    assert (found.first.tensor, found.first.group, found.first.instruction) == ("conv", 0, POST)
    assert found.first.index[1] == 0, "only the first output channel has that weight"


@pytest.mark.parametrize("name", ["x", "conv", "relu", "pool"])
def test_one_wrong_value_is_one_mismatch(result, name):
    index = (2, 3, 1, 1)
    tensor = np.full_like(result.tensors[name], 0)
    expected = replace(result, tensors={**result.tensors, name: tensor})
    got = changed(expected, name, index, by=-5)
    found = compare(sample_bundle(), expected, got)
    assert (found.mismatches, found.max_abs_diff) == (1, 5)
    assert found.first is not None
    assert (found.first.tensor, found.first.index) == (name, index)
    assert (found.first.expected, found.first.got) == (0, -5)
    assert (found.first.mismatches, found.first.elements) == (1, tensor.size)
    assert found.first.instruction == (-1 if name == "x" else POST)
    assert str(found.first).startswith(f"{name}[2, 3, 1, 1] (")


def test_the_first_difference_is_that_of_the_earliest_stage(result):
    got = changed(changed(result, "pool", (0, 0, 0, 0), 9), "relu", (3, 7, 3, 3), -3)
    found = compare(sample_bundle(), result, got)
    assert found.first is not None
    assert found.first.tensor == "relu"


def test_differing_outputs_are_seen_without_captured_tensors(result):
    bare = replace(result, tensors={})
    y = result.outputs["y"].copy()
    y[0, 0, 0, 0] = np.nextafter(y[0, 0, 0, 0], 2)
    found = compare(sample_bundle(), bare, replace(bare, outputs={"y": y}))
    assert found.mismatches == 1
    assert found.first is not None
    assert found.first.tensor == "y"


def test_positions_that_are_never_computed_are_not_compared(result):
    mask = np.ones((1, C, SIZE, SIZE), np.bool_)
    mask[..., 1, 1] = False
    hidden = replace(changed(result, "conv", (0, 0, 1, 1), 50), masks={"conv": mask})
    found = check(sample_bundle(), sample_input(samples=4), hidden)
    assert found.passed
    assert found.elements == 4 * C * (3 * SIZE * SIZE + OUT * OUT - 1)


def test_what_a_run_does_not_show_is_listed_and_nothing_compared_is_no_success(result):
    some = {k: v for k, v in result.tensors.items() if k != "relu"}
    found = check(sample_bundle(), sample_input(samples=4), replace(result, tensors=some))
    assert found.uncompared == ("relu_q",)
    nothing = check(sample_bundle(), sample_input(samples=4), replace(result, tensors={}))
    assert nothing.mismatches == 0
    assert not nothing.passed


def test_a_bundle_without_quantised_model_cannot_be_checked(result):
    with pytest.raises(ProgramError, match="holds no quantised model"):
        check(sample_bundle(qdq=b""), sample_input(), result)


def test_outputs_are_those_of_the_quantised_model():
    bundle = sample_bundle()
    renamed = replace(bundle, outputs=(replace(bundle.outputs[0], name="other"),))
    result = run(renamed, HW, sample_input(), capture=True)
    with pytest.raises(ProgramError, match="has no output 'other', the program has"):
        check(renamed, sample_input(), result)


def test_dull_tensors_are_few_valued_or_saturated(rng):
    lively = rng.integers(-60, 60, 5000).astype(np.int8)
    assert not is_dull(lively, 0)
    assert is_dull(lively // 8, 0)
    assert is_dull(np.where(rng.random(5000) < 0.06, 127, lively), 0)
    behind_relu = np.where(rng.random(5000) < 0.5, -128, lively).astype(np.int8)
    assert is_dull(behind_relu, 0)
    assert not is_dull(behind_relu, -128)


def test_a_tensor_of_few_elements_needs_as_many_values_as_it_can_have():
    assert not is_dull(np.arange(10, dtype=np.int8), 0)
    assert is_dull(np.arange(10, dtype=np.int8) // 5, 0)
    assert not is_dull(np.array([127, 1, 2, 3], np.int8), 0)
    assert is_dull(np.array([127, -128, 2, 3], np.int8), 0)
