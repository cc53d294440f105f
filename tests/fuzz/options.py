"""The command line: options, arrays and assembly text that nobody meant, called in this process.

Exit codes are 0, 1 with one line that says why, and 2 for wrong usage. Nothing else is printed on
stderr but notes, and no file is left behind after a refusal.
"""

import contextlib
import functools
import io
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from opu_fuse import zoo
from opu_fuse.cli.main import main
from opu_fuse.errors import RunError
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Program
from opu_fuse.pipeline import compile as compile_program
from tests.bundle.sample import HW, sample_bundle
from tests.fuzz.mutations import HUGE, NUMBERS, change_bytes, change_text, one_of, rng_of
from tests.fuzz.worker import SECONDS_PER_CASE

MODEL, PROGRAM, LISTING, ARRAY, SPEC = "m.onnx", "p.opu", "p.asm", "x.npy", "m.yaml"
FILES = (MODEL, PROGRAM, LISTING, ARRAY, SPEC)
_PLACES = ("out", "out.onnx", "no/out", ".", "", "/dev/null", "x" * 300, "a b", "-o", "ö", *FILES)
_NUMBERS = (*NUMBERS, *HUGE, "nan", "inf", "-inf", "1e9", "0x10", "", "one", 0.5, "1_000", "٣")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """arguments: of the command; changed: file -> seeds of the changes to its bytes."""

    arguments: tuple[str, ...]
    changed: tuple[tuple[str, int], ...]


