"""`opu-fuse hw rtl`: what others need to build a machine into their design is there, in order."""

import re

import pytest
import yaml

from opu_fuse.errors import RunError, UserError
from opu_fuse.hw.rtlgen.plain_verilog import plain_verilog
from opu_fuse.hw.rtlgen.rtl_files import PROBE, TOP, rtl_files
from opu_fuse.hw.spec.load_spec import load_hw, load_hw_text, spec_names

BUILT = [name for name in spec_names() if load_hw(name).build]


@pytest.mark.parametrize("name", BUILT)
def test_every_module_package_and_header_that_is_named_is_there(name):
    files = rtl_files(load_hw(name))
    lines = files["opu.f"].splitlines()
    include, *units = [line for line in lines if not line.startswith("//")]
    assert include == "+incdir+."
    defined: list[str] = []
    for unit in units:
        text = re.sub(r"//.*", "", files[unit])
        imported = set(re.findall(r"\b(opu_\w+)::", text)) - {unit.removesuffix(".sv")}
        assert imported <= set(defined), f"{unit} comes before a package that it imports"
        assert set(re.findall(r'`include "(\S+)"', text)) <= files.keys()
        defined += re.findall(r"^(?:module|package) (\w+)", text, re.MULTILINE)
    everything = "".join(files[unit] for unit in (*units, "opu_units.svh"))
    used = set(re.findall(r"^\s*(opu_\w+) (?:#\(|u_)", everything, re.MULTILINE))
    assert {"opu_array", "opu_round"} < used <= set(defined)
    assert TOP in defined
    assert PROBE not in defined  # nothing for synthesis


def test_the_core_names_each_file_once_headers_apart():
    files = rtl_files(load_hw("opu-tiny"))
    first, _, text = files["opu.core"].partition("\n")
    core = yaml.safe_load(text)
    assert first == "CAPI=2:"
    names = [
        next(iter(file)) if isinstance(file, dict) else file
        for fileset in core["filesets"].values()
        for file in fileset["files"]
    ]
    assert len(names) == len(set(names))
    assert set(names) == {n for n in files if n.endswith((".sv", ".svh"))}
    assert core["targets"]["default"] == {"filesets": ["rtl"], "toplevel": TOP}


def test_core_and_list_name_the_macros_that_a_user_may_define():
    files = rtl_files(load_hw("opu-tiny"))
    text = "".join(text for name, text in files.items() if name.endswith((".sv", ".svh")))
    asked = set(re.findall(r"`(?:ifdef|ifndef|elsif) (\w+)", text))
    ours = set(re.findall(r"`define (\w+)", text))  # guards, and what follows from the others
    core = yaml.safe_load(files["opu.core"].partition("\n")[2])
    listed = set(re.findall(r"^// define (\w+): ", files["opu.f"], re.MULTILINE))
    assert asked - ours == core["parameters"].keys() == listed == {"SYNTHESIS", "OPU_SHORT_SLICES"}


def test_a_prefix_renames_modules_packages_and_their_files_and_no_others():
    plain, renamed = (rtl_files(load_hw("opu-tiny"), prefix) for prefix in ("", "left_"))
    ours = {name for name in plain if name.endswith((".sv", ".svh"))}
    assert set(renamed) == {f"left_{name}" if name in ours else name for name in plain}
    for name in ours:
        text = renamed[f"left_{name}"]
        assert not re.search(r"\bopu_(?!fuse)", text)
        assert text.replace("left_opu_", "opu_") == plain[name]
    assert "toplevel: left_opu_top" in renamed["opu.core"]
    assert "left_opu_top.sv" in renamed["opu.f"].split()
    assert renamed["opu_driver.h"] == plain["opu_driver.h"]


def test_a_prefix_that_is_no_start_of_a_name_is_refused():
    with pytest.raises(UserError, match="--prefix: '9-' is no start of a SystemVerilog name; use"):
        rtl_files(load_hw("opu-tiny"), "9-")


def test_plain_verilog_names_the_extra_that_it_needs(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(RunError, match="extra `synth`"):
        plain_verilog(rtl_files(load_hw("opu-tiny")), TOP)


def test_the_spec_that_comes_along_is_the_machine():
    spec = load_hw("opu-classic")
    assert load_hw_text(rtl_files(spec)["opu-classic.yaml"], "it").spec_hash == spec.spec_hash


def test_a_machine_for_partitioning_only_has_no_rtl():
    text = load_hw("opu-tiny").to_yaml().replace("build: true", "build: false")
    with pytest.raises(UserError, match=r"it has no RTL; remove `build: false`"):
        rtl_files(load_hw_text(text, "paper"))
