"""Proofs by trying all inputs, in a simulation without cocotb: where a solver is slow, and 2**26
products are not.
"""

import subprocess
import sys
from collections.abc import Mapping

from opu_fuse.errors import InternalError
from opu_fuse.hw.spec.hw_spec import HwSpec
from rtl_sim.build import verilated


def holds(top: str, spec: HwSpec, parameters: Mapping[str, int]) -> bool:
    """Whether `top`, which makes its own clock and inputs, finds all results right."""
    built = "--binary", "-O3", "-Wno-fatal", "-CFLAGS", "-O2", "--Mdir", "built"
    overrides = [f"-G{name}={value}" for name, value in parameters.items()]
    with verilated(top, spec, *built, *overrides) as (folder, done):
        if done.returncode:
            raise InternalError("formal", done.stdout[-2000:])
        run = subprocess.run(
            [folder / "built" / f"V{top}"], capture_output=True, text=True, check=False
        )
    if "all are right" in run.stdout:
        return True
    if "Assert failed" not in run.stdout:
        raise InternalError("formal", (run.stdout + run.stderr)[-2000:])
    print(run.stdout[-2000:], file=sys.stderr)
    return False
