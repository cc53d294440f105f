"""Whatever the command writes appears whole or not at all, and never in the place of a device."""

import contextlib
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_messages import refused

LISTING = "fetch.check hash=0x1\nfetch.end\n"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "p.asm"
    path.write_text(LISTING * 200)
    return path


@pytest.fixture
def writers(model_file, program_file, source):
    """name -> arguments of a command that writes one file, without its last: the file."""
    return {
        "compile": ("compile", model_file, "--hw", "opu-tiny", "-o"),
        "zoo": ("zoo", "export", "tiny_odd", "-o"),
        "asm": ("asm", source, "-o"),
        "fused": ("inspect", program_file, "--fused"),
        "trace": ("run", program_file, "--engine", "cycle", "--trace"),
    }


WRITERS = ("compile", "zoo", "asm", "fused", "trace")
DEVICE_NUMBER = os.makedev(1, 3)


@contextlib.contextmanager
def full_disk(largest=800):
    """No file grows beyond some bytes: what is written fails half way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_leaves_the_old_file_and_nothing_else(writer, writers, opu_fuse, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "x.out").write_text("old")
    with full_disk():
        called = opu_fuse(*writers[writer], folder / "x.out")
    refused(called, "x.out", "File too large")
    assert [p.name for p in folder.iterdir()] == ["x.out"]
    assert (folder / "x.out").read_text() == "old"


@pytest.mark.parametrize("option", ["--output", "--dump-tensors"])
def test_a_full_disk_leaves_no_array_at_all(option, opu_fuse, program_file, tmp_path):
    folder = tmp_path / "arrays"
    with full_disk(100):
        called = opu_fuse("run", program_file, option, folder)
    refused(called, "arrays", "File too large")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("writer", WRITERS)
def test_a_device_is_not_replaced(writer, writers, opu_fuse, tmp_path):
    """A socket stands for a device: everybody may make one."""
    place = tmp_path / "device"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
        refused(opu_fuse(*writers[writer], place), "device", "is a device or pipe, not a file")
        refused(opu_fuse(*writers[writer], "/dev/null"), "/dev/null", "is a device or pipe")
    assert stat.S_ISSOCK(place.stat().st_mode)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize("writer", WRITERS)
def test_folders_and_missing_folders_are_named(writer, writers, opu_fuse, tmp_path):
    refused(opu_fuse(*writers[writer], tmp_path), "is a folder, not a file")
    lost = tmp_path / "lost" / "x.out"
    refused(opu_fuse(*writers[writer], lost), "x.out", f"the folder {lost.parent} does not exist")


def test_a_link_is_followed(writers, opu_fuse, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.bin").symlink_to(tmp_path / "real" / "x.bin")
    assert opu_fuse(*writers["asm"], tmp_path / "link.bin").code == 0
    assert (tmp_path / "link.bin").is_symlink()
    assert (tmp_path / "real" / "x.bin").stat().st_size > 0


def test_a_file_keeps_its_mode(writers, opu_fuse, tmp_path):
    path = tmp_path / "x.bin"
    path.touch(0o640)
    assert opu_fuse(*writers["asm"], path).code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_long_name_is_written(writers, opu_fuse, tmp_path):
    assert opu_fuse(*writers["asm"], tmp_path / ("x" * 250)).code == 0


def test_names_of_tensors_become_names_of_files(tmp_path):
    from opu_fuse.sim.array_files import write_arrays

    names = ["a/b", "50%", "nul\0", "../up", "line\n", ""]
    write_arrays(tmp_path, {name: np.zeros(1, np.int8) for name in names})
    found = sorted(p.name for p in tmp_path.iterdir())
    assert found == [
        *("..%2Fup.npy", ".npy", "50%25.npy", "a%2Fb.npy", "line%0A.npy", "nul%00.npy"),
    ]


def test_nothing_is_read_from_what_has_no_end(opu_fuse, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, "/dev/zero"):
        refused(opu_fuse("run", path), "is no file")
        refused(opu_fuse("asm", path, "-o", tmp_path / "x"), "is no file")
        refused(opu_fuse("hw", "check", path), "no such file")


def command(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "opu_fuse", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.parametrize("kept", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["buffered", "at once"])
def test_a_full_disk_behind_the_screen_is_told(kept: dict[str, str]):
    """However much Python keeps back and tries once more when it ends."""
    plain = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "opu_fuse", "hw", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=plain | kept,
        )
    text = "error: what is printed cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, text)


def test_names_that_the_screen_cannot_show_are_shown_otherwise(source, tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = command("asm", source, "-o", tmp_path / "höhe.bin", env=environment)
    out, err = done.communicate()
    assert (done.returncode, err) == (0, "")
    assert "h\\xf6he.bin: " in out


def test_a_table_is_as_wide_as_the_terminal_and_of_letters_that_it_has(program_file):
    shown = {}
    for columns, encoding in (("60", "utf-8"), ("200", "ascii")):
        environment = {**os.environ, "COLUMNS": columns, "PYTHONIOENCODING": encoding}
        out, _ = command("inspect", program_file, env=environment).communicate()
        shown[encoding] = [line for line in out.splitlines() if line[0] in "┏│└|+"]
    assert max(map(len, shown["utf-8"])) <= 60
    assert all(line.isascii() for line in shown["ascii"])
    assert len(shown["ascii"][0]) > 100


@pytest.mark.parametrize("seconds", [0.15, 0.3, 0.6, 1.2])
def test_ctrl_c_ends_with_130_and_without_a_traceback(seconds, tmp_path, model_file):
    """While importing, too. What has not begun to be ours (Python's own start) is not looked at."""
    path = tmp_path / "x.opu"
    ready = tmp_path / "ready"
    start = f"open({str(ready)!r}, 'w'); from opu_fuse.__main__ import main; main()"
    arguments = ["compile", str(model_file), "--hw", "opu-tiny", "-o", str(path)]
    process = subprocess.Popen(
        [sys.executable, "-c", start, *arguments], stderr=subprocess.PIPE, text=True
    )
    while not ready.exists():
        time.sleep(0.01)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert "Traceback" not in err
    assert process.returncode == 130 or (process.returncode == 0 and path.exists())
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
