"""The provider in ONNX Runtime: errors, threads, memory, a C++ program, older versions."""

import io
import os
import re
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from opu_fuse import zoo
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise
from tests.onnxruntime_ep.conftest import (
    FLAGS,
    MACHINE,
    PACKAGE,
    PROVIDER,
    attribute,
    compiled,
    constant_files,
    context,
    load_module,
    node_of,
    refusal,
)

RUNS, OPENED = 10_000, 300
OLDER = ("1.23.2", "1.27.0")
SANITIZED_FILES = ("context_models", "devices", "profiles", "provider")
SANITIZED_TESTS = "not (memory or wheel or cxx or two_names or log_of or warning_names)"
"""Those that measure memory or start programs have nothing to say there."""
ONE_RUN = """
import sys, numpy as np, onnxruntime as ort
library, model, x, y = sys.argv[1:]
ort.register_execution_provider_library("P", library)
devices = [d for d in ort.get_ep_devices() if d.ep_name == "OpuFuseExecutionProvider"]
options = ort.SessionOptions()
options.add_provider_for_devices(devices, {})
session = ort.InferenceSession(model, options)
np.save(y, session.run(None, {"input": np.load(x)})[0])
print(ort.__version__)
"""
RESIDENT = """
import os
def resident():
    pages = open("/proc/self/statm").read().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
image = np.load(x)
"""
GROWTH = f"""
{RESIDENT}
for _ in range(200):
    session.run(None, {{"input": image}})
before = resident()
for _ in range({RUNS}):
    session.run(None, {{"input": image}})
print(resident() - before)
"""
"""Bytes by which memory grows, after a first run."""
REOPENING = f"""
{RESIDENT}
def reopen(times):
    for _ in range(times):
        ort.InferenceSession(model, options).run(None, {{"input": image}})
del session
reopen(30)
before = resident()
reopen({OPENED})
print(resident() - before, sum("opu constants" in line for line in open("/proc/self/maps")))
"""
"""Bytes by which memory grows, after some sessions, and constants that are left."""


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """(compilation, path of its context model)."""
    done = compiled(zoo.build("tiny_residual"))
    path = tmp_path_factory.mktemp("network") / "net_ctx.onnx"
    context(done).save(path)
    return done, path


@pytest.fixture(scope="module")
def sample(network):
    """An input and the output of the functional engine in Python."""
    done, _ = network
    x = noise(done.bundle, seed=5)
    return x, next(iter(run(done.bundle, load_hw(MACHINE), x).outputs.values()))


def test_the_node_is_placed_on_the_provider(session, network):
    _, path = network
    assert session(str(path)).get_providers()[0] == PROVIDER


def logged(library, model, sample, folder, level):
    """What ONNX Runtime logs of a run, from a level on."""
    np.save(folder / "x.npy", sample[0]["input"])
    script = ONE_RUN.replace("session =", f"options.log_severity_level = {level}\nsession =")
    files = (str(library), str(model), str(folder / "x.npy"), str(folder / "y.npy"))
    done = subprocess.run(
        [sys.executable, "-c", script, *files], capture_output=True, text=True, check=True
    )
    return done.stderr


def test_placement_is_in_the_log_of_onnx_runtime(library, network, sample, tmp_path):
    said = logged(library, network[1], sample, tmp_path, 0)
    assert f"{PROVIDER}: 1 of 1 nodes are machine segments" in said


def test_a_warning_names_a_model_that_was_not_compiled(library, network, sample, tmp_path):
    ir.save(zoo.build("tiny_residual"), tmp_path / "net.onnx")
    said = logged(library, tmp_path / "net.onnx", sample, tmp_path, 2)
    assert re.search(rf"{PROVIDER}: 0 of \d+ nodes are machine segments, all run on the", said)
    assert "machine segments" not in logged(library, network[1], sample, tmp_path, 2)


def test_two_sessions_in_two_threads_have_the_bits_of_run(session, network, sample):
    _, path = network
    x, expected = sample
    sessions = [session(str(path)) for _ in range(2)]

    def often(one: Any) -> bool:
        return all(np.array_equal(one.run(None, x)[0], expected) for _ in range(100))

    with ThreadPoolExecutor(4) as pool:  # two threads for each session, too
        assert all(pool.map(often, sessions * 2))


