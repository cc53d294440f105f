"""docs/program-file.md against the program file: every key is explained, the example is true."""

import re
from dataclasses import fields, is_dataclass
from typing import get_args, get_type_hints

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from opu_fuse.bundle import program
from opu_fuse.bundle.manifest import Manifest, Member
from opu_fuse.hw.dram_layout import Layout
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.io_layout import AxisPermutation, ByteTable
from opu_fuse.pipeline import compile_model
from opu_fuse.resources import hw_specs_dir
from opu_fuse.sim.engine import FunctionalRunner, run_on

PAGE = (hw_specs_dir().parent / "docs" / "program-file.md").read_text(encoding="utf-8")
SECTIONS = {
    "manifest.json": Manifest,
    "Members": Member,
    "Ports": program.Port,
    "Turns": AxisPermutation,
    "Tables of bytes": ByteTable,
    "Tensors": program.Tensor,
    "Layouts": Layout,
    "Groups": program.GroupInfo,
    "Operators": program.Op,
    "Stages": program.StageTensor,
    "Machine segments": program.MachineSegment,
    "Host segments": program.HostSegment,
    "Host pieces": program.HostPiece,
    "From an operator to its instructions": program.InstructionRange,
}


def objects(kind, found):
    """A type and all dataclasses inside it."""
    if is_dataclass(kind) and kind not in found:
        found.append(kind)
        for inner in get_type_hints(kind).values():
            objects(inner, found)
    for inner in get_args(kind):
        objects(inner, found)
    return found


def test_every_object_of_the_manifest_has_a_section():
    assert set(objects(Manifest, [])) == set(SECTIONS.values())


@pytest.mark.parametrize("heading", SECTIONS)
def test_a_section_explains_every_key_of_its_object(heading):
    section = re.split(rf"^##+ {heading}$", PAGE, flags=re.MULTILINE)[1]
    section = re.split(r"^##+ ", section, flags=re.MULTILINE)[0]
    table = section.split("| key ")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (`[^|]*)\|", table, flags=re.MULTILINE)
    named = [key for row in rows for key in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(field.name for field in fields(SECTIONS[heading]))


MACHINE = """
extends: opu-tiny
name: joining
dataflow:
  operators:
    concat: [mem_rd]
"""
MODEL = """<ir_version: 10, opset_import: ["" : 17]>
g (float[1,4,3,5] x) => (float[1,19,3,5] y) {
    c0 = Conv <kernel_shape = [1, 1]> (x, w0)
    c1 = Conv <kernel_shape = [1, 1]> (x, w1)
    c2 = Conv <kernel_shape = [1, 1]> (x, w2)
    y = Concat <axis = 1> (c0, c1, c2)
}"""


def test_the_example_of_a_layout_is_where_the_page_says(tmp_path, rng):
    (tmp_path / "joining.yaml").write_text(MACHINE, encoding="utf-8")
    hw = load_hw(str(tmp_path / "joining.yaml"))
    model = onnx.parser.parse_model(MODEL)
    for name, channels in (("w0", 3), ("w1", 8), ("w2", 8)):
        weights = rng.standard_normal((channels, 4, 1, 1)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    bundle = compile_model(model, hw).bundle
    tensors = {t.name: t for t in bundle.tensors}
    y, x = tensors["y"], tensors["x"]
    for text in (f'"offset": {y.offset}, "home": "y"', str([[*p] for p in y.layout.pieces])):
        assert text in PAGE
    assert [(t.offset, t.home) for t in (x, tensors["c1"])] == [(768, "x"), (504, "y")]
    sample = {"x": rng.standard_normal((1, 4, 3, 5)).astype(np.float32)}
    runner = FunctionalRunner(bundle, hw)
    run_on(runner, bundle, sample, engine="functional")
    (expected,) = ort.InferenceSession(bundle.qdq).run(None, sample)
    inside = np.rint(np.asarray(expected)[0] / y.scale)
    memory = runner.window.view(np.int8)
    assert (memory[618], memory[736]) == (inside[5, 2, 4], inside[11, 2, 4])
    assert memory[803] == np.clip(np.rint(sample["x"][0, 3, 1, 2] / x.scale), -128, 127)
    lanes = [0, 1, 2, *range(8, 24)]
    assert all(
        memory[384 + (lanes[c] // 8 * 3 + row) * 40 + col * 8 + lanes[c] % 8] == value
        for (c, row, col), value in np.ndenumerate(inside)
    )
