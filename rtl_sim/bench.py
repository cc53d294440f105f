"""`python -m rtl_sim.bench`: cocotb tests on a design of others with the machine inside.

Exit status 0 when all tests have passed.
"""

import argparse
import logging
import sys
from pathlib import Path

from opu_fuse.errors import OpuFuseError
from opu_fuse.hw.spec.load_spec import load_hw
from rtl_sim.build import Design, executable
from rtl_sim.cocotb_run import run_tests


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="name or YAML file of the machine")
    parser.add_argument("--top", required=True, help="outermost module")
    parser.add_argument("--module", required=True, help="cocotb module")
    parser.add_argument("--folder", type=Path, required=True, help="where the run may write")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--waves", type=Path, help=".fst or .vcd")
    parser.add_argument("sources", type=Path, nargs="+", help="SystemVerilog files")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    waves = options.waves
    try:
        simulator = executable(
            Design(
                top=options.top,
                spec=load_hw(options.spec),
                sources=tuple(options.sources),
                public=True,
                waves=waves.suffix[1:] if waves else "",
            )
        )
    except OpuFuseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    try:
        tests, failed = run_tests(
            *(simulator, options.module, options.folder),
            seed=options.seed,
            waves=waves,
            extra_env={"COCOTB_LOG_LEVEL": "INFO"},
        )
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0 if tests and not failed else 1


if __name__ == "__main__":
    raise SystemExit(main())
