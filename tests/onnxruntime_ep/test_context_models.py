"""A program as an ONNX model: valid ONNX, the same values as `opu-fuse run`."""

import io
import zipfile
import zlib
from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper
from typer.testing import CliRunner

import opu_fuse
from opu_fuse import zoo
from opu_fuse.bundle.context_model import context_model
from opu_fuse.bundle.file import load
from opu_fuse.bundle.program import HostSegment, MachineSegment
from opu_fuse.bundle.segment_programs import segment_programs
from opu_fuse.cli.main import app
from opu_fuse.errors import ProgramError
from opu_fuse.fuse.explain.partition_json import partition_to_json
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.options import Options
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise
from tests.onnxruntime_ep.conftest import (
    MACHINE,
    attribute,
    compiled,
    constant_files,
    context,
    node_of,
)


def test_machine_segments_become_nodes_and_host_operators_stay_onnx(two_segments):
    kinds = [type(s) for s in two_segments.bundle.segments]
    assert kinds == [MachineSegment, HostSegment, MachineSegment]
    model = context(two_segments).model
    onnx.checker.check_model(model)
    nodes = {n.name: n for n in model.graph.node}
    assert nodes["segment0"].domain == nodes["segment2"].domain == "com.microsoft"
    assert "Softmax" in {n.op_type for n in nodes.values() if not n.domain}
    assert attribute(nodes["segment0"], "source").s == b"OpuFuseExecutionProvider"
    hw = load_hw(MACHINE)
    machine = f"{hw.name} {hw.spec_hash:011x}".encode()
    assert attribute(nodes["segment2"], "hardware_architecture").s == machine
    assert [i.name for i in model.graph.input] == ["image"]
    assert [o.name for o in model.graph.output] == ["sum", "weights"]


@pytest.mark.parametrize("name", ["tiny_residual", "tiny_odd"])
def test_the_nodes_have_the_groups_that_partition_finds(name):
    """Splits and concats are addresses: groups of their own for `partition`, no instructions."""
    hw, model = load_hw(MACHINE), zoo.build(name)
    partition = opu_fuse.partition(model, hw)
    wanted = {
        tuple(op["name"] for op in group["ops"])
        for group in partition_to_json(partition.dfg, hw, partition)["groups"]
        if not {op["op"] for op in group["ops"]} <= {"split", "concat"}
    }
    programs = segment_programs(compiled(model).bundle)
    groups = [tuple(op.name for op in g.ops) for p in programs for g in p.bundle.groups]
    assert set(groups) == wanted
    assert len(groups) == len(wanted)


def test_a_map_that_skips_a_host_segment_goes_from_one_program_to_the_next(two_segments):
    first, second = segment_programs(two_segments.bundle)
    skip = [name for name in second.maps_in if name in first.maps_out]
    assert len(skip) >= 1, "the second program has no other way to read what the first has written"


def test_each_segment_is_a_program_file_like_any_other(two_segments, tmp_path):
    model = context(two_segments).model
    path = tmp_path / "segment.opu"
    path.write_bytes(attribute(node_of(model), "ep_cache_context").s)
    alone = load(path)
    whole = two_segments.bundle
    x = noise(whole)
    result = run(alone, load_hw(MACHINE), x)
    inside = run(whole, load_hw(MACHINE), x, capture=True).tensors
    for name, array in result.outputs.items():
        assert np.array_equal(array, inside[name.removesuffix(":int8")]), name


def test_programs_inside_a_model_have_its_constants_once(two_segments):
    first, second = (n for n in context(two_segments).model.graph.node if n.op_type == "EPContext")
    with zipfile.ZipFile(io.BytesIO(attribute(first, "ep_cache_context").s)) as archive:
        constants = archive.read("dram.bin")
    with zipfile.ZipFile(io.BytesIO(attribute(second, "ep_cache_context").s)) as archive:
        assert "dram.bin" not in archive.namelist()
    assert constants == two_segments.bundle.constants.tobytes()
    assert attribute(second, "constants_crc32").i == zlib.crc32(constants)
    assert [attribute(n, "main_context").i for n in (first, second)] == [1, 0]


