"""The console command, and `python -m opu_fuse`."""

import os

from opu_fuse.startup import start_quickly


def main() -> None:
    """Start quickly, then do what the command line says."""
    try:
        start_quickly()
        from opu_fuse.cli.main import main as command  # only now: what it imports takes time, too

        command()
    except KeyboardInterrupt:  # while importing; later the command line itself says so
        os.write(2, b"interrupted\n")
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
