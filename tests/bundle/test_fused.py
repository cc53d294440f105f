"""`fused.onnx` in a program file: weights stand once, and every tool can still open it."""

import zipfile
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from opu_fuse import zoo
from opu_fuse.bundle.file import load, save
from opu_fuse.bundle.fused_onnx import BY_REFERENCE_BYTES, load_fused, raw_data_spans, serialised
from opu_fuse.errors import InternalError, ProgramError
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from tests.bundle.sample import sample_bundle


@pytest.fixture(scope="module")
def bundle():
    return compile_model(zoo.build("tiny_residual"), load_hw("opu-tiny"), Options()).bundle


def references(bundle):
    model = onnx.load_from_string(bundle.fused)
    return [t for t in model.graph.initializer if t.data_location == TensorProto.EXTERNAL]


def outputs(session, seed=0):
    rng = np.random.default_rng(seed)
    inputs = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in session.get_inputs()}
    return [a.tobytes() for a in session.run(None, inputs)]


def test_large_weights_are_not_stored_again(bundle):
    weights = {
        t.name: len(t.raw_data)
        for t in onnx.load_from_string(bundle.qdq).graph.initializer
        if len(t.raw_data) >= BY_REFERENCE_BYTES
    }
    assert len(weights) == 3  # of the six convolutions, three are large
    assert sorted(t.name for t in references(bundle)) == sorted(weights)
    assert not [t for t in references(bundle) if t.raw_data]


def test_the_two_members_side_by_side_open_like_any_onnx_model(bundle, tmp_path):
    path = tmp_path / "x.opu"
    save(bundle, path)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path, ["fused.onnx", "qdq.onnx"])
    onnx.checker.check_model(tmp_path / "fused.onnx", full_check=True)
    fused, original = (ort.InferenceSession(tmp_path / name) for name in ("fused.onnx", "qdq.onnx"))
    assert outputs(fused) == outputs(original)


def test_the_loaded_model_stands_alone_and_computes_the_same(bundle, tmp_path):
    path = tmp_path / "x.opu"
    save(bundle, path)
    model = load_fused(load(path))
    onnx.checker.check_model(model, full_check=True)
    assert len(model.functions) == len(bundle.groups)
    alone = ort.InferenceSession(model.SerializeToString())
    assert outputs(alone) == outputs(ort.InferenceSession(bundle.qdq))


def test_functions_and_groups_are_numbered_and_named_alike(bundle):
    model = load_fused(bundle)
    calls = {n.op_type: n.name for n in model.graph.node if n.domain == "opu_fuse"}
    for function in model.functions:
        facts = {p.key: p.value for p in function.metadata_props}
        group = bundle.groups[int(facts["opu_fuse.group"])]
        assert group.name == calls[function.name]
        assert facts["opu_fuse.operators"].splitlines() == [
            f"{op.name}: {op.op}{f' on {op.module}' if op.module else ''}" for op in group.ops
        ]


def test_the_same_model_gives_the_same_member(bundle):
    again = compile_model(zoo.build("tiny_residual"), load_hw("opu-tiny"), Options()).bundle
    assert again.fused == bundle.fused


def test_weights_that_are_not_stored_as_raw_data_are_kept_whole():
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [2048], np.arange(2048, dtype=np.float32))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2048])
    node = helper.make_node("Identity", ["w"], ["y"])
    model = helper.make_model(helper.make_graph([node], "g", [], [y], [tensor]))
    data, (kept,) = serialised(model)
    assert onnx.load_from_string(data) == model
    assert kept == tensor


def test_raw_data_is_found_where_it_lies(bundle):
    places = raw_data_spans(bundle.qdq)
    tensors = {t.name: t for t in onnx.load_from_string(bundle.qdq).graph.initializer}
    assert {name for name, t in tensors.items() if t.raw_data} == set(places)
    for name, (offset, length) in places.items():
        assert bundle.qdq[offset : offset + length] == tensors[name].raw_data


def test_a_program_without_it_says_so():
    with pytest.raises(ProgramError, match=r"sample: holds no fused\.onnx"):
        load_fused(sample_bundle())


def test_a_program_whose_weights_are_gone_is_not_written(bundle, tmp_path):
    with pytest.raises(InternalError, match=r"weights in qdq\.onnx, which is missing"):
        save(replace(bundle, qdq=b""), tmp_path / "x.opu")


def test_bytes_that_are_no_model_are_refused(bundle):
    with pytest.raises(ProgramError, match=r"fused\.onnx is no ONNX model"):
        load_fused(replace(bundle, fused=b"\xff" * 64))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("location", "/etc/passwd", r"are not stored in qdq\.onnx"),
        ("offset", "-1", r"are not stored in qdq\.onnx"),
        ("length", "", r"are not stored in qdq\.onnx"),
        ("offset", "999999999", r"at bytes 999999999\.\."),
    ],
)
def test_weights_elsewhere_are_not_read(bundle, key, value, words):
    model = onnx.load_from_string(bundle.fused)
    tensor = next(t for t in model.graph.initializer if t.external_data)
    entry = next(e for e in tensor.external_data if e.key == key)
    entry.value = value
    with pytest.raises(ProgramError, match=words):
        load_fused(replace(bundle, fused=model.SerializeToString()))
