"""Norms and permuting stores on the RTL: bits and cycles of the other engines."""

import numpy as np
import onnx_ir as ir
import pytest

from benchmarks.attention_networks import deit, vit
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule import two_results
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise
from opu_fuse.sim.runner import RtlOptions
from tests.frontend.test_layers_of_maps import mlp
from tests.frontend.test_patch_embeddings import EMBEDDING
from tests.frontend.test_patch_embeddings import network as patches
from tests.hw.norm_machine import (
    deep_norm_machine,
    narrow_norm_machine,
    norm_machine,
    quarter_norm_machine,
    split_norm_machine,
    window_norm_machine,
)
from tests.networks import attention_blocks, masked_blocks, permuted_pixels, rotated_blocks
from tests.networks import norm_blocks as blocks
from tests.networks.added_pixels import network
from tests.networks.residual_streams import stream
from tests.networks.several_groups import grouped
from tests.networks.test_interpolation import network as resized
from tests.networks.test_lanes import Sketch
from tests.networks.test_merged_patches import merging
from tests.networks.window_streams import stream as windowed
from tests.rtl.session import hold_bits, hold_bits_and_cycles
from tests.schedule.forced_heads import forced_heads
from tests.schedule.forced_pipelines import forced_pipelines
from tests.schedule.planned import co_scheduled, first_ranges, heads
from tests.schedule.test_slow_memory import few_words_of_post

CASES = {
    **{f"{norm} {c}": (blocks.network(norm, c), norm) for norm in blocks.NORMS for c in (7, 24)},
    "after a sum": (blocks.network("softmax", 13, before="residual"), "softmax"),
    "before a table": (blocks.network("layer_norm", 13, after="table"), "layer_norm"),
    "of an input": (blocks.network("rms_norm", 13, before="input"), "rms_norm"),
    "attention": (attention_blocks.transformer(5, 12, 2), "softmax"),
    "turned layers": (attention_blocks.transformer(16, 64, 8), "softmax"),
    "turned layers by rows": (attention_blocks.windows(3, 16, 64, 4), "softmax"),
    "linear attention": (attention_blocks.divided(12, (3, 5), 2, 4), "divide"),
    "separable attention": (attention_blocks.separable(9, (4, 6)), "softmax"),
    "a map of 121 words": (blocks.network("group_norm", 5, side=11, after="table"), "group_norm"),
    "co-scheduled heads": (attention_blocks.cross(40, heads=3), "softmax"),
    "windows": (attention_blocks.windows(3, 7, 10, 2), "softmax"),
    "cosine attention": (rotated_blocks.cosine(3, 9, 16, 1), "rms_norm"),
    "attention of channels": (rotated_blocks.cosine(1, 9, 16, 1, of_channels=True), "rms_norm"),
    "masked windows": (attention_blocks.windows(3, 17, 16, 2, masked=True), "softmax"),
    "masked keys": (masked_blocks.padded("keys", 19, 24, 2), "softmax"),
    "causal": (masked_blocks.padded("causal", 9, 16, 2), "softmax"),
    "an added pixel": (network("to two maps"), "add"),
    "a class token": (vit(4, 2, 12, 2, 1), "layer_norm"),
    "two tokens": (deit(6, 2, 12, 2, 1), "softmax"),
    "a rolled map": (attention_blocks.rolled(7, 12, 3), "layer_norm"),
    "windows of an image": (permuted_pixels.network("windows", 12, (2, 3), (3, 2)), "permute"),
    "patches of an image": (permuted_pixels.network("patches", 17, (5, 3), (2, 2)), "permute"),
    "joined pixels": (merging(12, 12), "layer_norm"),
    "two results": (stream("two layers", "layer_norm", 40), "layer_norm"),
    "a sum that is an output": (stream("sum is an output", "rms_norm", 13, (8, 12)), "rms_norm"),
    "two results of tokens": (stream("wide kernel", "layer_norm", 13, (1, 40)), "layer_norm"),
    "windows of a stream": (windowed(13, (2, 2), (4, 3), shifted=(False, True)), "permute"),
    "groups": (grouped(24, 4, (5, 7), scaled=False), "group_norm"),
    "instances": (grouped(10, 10, (6, 5), scaled=False), "layer_norm"),
    "a packed image": (patches(EMBEDDING.format(side=4), patches=(4, 5)), "conv"),
    "turned image": (permuted_pixels.network("patches", 9, (5, 3), (1, 4)), "permute"),
}
TWO_RESULTS = (
    "two results",
    "a sum that is an output",
    "two results of tokens",
    "windows of a stream",
)


