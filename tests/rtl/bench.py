"""Runs the cocotb benches of `rtl_sim/benches` in simulators from `rtl_sim.build`."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from opu_fuse.hw.load import load_hw
from rtl_sim.build import Design, executable

REPO = Path(__file__).resolve().parents[2]


def run_bench(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    *,
    top: str,
    module: str,
    spec: str,
    seed: int,
    rounds: int,
    defines: tuple[str, ...] = (),
    public: bool = False,
    parameters: Mapping[str, int] | None = None,
) -> None:
    """All tests of a bench module on a machine; fails with the output of the failed ones."""
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    design = Design(
        top=top,
        spec=load_hw(spec),
        public=public,
        defines=defines,
        parameters=parameters or {},
    )
    simulator = executable(design)
    for name in ("WAVES", "GUI", "PYTEST_CURRENT_TEST", "COCOTB_TEST_FILTER"):
        monkeypatch.delenv(name, raising=False)
    results, log = folder / "results.xml", folder / "log.txt"
    with contextlib.suppress(RuntimeError):  # a failed run: told below, with its log
        get_runner("verilator").test(
            test_module=module,
            hdl_toplevel=top,
            hdl_toplevel_lang="verilog",
            build_dir=simulator.parent,
            test_dir=folder,
            results_xml=str(results),
            seed=seed,
            log_file=log,
            extra_env={
                "COCOTB_LOG_LEVEL": "WARNING",
                "COCOTB_ANSI_OUTPUT": "0",
                "OPU_BENCH_SPEC": spec,
                "OPU_BENCH_ROUNDS": str(rounds),
                "PYTHONPATH": os.pathsep.join([str(REPO), os.environ.get("PYTHONPATH", "")]),
            },
        )
    text = log.read_text(encoding="utf-8", errors="replace")
    assert results.is_file(), f"seed {seed}: the simulator stopped early\n{text[-8000:]}"
    tests, failed = get_results(results)
    assert tests, f"the bench ran no test:\n{text[-4000:]}"
    assert not failed, f"seed {seed}: {failed} of {tests} tests failed\n{text[-12000:]}"