@functools.cache
def _files() -> dict[str, bytes]:
    """Sound files, by name."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        model = zoo.build("tiny_residual", image=8)
        ir.save(model, place / MODEL)
        compile_program(model, load_hw("opu-tiny")).save(place / PROGRAM)
        np.save(place / ARRAY, np.ones((1, 3, 8, 8), np.float32))
        (place / SPEC).write_text("extends: opu-tiny\nname: mine\n")
        listing = Program(bundle=sample_bundle(), hw=HW)
        listing.save(place / "s.opu")
        from opu_fuse.bundle.listing import program_listing

        (place / LISTING).write_text(program_listing(listing.bundle, HW))
        return {name: (place / name).read_bytes() for name in FILES}


def _number(rng: np.random.Generator) -> str:
    return str(one_of(rng, _NUMBERS))


def _place(rng: np.random.Generator) -> str:
    return str(one_of(rng, _PLACES))


def _word(rng: np.random.Generator) -> str:
    return str(
        one_of(
            rng, ("opu-tiny", "opu-classic", "pow2", "free", "greedy", "all", "plan", "conv", "")
        )
    )


def _input(rng: np.random.Generator) -> str:
    return f"{one_of(rng, ('input', 'x', '', 'input=input'))}={one_of(rng, (ARRAY, *_PLACES))}"


Draw = Callable[[np.random.Generator], str]
_OPTIONS: dict[str, tuple[tuple[str, ...], dict[str, Draw | None]]] = {
    "compile": (
        (MODEL,),
        {
            "--hw": _word,
            "-o": _place,
            "--batch": _number,
            "--strategy": _word,
            "--calibration": _place,
            "--scales": _word,
            "--keep-tensors": None,
            "--cascades": lambda rng: str(one_of(rng, ("auto", "always", "never", "x"))),
            "-O": _number,
            "--time-passes": None,
            "--disable-pass": _word,
            "--print-ir-after": _word,
            "--print-after": _word,
            "--explain-tiles": _word,
        },
    ),
    "partition": (
        (MODEL,),
        {"--hw": _word, "--strategy": _word, "--explain": None, "--json": None},
    ),
    "run": (
        (PROGRAM,),
        {
            "--engine": lambda rng: str(one_of(rng, ("functional", "cycle", "x"))),
            "--input": _input,
            "--output": _place,
            "--check": None,
            "--dump-tensors": _place,
            "--trace": _place,
            "--waves": _place,
            "--latency": _number,
            "--hw": _word,
            "--bytes-per-cycle": _number,
            "--shuffle": _number,
            "--json": None,
        },
    ),
    "inspect": (
        (PROGRAM,),
        {"--asm": None, "--memory": None, "--groups": None, "--fused": _place, "--json": None},
    ),
    "asm": ((LISTING,), {"-o": _place}),
    "hw show": ((SPEC,), {"--operators": None}),
    "hw check": ((SPEC,), {}),
    "hw draw": ((SPEC,), {"-o": lambda rng: str(one_of(rng, ("a.svg", "a.dot", "a.x", "", ".")))}),
    "zoo export": (("tiny_odd",), {"-o": _place, "--seed": _number, "--image": _number}),
}
"""Verb -> what it needs, and its options with what they take."""

_NEEDED: dict[str, tuple[str, ...]] = {
    "compile": ("--hw", "opu-tiny", "-o", "out.opu"),
    "partition": ("--hw", "opu-tiny"),
    "asm": ("-o", "out.bin"),
    "zoo export": ("-o", "out.onnx"),
}


def _drawn(rng: np.random.Generator) -> tuple[str, ...]:
    verb = one_of(rng, list(_OPTIONS))
    needs, options = _OPTIONS[verb]
    words = [*needs]
    if rng.random() < 0.1:
        words = [_place(rng)]
    if rng.random() < 0.9:
        words += _NEEDED.get(verb, ())
    for _ in range(int(rng.integers(0, 4))):
        if not options:
            break
        name = one_of(rng, list(options))
        draw = options[name]
        words += [name] if draw is None else [name, draw(rng)]
    if rng.random() < 0.05:
        rng.shuffle(words)
    return (*verb.split(), *words)


class Options:
    """See the head of this file."""

    name, share = "options", 0.2

    def draw(self, seed: int) -> Case:
        rng = rng_of(seed)
        changed = [(f, int(rng.integers(1 << 31))) for f in FILES if rng.random() < 0.3]
        return Case(arguments=_drawn(rng), changed=tuple(changed))

    def machines(self, case: Case) -> Sequence[str]:
        return [""]

    def seconds(self, case: Case) -> float:
        return SECONDS_PER_CASE

    def judge(self, case: Case, machine: str) -> str | None:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            self.write(case, Path(folder))
            before = set(Path.cwd().iterdir())
            code, said = _called(case.arguments)
            left = sorted(p.name for p in set(Path.cwd().iterdir()) - before)
        return _verdict(code, said, left)

    def smaller(self, case: Case, machine: str) -> Iterator[Case]:
        for i in range(len(case.changed)):
            yield replace(case, changed=case.changed[:i] + case.changed[i + 1 :])
        for i in range(1, len(case.arguments)):
            yield replace(case, arguments=case.arguments[:i] + case.arguments[i + 1 :])

    def write(self, case: Case, folder: Path) -> None:
        seeds = dict(case.changed)
        for name, data in _files().items():
            if name in seeds:
                data = _changed(name, data, seeds[name])
            (folder / name).write_bytes(data)
        if folder != Path.cwd():
            (folder / "arguments.txt").write_text(repr(case.arguments))


def _changed(name: str, data: bytes, seed: int) -> bytes:
    rng = rng_of(seed)
    if name in (LISTING, SPEC):
        return change_text(rng, data.decode()).encode(errors="replace")
    return change_bytes(rng, data)


def _called(arguments: Sequence[str]) -> tuple[object, str]:
    """Exit code, and what was said on stderr."""
    out, err = io.StringIO(), io.StringIO()
    kept = sys.argv
    sys.argv = ["opu-fuse", *arguments]
    code: object = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv = kept
    return code or 0, err.getvalue()


def _verdict(code: object, said: str, left: Sequence[str]) -> str | None:
    """None when right; raises RunError for a refusal as it should be."""
    lines = said.splitlines()
    if "Traceback" in said or "Warning:" in said:
        return f"printed {' | '.join(lines)[-400:]}"
    if code == 0:
        return None
    if left:
        return f"exit code {code}, but {left} is left: {' | '.join(lines)[-300:]}"
    if code == 2:
        raise RunError("wrong usage", "exit code 2", "as it should be")
    errors = [line for line in lines if line.startswith("error: ")]
    if code == 1 and errors:
        raise RunError("refused", errors[0], "as it should be")
    return f"exit code {code}: {' | '.join(lines)[-400:]}"


KIND = Options()
