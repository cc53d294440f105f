"""Concatenations, splits and shuffles without copies: channels are found in their lanes."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from msgspec.structs import replace
from onnx import TensorProto, helper, numpy_helper

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.tiling.chunks import output_ranges
from tests.exact import assert_exact

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")


class Sketch:
    """A network under construction: every call adds an operator and gives its value's name."""

    def __init__(self, rng):
        self._rng, self._nodes, self._weights = rng, [], []

    def node(self, op, *inputs, outputs=1, **attrs):
        names = [f"v{len(self._nodes)}_{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(op, inputs, names, **attrs))
        return names if outputs > 1 else names[0]

    def constant(self, array):
        name = f"c{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(array, name))
        return name

    def conv(self, x, channels, out, **attrs):
        weight = self._rng.normal(size=(out, channels, 1, 1)) / np.sqrt(channels)
        return self.node("Conv", x, self.constant(weight.astype(np.float32)), **attrs)

    def concat(self, *values):
        return self.node("Concat", *values, axis=1)

    def split(self, x, *sizes):
        given = self.constant(np.array(sizes, np.int64))
        return self.node("Split", x, given, outputs=len(sizes), axis=1)

    def model(self, *results):
        graph = helper.make_graph(
            self._nodes,
            "sketch",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 5, 6, 7))],
            [helper.make_tensor_value_info(r, TensorProto.FLOAT, None) for r in results],
            self._weights,
        )
        opset = [helper.make_opsetid("", 18)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=9)
        return ir.from_proto(onnx.shape_inference.infer_shapes(model))


def joined(net):
    """Three branches of odd channel counts, read as one map."""
    a, b, c = (net.conv("x", 5, n) for n in (7, 70, 19))
    return [net.conv(net.concat(a, b, c), 96, 33)]


def dense(net):
    """Every concatenation begins with the one before."""
    values, channels = [net.conv("x", 5, 24)], 24
    for _ in range(3):
        whole = net.concat(*values) if len(values) > 1 else values[0]
        values.append(net.conv(whole, channels, 12))
        channels += 12
    return [net.conv(net.concat(*values), channels, 9)]


def crowded(net):
    """Branches that begin inside a word, one with a pool, one with an activation of its own."""
    a, b, c, d = (net.conv("x", 5, n) for n in (96, 20, 9, 33))
    c = net.node("MaxPool", c, kernel_shape=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1))
    whole = net.concat(a, net.node("Relu", b), c, d)
    return [whole, net.conv(whole, 158, 24), net.conv(c, 9, 7)]


def backwards(net):
    """What is made last ends in the word in which what was made before begins."""
    first = net.conv("x", 5, 20)
    whole = net.concat(net.conv(first, 20, 96), first)
    return [whole, net.conv(whole, 116, 12)]


def skipped(net):
    """A map that a pool, an addition and the user read, too, in front of what is made from it."""
    skip = net.conv("x", 5, 12)
    small = net.node("MaxPool", skip, kernel_shape=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1))
    whole = net.concat(skip, net.conv(small, 12, 20), net.conv(small, 12, 7))
    total = net.node("Add", skip, net.conv(small, 12, 12))
    return [net.conv(whole, 39, 8), net.node("Relu", total), skip]


def skipped_twice(net):
    """The same map begins two concatenations, one of them behind another word."""
    skip = net.conv("x", 5, 12)
    small = net.node("MaxPool", skip, kernel_shape=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1))
    one = net.concat(skip, net.conv(small, 12, 20))
    other = net.concat(net.conv(small, 12, 64), skip, net.conv(small, 12, 9))
    return [net.conv(one, 32, 8), net.conv(other, 85, 8)]


def nested(net):
    a, b, c = (net.conv("x", 5, n) for n in (3, 66, 8))
    inner = net.concat(a, b)
    return [net.conv(inner, 69, 5), net.conv(net.concat(inner, c), 77, 6)]


def pooled(net):
    """Channel by channel: the lanes stay."""
    whole = net.concat(net.conv("x", 5, 7), net.conv("x", 5, 70))
    small = net.node("MaxPool", whole, kernel_shape=(2, 2), strides=(2, 2))
    return [small, net.conv(small, 77, 8)]


def halves(net):
    """Splits at odd channels, one half passing by."""
    left, right = net.split(net.conv("x", 5, 116), 58, 58)
    return [net.conv(net.concat(left, net.conv(right, 58, 58)), 116, 20)]


