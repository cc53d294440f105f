"""Cases that both functional engines execute, and comparisons of what they leave in memory."""

import subprocess

import numpy as np

from opu_fuse.errors import UserError
from opu_fuse.hw.isa.encoding import encode
from opu_fuse.hw.isa.footprint import space_limit
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import REGISTERS, Engine
from opu_fuse.hw.rtlgen.c_runtime import machine_words
from opu_fuse.resources import runtime_dir
from opu_fuse.sim import engine
from opu_fuse.sim.engine import FunctionalRunner
from opu_fuse.sim.functional.machine import Machine
from opu_fuse.sim.native.machine import NativeMachine
from opu_fuse.sim.native.runner import NativeRunner
from opu_fuse.sim.ports import noise
from opu_fuse.units.base import Space
from tests.sim import random_instructions

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
SANITIZED = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
HALF_WORD = (1 << 22) - 1
NUMPY_ONLY = "more than the functional engine can"
"""Instructions that numpy cannot work on at once."""


def check_and_end(spec, *body):
    """A complete program."""
    own = {"hash_lo": spec.spec_hash & HALF_WORD, "hash_hi": spec.spec_hash >> 22}
    fetch = [random_instructions.instruction(Engine.FETCH, name, own) for name in ("check", "end")]
    return [fetch[0], *body, fetch[1]]


def draw(rng, spec):
    """A legal instruction of any kind."""
    kinds = [
        random_instructions.transfer,
        random_instructions.conv,
        random_instructions.depthwise,
        random_instructions.copy,
        random_instructions.post,
    ]
    if spec.buffers.image:
        kinds.append(random_instructions.unfold)
    return random_instructions.until_fits(kinds[rng.integers(len(kinds))], rng, spec)


def changed(rng, x):
    """The instruction with another value in some of its registers."""
    registers = [r for r in REGISTERS if r.engine is x.engine and r.name != "bank"]
    params = dict(x.params)
    for _ in range(int(rng.integers(1, 3))):
        r = registers[rng.integers(len(registers))]
        odd = [r.lowest, r.highest, 0, 1, params[r.name] + 1, params[r.name] - 1]
        odd.append(int(rng.integers(r.lowest, r.highest + 1)))
        params[r.name] = min(max(odd[rng.integers(len(odd))], r.lowest), r.highest)
    return Instruction(engine=x.engine, opcode=x.opcode, params=params)


def both(spec, rng, window=random_instructions.WINDOW_BYTES):
    """The two engines with the same random bytes in all memories."""
    python = Machine(spec, np.zeros(window, np.uint8))
    random_instructions.random_words(rng, python.memories)
    native = NativeMachine(spec, python.memories.dram.copy())
    for space, (mine, other) in memories(python, native).items():
        if space is not Space.DRAM:
            mine[:] = other
    return python, native


def memories(python, native):
    """Space -> its words of the native engine and of the other."""
    spec = python.spec
    found = {Space.DRAM: (native.dram, python.memories.dram)}
    for space in Space:
        if space is not Space.DRAM and (limit := space_limit(space, spec)):
            found[space] = (native.memory(space), python.memories.buffer(space)[:limit])
    return found


def error_of(run):
    """The text of the error that a call raises, None without one."""
    try:
        run()
    except UserError as error:
        return str(error)
    return None


def differences(python, native, program):
    """What differs after a program has run on both; None where numpy cannot run it."""
    wanted = error_of(lambda: python.run(program))
    if wanted is not None and NUMPY_ONLY in wanted:
        return None
    got = error_of(lambda: native.run(encode(program)))
    if (wanted is None) != (got is None):
        return [f"functional: {wanted}, native: {got}"]
    return [
        f"{space}: {np.count_nonzero(mine != other)} values"
        for space, (mine, other) in memories(python, native).items()
        if not np.array_equal(mine, other)
    ]


def same_runs(bundle, spec):
    """Windows, counters and outputs of one sample are equal on both engines."""
    inputs = noise(bundle)
    runners = FunctionalRunner(bundle, spec), NativeRunner(bundle, spec)
    results = [engine.run_on(r, bundle, inputs, engine="x") for r in runners]
    assert np.array_equal(runners[0].window, runners[1].window)
    for name, array in results[0].outputs.items():
        assert np.array_equal(array, results[1].outputs[name])
    for field in ("counters", "groups", "trace"):
        assert getattr(results[0], field) == getattr(results[1], field)


def sanitized_replay(folder):
    """The engine as a program for `replay`, with the sanitizers of the compiler."""
    target, runtime = folder / "replay", runtime_dir()
    sources = [*sorted((runtime / "src").glob("*.c")), runtime / "tests" / "replay.c"]
    command = ["cc", "-std=c11", *STRICT, *SANITIZED, f"-I{runtime / 'include'}", "-o", str(target)]
    subprocess.run([*command, *map(str, sources)], check=True)
    return target


def replay(program, spec, window, programs, folder):
    """(status, code, engine, instruction) of every program, and the window."""
    config = np.array(machine_words(spec), np.uint32)
    parts = [np.uint32(len(config)), config, np.uint32(window.size)]
    data = b"".join(p.tobytes() for p in parts) + window.tobytes()
    for words in programs:
        data += np.uint32(len(words)).tobytes() + words.astype(np.uint32).tobytes()
    (folder / "in").write_bytes(data)
    done = subprocess.run(
        [str(program), str(folder / "in"), str(folder / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = (folder / "out").read_bytes()
    heads = np.frombuffer(result[: 16 * len(programs)], np.uint32).reshape(-1, 4)
    return heads, np.frombuffer(result[16 * len(programs) :], np.uint8)
