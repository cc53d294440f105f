"""Program files with valid hashes and damaged content, on the functional and the cycle engine.

Every file is refused when it is read, stops the machine with a reason, or runs. What loads and
runs to its end on the functional engine gives the same bits on RTL (a share of the cases).
"""

import dataclasses
import functools
import hashlib
import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from opu_fuse import zoo
from opu_fuse.bundle.file import save
from opu_fuse.bundle.fused_onnx import load_fused
from opu_fuse.bundle.instruction_ranges import instruction_ranges
from opu_fuse.bundle.listing import program_listing
from opu_fuse.bundle.program import HostSegment, MachineSegment
from opu_fuse.errors import UserError
from opu_fuse.hw.isa.encoding import decode, encode
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import OPCODES, PROGRAM_ALIGNMENT, SYNC_ENGINES, parameters_of
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, Program, compile_model
from opu_fuse.report.json_trees import inspect_json, run_json
from opu_fuse.report.tables import groups_table, memory_table
from opu_fuse.report.trace import trace_json
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.ports import noise
from tests.bundle.sample import sample_bundle
from tests.fuzz.mutations import change_bytes, change_text, change_tree, odd_number, one_of, rng_of
from tests.fuzz.worker import SECONDS_PER_CASE
from tests.networks import random_layers

BASES = (
    ("sample", 0),
    ("zoo", 0),
    *(("opu-tiny", seed) for seed in (0, 4, 7, 9)),
    *(("opu-micro", seed) for seed in (2, 8)),
    *(("opu-light", seed) for seed in (8, 9, 12)),
    *(("opu-classic", seed) for seed in (0, 5, 9)),
)
"""A program written by hand, a small network, and random layers of several machines."""

_MANIFEST = "manifest.json"
Members = dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """base: place in `BASES`; changes: a seed each, made one after the other."""

    base: int
    changes: tuple[int, ...]


@functools.cache
def base_members(base: int) -> Members:
    """Members of a sound program file."""
    machine, seed = BASES[base]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base.opu"
        save(_bundle(machine, seed), path)
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}


def _bundle(machine: str, seed: int) -> Any:
    if machine == "sample":
        return sample_bundle()
    hw = load_hw("opu-tiny" if machine == "zoo" else machine)
    if machine == "zoo":
        return compile_model(zoo.build("tiny_residual", image=8), hw).bundle
    layer = random_layers.draw(hw, seed)
    return compile_model(layer.model, hw, Options(scales=layer.scales)).bundle


def damaged_file(case: Case) -> bytes:
    """The program file of a case: its hashes fit, unless bytes of the archive were changed."""
    members = dict(base_members(case.base))
    raw: list[int] = []
    for seed in case.changes:
        rng = rng_of(seed)
        kind = int(rng.integers(100))
        if kind < 3:
            raw.append(seed)
            continue
        change = next(change for limit, change in _CHANGES if kind < limit)
        change(rng, members)
    data = _archive(_with_hashes(members))
    for seed in raw:
        data = change_bytes(rng_of(seed, 1), data)
    return data


def _change_manifest(rng: np.random.Generator, members: Members) -> None:
    try:
        tree = json.loads(members[_MANIFEST])
    except (KeyError, ValueError):
        return
    change_tree(rng, tree)
    members[_MANIFEST] = json.dumps(tree).encode()


def _change_member(rng: np.random.Generator, members: Members) -> None:
    name = one_of(rng, sorted(members.keys() - {_MANIFEST}) or [_MANIFEST])
    match int(rng.integers(6)):
        case 0:
            del members[name]
        case 1:
            members[f"host/{one_of(rng, ('x', '000.0', '../y', 'z.onnx'))}"] = members[name]
        case 2:
            other = one_of(rng, sorted(members))
            members[name], members[other] = members[other], members[name]
        case 3 if name.endswith((".json", ".yaml", ".asm")):
            text = members[name].decode(errors="replace")
            members[name] = change_text(rng, text).encode(errors="replace")
        case 3 | 4 if name.endswith(".json"):
            tree = json.loads(members[name])
            change_tree(rng, tree)
            members[name] = json.dumps(tree).encode()
        case _:
            members[name] = change_bytes(rng, members[name])