def thirds(net):
    parts = net.split(net.conv("x", 5, 90), 7, 70, 13)
    return [net.conv(p, n, 10) for p, n in zip(parts, (7, 70, 13), strict=True)]


def shuffled(net):
    x = net.conv("x", 5, 76)
    apart = net.node("Reshape", x, net.constant(np.array((1, 2, 38, 6, 7), np.int64)))
    turned = net.node("Transpose", apart, perm=(0, 2, 1, 3, 4))
    back = net.node("Reshape", turned, net.constant(np.array((1, 76, 6, 7), np.int64)))
    return [net.conv(back, 76, 11)]


def ghost(net):
    """Half of the channels dense, the other half from them by depthwise windows; added to what a
    dense convolution, a pool and a split read too.
    """
    x = net.conv("x", 5, 13)
    few = net.conv(x, 13, 10)
    cheap = net.conv(few, 1, 10, group=10)
    dense = net.conv(net.node("MaxPool", x, kernel_shape=(2, 2)), 13, 3)
    twice = net.conv(net.node("Add", net.concat(few, cheap), wide := net.conv(x, 13, 20)), 20, 4)
    return [twice, dense, wide, *net.split(net.node("Relu", wide), 9, 11)]


def gated(net):
    """Gates of a concatenation, behind a pool of it."""
    whole = net.node("Relu", net.concat(net.conv("x", 5, 9), net.conv("x", 5, 12)))
    small = net.node("MaxPool", whole, kernel_shape=(2, 2), strides=(2, 2))
    mean = net.node("GlobalMaxPool", small)
    gates = net.node("HardSigmoid", net.conv(net.node("Relu", net.conv(mean, 21, 6)), 6, 21))
    again = net.node("Mul", gates, small)
    flat = net.node("Flatten", net.node("GlobalMaxPool", again))
    weight = net.constant(np.eye(21, dtype=np.float32)[::-1])
    line = net.node("Sigmoid", net.node("Gemm", flat, weight))
    gates = net.node("Reshape", line, net.constant(np.array((1, 21, 1, 1), np.int64)))
    return [net.conv(net.node("Mul", gates, again), 21, 5)]


