"""`opu-run`: a program file run from C, under sanitizers and on other processors."""

import os
import shutil
import subprocess

import numpy as np
import pytest

from opu_fuse.bundle.file import save
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.options import Options
from opu_fuse.pipeline import compile_model
from opu_fuse.sim import engine
from opu_fuse.sim.ports import noise
from tests.runtime.built import COMMAND, build
from tests.runtime.test_host_segments import CLOSE, joined_model, model_of
from tests.tiers import by_night

CROSS = {"aarch64": "aarch64-linux-gnu-gcc", "riscv64": "riscv64-linux-gnu-gcc"}


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    """A network with a concatenation on the host, two images at a time."""
    return _case(joined_model(), tmp_path_factory.mktemp("joined"), batch=2)


def _case(model, folder, **options):
    """(program, inputs, expected outputs): three images."""
    spec = load_hw("opu-tiny")
    bundle = compile_model(model, spec, Options(host="c", **options)).bundle
    save(bundle, folder / "x.opu")
    inputs = {k: np.concatenate([v] * 3)[:3] for k, v in noise(bundle).items()}
    expected = engine.run(bundle, spec, inputs, engine="native").outputs
    files = []
    for port in bundle.inputs:
        files.append(folder / f"in{len(files)}")
        inputs[port.name].tofile(files[-1])
    outputs = [(folder / f"out{n}", expected[p.name]) for n, p in enumerate(bundle.outputs)]
    return folder / "x.opu", files, outputs


def _run(command, *words, env=None):
    words = [*(command if isinstance(command, list) else [command]), *words]
    environment = {**os.environ, **(env or {})}
    return subprocess.run(
        [str(w) for w in words], capture_output=True, text=True, check=False, env=environment
    )


def _same(command, case):
    program, files, outputs = case
    done = _run(command, program, *files, *(path for path, _ in outputs))
    assert done.returncode == 0, done.stderr
    return all(np.array_equal(np.fromfile(p, e.dtype), e.ravel()) for p, e in outputs)


def test_a_network_with_host_segments_under_sanitizers(command, joined):
    assert _same(command, joined)


@pytest.mark.parametrize("processor", by_night(CROSS, ["riscv64"]))
def test_other_processors_compute_the_same_bits(processor, command, joined, tmp_path):
    compiler, emulator = CROSS[processor], f"qemu-{processor}"
    if not (shutil.which(compiler) and shutil.which(emulator)):
        if os.environ.get("CI"):
            pytest.fail(f"{compiler} and {emulator} are missing (.ci/run installs them)")
        pytest.skip(f"needs {compiler} and {emulator} (apt-get install qemu-user gcc-...)")
    cross = build(tmp_path / "opu-run", *COMMAND, compiler=compiler, options=("-O1", "-static"))
    assert _same([emulator, cross], joined)
    softmax = _case(model_of(*CLOSE["softmax"]), tmp_path, keep_float=("only",))
    results = []
    for each in (command, [emulator, cross]):
        _same(each, softmax)
        results.append(softmax[2][0][0].read_bytes())
    assert results[0] == results[1]


def test_it_lists_ports_and_says_what_is_wrong(command, joined, tmp_path):
    program, files, outputs = joined
    assert "input x: type 1 [1, 4, 6, 5]" in _run(command, program).stdout
    cut = tmp_path / "cut.opu"
    cut.write_bytes(program.read_bytes()[:-100])
    odd = tmp_path / "odd"
    odd.write_bytes(files[0].read_bytes()[:-1])
    for words, text in (
        ((cut,), "cut.opu: end of the ZIP: the file is damaged"),
        ((program, odd, outputs[0][0]), "holds no whole images"),
        ((program, files[0]), "one file for each input"),
        ((tmp_path / "none",), "cannot be read"),
        (("-d", "uio:9", program, files[0], outputs[0][0]), "/dev/uio9: "),
        (("-d", "usb", program, files[0], outputs[0][0]), "is no name of a device"),
        (("-d", "uio:0x", program, files[0], outputs[0][0]), "is no name of a device"),
        (("-d", "uio:0,", program, files[0], outputs[0][0]), "is no name of a device"),
        (("-x", "1", program), "there is no such option"),
        (("-t", "0.5", program), "-t: is no whole number of seconds"),
        (("-t", "99999999", program), "-t: is no whole number of seconds"),
    ):
        done = _run(command, *words)
        assert done.returncode == 1
        assert text in done.stderr
        assert "Sanitizer" not in done.stderr