@pytest.mark.rtl
@pytest.mark.parametrize("case", CASES)
def test_the_rtl_has_the_bits_and_cycles_of_the_other_engines(case, rtl):
    model, op = CASES[case]
    hw = norm_machine()
    compiled = compile_model(model, hw, Options(reuse_memory=False))
    assert op in [found.op for group in compiled.bundle.groups for found in group.ops]
    assert co_scheduled(compiled.plan) or case != "co-scheduled heads"
    assert compiled.plan.two_results or case not in TWO_RESULTS
    hold_bits_and_cycles(rtl(hw), compiled.bundle, noise(compiled.bundle, seed=5))


@pytest.mark.rtl
def test_a_norm_of_a_sum_in_whole_buffers_of_post_has_them_too(rtl):
    hw = few_words_of_post()
    model = stream("sum for a norm", "layer_norm", 40)
    compiled = compile_model(model, hw, Options(reuse_memory=False))
    assert any(part.tile.whole_post for (part, *_) in compiled.plan.layers.values())
    hold_bits_and_cycles(rtl(hw), compiled.bundle, noise(compiled.bundle, seed=5))


@pytest.mark.rtl
def test_a_norm_of_patches_that_are_stored_in_another_order_has_them_too(rtl, monkeypatch):
    """Post reads every other column of the sums, for the patches and for their norm."""
    monkeypatch.setattr(two_results, "fastest", lambda now, others, *_: next(iter(others), now))
    between = permuted_pixels.NORMALISED
    model = permuted_pixels.network("patches", 17, (4, 4), (2, 2), between=between)
    hw = norm_machine()
    compiled = compile_model(model, hw, Options(reuse_memory=False))
    (first, second) = (compiled.plan.layers[group][0].shape for group in (0, 1))
    assert compiled.plan.two_results == {0: 1}
    assert first.column_parts == second.column_parts == 2
    hold_bits_and_cycles(rtl(hw), compiled.bundle, noise(compiled.bundle, seed=5))


@pytest.mark.rtl
def test_a_map_of_as_many_values_as_sums_hold_has_them_too(rtl):
    """131,072 values; of the second image all are the lowest, whose sum has one bit more."""
    hw = deep_norm_machine()
    model = blocks.network("group_norm", 32, before="input", after="table", side=64)
    compiled = compile_model(model, hw, Options(reuse_memory=False))
    whole = [part for (part, *_) in compiled.plan.layers.values() if part.shape.whole_map]
    assert [part.tile.rows * part.tile.cols * part.tile.blocks * 8 for part in whole] == [1 << 17]
    (port,) = compiled.bundle.inputs
    images = noise(compiled.bundle, seed=5)
    for inputs in (images, {port.name: np.full_like(images[port.name], -1e3)}):
        hold_bits_and_cycles(rtl(hw), compiled.bundle, inputs)


@pytest.mark.rtl
def test_an_mlp_with_windows_has_them_too(rtl):
    hw = window_norm_machine()
    compiled = compile_model(mlp(11, 7, 6), hw, Options(reuse_memory=False))
    found = [op.op for group in compiled.bundle.groups for op in group.ops]
    assert found.count("conv") == 3
    hold_bits_and_cycles(rtl(hw), compiled.bundle, noise(compiled.bundle, seed=5))


@pytest.mark.rtl
def test_a_map_with_repeated_borders_has_them_too(rtl):
    hw = window_norm_machine()
    model = resized(11, (7, 6), 2, "half_pixel")
    compiled = compile_model(model, hw, Options(reuse_memory=False))
    assert compiled.bundle.groups[-1].ops[0].op == "transposed_conv"
    hold_bits_and_cycles(rtl(hw), compiled.bundle, noise(compiled.bundle, seed=5))


@pytest.mark.rtl
def test_quarters_of_a_word_with_a_softmax_each_have_them_too(rtl):
    hw = quarter_norm_machine()
    model = attention_blocks.distances("slices", channels=13)
    compiled = compile_model(model, hw, Options(reuse_memory=False))
    found = [op.op for group in compiled.bundle.groups for op in group.ops]
    assert found.count("grouped_softmax") == 2
    hold_bits_and_cycles(rtl(hw), compiled.bundle, noise(compiled.bundle, seed=5))


WIDE = {
    "keys of two banks": attention_blocks.cross(65, heads=2, deep=5),
    "most keys": attention_blocks.cross(128, queries=9),
    "masked": attention_blocks.cross(71, masked=True),
}


@pytest.mark.rtl
@pytest.mark.parametrize("case", WIDE)
def test_keys_that_exceed_a_weight_bank_have_them_too(case, rtl):
    hw = narrow_norm_machine()
    compiled = compile_model(WIDE[case], hw, Options(reuse_memory=False))
    groups = [[found.op for found in group.ops] for group in compiled.bundle.groups]
    assert (["matmul", "add", "softmax"] if case == "masked" else ["matmul", "softmax"]) in groups
    hold_bits_and_cycles(rtl(hw), compiled.bundle, noise(compiled.bundle, seed=5))