@pytest.fixture
def printed(library, network, sample, tmp_path):
    """Numbers that a script prints after one run, in a process of its own: what other tests leave
    to be collected is none of the provider's.
    """

    def of(script: str) -> list[int]:
        np.save(tmp_path / "x.npy", sample[0]["input"])
        files = (library, network[1], tmp_path / "x.npy", tmp_path / "y.npy")
        done = subprocess.run(
            [sys.executable, "-c", ONE_RUN + script, *map(str, files)],
            capture_output=True,
            text=True,
            check=True,
        )
        return [int(number) for number in done.stdout.split()[1:]]

    return of


def test_memory_is_stable_from_run_to_run(printed):
    (grown,) = printed(GROWTH)
    assert grown < 1 << 20, "less than a hundred bytes a run"


def test_memory_is_stable_from_session_to_session(printed):
    grown, constants = printed(REOPENING)
    assert grown < OPENED << 12, "less than a page a session"
    assert constants == 0


def test_sessions_share_constants_until_the_last_one_ends(session, network, sample):
    """One program from two models, and another one."""
    done, path = network
    x, expected = sample
    before = constant_files()
    sessions = [session(str(path)), session(context(done).model.SerializeToString())]
    assert constant_files() == before + 1
    other = session(context(compiled(zoo.build("tiny_odd"))).model.SerializeToString())
    assert constant_files() == before + 2
    del other, sessions[0]
    assert constant_files() == before + 1
    assert np.array_equal(sessions[0].run(None, x)[0], expected)
    sessions.clear()
    assert constant_files() == before


def test_threads_open_and_close_sessions_at_the_same_time(session, network, sample):
    _, path = network
    x, expected = sample
    before = constant_files()

    def once(_: int) -> bool:
        return np.array_equal(session(str(path)).run(None, x)[0], expected)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(once, range(60)))
    assert constant_files() == before


def test_a_damaged_context_is_one_line(session, network):
    done, _ = network
    model = context(done).model
    program = attribute(node_of(model), "ep_cache_context")
    data = bytearray(program.s)
    data[len(data) // 2] ^= 1
    program.s = bytes(data)
    said = refusal(lambda: session(model.SerializeToString()))
    assert said.startswith("segment0: the file is damaged (")
    assert said.endswith("); compile the model again")
    program.s = bytes(data[:100])
    assert refusal(lambda: session(model.SerializeToString())).startswith("segment0: ")
    program.s = b""
    assert refusal(lambda: session(model.SerializeToString())).startswith("segment0: ")


def test_words_that_are_no_program_are_not_blamed_on_the_inputs(session, network, sample):
    done, _ = network
    model = context(done).model
    program = attribute(node_of(model), "ep_cache_context")
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(program.s)) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, bytes(len(data)) if name == "program.bin" else data)
    program.s = changed.getvalue()
    opened = session(model.SerializeToString())
    opened.disable_fallback()
    said = refusal(lambda: opened.run(None, sample[0]))
    assert "segment0: the words are no complete program" in said
    assert said.endswith("compile the model again")


def test_a_program_of_another_machine_is_refused(session, network):
    _, path = network
    own = f"{load_hw(MACHINE).spec_hash:011x}"
    assert session(str(path), spec_hash=own).get_providers()[0] == PROVIDER
    said = refusal(lambda: session(str(path), spec_hash="0123456789a"))
    assert said == (
        f"segment0: was compiled for machine {own}, the session asks for 0123456789a; "
        "compile the model for that machine"
    )


def test_a_missing_file_is_named(session, network, tmp_path):
    done, _ = network
    context(done, stem="net").save(tmp_path / "net_ctx.onnx")
    (tmp_path / "net_segment0.opu").unlink()
    said = refusal(lambda: session(str(tmp_path / "net_ctx.onnx")))
    assert "net_segment0.opu: cannot be read; keep the programs of a model next to it" in said


def test_nan_in_an_input_is_refused_and_the_session_can_still_be_used(session, network, sample):
    _, path = network
    one = session(str(path))
    x, expected = sample
    bad = {"input": np.full_like(x["input"], np.nan)}
    said = refusal(lambda: one.run(None, bad), "INVALID_ARGUMENT")
    assert "segment0, input input: " in said
    assert "NaN" in said
    assert np.array_equal(one.run(None, x)[0], expected)


def test_a_model_without_contexts_runs_on_the_processor(session):
    model = ir.to_proto(zoo.build("tiny_residual")).SerializeToString()
    opened = session(model)
    x = {"input": np.ones(opened.get_inputs()[0].shape, np.float32)}
    plain: Any = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, x)
    assert np.array_equal(opened.run(None, x)[0], plain[0])