def _change_words(rng: np.random.Generator, members: Members) -> None:
    """A bit, a word, or an instruction of a segment."""
    words = np.frombuffer(members.get("program.bin", b"")[: 1 << 22], np.uint8)
    words = words[: len(words) // 4 * 4].view("<u4").copy()
    if not len(words):
        return
    at = int(rng.integers(len(words)))
    kind = rng.random()
    if kind < 0.1:
        words[at] ^= np.uint32(1 << int(rng.integers(32)))
    elif kind < 0.15:
        words[at] = rng.integers(1 << 32)
    else:
        words = _with_other_instruction(rng, members, words)
    members["program.bin"] = words.tobytes()


def _with_other_instruction(
    rng: np.random.Generator, members: Members, words: np.ndarray
) -> np.ndarray:
    """The words with a changed instruction, and the manifest of as many words as there are now."""
    try:
        tree = json.loads(members[_MANIFEST])
        machine = [s for s in tree["segments"] if "words" in s]
        segment = one_of(rng, machine)
        start = (segment["program_offset"] - tree["program_offset"]) // 4
        stop = start + segment["words"]
        program = decode(words[start:stop])
        _change_instruction(rng, program)
        new = encode(program).astype("<u4")
        grown = len(new) - segment["words"]
        gap = -grown % (PROGRAM_ALIGNMENT // 4)  # what follows begins at a multiple again
        words = np.concatenate([words[:start], new, np.zeros(gap, words.dtype), words[stop:]])
        segment["words"] += grown
        tree["window_bytes"] += 4 * max(grown + gap, 0)
        for other in machine[machine.index(segment) + 1 :]:
            other["program_offset"] += 4 * (grown + gap)
        host = HostSegment(inputs=(), outputs=(), ops=(), pieces=())
        segments = [MachineSegment(**s) if "words" in s else host for s in tree["segments"]]
        ranges = instruction_ranges(segments, words, tree["program_offset"])
        for group in tree["groups"]:
            found = ranges.get(group["index"], ())
            group["instructions"] = [dataclasses.asdict(r) for r in found]
    except (UserError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return words  # other changes have been here
    members[_MANIFEST] = json.dumps(tree).encode()
    return words


def _change_instruction(rng: np.random.Generator, program: list[Instruction]) -> None:
    at = int(rng.integers(len(program)))
    x = program[at]
    match int(rng.integers(8)):
        case 0:
            other = int(rng.integers(len(program)))
            program[at], program[other] = program[other], x
        case 1:
            program[at] = one_of(rng, program)
        case 2:
            same = [o.name for o in OPCODES if o.engine is x.engine]
            program[at] = replace(x, opcode=one_of(rng, same))
        case 3 if x.engine in SYNC_ENGINES:
            others = [e for e in SYNC_ENGINES if e is not x.engine]
            side = one_of(rng, ("waits", "signals"))
            chosen = tuple(e for e in others if rng.random() < 0.4)
            program[at] = replace(x, **{side: chosen})
        case _:
            program[at] = replace(x, params=_with_odd_register(rng, x))


def _with_odd_register(rng: np.random.Generator, x: Instruction) -> dict[str, int]:
    register = one_of(rng, parameters_of(x.engine))
    value = x.params[register.name]
    if register.name == "order" and rng.random() < 0.5:
        new = int(sum(int(rng.integers(7)) << 4 * i for i in range(5)))
    elif rng.random() < 0.2:
        new = int(rng.integers(register.lowest, register.highest, endpoint=True))
    else:
        new = min(max(odd_number(rng, value), register.lowest), register.highest)
    return {**x.params, register.name: new}


_CHANGES: tuple[tuple[int, Callable[[np.random.Generator, Members], None]], ...] = (
    (45, _change_manifest),
    (60, _change_member),
    (100, _change_words),
)


def _with_hashes(members: Members) -> Members:
    """The manifest's sizes and hashes made those of the members; words counted again."""
    try:
        tree = json.loads(members[_MANIFEST])
        listed = tree["members"]
        for name in [n for n in listed if n not in members]:
            del listed[name]
        for name in members.keys() - {_MANIFEST}:
            data = members[name]
            listed[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    except (KeyError, TypeError, ValueError):
        return members
    return members | {_MANIFEST: json.dumps(tree).encode(errors="replace")}


def _archive(members: Members) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(members):
            archive.writestr(zipfile.ZipInfo(name), members[name])
    return buffer.getvalue()


def _look_into(program: Program) -> None:
    """What `inspect` shows, in all its forms."""
    program_listing(program.bundle, program.hw)
    inspect_json(program.bundle, memory=True)
    for shown in (groups_table(program.bundle), memory_table(program.bundle)):
        list(shown.lines(80))
    if program.bundle.fused:
        load_fused(program.bundle)


def _run_functional(program: Program) -> None:
    inputs = noise(program.bundle)
    result = program.run(inputs, capture=True)
    if program.bundle.qdq:
        check(program.bundle, inputs, result)


def _run_cycle(program: Program) -> None:
    result = program.run(engine="cycle")
    run_json(program.bundle, program.hw, result)
    trace_json(program.bundle, result)


class Programs:
    """See the head of this file."""

    name, share = "programs", 1.0

    def draw(self, seed: int) -> Case:
        rng = rng_of(seed)
        changes = tuple(int(n) for n in rng.integers(1 << 31, size=int(rng.integers(1, 4))))
        return Case(base=int(rng.integers(len(BASES))), changes=changes)

    def machines(self, case: Case) -> Sequence[str]:
        return [""]

    def seconds(self, case: Case) -> float:
        return SECONDS_PER_CASE

    def judge(self, case: Case, machine: str) -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "damaged.opu"
            path.write_bytes(damaged_file(case))
            program = Program.load(path)
        refusal = None
        for deed in (_look_into, _run_functional, _run_cycle):
            try:
                deed(program)
            except UserError as error:
                refusal = refusal or error
        if refusal is not None:
            raise refusal
        return None

    def smaller(self, case: Case, machine: str) -> Iterator[Case]:
        for i in range(len(case.changes)):
            yield dataclasses.replace(case, changes=case.changes[:i] + case.changes[i + 1 :])

    def write(self, case: Case, folder: Path) -> None:
        (folder / "damaged.opu").write_bytes(damaged_file(case))


KIND = Programs()
