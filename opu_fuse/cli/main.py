"""The command line: the only folder that prints, a file a verb.

Exit codes: 0 done, 1 the user's input cannot be handled (one line, no traceback), 2 wrong usage,
3 a bug of ours.
"""

import errno
import io
import logging
import os
import sys
from typing import Annotated, NoReturn

import typer

from opu_fuse import __version__
from opu_fuse.choices import named_for_the_command
from opu_fuse.cli import cosim, hw, zoo
from opu_fuse.cli.accuracy import accuracy
from opu_fuse.cli.asm import asm
from opu_fuse.cli.compile import compile_
from opu_fuse.cli.console import err, out
from opu_fuse.cli.explore import explore
from opu_fuse.cli.inspect import inspect
from opu_fuse.cli.partition import partition, with_optional_value
from opu_fuse.cli.report import report
from opu_fuse.cli.run import run
from opu_fuse.cli.sweep import sweep
from opu_fuse.errors import OpuFuseError
from opu_fuse.process import interrupts

app = typer.Typer(
    name="opu-fuse",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Compile CNNs for OPU-style overlays and run them on simulators and RTL.",
)
app.command("compile")(compile_)
for verb in (partition, run, accuracy, inspect, report, sweep, explore, asm):
    app.command()(verb)
app.add_typer(hw.app, name="hw")
app.add_typer(zoo.app, name="zoo")
app.add_typer(cosim.app, name="cosim")


_NO_SCREEN = {errno.ENOSPC, errno.EIO, errno.EPIPE, errno.EBADF}


@named_for_the_command()
def main() -> None:
    """The console command, once it has started (`__main__.py`)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names may hold what the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        app(args=with_optional_value(_for_all_first(sys.argv[1:])), standalone_mode=True)
    except Exception as error:
        if interrupts.was_interrupted():
            raise
        _refuse(error)


_FOR_ALL = frozenset({"-q", "--quiet", "-v", "--verbose"})


def _for_all_first(arguments: list[str]) -> list[str]:
    """Options that precede the verb may also follow it, as people write them."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    moved = [word for word in arguments[:end] if word in _FOR_ALL]
    return [*moved, *(a for i, a in enumerate(arguments) if i >= end or a not in _FOR_ALL)]


def _refuse(error: Exception) -> NoReturn:
    if isinstance(error, OpuFuseError):
        err.print(f"error: {error}")
        for note in getattr(error, "__notes__", ()):
            err.print(f"  {note}")
        sys.exit(error.exit_code)
    if isinstance(error, OSError) and (what := _about_files(error)) is not None:
        err.print(f"error: {what}")
        if error.filename is None and sys.stdout is not None:  # it is the screen
            # Python writes what is left once more when it ends, and would fail with another code.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    logging.getLogger(__name__).debug("traceback", exc_info=error)
    err.print(
        f"internal error: {type(error).__name__}: {error} (please report this; -v shows the "
        "traceback)",
    )
    sys.exit(3)


def _about_files(error: OSError) -> str | None:
    """What the file system refused to do; None where it is not that."""
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}; choose another path"
    if error.errno in _NO_SCREEN:
        return f"what is printed cannot be written: {error.strerror}"
    return None


class _Printed(logging.Handler):
    """On stderr, a record a line; a warning that has been printed is not repeated."""

    def __init__(self) -> None:
        super().__init__()
        self._warned: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if interrupts.was_interrupted():
            return  # libraries complain about what was interrupted
        text = f"{record.levelname:8} {self.format(record)}"
        if record.levelno == logging.WARNING:
            if text in self._warned:
                return
            self._warned.add(text)
        err.print(text)


@app.callback(invoke_without_command=True)
def _global(
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "-v", "--verbose", help="log what is done; with an internal error, its traceback"
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="print errors and --json output only")
    ] = False,
) -> None:
    """Options that precede the verb."""
    out.quiet = quiet
    if version:
        out.print(f"opu-fuse {__version__}")
        raise typer.Exit
    level = logging.DEBUG if verbose else logging.ERROR if quiet else logging.WARNING
    others = logging.WARNING if verbose else logging.ERROR  # libraries say nothing to users
    logging.basicConfig(level=others, format="%(message)s", handlers=[_Printed()], force=True)
    logging.captureWarnings(capture=True)
    logging.getLogger("opu_fuse").setLevel(level)
