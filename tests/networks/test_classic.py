"""The published machine: powers of two only, single buffers, padding in front of its pool."""

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from msgspec.structs import replace

from opu_fuse import zoo
from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.integer import settings
from opu_fuse.errors import DoesNotFit, InternalError, ModelError, SpecError
from opu_fuse.frontend.prepare import prepare
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.layout.lanes import map_lanes
from opu_fuse.lowering.pass_geometry import group_geometry
from opu_fuse.pipeline import Options, Program, compile_model, partition_model
from opu_fuse.schedule.plan import MachineProgram
from opu_fuse.schedule.proofs import prove_no_race
from opu_fuse.timing.group_cost import NOTHING, GroupCosts
from opu_fuse.units.base import Stage
from opu_fuse.zoo.builder import Net
from tests.networks.test_families import execute, hold_against_golden

PADDED = """
<ir_version: 10, opset_import: ["" : 17]>
padded (float[1,8,9,9] x) => (float[1,16,6,6] y)
<float[16,8,3,3] w, int64[8] pads = {0, 0, 2, 2, 0, 0, 2, 2}, float fill = {FILL}>
{
  [conv] c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w)
  [padding] p = Pad (c, pads, fill)
  [pool] y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (p)
}
"""
LOWEST = float(np.finfo(np.float32).min)


@pytest.fixture(scope="module")
def classic() -> HwSpec:
    return load_hw("opu-classic")


def padded(fill: float, rng: np.random.Generator) -> ir.Model:
    """A padding as wide as the window, which no attribute of the pool can hold."""
    proto = onnx.parser.parse_model(PADDED.replace("FILL", repr(fill)))
    weights = rng.standard_normal((16, 8, 3, 3)).astype(np.float32) - np.float32(0.3)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return ir.from_proto(proto)


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("tiny_yolo", 9),
        ("resnet20", 22),
        pytest.param("yolov3", 75, marks=pytest.mark.nightly),
    ],
)
def test_the_published_groups_have_tiles_at_full_resolution(name, groups, classic):
    dfg, found = partition_model(zoo.build(name), classic)
    costs = GroupCosts(dfg, classic)
    total = sum((costs.of([m.node for m in g.matches]) for g in found.groups), NOTHING)
    assert (len(found.groups), total.misfits, found.host) == (groups, 0, ())


def test_padding_behind_the_array_becomes_the_pools_own(classic, rng):
    dfg, found = partition_model(padded(LOWEST, rng), classic)
    (group,) = found.groups
    assert [m.module for m in group.matches][-2:] == ["pool_pad", "pool"]
    nodes = [m.node for m in group.matches]
    geometry = group_geometry(dfg, nodes, classic, map_lanes(dfg, classic, ()))
    assert geometry is not None
    assert geometry.shape.pool is not None
    assert geometry.shape.pool.pads == (2, 2, 2, 2)
    assert (geometry.shape.pre_pool_rows, geometry.shape.out_rows) == (9, 6)


def test_padding_that_a_maximum_could_show_ends_the_group(classic, rng):
    run = execute(padded(0.0, rng), rng, classic)
    dfg, groups = run.compiled.dfg, run.compiled.partition.groups
    assert [[dfg[m.node].op for m in g.matches] for g in groups] == [["conv"], ["pad", "max_pool"]]
    hold_against_golden(run)


def test_free_scales_are_refused_before_any_work(classic):
    with pytest.raises(SpecError, match=r"opu-classic: it has shifters .* scales='pow2'"):
        compile_model(zoo.build("tiny_residual"), classic, Options(scales="free"))


def test_a_foreign_model_with_free_scales_is_refused_at_the_operator(classic):
    dfg = build_dfg(prepare(zoo.build("tiny_residual"), scales="free").canonical)
    (add, *_) = [n.index for n in dfg.calls if n.op == "add" and n.owner is None]
    with pytest.raises(ModelError, match=r"is not a power of two, the machine only shifts"):
        settings(dfg, add, Stage.RESIDUAL, classic.numeric)
    settings(dfg, add, Stage.RESIDUAL, load_hw("opu-1024").numeric)


def test_an_average_beyond_a_tile_divides_by_shifting_or_not_at_all(classic):
    """A window of 42 x 42 exceeds 1444 words; the array could only shift its sum."""
    net = Net("average", seed=0)
    x = net.relu(net.conv(net.input("input", (1, 8, 42, 42)), "conv1", out=16, kernel=1), "relu1")
    model = net.finish(net.global_average_pool(x, "pool1"))
    dfg = partition_model(model, classic)[0]
    pool = next(n.index for n in dfg.calls if n.op == "avg_pool")
    with pytest.raises(DoesNotFit, match="its window of 1764 positions exceeds a tile"):
        group_geometry(dfg, [pool], classic, map_lanes(dfg, classic, ()))
    assert compile_model(model, load_hw("opu-1024")).partition.host == ()


def test_one_bank_makes_the_next_tile_wait_for_the_last(classic, rng):
    """Compute may not begin a tile before post has read the one before, post none before store."""
    compiled = compile_model(zoo.build("resnet20", image=32), classic)
    (segment,) = compiled.plan.segments
    assert isinstance(segment, MachineProgram)
    for waiting, other in ((Engine.COMPUTE, Engine.POST), (Engine.POST, Engine.STORE)):
        hasty = [
            replace(i, waits=tuple(e for e in i.waits if e is not other or i.engine is not waiting))
            for i in segment.instructions
        ]
        with pytest.raises(InternalError, match=f"race proof.*{waiting.name.lower()}"):
            prove_no_race(hasty, classic)
    shapes = {p.name: p.shape for p in compiled.bundle.inputs}
    inputs = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    program = Program(bundle=compiled.bundle, hw=classic)
    ordered = program.run(inputs).outputs
    for seed in range(3):
        shuffled = program.run(inputs, shuffle=seed).outputs
        assert all(np.array_equal(shuffled[name], ordered[name]) for name in ordered)