def test_a_program_in_cxx_has_the_bits_of_run(library, network, sample, tmp_path):
    source = PACKAGE / "examples" / "classify.cpp"
    assert len(source.read_text().splitlines()) <= 60
    (runtime,) = (Path(ort.__file__).parent / "capi").glob("libonnxruntime.so.*")
    program = tmp_path / "classify"
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{PACKAGE / 'src'}"]
    (tmp_path / "libonnxruntime.so.1").symlink_to(runtime)
    link = [str(runtime), f"-Wl,-rpath,{tmp_path}"]
    subprocess.run(["c++", *flags, str(source), "-o", str(program), *link], check=True)
    _, path = network
    x, expected = sample
    output = onnx.load(path).graph.output[0].name
    done = subprocess.run(
        [str(program), str(library), str(path), "input", output, str(x["input"].shape[-1])],
        input=x["input"].tobytes(),
        capture_output=True,
        check=True,
    )
    assert np.array_equal(np.frombuffer(done.stdout, np.float32), expected.reshape(-1))


def test_the_library_shows_two_names_and_needs_no_onnx_runtime(library):
    names = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    )
    assert sorted(line.split()[-1] for line in names.stdout.splitlines()) == [
        "CreateEpFactories",
        "ReleaseEpFactory",
    ]
    needed = subprocess.run(
        ["readelf", "-d", str(library)], capture_output=True, text=True, check=True
    )
    assert "onnxruntime" not in re.sub(r"Library soname.*", "", needed.stdout)


def test_the_wheel_has_the_library_and_no_dependency(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    environment = {**os.environ, "CFLAGS": "-O1"}
    subprocess.run(
        [*command, "--wheel-dir", str(tmp_path), str(PACKAGE)], check=True, env=environment
    )
    (wheel,) = tmp_path.glob("onnxruntime_ep_opu-*-py3-none-linux_*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
        (metadata,) = (n for n in archive.namelist() if n.endswith("METADATA"))
        needs = re.findall(r"^Requires-Dist: (.+)$", archive.read(metadata).decode(), re.MULTILINE)
        assert needs == ["opu-fuse>=0.2; extra == 'compile'"]
    module = load_module(tmp_path / "onnxruntime_ep_opu" / "__init__.py")
    assert Path(module.get_library_path()).is_file()
    assert module.get_ep_names() == [module.get_ep_name()] == [PROVIDER]


@pytest.mark.nightly
def test_the_provider_is_clean_under_sanitizers():
    """The tests of this folder that open sessions in their own process."""
    files = [str(Path(__file__).with_name(f"test_{n}.py")) for n in SANITIZED_FILES]
    run_tests = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-q", *files]
    libraries = [
        subprocess.run(
            ["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    environment = {
        **os.environ,
        FLAGS: "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all",
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own; memory is watched above
    }
    done = subprocess.run(
        [*run_tests, "-k", SANITIZED_TESTS],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=PACKAGE.parents[1],
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly
def test_an_installed_wheel_runs_a_model_in_a_fresh_environment(network, sample, tmp_path):
    """By the eight lines of the README."""
    _, path = network
    x, expected = sample
    wheels, python = tmp_path / "dist", tmp_path / "fresh" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(wheels), str(PACKAGE)], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "onnxruntime"]
    subprocess.run([*install, *map(str, wheels.glob("*.whl"))], check=True)
    np.save(tmp_path / "x.npy", x["input"])
    readme = (PACKAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    lines = re.search(r"^import onnxruntime, .+?^outputs = .+?$", readme, re.DOTALL | re.MULTILINE)
    assert lines is not None
    script = lines[0].replace("resnet18_ctx.onnx", str(path)).replace("image}", "np.load('x.npy')}")
    script = f"import numpy as np\n{script}\nnp.save('y.npy', outputs[0])"
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run([str(python), "-c", script], check=True, cwd=tmp_path, env=clean)
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected)


@pytest.mark.nightly
@pytest.mark.parametrize("version", OLDER)
def test_other_versions_of_onnx_runtime_give_the_same_bits(
    version, library, network, sample, tmp_path
):
    _, path = network
    x, expected = sample
    folder = tmp_path / "packages"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*install, str(folder), f"onnxruntime=={version}"], check=True)
    np.save(tmp_path / "x.npy", x["input"])
    files = (str(library), str(path), str(tmp_path / "x.npy"), str(tmp_path / "y.npy"))
    done = subprocess.run(
        [sys.executable, "-c", ONE_RUN, *files],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    assert done.stdout.strip() == version
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected)
