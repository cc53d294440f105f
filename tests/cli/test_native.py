"""`run --engine native`: the functional engine in C."""

import json

import numpy as np

from opu_fuse.sim.native import library


def test_a_run_is_compared_with_the_functional_engine(opu_fuse, program_file):
    called = opu_fuse("run", program_file, "--engine", "native", "--check")
    assert called.code == 0
    assert "check against functional engine: 0 of" in called.out


def test_outputs_and_counters_are_those_of_the_functional_engine(opu_fuse, program_file, tmp_path):
    trees = {}
    for engine in ("functional", "native"):
        called = opu_fuse(
            *("run", program_file, "--engine", engine, "--json", "--output", tmp_path / engine)
        )
        trees[engine] = json.loads(called.out)
    for tree in trees.values():
        del tree["engine"]
    assert trees["native"] == trees["functional"]
    for file in (tmp_path / "functional").iterdir():
        assert np.array_equal(np.load(file), np.load(tmp_path / "native" / file.name))


def test_options_of_other_engines_are_refused(opu_fuse, program_file):
    for option in (("--shuffle", "1"), ("--latency", "3"), ("--waves", "x.fst")):
        called = opu_fuse("run", program_file, "--engine", "native", *option)
        assert called.code == 2
        assert f"{option[0]}: not an option of the native engine" in called.err


def test_without_a_compiler_one_line_says_what_helps(opu_fuse, program_file, monkeypatch, tmp_path):
    monkeypatch.setenv("OPU_FUSE_CACHE", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    library.library.cache_clear()
    try:
        called = opu_fuse("run", program_file, "--engine", "native")
    finally:
        library.library.cache_clear()
    assert called.code == 1
    (line,) = [line for line in called.err.splitlines() if line.startswith("error")]
    assert "there is no no-such-compiler; install a C compiler" in line
