"""libopu reads program files: the bytes of Python, and an error for every damaged file."""

import ctypes
import json
import subprocess
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from opu_fuse import zoo
from opu_fuse.bundle import file as program_file
from opu_fuse.bundle.file import load, save
from opu_fuse.bundle.memory_image import initial_image
from opu_fuse.bundle.runtime_member import MAGIC, VERSION, runtime_member
from opu_fuse.errors import ProgramError
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.options import Options
from opu_fuse.pipeline import compile_model
from opu_fuse.sim import engine
from opu_fuse.sim.ports import noise
from tests.bundle.sample import sample_bundle
from tests.runtime.built import SANITIZED, build
from tests.runtime.libopu import File, Session, Status

RUN = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 5)
LATER = np.array([MAGIC, VERSION + 1, 20, 0, 0], "<u4").tobytes()
NETWORKS = ("tiny_residual", "tiny_odd", "tiny_tiles")
DAMAGE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "opu.h"
int main(int argc, char **argv) {
  static unsigned char whole[1 << 22];
  FILE *in = fopen(argv[argc - 1], "rb");
  size_t size = fread(whole, 1, sizeof whole, in), cut, refused = 0, n;
  struct opu_file file;
  for (cut = 0; cut < size; cut += 1 + size / 600) {
    unsigned char *copy = (unsigned char *)malloc(cut ? cut : 1);
    memcpy(copy, whole, cut);
    if (opu_open(&file, copy, cut) == OPU_OK) return 1;
    free(copy);
  }
  srand(3);
  for (n = 0; n < 600; n++) {
    unsigned char *copy = (unsigned char *)malloc(size);
    memcpy(copy, whole, size);
    copy[(size_t)rand() % size] ^= (unsigned char)(1 << rand() % 8);
    refused += opu_open(&file, copy, size) != OPU_OK;
    free(copy);
  }
  printf("%u\\n", (unsigned)refused);
  return opu_open(&file, whole, size) != OPU_OK;
}
"""


def saved(bundle, tmp_path):
    path = tmp_path / "x.opu"
    save(bundle, path)
    return path


def compiled(name, **options):
    return compile_model(zoo.build(name), load_hw("opu-tiny"), Options(**options)).bundle


@pytest.fixture(scope="module")
def residual(tmp_path_factory):
    bundle = compiled("tiny_residual")
    return bundle, saved(bundle, tmp_path_factory.mktemp("residual")).read_bytes()


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", NETWORKS)
def test_whole_networks_give_the_outputs_of_python(name, batch, tmp_path):
    bundle = compiled(name, batch=batch)
    inputs = {k: np.concatenate([v] * 3)[: batch + 1] for k, v in noise(bundle, 3).items()}
    expected = engine.run(bundle, load_hw("opu-tiny"), inputs).outputs
    session = Session(File(saved(bundle, tmp_path).read_bytes()))
    assert session.status == Status.OK
    status, got = session.run([inputs[p.name] for p in bundle.inputs], images=batch + 1)
    assert status == Status.OK
    assert {k: v.tobytes() for k, v in got.items()} == {k: v.tobytes() for k, v in expected.items()}


def compiled_for_micro(tmp_path):
    hw = load_hw("opu-micro")
    return saved(compile_model(zoo.build("tiny_residual"), hw).bundle, tmp_path).read_bytes()


def test_ports_are_described(residual):
    bundle, data = residual
    file = File(data)
    for kind, ports in (("input", bundle.inputs), ("output", bundle.outputs)):
        for number, port in enumerate(ports):
            found = file.port(kind, number)
            assert found.name.decode() == port.name
            assert tuple(found.shape[: found.rank]) == port.shape
            assert found.bytes == 4 * np.prod(port.shape)


def test_halves_round_to_even_and_large_numbers_saturate(residual):
    bundle, data = residual
    (port,) = bundle.inputs
    steps = np.concatenate([np.arange(-300, 300) + 0.5, [1e30, -1e30, np.inf, -np.inf]])
    image = (np.resize(steps, port.shape) * np.float32(port.scale)).astype(np.float32)
    expected = engine.run(bundle, load_hw("opu-tiny"), {port.name: image}).outputs
    _, got = Session(File(data)).run([image])
    assert all(np.array_equal(got[name], expected[name]) for name in got)


def test_what_the_caller_gives_wrong_has_a_status_of_its_own(residual, tmp_path):
    bundle, data = residual
    image = noise(bundle, 3)[bundle.inputs[0].name]
    session = Session(File(data))
    assert session.run([image])[0] is Status.OK
    assert session.run([image], images=2)[0] is Status.SMALL_MEMORY
    assert session.run([np.full_like(image, np.nan)])[0] is Status.NAN
    assert session.run([image])[0] is Status.OK
    assert session.init(session.window.size - 1, 0) == Status.SMALL_MEMORY
    other = Session(File(compiled_for_micro(tmp_path)))
    session.backend = other.backend
    assert session.init(session.window.size, 0) == Status.OTHER_SPEC


def test_a_window_that_the_caller_fills_gives_the_same_outputs(residual):
    bundle, data = residual
    image = noise(bundle, 3)[bundle.inputs[0].name]
    session = Session(File(data))
    _, expected = session.run([image])
    session.window[:] = 0
    assert session.init(session.window.size, 0, "opu_session_attach") == Status.OK
    assert session.run([image])[0] is Status.BAD_PROGRAM, "no words"
    session.window[:] = initial_image(bundle)
    status, got = session.run([image])
    assert status is Status.OK
    assert all(np.array_equal(got[name], expected[name]) for name in expected)


def test_a_file_without_the_member_loads_in_python_and_says_so_in_c(tmp_path, monkeypatch):
    members = program_file._members

    def without(*args):
        return {k: v for k, v in members(*args).items() if k != "runtime.bin"}

    monkeypatch.setattr(program_file, "_members", without)
    path = saved(sample_bundle(), tmp_path)
    assert load(path).model == "sample"
    assert File(path.read_bytes()).status == Status.NO_SECTION


def test_a_member_that_differs_from_the_manifest_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(program_file, "runtime_member", lambda *_: b"OPUR")
    path = saved(sample_bundle(), tmp_path)
    with pytest.raises(ProgramError, match=r"runtime\.bin is cut off"):
        load(path)
    assert File(path.read_bytes()).status == Status.DAMAGED


def test_damaged_files_are_refused_without_access_outside_them(sanitized, tmp_path):
    path = saved(sample_bundle(), tmp_path)
    source, binary = tmp_path / "damage.c", tmp_path / "damage"
    source.write_text(DAMAGE)
    build(binary, source, sanitized, options=SANITIZED)
    done = subprocess.run([binary, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 400  # the other bits are dates and attributes of the archive


def rewritten(path, change):
    """The file with another manifest."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted(members):
            archive.writestr(name, members[name])
    return path


