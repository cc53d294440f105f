"""Large results go to stdout as they are: the console would look at every character."""

import json

import onnx_ir as ir
import pytest
from rich.console import Console

FORMS = {"listing": (), "explanations": ("--explain",), "json": ("--json",)}


@pytest.mark.parametrize("name", FORMS)
def test_a_partition_is_printed_without_the_console(name, opu_fuse, model_file, monkeypatch):
    base = ("partition", model_file, "--hw", "opu-tiny", *FORMS[name])
    monkeypatch.setattr(Console, "print", None)
    called = opu_fuse(*base)
    assert called.code == 0, called.err
    if name == "json":
        found = json.loads(called.out)
        assert found["model"] == "tiny_residual"
        assert called.out == json.dumps(found, indent=2) + "\n"  # as the library indents, faster
    else:
        assert called.out.splitlines()[0].startswith("tiny_residual on opu-tiny, strategy matched:")
        assert ("  ends before" in called.out) is (name == "explanations")


def test_names_cannot_ring_the_bell(opu_fuse, model_file, tmp_path):
    model = ir.load(model_file)
    model.graph[0].name = "loud\a"
    ir.save(model, tmp_path / "net.onnx")
    called = opu_fuse("partition", tmp_path / "net.onnx", "--hw", "opu-tiny")
    assert "loud" in called.out
    assert "\a" not in called.out


def test_attributes_of_integers_are_not_guessed(opu_fuse, model_file, monkeypatch):
    """The library's conversion takes a third of a millisecond for each."""
    monkeypatch.setattr(ir.convenience, "convert_attribute", None)
    monkeypatch.setattr(ir.convenience, "convert_attributes", None)
    assert opu_fuse("partition", model_file, "--hw", "opu-tiny").code == 0
