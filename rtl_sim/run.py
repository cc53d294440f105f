"""`python -m rtl_sim.run`: builds the simulator of a whole machine and runs one session in it.

Standard input and output are the session's (`session.py`); earlier errors are reported in its form,
as `{"fatal": …}`.
"""

import argparse
import logging
import sys
from pathlib import Path

from opu_fuse.errors import OpuFuseError, UserError
from opu_fuse.hw.spec.load_spec import load_hw
from rtl_sim.build import Design, executable
from rtl_sim.cocotb_run import run_tests

REPLY = "@opu "


def main() -> int:
    options = _options()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        simulator = executable(
            Design(
                top="opu_system",
                spec=load_hw(options.spec),
                fast=options.fast and not options.waves,  # writing them takes most of the time
                waves=options.waves.suffix[1:] if options.waves else "",
                defines=tuple(options.define),
            )
        )
    except OpuFuseError as error:
        _fatal(error)
        return error.exit_code
    return _simulate(simulator, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="name or YAML file of the machine")
    parser.add_argument("--image", type=Path, help="DRAM image, which the run changes")
    parser.add_argument("--latency", type=int, default=2, help="cycles")
    parser.add_argument("--orders", type=int, default=0, help="seed; of writes' address and data")
    parser.add_argument("--ddr", help="numbers of a DDR memory (opu_fuse/sim/ddr.py)")
    parser.add_argument("--bytes-per-cycle", type=float, required=True)
    parser.add_argument("--retired", type=Path, required=True, help="file for retire records")
    parser.add_argument("--folder", type=Path, required=True, help="where the run may write")
    parser.add_argument("--waves", type=Path, help=".fst or .vcd")
    parser.add_argument("--fast", action="store_true", help="build longer, for long programs")
    parser.add_argument("--define", action="append", default=[], help="of the RTL")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _simulate(simulator: Path, options: argparse.Namespace) -> int:
    tests, failed = run_tests(
        simulator,
        "rtl_sim.session",
        options.folder,
        seed=options.seed,
        waves=options.waves,
        plusargs=[
            f"+image={options.image.resolve()}",
            f"+latency={options.latency}",
            f"+orders={options.orders}",
            f"+rate256={max(1, round(options.bytes_per_cycle * 256))}",
            f"+retired={options.retired.resolve()}",
            *((f"+ddr={options.ddr}",) if options.ddr else ()),
        ],
    )
    return 0 if tests and not failed else 1


def _fatal(error: OpuFuseError) -> None:
    import json

    user = isinstance(error, UserError)
    fields = ("where", "what", "help") if user else ("stage", "what")
    content = {"user": user} | {name: getattr(error, name, str(error)) for name in fields}
    sys.stdout.write(f"\n{REPLY}{json.dumps({'fatal': content})}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