@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_scales_that_no_float32_holds_are_damage(scale, tmp_path):
    path = saved(sample_bundle(), tmp_path)
    rewritten(path, lambda manifest: manifest["inputs"][0].update(scale=scale))
    with pytest.raises(ProgramError, match=r"runtime\.bin is not what manifest\.json says"):
        load(path)


def test_a_member_of_another_version_is_left_to_libopu(tmp_path, monkeypatch):
    monkeypatch.setattr(program_file, "runtime_member", lambda *_: LATER)
    path = saved(sample_bundle(), tmp_path)
    assert load(path).model == "sample"
    assert File(path.read_bytes()).status == Status.OTHER_VERSION


def test_a_window_of_four_gigabytes_is_described(residual):
    bundle, _ = residual
    large = replace(bundle, window_bytes=1 << 32)
    section = runtime_member(large, load_hw("opu-tiny"))
    file = File(section, bundle.constants.tobytes(), bundle.words.tobytes())
    assert file.status == Status.OK
    assert file.sizes.window_bytes == 1 << 32


def test_a_second_caller_gets_busy(residual):
    bundle, data = residual
    image = noise(bundle, 3)[bundle.inputs[0].name]
    session, inner = Session(File(data)), []
    again = RUN(lambda *_: inner.append(session.run([image])[0]) or Status.BUS)
    session.backend.run = ctypes.cast(again, ctypes.c_void_p)
    assert session.init(session.window.size, 0) == Status.OK
    assert session.run([image])[0] is Status.BUS  # what the back end answers
    assert inner == [Status.BUSY]
