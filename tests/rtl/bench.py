"""Runs the cocotb benches of `rtl_sim/benches` in simulators from `rtl_sim.build`."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from opu_fuse.hw.spec.load_spec import load_hw
from rtl_sim.build import Design, executable
from rtl_sim.cocotb_run import run_tests

REPO = Path(__file__).resolve().parents[2]
VISIBLE = {"opu_top": ("opu_control.cycles_low_q",)}  # set close to its end
"""Signals that a bench sees in addition to those of `top`; the same for all benches of a module,
which then share a simulator.
"""


def run_bench(
    folder: Path,
    *,
    top: str,
    module: str,
    spec: str,
    seed: int,
    rounds: int,
    defines: tuple[str, ...] = (),
    parameters: Mapping[str, int] | None = None,
) -> None:
    """All tests of a bench module on a machine; fails with the output of the failed ones."""
    design = Design(
        top=top,
        spec=load_hw(spec),
        visible=(f"{top}.*", *VISIBLE.get(top, ())),
        defines=defines,
        parameters=parameters or {},
    )
    log = folder / "log.txt"
    tests = failed = 0
    with contextlib.suppress(RuntimeError):  # a failed run: told below, with its log
        tests, failed = run_tests(
            executable(design),
            module,
            folder,
            seed=seed,
            log_file=log,
            extra_env={
                "OPU_BENCH_SPEC": spec,
                "OPU_BENCH_ROUNDS": str(rounds),
                "PYTHONPATH": os.pathsep.join([str(REPO), os.environ.get("PYTHONPATH", "")]),
            },
        )
    text = log.read_text(encoding="utf-8", errors="replace")
    assert (folder / "results.xml").is_file(), (
        f"seed {seed}: the simulator stopped early\n{text[-8000:]}"
    )
    assert tests, f"the bench ran no test:\n{text[-4000:]}"
    assert not failed, f"seed {seed}: {failed} of {tests} tests failed\n{text[-12000:]}"
