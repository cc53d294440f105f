"""Residual streams of windows: their sums are computed in the order of the windows."""

import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule import two_results
from tests.exact import assert_batch_has_single_bits, assert_exact
from tests.hw.norm_machine import norm_machine
from tests.networks.held import hold, inputs_of
from tests.networks.window_streams import stream

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

MACHINES = {"norms": norm_machine(), "opu-1024a": load_hw("opu-1024a")}
CASES = {
    "windows": stream(12),
    "several blocks": stream(70, (2, 2), (4, 4)),
    "shifted": stream(12, (2, 2), (4, 3), shifted=(False, True, False)),
    "one row of windows": stream(13, (1, 3), (5, 2)),
}


@pytest.fixture
def always(monkeypatch):
    """Every pair that a pass can compute is chosen."""
    monkeypatch.setattr(two_results, "fastest", lambda now, others, *_: next(others, now))


def groups(found):
    return [[op.op for op in group.ops] for group in found.bundle.groups]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", CASES)
def test_all_tensors_have_the_bits(case, machine, rng):
    hw = MACHINES[machine]
    found = compile_model(CASES[case], hw)
    hold(found, hw, inputs_of(found, rng))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("case", CASES)
def test_a_permuted_sum_and_its_norm_are_computed_together(case, rng):
    hw = MACHINES["norms"]
    found = compile_model(CASES[case], hw)
    blocks = sum(group.count("permute") for group in groups(found)) // 2
    assert len(found.plan.two_results) == 2 * blocks
    assert_exact(found, hw, rng, (None, 1, 2))


@pytest.mark.usefixtures("always")
def test_images_of_a_batch_have_the_bits_of_each(rng):
    hw = MACHINES["norms"]
    one, two = (compile_model(CASES["shifted"], hw, Options(batch=n)) for n in (1, 2))
    assert_batch_has_single_bits(one, two, hw, rng)


def test_no_pass_only_adds():
    found = compile_model(CASES["shifted"], MACHINES["opu-1024a"])
    assert ["add"] not in groups(found)
    moves = [group for group in groups(found) if "permute" in group]
    assert len(moves) == 6
    assert all(group[0] == "conv" and "add" in group for group in moves)


def test_a_quantised_model_takes_them_too(rng):
    hw = MACHINES["norms"]
    qdq = compile_model(CASES["shifted"], hw).prepared.qdq
    assert qdq is not None
    found = compile_model(qdq, hw)
    assert ["add"] not in groups(found)
    hold(found, hw, inputs_of(found, rng))


@pytest.mark.parametrize(
    "kept",
    [
        {"also": "b0"},  # the stream is an output
        {"also": "b1s"},
        {"also": "b1n"},  # the norm has another reader
        {"also": "b1e"},
        {"back": "other"},  # windows are put elsewhere
    ],
)
def test_other_sums_are_left_alone(kept, rng):
    hw = MACHINES["norms"]
    found = compile_model(stream(12, **kept), hw)
    assert not any({"add", "permute"} <= {*group} for group in groups(found))
    hold(found, hw, inputs_of(found, rng))


def test_machines_without_norms_compile_them_as_before():
    found = compile_model(CASES["windows"], load_hw("opu-light"))
    assert not any("permute" in group for group in groups(found))
