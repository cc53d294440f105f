"""The native engine has the bits and the faults of the functional one, and touches nothing else."""

import re
import shutil
import subprocess
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from opu_fuse import zoo
from opu_fuse.bundle.memory_image import initial_image
from opu_fuse.bundle.program import MachineSegment
from opu_fuse.errors import RunError, UserError
from opu_fuse.hw.isa.encoding import encode
from opu_fuse.hw.isa.instruction import split_address
from opu_fuse.hw.isa.register_map import ErrorCode
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import Array
from opu_fuse.hw.spec.load_spec import load_hw, load_hw_text, spec_names
from opu_fuse.pipeline import compile_model
from opu_fuse.resources import runtime_dir
from opu_fuse.sim import engine
from opu_fuse.sim.native import library
from opu_fuse.sim.native.machine import NativeMachine
from opu_fuse.sim.ports import noise
from opu_fuse.units.base import Space
from rtl_sim.benches.graph_orders import orders_of
from tests.fuzz.random_machine import draw_machine
from tests.sim.machines import MACHINES, TINY, machine, modes
from tests.sim.native_cases import (
    STRICT,
    both,
    changed,
    check_and_end,
    differences,
    draw,
    error_of,
    replay,
    same_runs,
    sanitized_replay,
)
from tests.sim.random_instructions import WINDOW_BYTES, instruction, post
from tests.tiers import by_night

BUILT = [name for name in spec_names() if load_hw(name).build]


@pytest.mark.parametrize("name", MACHINES)
def test_random_instructions_leave_the_same_bytes_in_every_memory(name):
    spec, rng = MACHINES[name], np.random.default_rng(4)
    for _ in range(60):
        body = [draw(rng, spec) for _ in range(3)]
        assert differences(*both(spec, rng), check_and_end(spec, *body)) == []


def test_what_the_checks_of_specs_accept_is_a_machine():
    units = Array(units=16, multipliers=2, modes=modes((8, 4, 1)))
    odd = replace(machine("units", 24, units, width=8), post=replace(TINY.post, lanes=24))
    drawn = [load_hw_text(draw_machine(seed, multipliers=seed % 2 == 0)) for seed in range(40)]
    for spec in (odd, *drawn, *map(load_hw, BUILT)):
        NativeMachine(spec, np.zeros(WINDOW_BYTES, np.uint8))


@pytest.mark.parametrize("name", MACHINES)
def test_other_processors_have_the_same_bits(name, portable, monkeypatch):
    monkeypatch.setattr("opu_fuse.sim.native.machine.library", lambda: portable)
    test_random_instructions_leave_the_same_bytes_in_every_memory(name)


@pytest.fixture(scope="module")
def portable(tmp_path_factory):
    """The library for the oldest processor of its kind."""
    target = tmp_path_factory.mktemp("portable") / "libopu.so"
    library.compile_library(target, ("-O2",))
    return library.load(target)


@pytest.mark.parametrize("name", MACHINES)
def test_both_engines_fault_at_the_same_instructions(name):
    spec, rng = MACHINES[name], np.random.default_rng(9)
    faults = 0
    for _ in range(150):
        python, native = both(spec, rng)
        program = check_and_end(spec, changed(rng, draw(rng, spec)))
        found = differences(python, native, program)
        assert not found, (found, program[1])
        faults += error_of(partial(python.run, program)) is not None
    assert faults > 20, "nothing was refused"


def test_a_window_wholly_outside_reads_no_residual_word():
    spec, rng = MACHINES["full"], np.random.default_rng(0)
    order = orders_of(spec).pack(["requant", "res_add", "pool"])
    inside = post(rng, spec, order).params
    outside = {"origin_y": -100, "res_broadcast": 1, "res": 4000, "pool_slots": 0}
    x = instruction(Engine.POST, "run", {**inside, **outside})
    assert differences(*both(spec, rng), check_and_end(spec, x)) == []


@pytest.mark.parametrize("name", BUILT)
def test_networks_leave_the_same_window_on_every_machine(name):
    spec = load_hw(name)
    for network in ("tiny_residual", "tiny_odd", "tiny_tiles"):
        same_runs(compile_model(zoo.build(network), spec).bundle, spec)


def test_a_whole_network_leaves_the_same_window():
    spec = load_hw("opu-light")
    same_runs(compile_model(zoo.build("mobilenet_v2", image=64), spec).bundle, spec)


def test_samples_in_threads_give_what_each_gives_alone():
    bundle = compile_model(zoo.build("tiny_residual", image=8), TINY).bundle
    name, one = next(iter(noise(bundle).items()))
    rng = np.random.default_rng(1)
    several = rng.standard_normal((7, *one.shape[1:])).astype(one.dtype)
    wanted = engine.run(bundle, TINY, {name: several}, capture=True)
    got = engine.run(bundle, TINY, {name: several}, engine="native", capture=True)
    for output, array in wanted.outputs.items():
        assert np.array_equal(array, got.outputs[output])
    assert (got.counters, got.groups, got.trace) == (wanted.counters, wanted.groups, wanted.trace)
    assert got.tensors.keys() <= wanted.tensors.keys()
    for tensor, array in got.tensors.items():
        assert np.array_equal(array, wanted.tensors[tensor])
    assert got.tensors


def test_a_fault_in_every_sample_ends_the_run(monkeypatch):
    """A thread whose sample faults takes the next sample, for which it needs a machine."""
    monkeypatch.setattr(engine, "_threads", lambda *_: 2)
    monkeypatch.setattr(NativeMachine, "run", _fault)
    bundle = compile_model(zoo.build("tiny_residual", image=8), TINY).bundle
    several = {name: np.repeat(one, 9, axis=0) for name, one in noise(bundle).items()}
    with pytest.raises(RunError, match="on purpose"):
        engine.run(bundle, TINY, several, engine="native")


