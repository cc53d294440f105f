"""`inspect`: what a program file shows of itself."""

import json

import onnx

from opu_fuse.number_text import byte_size


def test_the_fused_model_is_written_whole(opu_fuse, program_file, tmp_path):
    path = tmp_path / "fused.onnx"
    called = opu_fuse("inspect", program_file, "--fused", path)
    assert (called.code, called.out) == (0, f"{path}: {byte_size(path.stat().st_size)}\n")
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert not [t for t in model.graph.initializer if t.external_data]
    assert len(model.functions) == 7  # the average of 6 x 6 is two


def test_json_stays_json_beside_a_fused_model(opu_fuse, program_file, tmp_path):
    called = opu_fuse("inspect", program_file, "--json", "--fused", tmp_path / "fused.onnx")
    tree = json.loads(called.out)
    assert (tmp_path / "fused.onnx").is_file()
    stem = next(s for s in tree["sources"] if s["name"] == "stem")
    assert [o["group"] for o in stem["operators"]] == [0, 0]
    assert stem["operators"][0]["instructions"] == tree["groups"][0]["instructions"]


def test_a_folder_that_is_not_there_is_named(opu_fuse, program_file, tmp_path):
    called = opu_fuse("inspect", program_file, "--fused", tmp_path / "none" / "fused.onnx")
    assert called.code == 1
    assert "Traceback" not in called.err
    assert "fused.onnx" in called.err
