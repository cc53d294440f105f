"""Heads narrower than a word share words: queries, values and results lie next to each other, keys
have zeros in the lanes of other heads.
"""

import numpy as np
import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from tests.exact import assert_exact
from tests.hw.norm_machine import split_norm_machine
from tests.networks import attention_blocks as blocks
from tests.networks.test_attention import run

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")


def layers_of(found):
    return [part.layer for parts in found.plan.layers.values() for part in parts]


FIRST_LANES = {
    "opu-1024a": ([0, 32, 64], [128, 160, 192], [96, 224, 256]),
    "opu-1024": ([0, 32, 64], [192, 256 + 32, 320], [96, 128, 160]),
}
"""Of queries, keys and values: keys share words where loads set lanes of weights to zero."""


@pytest.mark.parametrize("name", FIRST_LANES)
def test_queries_keys_and_values_take_half_a_word_and_keys_a_word_without_zeros(name):
    found = compile_model(blocks.windows(3, 17, 96, 3), load_hw(name))
    (projection,) = (layer for layer in layers_of(found) if layer.name.startswith("MatMul_0"))
    parts = np.split(np.array(projection.out_pieces), 3)
    for part, first_lanes in zip(parts, FIRST_LANES[name], strict=True):
        np.testing.assert_array_equal(part[:, 0], first_lanes)


@pytest.mark.parametrize(("heads", "words"), [(2, 3), (4, 6), (8, 12)])
def test_an_even_number_of_heads_of_half_a_word_has_no_padding(heads, words):
    found = compile_model(blocks.windows(2, 7, 32 * heads, heads), load_hw("opu-1024a"))
    (projection,) = (layer for layer in layers_of(found) if layer.name.startswith("MatMul_0"))
    assert projection.shape.pre_pool_channels == 64 * words


@pytest.mark.parametrize("deep", [10, 16, 20, 32])
def test_heads_that_share_words_are_at_most_a_step_off_onnxruntime(deep):
    _, _, checked = run(blocks.cross(21, heads=3, deep=deep), "opu-1024a")
    assert checked.passed
    assert checked.mismatches <= checked.elements / 50


def test_results_of_heads_share_words_for_the_layer_after_them(machine):
    found = compile_model(blocks.cross(17, heads=4, deep=4), machine)
    assert layers_of(found)[-1].shape.in_channels == 16


@pytest.fixture(scope="module")
def machine():
    return split_norm_machine()


CASES = {
    "two heads in a word": blocks.windows(3, 9, 16, 4, masked=True),
    "one head in the last word": blocks.windows(2, 7, 12, 3),
    "four heads in a word": blocks.transformer(11, 16, 8),
    "heads that do not fill a word": blocks.transformer(9, 15, 5),
    "heads of several words": blocks.transformer(9, 30, 3, spelling="split"),
    "layers of their own": blocks.cross(13, heads=4, deep=4),
    "one key for all": blocks.one_key_for_all(10, 3, 3, 4),
    "values that others read": blocks.convolutional(16, 3, 4),
    "values of whole words that others read": blocks.convolutional(16, 3, 2),
    "values next to queries that others read": blocks.convolutional(8, 3, 2),
    "linear": blocks.linear(16, 4, 4),
    "values in two words": blocks.transformer(11, 10, 2),
    "keys in two words": blocks.transformer(5, 20, 4),
    "windows of keys in two words": blocks.windows(2, 5, 20, 4, masked=True),
}


@pytest.mark.parametrize("case", CASES)
def test_all_values_are_the_golden_models(case, machine, rng):
    assert_exact(compile_model(CASES[case], machine), machine, rng, (None, 1, 2))


@pytest.mark.parametrize(
    ("case", "divided"),
    [
        ("values in two words", [False, True]),
        ("keys in two words", [True, True]),
        ("heads of several words", [False, False]),
    ],
)
def test_heads_are_divided_between_words_where_the_array_then_works_less(case, divided, machine):
    layers = layers_of(compile_model(CASES[case], machine))
    keys = [layer.in_pieces[0] for layer in layers if layer.zeroes]
    values = [layer.in_pieces[0] for layer in layers if layer.shape.unit]
    assert [
        any(0 < lane < 8 < lane + n for lane, n in found) for found in (keys, values)
    ] == divided


def test_many_tokens_divide_values_only_and_few_all_heads():
    """Of heads of 36 channels: a product with a key in two words takes twice the time."""
    for tokens, words, longest in ((64, 7, 80), (256, 8, 52)):
        layers = layers_of(compile_model(blocks.windows(1, tokens, 144, 4), load_hw("opu-1024a")))
        assert -(-layers[0].shape.pre_pool_channels // 64) == words
        assert max(sum(layer.in_pieces[0]) for layer in layers if layer.zeroes) == longest


def test_a_key_of_several_heads_and_their_queries_begin_words(machine):
    found = compile_model(CASES["one key for all"], machine)
    products = [layer for layer in layers_of(found) if layer.second is not None]
    assert len(products) > 3
    assert all(layer.in_pieces[0][0] == 0 for layer in products)


@pytest.mark.parametrize(
    ("channels", "heads", "joined"), [(128, 4, True), (128, 2, True), (64, 2, False)]
)
def test_values_that_follow_each_other_are_read_where_they_are(channels, heads, joined):
    """Two heads of 16 channels leave half a word, which values fill: a pass gathers them."""
    program, _, checked = run(blocks.convolutional(channels, 7, heads), "opu-1024a")
    assert checked.passed
    operators = [op.op for group in program.bundle.groups for op in group.ops]
    assert ("shuffle" in operators) != joined
    found = compile_model(blocks.convolutional(channels, 7, heads), load_hw("opu-1024a"))
    (encoding,) = (x for x in layers_of(found) if x.shape.window.kernel == (3, 3))
    assert encoding.shape.in_channels == channels
