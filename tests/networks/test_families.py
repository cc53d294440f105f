"""Every family of networks, through machine groups and host segments on the functional engine.

Each quantised tensor equals the golden model's, without exception, and ONNX Runtime's as far as
float arithmetic is exact: averages over a count that is no power of two may round a tie to the
other side (1 LSB), and what is computed from them may differ.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse import zoo
from opu_fuse.bundle.result import RunResult
from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.graph import Kind
from opu_fuse.dfg.integer import operator
from opu_fuse.dfg.interpret import interpret
from opu_fuse.frontend.prepare import prepare
from opu_fuse.fuse.strategies.registry import STRATEGIES, partition
from opu_fuse.hw.isa.encoding import decode
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.layout.lanes import LAYOUT
from opu_fuse.pipeline import Compilation, Program, compile_model, partition_model
from opu_fuse.sim.compare.ort_reference import Reference
from opu_fuse.sim.compare.runs import is_dull
from opu_fuse.sim.compare.tensor_sources import tensor_sources
from opu_fuse.units.pool import average_params
from opu_fuse.zoo.builder import Net
from rtl_sim.benches.graph_orders import orders_of
from tests.tiers import by_night

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"

# Networks and the reduced rows and columns of their images.
FAMILIES = {
    "resnet20": 32,
    "mobilenet_v1_025": 64,
    "densenet_small": 32,
    "unet": 32,
    "squeezenet": 64,
    "shufflenet_v2": 64,
    "tiny_yolo": 64,
    "yolov3_tiny": 64,
}
LARGE_FAMILIES = {
    "mobilenet_v1": 64,
    "mobilenet_v2": 64,
    "googlenet": 128,
    "efficientnet_b0": 128,
    "densenet121": 64,
    "yolov3": 64,
}
DEEP = {"densenet121", "efficientnet_b0", "yolov3"}
"""More of what a smaller one of their family, or a test of single blocks, has."""
LIGHT_MODELS = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
LIKE_OTHERS = {
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "vgg19",
    "zfnet512",
}
"""Of these, at their full size, those of which the zoo has one; AlexNet has what VGG has."""


@dataclass
class Executed:
    """One model compiled and run on one input."""

    hw: HwSpec
    compiled: Compilation
    inputs: dict[str, np.ndarray]
    result: RunResult

    @cached_property
    def golden(self) -> dict[str, np.ndarray]:
        """int8 by value name, of every value that the model rounds and names."""
        dfg = self.compiled.dfg
        host = {op.node for op in self.compiled.partition.host}
        values = interpret(dfg, self.inputs, self.hw.numeric, host)
        named = [n for n in dfg.nodes if n.quant is not None and n.tensor and n.index in values]
        return {n.value: values[n.index] for n in named}

    def difference(self, name: str, expected: np.ndarray) -> np.ndarray:
        """Absolute differences of a tensor where the machine has computed it."""
        got = self.result.tensors[name].astype(np.int16)
        gap = np.abs(got - expected.reshape(got.shape))
        return gap * self.result.masks.get(name, np.True_)

    @cached_property
    def averages(self) -> dict[str, bool]:
        """Averages over counts that are no power of two, and all behind them, by value name; True:
        such an average whose operand is exact.
        """
        found: dict[int, bool] = {}
        dfg = self.compiled.dfg
        for node in dfg.nodes:
            behind = any(i in found for i in node.operands)
            if behind or (node.op == "avg_pool" and self._divides(node.index)):
                found[node.index] = not behind
        return {dfg[i].value: first for i, first in found.items()}

    def _divides(self, average: int) -> bool:
        mults = average_params(operator(self.compiled.dfg, average), self.hw.numeric).mults
        return any(count & (count - 1) for count, _ in mults)


def execute(model: ir.Model, rng: np.random.Generator, hw: HwSpec | None = None) -> Executed:
    """On opu-1024 unless told otherwise."""
    hw = hw or load_hw("opu-1024")
    compiled = compile_model(model, hw)
    inputs = {
        p.name: rng.standard_normal(p.shape).astype(np.float32) for p in compiled.bundle.inputs
    }
    result = Program(bundle=compiled.bundle, hw=hw).run(inputs, capture=True)
    return Executed(hw=hw, compiled=compiled, inputs=inputs, result=result)


def nowhere(run: Executed) -> set[str]:
    """Values that lie in no memory and come out of no stage: padding inside a pass, the pre chain,
    joins and splits that are a matter of lanes, and the stages inside the phases of a transposed
    convolution.
    """
    dfg, plan = run.compiled.dfg, run.compiled.plan
    pre = {node for planned in plan.layers.values() for p in planned for node in p.layer.pre}
    groups = run.compiled.partition.groups
    passed = {m.node for g in groups for m in g.matches}
    moved = {i for i in passed if dfg[i].op in {"pad", *LAYOUT}}
    parts = {n.index for n in dfg.nodes if n.kind is Kind.TUPLE_GET and n.operands[0] in moved}
    phased = {
        m.node for g in groups for m in g.matches if dfg[g.matches[0].node].op == "transposed_conv"
    }
    return {dfg[i].value for i in (pre | moved | parts | phased) - plan.placements.keys()}


def hold_against_golden(run: Executed) -> None:
    missing = run.golden.keys() - run.result.tensors.keys() - nowhere(run)
    assert not missing, f"the run does not show {sorted(missing)}"
    shown = {n: value for n, value in run.golden.items() if n in run.result.tensors}
    wrong = [name for name, value in shown.items() if run.difference(name, value).any()]
    assert not wrong, f"{len(wrong)} of {len(run.golden)} tensors differ, first {wrong[0]}"


def hold_against_onnxruntime(run: Executed) -> None:
    reference = Reference(run.compiled.bundle)
    expected = reference.run(run.inputs).tensors
    shown = {
        p.qdq_name: p.name
        for p in tensor_sources(run.compiled.bundle)
        if p.qdq_name in expected and p.name in run.result.tensors
    }
    hidden = nowhere(run)
    unseen = {n.tensor for n in run.compiled.dfg.nodes if n.value in hidden}
    assert expected.keys() - shown.keys() <= unseen, "not every tensor was compared"
    for qdq_name, name in shown.items():
        worst = int(run.difference(name, expected[qdq_name]).max())
        allowed = 1 if run.averages.get(name) else 0
        assert worst <= allowed or run.averages.get(name) is False, (name, worst)
        computed = run.result.tensors[name][
            np.broadcast_to(run.result.masks.get(name, np.True_), run.result.tensors[name].shape)
        ]
        zero = reference.zero_points[qdq_name]
        assert not is_dull(computed, zero), f"{name} has too few values, or too many saturated"


@pytest.mark.parametrize(
    ("name", "image"),
    [
        *FAMILIES.items(),
        *(
            pytest.param(*item, marks=pytest.mark.nightly if item[0] in DEEP else pytest.mark.slow)
            for item in LARGE_FAMILIES.items()
        ),
    ],
)
def test_a_family_gives_what_golden_model_and_onnxruntime_give(name, image, rng):
    model = zoo.build(name, image=image)
    run = execute(model, rng)
    hold_against_golden(run)
    hold_against_onnxruntime(run)
    dfg, plain = partition_model(model, run.hw)
    assert plain == run.compiled.partition, "scales have changed the partition"
    assert [n.name for n in dfg.nodes] == [n.name for n in run.compiled.dfg.nodes]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.nightly] * (n in LIKE_OTHERS)) for n in LIGHT_MODELS],
)
def test_a_model_of_the_onnx_package_comes_to_life(name, rng):
    path = LIGHT / f"light_{name}.onnx"
    run = execute(zoo.living_weights(ir.load(path)), rng)
    hold_against_golden(run)
    hold_against_onnxruntime(run)
    unchanged = partition_model(path, run.hw)[1]
    assert unchanged == run.compiled.partition, "the weights have changed the partition"


def test_an_activation_without_a_convolution_runs_behind_the_array(rng):
    """The nearest comparator stands in front of it, where only convolutions pass."""
    net = Net("lone", seed=0)
    run = execute(net.finish(net.relu(net.input("input", (1, 8, 8, 8)), "relu")), rng)
    hold_against_golden(run)
    assert {str(m.module) for g in run.compiled.partition.groups for m in g.matches} == {"compare"}
    orders = {
        x.params["order"] for x in decode(run.compiled.bundle.words) if x.engine is Engine.POST
    }
    assert orders == {orders_of(run.hw).pack(["compare"])}


def test_a_vector_that_becomes_a_map_goes_through_the_host(rng):
    """The machine keeps maps in blocks of channels: it cannot take 400 numbers as 16 maps."""
    net = Net("decoder", seed=0)
    x = net.relu(net.conv(net.input("input", (1, 8, 8, 8)), "conv1", out=64, kernel=3), "relu1")
    x = net.flatten(net.max_pool(x, "pool1", kernel=6, stride=6), "flatten1")
    x = net.relu(net.dense(x, "fc1", out=16 * 5 * 5), "relu2")
    x = net.reshape(x, "map", (1, 16, 5, 5))
    x = net.relu(net.conv(x, "conv2", out=96, kernel=2), "relu3")
    x = net.flatten(net.max_pool(x, "pool2", kernel=4, stride=4), "flatten2")
    run = execute(net.finish(net.dense(x, "fc2", out=100)), rng)
    hold_against_golden(run)
    hold_against_onnxruntime(run)
    assert {run.compiled.dfg[op.node].name for op in run.compiled.partition.host} >= {"map"}


@pytest.mark.parametrize("name", [*FAMILIES, "efficientnet_b0"])
def test_every_strategy_answers_for_every_operator(name):
    dfg = build_dfg(prepare(zoo.build(name, image=32), quantised=False).canonical)
    calls = {n.index for n in dfg.calls}
    for hw in (load_hw("opu-1024"), load_hw("opu-classic")):
        for strategy in STRATEGIES:
            found = partition(dfg, hw, strategy)
            grouped = [m.node for g in found.groups for m in g.matches]
            hosted = [op.node for op in found.host]
            assert sorted(grouped + hosted) == sorted(calls), (hw.name, strategy)
            assert found.legal or strategy == "greedy", (hw.name, strategy)
            assert all(b.reason for b in found.boundaries)


PUBLISHED = [("tiny_yolo", 64, 9), ("resnet20", 32, 22), ("yolov3", 64, 75)]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["greedy", "matched"])
@pytest.mark.parametrize(("name", "image", "count"), by_night(PUBLISHED, PUBLISHED[2:]))
def test_group_counts_on_the_published_machine(name, image, count, strategy):
    _, found = partition_model(zoo.build(name, image=image), load_hw("opu-classic"), strategy)
    assert len(found.groups) == count
    assert found.host == ()
    assert found.legal
