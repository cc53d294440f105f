"""The console command, and `python -m opu_fuse`.

Nothing is imported above `main` that Python has not loaded already: Ctrl-C is heard from there on.
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
    with interrupts.noted():
        from opu_fuse.process import startup

        startup.start_quickly()
        from opu_fuse.cli.main import main as command  # only now: what it imports takes time, too

        try:
            command()
        except SystemExit as end:
            if not end.code:
                startup.succeeded()
            raise


if __name__ == "__main__":
    main()
