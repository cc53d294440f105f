"""`opu-fuse hw sim`: what it refuses before a simulator is built, and how it ends."""

import signal
import subprocess
import sys

import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from tests.devices.served import served_rtl


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("opu-tinny", "socket"), 1, "opu-tinny"),
        (("opu-tiny", "no folder/socket"), 1, "the socket cannot be opened (No such file"),
        (("opu-tiny", "mine"), 1, "mine: exists and is no socket; choose another path"),
        (
            ("opu-tiny", "socket", "--memory", "ddr3-1600x16", "--bytes-per-cycle", "2"),
            *(2, "ddr3-1600x16 has a bandwidth of its own"),
        ),
        (("opu-tiny", "socket", "--memory", "ddr3-1600x16", "--size", "1024"), 1, "has 536870912"),
        (("opu-tiny", "socket", "--waves", "w.txt"), 1, "waves of type '.txt'"),
        (("opu-tiny", "socket", "--size", "0"), 2, "--size"),
        (("paper.yaml", "socket"), 1, "has no RTL (`build: false`)"),
    ],
)
def test_what_cannot_be_simulated_is_refused(opu_fuse, tmp_path, monkeypatch, words, code, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("")
    spec = load_hw("opu-tiny").to_yaml()
    (tmp_path / "paper.yaml").write_text(f"build: false\n{spec.replace('build: true', '')}")
    called = opu_fuse("hw", "sim", *words)
    assert called.code == code
    assert text in " ".join(called.err.split())
    assert not (tmp_path / "socket").exists()


def test_a_missing_verilator_is_named(opu_fuse, tmp_path, monkeypatch):
    """In the process that builds: its PATH has no compiler."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("OPU_FUSE_CACHE", str(tmp_path / "cache"))
    called = opu_fuse("hw", "sim", "opu-tiny", tmp_path / "socket")
    assert called.code == 1
    assert "g++ is not on the PATH; install it" in called.err
    assert not (tmp_path / "socket").exists()


@pytest.mark.rtl
def test_ctrl_c_ends_it_and_removes_its_socket():
    with served_rtl("opu-tiny") as (path, child):
        second = [sys.executable, "-m", "opu_fuse", "hw", "sim", "opu-tiny", str(path)]
        done = subprocess.run(second, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "another simulation listens there; choose another path" in done.stderr
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 130
        assert not path.exists()


@pytest.mark.rtl
@pytest.mark.nightly
def test_waves_are_complete_after_its_end(tmp_path):
    """A simulator of its own."""
    waves = tmp_path / "w.vcd"
    with served_rtl("opu-tiny", "--waves", str(waves)) as (_, child):
        child.send_signal(signal.SIGINT)
        child.wait(30)
    assert waves.read_text().startswith("$version")
