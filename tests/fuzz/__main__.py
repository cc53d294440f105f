"""python -m tests.fuzz: run a campaign, or one case again. See docs/testing.md."""

import argparse
import logging
import signal
import sys
import time
from pathlib import Path

from tests.fuzz.campaign import Plan, run, table
from tests.fuzz.kinds import HOMES, kind


def main() -> int:
    """1 when anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--kind", "--kinds", nargs="+", choices=list(HOMES), default=list(HOMES))
    parser.add_argument("--minutes", type=float, help="time for all kinds together")
    parser.add_argument("--count", type=int, help="cases of each kind")
    parser.add_argument("--seed", type=int, default=1, help="of the first case")
    parser.add_argument("--only-seed", type=int, help="this case and no other")
    parser.add_argument("--machine", help="this machine and no other")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"), help="folder for finds")
    parser.add_argument("--no-shrink", action="store_true", help="leave finds as they are")
    args = parser.parse_args()
    if args.minutes is None and args.count is None and args.only_seed is None:
        parser.error("give --minutes, --count or --only-seed")
    logging.disable(logging.WARNING)  # ONNX Runtime's quantiser has advice
    plan = Plan(
        kinds=[kind(name) for name in args.kind],
        minutes=args.minutes,
        cases=args.count,
        seed=args.seed,
        only_seed=args.only_seed,
        machine=args.machine,
        jobs=args.jobs,
        folder=args.out,
        shrink=not args.no_shrink,
    )
    print(f"kinds {', '.join(args.kind)}; seed {args.seed}; finds go to {args.out}", flush=True)
    for ending in (signal.SIGINT, signal.SIGTERM):  # in the background, too: the table comes then
        signal.signal(ending, signal.default_int_handler)
    begun = time.monotonic()
    counts, finds = run(plan, lambda line: print(line[:300], flush=True))
    print(table(counts, finds))
    print(f"{time.monotonic() - begun:.0f} s")
    return int(bool(finds.found))


if __name__ == "__main__":
    sys.exit(main())