def chained(net):
    """A sum is added to again; its first operand goes through depthwise windows and a pool."""
    x = net.node("MaxPool", net.conv("x", 5, 18), kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    whole = net.concat(net.conv(x, 18, 11), net.conv(x, 18, 7))
    total = net.node("Add", net.conv(x, 1, 18, group=18), whole)
    return [net.node("Add", net.node("Add", x, total), net.conv(total, 18, 18)), x]


def later_parts(net):
    """The parts begin in later words of the maps that hold them; so does their concatenation."""
    _, b = net.split(net.conv("x", 5, 90), 70, 20)
    _, d = net.split(net.conv("x", 5, 80), 69, 11)
    return [net.node("Add", net.conv("x", 5, 31), net.concat(b, d))]


def linear_unit(net):
    """One half times a function of the other (GLU), the halves of an odd number of channels."""
    a, b = net.split(net.conv("x", 5, 26), 13, 13)
    return [net.conv(net.node("Mul", a, net.node("Sigmoid", b)), 13, 6)]


def simple_gate(net):
    """Halves behind a function and depthwise windows; the whole is read, too."""
    whole = net.conv(net.node("Relu", net.conv("x", 5, 34)), 1, 34, group=34)
    a, b = net.split(whole, 17, 17)
    return [net.node("Mul", b, a), net.conv(whole, 34, 3)]


def highway(net):
    """Three parts of 70 channels each, and the input of them all."""
    x = net.conv("x", 5, 70)
    a, b, gate = net.split(net.conv(x, 70, 210), 70, 70, 70)
    mixed = net.node("Mul", net.node("Sub", a, b), net.node("Sigmoid", gate))
    return [net.node("Add", mixed, x), net.conv(b, 70, 5)]


def two_units(net):
    """Parts of two maps are added; those of one meet each other, too."""
    a, b, c = net.split(net.conv("x", 5, 30), 10, 10, 10)
    _, d, _ = net.split(net.conv("x", 5, 30), 10, 10, 10)
    return [net.node("Mul", a, net.node("Tanh", c)), net.node("Add", b, d)]


def with_a_pool(net):
    """A part and a map that no convolution makes."""
    small = net.node("MaxPool", net.conv("x", 5, 9), kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    _, b = net.split(net.conv("x", 5, 20), 11, 9)
    return [net.node("Add", small, b)]


def halves_of_words(net, c=96):
    """Branches of a word and a half, each read alone, too."""
    a, b = (net.node("Relu", net.conv("x", 5, c)) for _ in range(2))
    return [net.conv(net.concat(a, b), 2 * c, 20), net.conv(a, c, 3), net.conv(b, c, 5), a, b]


def equal_parts(net, c=36):
    """Four branches of which none fits into what is left of a word."""
    return [net.conv(net.concat(*(net.conv("x", 5, c) for _ in range(4))), 4 * c, 9)]


def after_others(net):
    """Branches that begin in the words of pools and inputs of others."""
    small = net.node("MaxPool", net.conv("x", 5, 40), kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    parts = [net.conv(small, 40, n) for n in (23, 100, 70)]
    return [net.conv(net.concat(small, *parts), 233, 8), net.conv(parts[1], 100, 4)]


NETWORKS = (joined, dense, crowded, backwards, nested, pooled, halves, thirds, shuffled)
WIDE = (halves_of_words, equal_parts, after_others)


def compiled(build, rng, machine):
    net = Sketch(rng)
    return compile_model(net.model(*build(net)), load_hw(machine))


@pytest.mark.parametrize("machine", ["opu-1024", "opu-micro"])
@pytest.mark.parametrize("build", NETWORKS + WIDE)
def test_channels_are_found_where_they_are(build, machine, rng):
    found = compiled(build, rng, machine)
    assert not found.partition.host
    assert not found.partition.copies
    assert_exact(found, load_hw(machine), rng)


SUMS = [
    (build, machine)
    for build, machines in {
        ghost: ("opu-1024", "opu-light"),
        gated: ("opu-1024t", "opu-light"),
        chained: ("opu-1024", "opu-light"),
        skipped: ("opu-1024", "opu-light"),
    }.items()
    for machine in machines
]


@pytest.mark.parametrize(("build", "machine"), SUMS)
def test_what_is_added_to_a_concatenation_is_made_in_its_lanes(build, machine, rng):
    found = compiled(build, rng, machine)
    assert not found.partition.host
    assert_exact(found, load_hw(machine), rng)


def test_a_sum_may_begin_in_a_later_word_than_its_map(rng, tmp_path):
    """Tiles of one word: the first ones hold no channel."""
    spec = tmp_path / "joining.yaml"
    names = "operators: {concat: [mem_rd], split: [mem_rd]}"
    spec.write_text(f"extends: opu-tiny\nname: joining\ndataflow: {{{names}}}\n")
    net = Sketch(rng)
    found = compile_model(net.model(*later_parts(net)), hw := load_hw(spec))
    assert not found.partition.host
    assert_exact(found, hw, rng)


@pytest.mark.parametrize("machine", ["opu-light", "opu-1024t"])
@pytest.mark.parametrize("build", [linear_unit, simple_gate, highway, two_units, with_a_pool])
def test_parts_that_meet_each_other_begin_a_word_each(build, machine, rng):
    found = compiled(build, rng, machine)
    assert not found.partition.host
    assert_exact(found, load_hw(machine), rng)


def test_parts_that_are_in_the_same_lanes_stay_where_they_are(rng):
    """Whole words; or what is added to one of them takes its lanes."""
    for sizes in ((64, 64), (20, 12)):
        net = Sketch(rng)
        a, b = net.split(net.conv("x", 5, sum(sizes)), *sizes)
        other = a if sizes == (64, 64) else net.conv("x", 5, 12)
        model = net.model(net.node("Add", b, other))
        found = compile_model(model, load_hw("opu-light"))
        (split,) = (t for t in found.bundle.tensors if t.shape[1] == sum(sizes))
        assert split.layout.pieces in {(), ((0, sum(sizes)),)}
        assert not found.partition.host


def test_sums_of_maps_with_different_holes_read_copies(rng):
    def separate(net):
        one, other = ([net.conv("x", 5, n) for n in sizes] for sizes in ((5, 13), (9, 9)))
        return [net.node("Add", net.concat(*one), net.concat(*other))]

    partition = compiled(separate, rng, "opu-light").partition
    assert not partition.host
    assert all(why.startswith("copied to lanes from 0 on") for why in partition.rewrites.values())
    assert len(partition.rewrites) == 2


def test_a_joined_concatenation_moves_no_byte(rng):
    found = compiled(joined, rng, "opu-1024")
    homes = {t.home for t in found.bundle.tensors}
    assert len(found.bundle.groups) == 4
    assert len(homes) == 3  # the input, the three branches together, the result


def test_narrow_branches_share_words(rng):
    def narrow(net):
        return [net.conv(net.concat(*(net.conv("x", 5, n) for n in (16, 30, 10))), 56, 8)]

    found = compiled(narrow, rng, "opu-1024")
    (joined,) = (t for t in found.bundle.tensors if t.shape[1] == 56)
    assert joined.layout.pieces == ((0, 46), (48, 10))
    assert joined.layout.blocks == 1


@pytest.mark.parametrize(("build", "channels", "pieces"), [
    (halves_of_words, 192, ()),
    (equal_parts, 144, ((0, 36), (48, 36), (96, 36), (144, 36))),
])  # fmt: skip
def test_maps_of_several_words_share_one_where_that_saves_words(build, channels, pieces, rng):
    found = compiled(build, rng, "opu-1024")
    (joined,) = (t for t in found.bundle.tensors if t.shape[1] == channels)
    assert (joined.layout.pieces, joined.layout.blocks) == (pieces, 3)


def test_maps_of_several_words_begin_words_where_sharing_saves_none(rng):
    def branches(net):
        return [net.conv(net.concat(net.conv("x", 5, 40), net.conv("x", 5, 120)), 160, 9)]

    found = compiled(branches, rng, "opu-1024")
    layers = [part.layer for parts in found.plan.layers.values() for part in parts]
    assert layers[-1].in_pieces == ((0, 40), (64, 120))


def test_a_first_word_that_is_partly_a_neighbours_has_a_mode_of_its_own(rng):
    """112 inputs take 7 weight rows for 64 results, and 4 for 32."""

    def branches(net):
        x = net.conv("x", 5, 112)
        return [net.conv(net.concat(net.conv(x, 112, 160), net.conv(x, 112, 224)), 384, 8)]

    hw = load_hw("opu-1024")
    plan = compiled(branches, rng, hw.name).plan
    layers = [part for parts in plan.layers.values() for part in parts]
    (layer,) = (part for part in layers if part.layer.shape.first_lane == 32)
    widest = max(range(len(hw.array.modes)), key=lambda i: hw.array.modes[i].oc)
    ranges = output_ranges(layer.shape, replace(layer.tile, blocks=4, mode=widest), hw)
    assert [(r.block, r.blocks) for r in ranges] == [(0, 1), (1, 3)]
    assert ranges[1].mode == widest != ranges[0].mode
    chunks = [w for r in ranges for f in r.features for w in f.weights]
    assert sum(chunk.rows for chunk in chunks) == 4 + 3 * 7


def test_a_map_that_others_read_begins_a_word_that_more_share(rng):
    found = compiled(skipped, rng, "opu-1024")
    (joined,) = (t for t in found.bundle.tensors if t.shape[1] == 39)
    assert joined.layout.pieces == ((0, 12), (16, 20), (48, 7))
    assert joined.layout.blocks == 1


def twice(net):
    """Values that two concatenations want at different places."""
    a, b, c = (net.conv("x", 5, n) for n in (8, 13, 70))
    left, right = net.split(net.conv("x", 5, 40), 24, 16)
    return [
        net.conv(net.concat(a, b), 21, 4),
        net.conv(net.concat(c, a, b), 91, 4),
        net.conv(net.concat(right, a), 24, 7),
        net.conv(net.concat(a, left, "x"), 37, 5),
    ]


@pytest.mark.parametrize("machine", ["opu-1024", "opu-micro"])
@pytest.mark.parametrize("build", [twice, skipped_twice])
def test_a_value_in_two_places_is_copied_with_the_reason(build, machine, rng):
    found = compiled(build, rng, machine)
    assert_exact(found, load_hw(machine), rng)
    assert not found.partition.host
    assert found.partition.copies
    names = {group.name for group in found.bundle.groups}
    for name, reason in found.partition.copies.items():
        assert name in names
        assert reason.endswith("is part of another concatenation")
