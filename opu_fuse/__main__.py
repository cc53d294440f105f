"""The console command, and `python -m opu_fuse`."""

from opu_fuse.startup import start_quickly


def main() -> None:
    """Start quickly, then do what the command line says."""
    start_quickly()
    from opu_fuse.cli.main import main as command  # only now: what it imports takes time, too

    command()


if __name__ == "__main__":
    main()
