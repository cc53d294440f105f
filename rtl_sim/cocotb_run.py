"""Runs the cocotb tests of a module in a simulator built by `build.py`."""

import os
from unittest.mock import patch

from rtl_sim.coverage import coverage_arguments

_OTHERS = ("WAVES", "GUI", "PYTEST_CURRENT_TEST", "COCOTB_TEST_FILTER")
"""Variables of the caller that cocotb would obey."""


def run_tests(simulator, module, folder, *, seed, extra_env=None, waves=None, **options):
    """(tests, failed) of one run. simulator: of `executable`; folder: where the run may write;
    waves: .fst or .vcd file, for a simulator that can; options: of cocotb's runner.

    RuntimeError when the simulator ends before its tests do.
    """
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    with patch.dict(os.environ):
        for name in _OTHERS:
            os.environ.pop(name, None)
        results = get_runner("verilator").test(
            test_module=module,
            hdl_toplevel=simulator.name,
            hdl_toplevel_lang="verilog",
            build_dir=simulator.parent,
            test_dir=folder,
            results_xml=str(folder.resolve() / "results.xml"),
            seed=seed,
            test_args=["--trace", "--trace-file", str(waves.resolve())] if waves else [],
            plusargs=[*options.pop("plusargs", []), *coverage_arguments()],
            extra_env={
                "COCOTB_LOG_LEVEL": "WARNING",
                "COCOTB_ANSI_OUTPUT": "0",
                **(extra_env or {}),
            },
            **options,
        )
    return get_results(results)
