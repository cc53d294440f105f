"""Joined maps copied to other lanes, for norms, sums and products: the golden model's bits, ONNX
Runtime's results, and no copy that takes nothing from the host.
"""

import numpy as np
import pytest

import opu_fuse
from opu_fuse.bundle.program import HostSegment
from opu_fuse.fuse.partition import views_of_groups
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model, partition_model
from opu_fuse.sim.compare.runs import check
from tests.exact import assert_batch_has_single_bits, assert_exact
from tests.hw.norm_machine import four_pixel_machine, split_norm_machine
from tests.networks import joined_narrowly as narrow

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

MODELS = {
    "a norm": narrow.normalised((7, 20, 5)),
    "a norm before a split": narrow.split_after(7),
    "sums": narrow.grown(19, 23),
}
WIDE = {
    "a norm": narrow.normalised((40, 90, 24)),
    "a norm before a split": narrow.split_after(30),
    "a product": narrow.gated(40, 32),
    "sums": narrow.grown(72, 84),
}


def on_host(dfg, partition) -> set[str]:
    views = views_of_groups(dfg, partition)
    return {dfg[op.node].op for op in partition.host if op.node not in views}


def copies(found) -> set[str]:
    return {name for name, why in found.partition.rewrites.items() if "lanes from 0" in why}


CASES = [*(("four pixels", name) for name in MODELS), *(("opu-1024a", name) for name in WIDE)]


@pytest.mark.parametrize(("machine", "name"), CASES)
def test_copies_have_the_golden_models_bits_in_every_order(machine, name, rng):
    small = machine == "four pixels"
    hw = four_pixel_machine() if small else load_hw(machine)
    found = compile_model((MODELS if small else WIDE)[name], hw)
    assert copies(found)
    assert not found.bundle.hosts
    assert_exact(found, hw, rng, (None, 1, 2))


@pytest.mark.parametrize("scales", ["pow2", "free"])
@pytest.mark.parametrize("name", WIDE)
def test_results_are_onnx_runtimes_without_the_host(name, scales):
    program = opu_fuse.compile(WIDE[name], load_hw("opu-1024a"), scales=scales)
    assert not any(isinstance(s, HostSegment) for s in program.bundle.segments)
    (port,) = program.bundle.inputs
    x = {port.name: np.random.default_rng(3).normal(size=port.shape).astype(np.float32)}
    assert check(program.bundle, x, program.run(x, capture=True)).passed


def test_images_of_a_batch_have_the_bits_of_each(rng):
    hw = four_pixel_machine()
    one, two = (compile_model(MODELS["sums"], hw, Options(batch=n)) for n in (1, 2))
    assert copies(two)
    assert_batch_has_single_bits(one, two, hw, rng)


def test_a_partition_has_the_copies_and_says_why():
    dfg, partition = partition_model(WIDE["a norm"], load_hw("opu-1024a"))
    assert not on_host(dfg, partition)
    (why,) = [why for why in partition.rewrites.values() if "lanes" in why]
    assert why.startswith("copied to lanes from 0 on: ")


STAYS = {
    "whole words need none": (narrow.normalised((64, 128)), "opu-1024a", "matched"),
    "one part needs none": (narrow.normalised((24,)), "opu-1024a", "matched"),
    "a strategy does not rewrite": (WIDE["a norm"], "opu-1024a", "greedy"),
    "the host normalises": (narrow.normalised((40, 90), added=False), "opu-1024", "matched"),
}


@pytest.mark.parametrize("name", STAYS)
def test_no_copy_where(name):
    model, machine, strategy = STAYS[name]
    _, partition = partition_model(model, load_hw(machine), strategy)
    assert not any("lanes from 0" in why for why in partition.rewrites.values())


def test_a_machine_without_shuffles_leaves_the_norm_to_the_host():
    dfg, partition = partition_model(MODELS["a norm"], split_norm_machine())
    assert "layer_norm" in on_host(dfg, partition)
    assert not partition.rewrites
