"""Proofs about pipelines: from any state of all registers, what comes out some cycles later is
right. So it is always.

Shifts by any number are hard for a solver, by a known one they are not: a proof may have an input
`case_i`, and is solved once for each of its values.
"""

import re
import subprocess
import sys
from pathlib import Path

from opu_fuse.errors import InternalError


def holds(folder: Path, top: str, steps: int, case_bits: int, solver: str) -> bool:
    """Whether the assertions of `top` hold `steps` cycles after any state, for every value of
    `case_i`. Registers of the proof itself begin with the values that they are declared with.
    """
    script = unrolled((folder / "design.smt2").read_text(encoding="utf-8"), top, steps)
    for value in range(1 << case_bits):
        fixed = [
            f"(assert (= |{step}:{top}_n case_i| #b{value:0{case_bits}b}))"
            for step in range(steps + 1)
            if case_bits
        ]
        (folder / "case.smt2").write_text("\n".join([script, *fixed, "(check-sat)"]), "utf-8")
        done = subprocess.run(
            [solver, "case.smt2"], cwd=folder, capture_output=True, text=True, check=False
        )
        answer = done.stdout.strip()
        if answer == "sat":
            case = f" with case_i = {value}" if case_bits else ""
            print(f"Assert failed in {top}{case}", file=sys.stderr)
            return False
        if answer != "unsat":
            raise InternalError("formal", (done.stdout + done.stderr)[-2000:])
    return True


def unrolled(design: str, top: str, steps: int) -> str:
    """What Yosys wrote, functions of a state, as constants of each cycle: so solvers see through
    what is known. It asks for inputs and registers that break an assertion in the last cycle.
    """
    lines = [s for s in design.splitlines() if s and not s.startswith((";", "(declare-sort"))]
    cycles = [_of_cycle("\n".join(lines), top, step) for step in range(steps + 1)]
    declared = [s for cycle in cycles for s in cycle if s.startswith("(declare-fun")]
    # A cycle's transition names the next cycle's registers; the last one has none.
    defined = [s for cycle in reversed(cycles) for s in cycle if s.startswith("(define-fun")]
    last = f"(define-fun |{steps}:{top}_t|"
    asserted = [f"|{n}:{top}_{part}|" for n in range(steps + 1) for part in "uh"]
    asserted += [f"|{n}:{top}_t|" for n in range(steps)]
    asserted += [f"|0:{top}_i|", f"(not |{steps}:{top}_a|)"]
    return "\n".join(
        [
            "(set-logic QF_BV)",
            *declared,
            *(text for text in defined if not text.startswith(last)),
            *(f"(assert {what})" for what in asserted),
        ]
    )


def _of_cycle(text: str, top: str, step: int) -> list[str]:
    """The functions of a cycle, each a text of its own."""
    state, name = re.escape(f"|{top}_s|"), rf"\|{re.escape(top)}([^|]*)\|"
    text = re.sub(rf"\(\(state {state}\)( \(next_state {state}\))?\)", "()", text)
    text = text.replace(f"(|{top}_s|)", "()")
    text = re.sub(rf"\({name} state\)", rf"|{step}:{top}\1|", text)
    text = re.sub(rf"\({name} next_state\)", rf"|{step + 1}:{top}\1|", text)
    text = re.sub(name, rf"|{step}:{top}\1|", text)
    return re.split(r"\n(?=\(d)", text)
