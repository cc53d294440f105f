"""Weights with zero points of their own: on the machine, with the bits that ONNX Runtime gives, in
the groups that the same layer without zero points has.
"""

from functools import cache

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnxruntime.quantization import QuantType

from opu_fuse import zoo
from opu_fuse.fuse.partition import Partition
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.lowering.wide_weight_rows import boxes
from opu_fuse.pipeline import Compilation, Program, compile_model
from opu_fuse.quant import weight_parts
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.cycle.run import run_cycle
from tests.networks.attention_blocks import with_constants
from tests.networks.quantised_elsewhere import quantised_elsewhere
from tests.networks.zero_points import LAYERS, SAME, ZEROS, Layer, between_pairs
from tests.tiers import by_night

HW = load_hw("opu-light")
OTHERS = ("opu-1024", "opu-tiny", "opu-classic", "opu-micro")
SOME = ("uint8 0", "uint8 for each channel")


def of_onnxruntime(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return np.asarray(session.run(None, {"x": x})[0])


@cache
def without_zero_points(layer: str, machine: str) -> Partition:
    return compile_model(between_pairs(LAYERS[layer], np.int8, 0), load_hw(machine)).partition


def hold_against_onnxruntime(layer: str, zeros: str, hw: HwSpec) -> None:
    form = LAYERS[layer]
    x = np.random.default_rng(5).normal(0, 2, form.x).astype(np.float32)
    model = between_pairs(form, *ZEROS[zeros])
    right = of_onnxruntime(model, x)
    assert len(np.unique(right)) > 12, "says little"
    done = compile_model(model, hw)
    result = Program(bundle=done.bundle, hw=hw).run({"x": x})
    np.testing.assert_array_equal(result.outputs["y"], right)
    assert done.partition == without_zero_points(layer, hw.name)
    assert not done.partition.host or hw.name == "opu-classic"


@pytest.mark.parametrize("zeros", ZEROS)
@pytest.mark.parametrize("layer", LAYERS)
def test_they_have_the_bits_of_onnxruntime(layer: str, zeros: str):
    hold_against_onnxruntime(layer, zeros, HW)


@pytest.mark.parametrize("machine", by_night(OTHERS, OTHERS[1:]))
@pytest.mark.parametrize("layer", LAYERS)
def test_they_have_the_bits_of_onnxruntime_on_other_machines(layer: str, machine: str):
    for zeros in SOME:
        hold_against_onnxruntime(layer, zeros, load_hw(machine))


@pytest.mark.parametrize("machine", ["opu-1024t", "opu-light"])
def test_a_layer_behind_others_in_a_word_has_all_terms_of_its_weights(machine: str):
    """Post puts its two pixels a cycle behind the 32 channels of the first layer. ONNX Runtime
    gives weights of one sign the zero point 0 and numbers up to 255, the sum of three int8.
    """
    rng = np.random.default_rng(7)
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[1,4,6,8] x) => (float[1,33,6,8] y) {
        a = Conv(x, wa)  b = Conv(x, wb)  y = Concat<axis=1>(a, b) }"""
    constants = {"wa": rng.normal(size=(32, 4, 1, 1)), "wb": rng.uniform(0.5, 1, (1, 4, 1, 1))}
    x = rng.normal(0, 2, (1, 4, 6, 8)).astype(np.float32)
    model = ir.from_proto(with_constants(text, constants))
    qdq = ir.to_proto(quantised_elsewhere(model, {"x": x}, QuantType.QUInt8))
    hw = load_hw(machine)
    done = compile_model(qdq, hw)
    shapes = [layer.shape for parts in done.plan.layers.values() for layer in parts]
    assert any(shape.spread and shape.out_slot and len(shape.further) > 1 for shape in shapes)
    result = Program(bundle=done.bundle, hw=hw).run({"x": x}, capture=True)
    assert check(done.bundle, {"x": x}, result).passed


WIDE = Layer(op="Conv", x=(1, 128, 9, 9), weight=(64, 128, 3, 3), form=SAME)


def with_far_weights(places: list[tuple[int, ...]]) -> Compilation:
    """A layer whose weights are next to their zero point, but for some."""
    model = between_pairs(WIDE, np.uint8, 120)
    (tensor,) = (t for t in model.graph.initializer if t.name == "w")
    data = np.full(WIDE.weight, 121, np.uint8)
    data[tuple(np.transpose(places))] = 255
    tensor.CopyFrom(onnx.numpy_helper.from_array(data, "w"))
    return compile_model(model, HW)


def weight_rows(done: Compilation) -> list[int]:
    """Of each of the int8 whose sum the weights are."""
    ((planned,),) = done.plan.layers.values()
    chunks = [w for r in planned.ranges for f in r.features for w in f.weights]
    return [sum(w.rows for w in chunks if w.part == n) for n in range(3)]


def test_only_weight_rows_with_numbers_beyond_int8_are_multiplied_again():
    few = with_far_weights([(3, 5, 0, 2), (63, 127, 1, 1)])
    all_, *_ = weight_rows(few)
    assert weight_rows(few) == [all_, 2, 0]
    everywhere = [(o, i, y, x) for o in range(64) for i in range(128) for y, x in np.ndindex(3, 3)]
    assert weight_rows(with_far_weights(everywhere)) == [all_, all_, 0]
    corner = [p for p in everywhere if p[2] == p[3] == 0]
    assert weight_rows(with_far_weights(corner)) == [all_, all_ // 9, 0]


def test_they_cost_the_cycles_of_these_rows():
    none = with_far_weights([(0, 0, 0, 0)])
    every = with_far_weights([(o, i, y, 1) for o, i, y in np.ndindex(64, 128, 3)])
    taken = [run_cycle(done.bundle, HW).counters["cycles"] for done in (none, every)]
    assert 1.2 * taken[0] < taken[1] < 1.45 * taken[0]
    predicted = sum(g.cycles for g in every.bundle.groups)
    assert abs(predicted - taken[1]) < 0.1 * taken[1]


@pytest.mark.parametrize("shape", [(7,), (3, 3, 8), (2, 3, 3, 16)])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.2, 0.7, 1.0])
def test_boxes_cover_what_is_needed_and_no_row_twice(shape, share, rng):
    rows = rng.random(shape) < share
    covered = np.zeros(shape, int)
    for box in boxes(rows):
        covered[tuple(slice(first, first + count) for first, count in box)] += 1
    assert np.all(covered <= 1)
    assert np.all(covered[rows] == 1)
    assert covered.sum() <= 3 * rows.sum()


@pytest.mark.parametrize(("far", "count"), [([-255, 254], 2), ([-3, 255], 3), ([-128, 127], 1)])
def test_the_parts_of_weights_are_int8_and_their_sum(far: list[int], count: int):
    """255 is the one number that two int8 are too few for."""
    parts = list(weight_parts(np.array(far, np.int16)))
    assert [p.dtype for p in parts] == [np.int8] * count
    np.testing.assert_array_equal(sum(p.astype(int) for p in parts), far)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [QuantType.QUInt8, QuantType.QInt8])
def test_a_network_of_onnxruntimes_quantiser_leaves_nothing_to_the_host(kind: QuantType):
    """Weights per tensor, with zero points, as `quantize_static` writes them for uint8."""
    network = zoo.build("resnet20", image=16)
    x = np.random.default_rng(3).normal(size=(1, 3, 16, 16)).astype(np.float32)
    inputs = {str(network.graph.inputs[0].name): x}
    model = quantised_elsewhere(network, inputs, weights=kind)
    done = compile_model(model, HW)
    assert not done.partition.host
    assert any(p.layer.shape.further for parts in done.plan.layers.values() for p in parts)
    result = Program(bundle=done.bundle, hw=HW).run(inputs, capture=True)
    assert check(done.bundle, inputs, result).passed