def test_a_context_without_the_one_that_has_its_constants_is_refused(two_segments, session):
    model = context(two_segments).model
    second = next(n for n in model.graph.node if n.name == "segment2")
    attribute(second, "constants_crc32").i ^= 1
    with pytest.raises(Exception, match="segment2: the context with its constants is not in this"):
        session(model.SerializeToString())


def test_programs_next_to_a_model_are_whole_and_share_what_is_equal(
    two_segments, session, tmp_path
):
    context(two_segments, stem="net").save(tmp_path / "net_ctx.onnx")
    assert np.array_equal(
        load(tmp_path / "net_segment2.opu").constants, load(tmp_path / "net_segment0.opu").constants
    )
    x = noise(two_segments.bundle, seed=3)
    expected = run(two_segments.bundle, load_hw(MACHINE), x).outputs
    opened = session(str(tmp_path / "net_ctx.onnx"))
    assert constant_files() == 1
    got = opened.run(None, x)
    assert all(np.array_equal(a, b) for a, b in zip(got, expected.values(), strict=True))


def test_the_provider_computes_the_bits_of_run(two_segments, session, tmp_path):
    context(two_segments).save(tmp_path / "model_ctx.onnx")
    x = noise(two_segments.bundle, seed=3)
    expected = run(two_segments.bundle, load_hw(MACHINE), x).outputs
    got = session(str(tmp_path / "model_ctx.onnx")).run(None, x)
    assert list(expected) == ["sum", "weights"]
    for name, array in zip(expected, got, strict=True):
        assert np.array_equal(array, expected[name]), name


@pytest.mark.parametrize("dtype", ["uint8", "float16"])
def test_inputs_of_other_types_channels_last_are_packed_by_the_provider(dtype, session):
    onnx_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    weights = np.random.default_rng(1).normal(0, 0.1, (8, 3, 1, 1)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["x"], ["real"], to=1),
            helper.make_node("Transpose", ["real"], ["image"], perm=[0, 3, 1, 2]),
            helper.make_node("Conv", ["image", "w"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", onnx_type, (1, 6, 5, 3))],
        [helper.make_tensor_value_info("y", 1, (1, 8, 6, 5))],
        [numpy_helper.from_array(weights, "w")],
    )
    done = compiled(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    x = noise(done.bundle, seed=2)
    expected = run(done.bundle, load_hw(MACHINE), x).outputs["y"]
    model = context(done).model.SerializeToString()
    assert np.array_equal(session(model).run(None, x)[0], expected)


def test_compile_writes_the_programs_next_to_the_model(session, tmp_path):
    source, output = tmp_path / "net.onnx", tmp_path / "net_ctx.onnx"
    ir.save(zoo.build("tiny_residual"), source)
    options = ["--hw", MACHINE, "-o", str(output), "--context-files"]
    assert CliRunner().invoke(app, ["compile", str(source), *options]).exit_code == 0
    assert (tmp_path / "net_ctx_segment0.opu").is_file()
    assert attribute(node_of(onnx.load(output)), "embed_mode").i == 0
    opened = session(str(output))
    x = np.zeros(opened.get_inputs()[0].shape, np.float32)
    assert opened.run(None, {"input": x})[0].shape == (1, 10)


def test_images_of_a_batch_run_together(session):
    hw = load_hw(MACHINE)
    done = compile_model(zoo.build("tiny_residual"), hw, Options(batch=2))
    x = noise(done.bundle, seed=6)
    opened = session(context(done).model.SerializeToString())
    assert opened.get_inputs()[0].shape == list(x["input"].shape)
    (expected,) = run(done.bundle, hw, x).outputs.values()
    assert np.array_equal(opened.run(None, x)[0], expected)


def test_a_batch_with_host_operators_is_refused(two_segments):
    batch = replace(two_segments.bundle, batch=2)
    with pytest.raises(ProgramError, match="runs 2 images together, and its host operators one"):
        context_model(batch, load_hw(MACHINE), [onnx.ModelProto()])