def _fault(*_):
    raise RunError("machine", "faults on purpose", "none")


def test_memories_survive_from_program_to_program():
    spec, rng = TINY, np.random.default_rng(2)
    _, native = both(spec, rng)
    before = native.memory(Space.FEATURE).copy()
    native.run(encode(check_and_end(spec)))
    assert np.array_equal(native.memory(Space.FEATURE), before)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ([], "window"),
        ([{"dst": 1 << 20}], "writes word"),
        ([split_address(WINDOW_BYTES - 8) | {"run": 3}], "memory window"),
        ([{"run": 0}], "has run = 0"),
    ],
)
def test_faults_have_the_text_of_the_functional_engine(body, kind):
    params = {"run": 1, "rows": 1, "blocks": 1}
    loads = [instruction(Engine.LOAD, "feature", params | more) for more in body]
    waits = [instruction(Engine.LOAD, "feature", params, waits=(Engine.STORE,))] * (not body)
    program = check_and_end(TINY, *loads, *waits)
    python, native = both(TINY, np.random.default_rng(0))
    wanted, got = (
        error_of(lambda: python.run(program)),
        error_of(lambda: native.run(encode(program))),
    )
    assert wanted
    assert got
    if body:
        assert wanted == got
        assert kind in got
    else:
        assert "has not signalled before it" in got


def test_words_that_are_no_program_are_refused_before_anything_runs():
    store = instruction(Engine.STORE, "store", {"run": 4, "rows": 1, "blocks": 1})
    whole = encode(check_and_end(TINY, store))
    for words in (whole[:-1], whole[2:], np.append(whole, whole), whole[:0], whole | 1 << 30):
        native = NativeMachine(TINY, np.zeros(WINDOW_BYTES, np.uint8))
        with pytest.raises(UserError):
            native.run(words)
        assert not native.dram.any()


def test_a_program_of_another_machine_is_refused():
    native = NativeMachine(TINY, np.zeros(WINDOW_BYTES, np.uint8))
    other = check_and_end(load_hw("opu-micro"))
    with pytest.raises(RunError, match="another machine"):
        native.run(encode(other))


def test_without_a_compiler_one_line_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("OPU_FUSE_CACHE", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    library.library.cache_clear()
    try:
        assert not library.available()
        with pytest.raises(RunError, match="there is no no-such-compiler"):
            library.library()
    finally:
        library.library.cache_clear()


def test_the_sources_are_clean_c99_and_cpp(tmp_path):
    sources = sorted((runtime_dir() / "src").glob("*.c"))
    assert sources
    for compiler, language in (("cc", ("-std=c99",)), ("g++", ("-xc++", "-std=c++11"))):
        for source in sources:
            command = [compiler, *language, *STRICT, "-O2", f"-I{runtime_dir() / 'include'}"]
            done = subprocess.run(
                [*command, "-c", "-o", str(tmp_path / "x.o"), str(source)],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr


def test_the_library_needs_nothing_but_the_c_library(tmp_path):
    """No allocation, no files, no state: what it calls are copies of memory."""
    library.compile_library(tmp_path / "libopu.so", ("-O2",))
    listed = subprocess.run(
        [shutil.which("nm") or "nm", "-D", "--undefined-only", str(tmp_path / "libopu.so")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    called = {name for name in re.findall(r"U (\w+)", listed) if not name.startswith("__")}
    assert called <= {"memchr", "memcmp", "memcpy", "memmove", "memset", "strlen"}
    data = subprocess.run(
        ["nm", str(tmp_path / "libopu.so")], capture_output=True, text=True, check=True
    ).stdout
    own = [line.split() for line in data.splitlines() if "opu" in line]
    assert own
    assert not [line for line in own if line[-2] in "bBDC"], "a global variable"


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory):
    return sanitized_replay(tmp_path_factory.mktemp("sanitized"))


@pytest.mark.parametrize("count", by_night([120, 2000], [2000]))
@pytest.mark.parametrize("name", MACHINES)
def test_odd_instructions_and_words_reach_nothing_outside(name, count, sanitized, tmp_path):
    spec, rng = MACHINES[name], np.random.default_rng(12)
    programs = []
    for number in range(count):
        body = [draw(rng, spec) for _ in range(2)]
        if number % 2:
            body.append(changed(rng, body[0]))
        words = encode(check_and_end(spec, *body))
        if number % 5 == 0:
            words[rng.integers(len(words))] ^= np.uint32(1 << rng.integers(32))
        programs.append(words)
    window = rng.integers(0, 256, WINDOW_BYTES, np.uint8)
    heads, _ = replay(sanitized, spec, window, programs, tmp_path)
    codes = {ErrorCode(int(code)) for code in heads[:, 1]}
    assert {ErrorCode.NONE, ErrorCode.ILLEGAL_INSTRUCTION, ErrorCode.BUFFER} <= codes


def test_a_network_under_sanitizers_leaves_the_same_window(sanitized, tmp_path):
    bundle = compile_model(zoo.build("tiny_residual", image=8), TINY).bundle
    window = initial_image(bundle)
    segments = [s for s in bundle.segments if isinstance(s, MachineSegment)]
    words = [
        bundle.words[(s.program_offset - bundle.program_offset) // 4 :][: s.words] for s in segments
    ]
    heads, left = replay(sanitized, TINY, window, words, tmp_path)
    assert not heads[:, :2].any()
    native = NativeMachine(TINY, window)
    for each in words:
        native.run(each)
    assert np.array_equal(left, window)
