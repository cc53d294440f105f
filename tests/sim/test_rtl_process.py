"""What the user reads when RTL simulation cannot start or stops."""

from dataclasses import replace

import numpy as np
import pytest

import rtl_sim.run
from opu_fuse.errors import RunError
from opu_fuse.hw.isa.register_map import ErrorCode
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim.rtl.engine import RtlRunner
from opu_fuse.sim.rtl.machine_run import MachineStop, stop_error
from opu_fuse.sim.rtl.process import RtlMachine
from opu_fuse.sim.runner import RtlOptions
from tests.bundle.sample import HW, sample_bundle


def start(**options):
    return RtlMachine(load_hw("opu-tiny"), np.zeros(4096, np.uint8), **options)


@pytest.mark.parametrize(
    ("present", "missing"), [((), "g++"), (("g++",), "make"), (("g++", "make"), "perl")]
)
def test_a_missing_tool_is_named_with_what_to_install(monkeypatch, tmp_path, present, missing):
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in present:
        (folder / tool).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(RunError) as caught:
        start()
    message = str(caught.value)
    assert f"{missing} is not on the PATH" in message
    assert "apt-get install" in message


def test_a_failed_start_leaves_no_files(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(RunError):
        start()
    assert list(tmp_path.iterdir()) == []


def test_waves_of_unknown_format_are_refused_before_anything_is_built(tmp_path):
    with pytest.raises(RunError, match=r"waves of type '\.txt'; use \.fst or \.vcd"):
        start(waves=tmp_path / "waves.txt")


def test_waves_into_a_missing_folder_are_refused_before_anything_is_built(tmp_path):
    with pytest.raises(RunError, match="the folder for the waves does not exist"):
        start(waves=tmp_path / "absent" / "waves.fst")


@pytest.mark.parametrize(("cycles", "fast"), [(2_999_999, False), (3_000_000, True)])
def test_the_simulator_of_a_long_program_is_built_for_speed(monkeypatch, cycles, fast):
    asked = {}
    monkeypatch.setattr(
        "opu_fuse.sim.rtl.engine.RtlMachine", lambda *_, **options: asked.update(options)
    )
    bundle = sample_bundle()
    groups = (replace(group, cycles=0) for group in bundle.groups[1:])
    long = replace(bundle, groups=(replace(bundle.groups[0], cycles=cycles), *groups))
    RtlRunner(long, HW, RtlOptions())
    assert asked["fast"] is fast


def test_defines_reach_the_rtl(monkeypatch):
    """From the options of a run to the simulator that its child builds."""
    built = []

    def build(design):
        built.append(design.defines)
        raise RunError("enough", "seen", "go on")

    def child(arguments, *_):
        monkeypatch.setattr("sys.argv", ["run", *arguments])
        assert rtl_sim.run.main() == RunError.exit_code
        raise RunError("enough", "seen", "go on")

    monkeypatch.setattr("rtl_sim.run.executable", build)
    monkeypatch.setattr("opu_fuse.sim.rtl.process._start", child)
    for defines in ((), ("OPU_EXACT_WIDTHS", "OPU_SHORT_SLICES")):
        with pytest.raises(RunError, match="enough"):
            RtlRunner(sample_bundle(), HW, RtlOptions(defines=defines))
        assert built.pop() == defines


def test_a_stopped_machine_names_reason_place_and_instruction():
    stop = MachineStop(code=ErrorCode.WINDOW, engine=Engine.STORE, pc=17)
    message = str(stop_error(stop, "net, segment 0", "store.store dram=0x40"))
    assert "the machine stopped with window (an access outside the memory window)" in message
    assert "engine store, program word 17: store.store dram=0x40" in message


def test_every_source_file_is_found_by_its_module_name():
    from opu_fuse.hw.rtlgen.rtl_files import source_files
    from opu_fuse.hw.rtlgen.sv_package import sv_files

    names = [path.stem for path in source_files(sv_files(load_hw("opu-tiny")), "opu_system")]
    assert {"opu_top", "opu_compute", "opu_post", "opu_load", "opu_image"} <= set(names)
    assert names.index("opu_compute_pkg") < names.index("opu_compute")
    assert len(names) == len(set(names))