HEADS = {
    "two in a word": attention_blocks.windows(3, 9, 16, 4, masked=True),
    "four in a word": attention_blocks.transformer(11, 16, 8),
    "heads of three lanes in two words": attention_blocks.windows(2, 7, 12, 4),
    "queries of a layer of their own": attention_blocks.cross(13, heads=3, deep=4),
    "values in two words": attention_blocks.transformer(11, 10, 2),
    "keys in two words": attention_blocks.transformer(5, 20, 4),
}


@pytest.mark.rtl
@pytest.mark.parametrize("case", HEADS)
def test_heads_that_share_words_have_them_too(case, rtl):
    hw = split_norm_machine()
    compiled = compile_model(HEADS[case], hw, Options(reuse_memory=False))
    layers = [part.layer for parts in compiled.plan.layers.values() for part in parts]
    assert any(layer.zeroes for layer in layers), "keys share words"
    heads = [layer.in_pieces[0] for layer in layers if layer.second is not None]
    divided = any(0 < lane < 8 < lane + channels for lane, channels in heads)
    assert divided == case.endswith("in two words")
    hold_bits_and_cycles(rtl(hw), compiled.bundle, noise(compiled.bundle, seed=5))


PIPELINES = {
    "tokens": attention_blocks.transformer(24, 24, 3),
    "windows": attention_blocks.windows(3, 9, 16, 2),
}


@pytest.mark.rtl
@pytest.mark.parametrize("case", PIPELINES)
def test_softmaxes_next_to_the_layer_before_the_heads_have_them_too(case, rtl):
    hw = split_norm_machine()
    with forced_pipelines():
        compiled = compile_model(PIPELINES[case], hw, Options(reuse_memory=False))
    assert first_ranges(compiled.plan)
    hold_bits_and_cycles(rtl(hw), compiled.bundle, noise(compiled.bundle, seed=5))


FUSED = {**PIPELINES, "windows of three pairs": attention_blocks.windows(3, 25, 24, 6)}


@pytest.mark.rtl
@pytest.mark.parametrize(("case", "transposes"), [*zip(FUSED, (2, 1, 2), strict=True)])
def test_probabilities_that_stay_on_chip_have_them_too(case, transposes, rtl):
    hw = split_norm_machine()
    for stored in (True, False):
        with forced_heads(transposes):
            compiled = compile_model(FUSED[case], hw, Options(reuse_memory=not stored))
        assert heads(compiled.plan)
        inputs = noise(compiled.bundle, seed=5)
        if stored:
            hold_bits_and_cycles(rtl(hw), compiled.bundle, inputs)
            continue
        simulated = rtl(hw).run(compiled.bundle, inputs)
        for name, y in run(compiled.bundle, hw, inputs).outputs.items():
            np.testing.assert_array_equal(simulated.outputs[name], y)
        assert simulated.counters["cycles"] == run_cycle(compiled.bundle, hw).counters["cycles"]


@pytest.mark.rtl
@pytest.mark.parametrize(("latency", "speed"), [(3, 8.0), (150, 8.0), (40, 0.7)])
def test_two_results_have_the_same_bits_whatever_the_memory_does(latency, speed):
    hw = norm_machine()
    model = stream("two layers", "layer_norm", 40)
    compiled = compile_model(model, hw, Options(reuse_memory=False))
    assert len(compiled.plan.two_results) == 2
    inputs = noise(compiled.bundle, seed=5)
    memory = RtlOptions(latency=latency, bytes_per_cycle=speed)
    functional = run(compiled.bundle, hw, inputs, capture=True)
    simulated = run(compiled.bundle, hw, inputs, engine="rtl", rtl=memory, capture=True)
    hold_bits(compiled.bundle, functional, simulated)


def _joined(rng: np.random.Generator) -> ir.Model:
    """A sum that has the lanes of a split's second half, next to both halves, and a permutation."""
    net = Sketch(rng)
    first, second = net.split(net.conv("x", 5, 8), 4, 4)
    joined = net.concat(first, second, net.node("Add", second, net.conv(second, 4, 4)))
    y = net.conv(joined, 12, 16)
    order = net.constant(np.arange(16).reshape(2, 8).T.reshape(-1))
    return net.model(net.node("Gather", y, order, axis=1))


LANES = {
    **{f"distances, {how}": attention_blocks.distances(how) for how in attention_blocks.BOXES},
    "joined maps": _joined(np.random.default_rng(4)),
}


@pytest.mark.rtl
@pytest.mark.parametrize("case", LANES)
def test_rows_of_empty_lanes_are_left_out(case, rtl):
    hw = split_norm_machine()
    compiled = compile_model(LANES[case], hw, Options(reuse_memory=False))
    shapes = [layer.shape for parts in compiled.plan.layers.values() for layer in parts]
    assert any(shape.in_runs or shape.needed is not None for shape in shapes)
    hold_bits_and_cycles(rtl(hw), compiled.bundle, noise(compiled.bundle, seed=5))
