"""The console command, and `python -m opu_fuse`.

Nothing is imported above `main` that Python has not loaded already: from then on Ctrl-C is handled.
"""

import os
import sys


def main() -> None:
    """Start quickly, then do what the command line says."""
    try:
        from opu_fuse.process import interrupts
    except KeyboardInterrupt:
        os.write(2, b"interrupted\n")
        sys.exit(130)
    with interrupts.handled():
        from opu_fuse.process.startup import start_quickly

        start_quickly()
        from opu_fuse.cli.main import main as command  # only now: what it imports takes time, too

        command()


def process() -> None:
    """The process of a command, which ends with it: who calls `main` may continue."""
    try:
        main()
    except SystemExit as end:
        from opu_fuse.process import interrupts

        if interrupts.was_interrupted():  # libraries' exit handlers would report errors
            os._exit(int(end.code or 0))
        if not end.code:
            from opu_fuse.cli.console import flush
            from opu_fuse.process.startup import allow_quick_exit

            allow_quick_exit(flush)
        raise


if __name__ == "__main__":
    process()
