"""libopu reads program files: the bytes of Python, and an error for every damaged file."""

import ctypes
import subprocess

import numpy as np
import pytest

from opu_fuse import zoo
from opu_fuse.bundle import file as program_file
from opu_fuse.bundle.file import load, save
from opu_fuse.bundle.memory_image import initial_image, write_tensor
from opu_fuse.errors import ProgramError
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.options import Options
from opu_fuse.pipeline import compile_model
from opu_fuse.resources import runtime_dir
from opu_fuse.sim import engine
from opu_fuse.sim.native.library import Words, library
from opu_fuse.sim.native.machine import NativeMachine
from opu_fuse.sim.ports import noise, to_value
from tests.bundle.sample import sample_bundle

OK, DAMAGED, OLD, SMALL, HOST, NAN = 0, 2, 4, 5, 6, 7
NETWORKS = ("tiny_residual", "tiny_odd", "tiny_tiles")
ROOM = 4096
"""Bytes for a `struct opu_file`, which is smaller."""
DAMAGE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "opu_file.h"
int main(int argc, char **argv) {
  static unsigned char whole[1 << 22];
  FILE *in = fopen(argv[argc - 1], "rb");
  size_t size = fread(whole, 1, sizeof whole, in), cut, refused = 0, n;
  struct opu_file file;
  for (cut = 0; cut < size; cut += 1 + size / 600) {
    unsigned char *copy = (unsigned char *)malloc(cut ? cut : 1);
    memcpy(copy, whole, cut);
    if (opu_file_open(&file, copy, cut) == OPU_FILE_OK) return 1;
    free(copy);
  }
  srand(3);
  for (n = 0; n < 600; n++) {
    unsigned char *copy = (unsigned char *)malloc(size);
    memcpy(copy, whole, size);
    copy[(size_t)rand() % size] ^= (unsigned char)(1 << rand() % 8);
    refused += opu_file_open(&file, copy, size) != OPU_FILE_OK;
    free(copy);
  }
  printf("%u\\n", (unsigned)refused);
  return opu_file_open(&file, whole, size) != OPU_FILE_OK;
}
"""


def saved(bundle, tmp_path):
    path = tmp_path / "x.opu"
    save(bundle, path)
    return path


def opened(data):
    file = ctypes.create_string_buffer(ROOM)
    return file, library().opu_file_open(file, data, ctypes.c_size_t(len(data)))


def test_inputs_and_outputs_have_the_bytes_of_python(tmp_path):
    bundle = sample_bundle()
    data = saved(bundle, tmp_path).read_bytes()
    file, status = opened(data)
    assert status == OK
    image = initial_image(bundle)
    window = np.full(image.size, 0xEE, np.uint8)
    area = Words(data=window.ctypes.data, size=window.size)
    call = library()
    assert call.opu_file_load(file, ctypes.byref(area)) == OK
    assert np.array_equal(window, image)
    port, tensor = bundle.inputs[0], bundle.tensors[0]
    halves = np.arange(-300, 300)[: np.prod(port.shape)] + 0.5
    for values in (halves * port.scale, noise(bundle)[port.name] * 20):
        array = np.ascontiguousarray(np.resize(values, port.shape), np.float32)
        write_tensor(image, tensor, to_value(port, array, inside_int8=True))
        size = ctypes.c_size_t(array.nbytes)
        at = ctypes.c_void_p(array.ctypes.data)
        assert call.opu_file_input(file, ctypes.byref(area), 0, at, size) == OK
        assert np.array_equal(window, image)
    small = ctypes.c_size_t(array.nbytes - 1)
    assert call.opu_file_input(file, ctypes.byref(area), 0, at, small) == SMALL
    array[0, 0, 0, 0] = np.nan
    assert call.opu_file_input(file, ctypes.byref(area), 0, at, size) == NAN


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", NETWORKS)
def test_whole_networks_give_the_outputs_of_python(name, batch, tmp_path):
    hw = load_hw("opu-tiny")
    bundle = compile_model(zoo.build(name), hw, Options(batch=batch)).bundle
    inputs = noise(bundle)
    expected = engine.run(bundle, hw, inputs).outputs
    data = saved(bundle, tmp_path).read_bytes()
    file, status = opened(data)
    assert status == OK
    call = library()
    store = np.zeros(bundle.window_bytes + 64, np.uint8)
    window = store[-store.ctypes.data % 64 :][: bundle.window_bytes]
    area = ctypes.byref(Words(data=window.ctypes.data, size=window.size))
    assert call.opu_file_load(file, area) == OK
    for number, port in enumerate(bundle.inputs):
        array = np.ascontiguousarray(inputs[port.name])
        size = ctypes.c_size_t(array.nbytes)
        assert call.opu_file_input_bytes(file, number) == array.nbytes
        assert call.opu_file_input(file, area, number, address(array), size) == OK
    machine = NativeMachine(hw, window)
    run = ctypes.cast(call.opu_backend_native, ctypes.c_void_p)
    backend = Words(data=run.value, size=machine._engine.value)
    assert call.opu_file_run(file, area, ctypes.byref(backend), None) == OK
    for number, port in enumerate(bundle.outputs):
        want = expected[port.name]
        got = np.zeros_like(want)
        size = ctypes.c_size_t(got.nbytes)
        assert call.opu_file_output(file, area, number, address(got), size) == OK
        assert got.tobytes() == want.tobytes()


def address(array):
    return ctypes.c_void_p(array.ctypes.data)


def test_a_file_without_the_member_loads_in_python_and_says_so_in_c(tmp_path, monkeypatch):
    members = program_file._members
    drop = lambda b, h: {k: v for k, v in members(b, h).items() if k != "runtime.bin"}  # noqa: E731
    monkeypatch.setattr(program_file, "_members", drop)
    path = saved(sample_bundle(), tmp_path)
    assert load(path).model == "sample"
    assert opened(path.read_bytes())[1] == OLD


def test_a_member_that_differs_from_the_manifest_is_refused(tmp_path, monkeypatch):
    members = program_file._members
    change = lambda b, h: members(b, h) | {"runtime.bin": b"OPUR"}  # noqa: E731
    monkeypatch.setattr(program_file, "_members", change)
    path = saved(sample_bundle(), tmp_path)
    with pytest.raises(ProgramError, match=r"runtime\.bin is not what"):
        load(path)
    assert opened(path.read_bytes())[1] == DAMAGED


def test_damaged_files_are_refused_without_access_outside_them(tmp_path):
    path = saved(sample_bundle(), tmp_path)
    source, binary = tmp_path / "damage.c", tmp_path / "damage"
    source.write_text(DAMAGE)
    folder = runtime_dir()
    sources = [str(p) for p in (folder / "src").glob("*.c")]
    options = ["-std=c99", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command = ["cc", *options, f"-I{folder / 'include'}", str(source), *sources, "-o", str(binary)]
    subprocess.run(command, check=True)
    done = subprocess.run([binary, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 400  # the other bits are dates and attributes of the archive
