"""Damage behind the checksums: nothing outside the caller's memory is touched."""

import subprocess
import zipfile

import pytest

from opu_fuse import zoo
from opu_fuse.bundle.file import save
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.options import Options
from opu_fuse.pipeline import compile_model
from tests.runtime.built import SANITIZED, build
from tests.runtime.test_host_segments import CLOSE, joined_model, lookup_model, model_of, top_model

MODELS = {
    "joined": lambda: (joined_model(), {"batch": 2}),
    "softmax": lambda: (model_of(*CLOSE["softmax"]), {"keep_float": ("only",)}),
    "top": lambda: (top_model(1, largest=1), {}),
    "looked up": lambda: (lookup_model("Gather<axis = 1>"), {}),
    "machine": lambda: (zoo.build("tiny_residual", image=8), {}),
}


@pytest.fixture(scope="module")
def fuzz(sanitized, tmp_path_factory):
    target = tmp_path_factory.mktemp("fuzz") / "fuzz"
    return build(target, "tests/fuzz.c", sanitized, options=("-std=c11", *SANITIZED))


def _run(fuzz, name, seed, count, folder):
    model, options = MODELS[name]()
    bundle = compile_model(model, load_hw("opu-tiny"), Options(host="c", **options)).bundle
    save(bundle, folder / "x.opu")
    members = ("runtime.bin", "dram.bin", "program.bin")
    with zipfile.ZipFile(folder / "x.opu") as archive:
        archive.extractall(folder, members)
    words = [fuzz, seed, count, *(folder / member for member in members)]
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [int(x) for x in done.stdout.split()]


@pytest.mark.parametrize("name", MODELS)
def test_changed_numbers_reach_nothing_outside(name, fuzz, tmp_path):
    refused, _, ran = _run(fuzz, name, 1, 300, tmp_path)
    assert refused > 10
    assert ran > 10


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", MODELS)
def test_many_changed_numbers_reach_nothing_outside(name, seed, fuzz, tmp_path):
    assert sum(_run(fuzz, name, 100 + seed, 20000, tmp_path)) == 20000
