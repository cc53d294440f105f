"""A running RTL simulation of one machine, as a child process.

The child (`python -m rtl_sim.run`) builds the simulator if it is not in the cache, then takes
commands and gives answers as lines of JSON on its standard streams. The memory window is a file
that both processes map, so nothing is copied between runs.
"""

import contextlib
import json
import logging
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from opu_fuse import resources
from opu_fuse.errors import InternalError, RunError
from opu_fuse.hw.isa.register_map import ErrorCode
from opu_fuse.hw.isa.table import WATCHDOG_RESET, Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.process.progress import report
from opu_fuse.sim.ddr import Ddr
from opu_fuse.sim.rtl.machine_run import MachineStop, ProgramRun, Retired
from opu_fuse.sim.runner import require_waves

log = logging.getLogger(__name__)

REPLY = "@opu "
_LONGEST_RUN_CYCLES = 1 << 40
"""Far beyond any program: the watchdog ends one that hangs."""
_WATCH_SECONDS = 0.5
"""Between two reports of progress."""


class RtlMachine:
    """One simulated machine; programs run one after the other on the same memory window.

    spec: what is built; image: uint8, the window's content at the start (copied). latency
    (cycles) and bytes_per_cycle of the memory: None takes the spec's. dram: name of a DDR memory,
    instead of bytes_per_cycle. waves: .fst or .vcd file to write. orders: seed of the order in
    which the memory takes addresses and data of writes; 0: data after their address, with the
    cycles of the cycle engine. seed: of whatever else is random. cache: folder of built simulators,
    None for the user's. watchdog: cycles without a retirement; 0 switches it off. fast: the
    simulator is built for long programs, which takes several times as long. defines: of the RTL.
    The RTL's assertions are always checked; a failure raises InternalError.
    A context manager; `window` is the shared memory window, valid until `close`.
    """

    def __init__(
        self,
        spec: HwSpec,
        image: np.ndarray,
        *,
        latency: int | None = None,
        bytes_per_cycle: float | None = None,
        dram: str | None = None,
        waves: Path | None = None,
        orders: int = 0,
        seed: int = 1,
        cache: Path | None = None,
        watchdog: int = WATCHDOG_RESET,
        fast: bool = False,
        defines: Sequence[str] = (),
    ) -> None:
        if waves is not None:
            require_waves(waves)
        latency = spec.dram.latency if latency is None else latency
        numbers = None if dram is None else Ddr(dram, spec, latency).numbers()
        self._waves = waves
        self.spec = spec
        self._watchdog = watchdog
        self._folder = Path(tempfile.mkdtemp(prefix="opu_fuse-rtl-"))
        self._retired_at = 0
        self._working = False  # a command has no answer yet
        self._log: deque[str] = deque(maxlen=60)
        self._replies: queue.Queue[dict[str, Any] | None] = queue.Queue()
        try:
            self.window = self._share(image)
            arguments = [
                *("--spec", str(self._write_spec())),
                *("--image", str(self.memory_file)),
                *("--retired", str(self._folder / "retired.txt")),
                *("--folder", str(self._folder)),
                *("--latency", str(latency)),
                *(("--ddr", ",".join(map(str, numbers))) if numbers else ()),
                "--bytes-per-cycle",
                str(spec.dram.bytes_per_cycle if bytes_per_cycle is None else bytes_per_cycle),
                *("--orders", str(orders)),
                *("--seed", str(seed)),
                *(("--waves", str(self._temporary_waves())) if waves else ()),
                *(("--fast",) if fast else ()),
                *(f"--define={name}" for name in defines),
            ]
            self._child = _start(arguments, self._folder, cache)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        report("build the simulator, unless it is in the cache", 0.0)
        try:
            self._answer(None)  # built and out of reset
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        program_offset: int,
        words: int,
        *,
        instructions: int = 0,
        timeout_seconds: float | None = None,
        max_cycles: int = _LONGEST_RUN_CYCLES,
    ) -> ProgramRun | MachineStop:
        """Run the program of `words` words at `program_offset` of the window, to its end or to the
        machine's error. instructions: in the program, to report progress by; 0: none is reported.
        RunError when it takes longer than allowed; the machine is closed then.
        """
        begun = time.monotonic()
        self._send(
            do="run",
            base=program_offset,
            words=words,
            window=self._window_bytes,
            watchdog=self._watchdog,
            limit=max_cycles,
        )
        answer = self._answer(timeout_seconds, instructions)
        retired = self._take_retired()
        if answer.get("timeout"):
            self.close()
            raise RunError(
                "RTL simulation",
                f"not done after {max_cycles} cycles, next word fetched is {answer['pc']}",
                "raise the limit",
            )
        if answer["error"]:
            return MachineStop(
                code=ErrorCode(answer["error"]), engine=Engine(answer["engine"]), pc=answer["pc"]
            )
        return ProgramRun(
            cycles=answer["cycles"],
            busy=dict(zip(Engine, answer["busy"], strict=True)),
            stall=dict(zip(Engine, answer["stall"], strict=True)),
            read_beats=answer["read_beats"],
            write_beats=answer["write_beats"],
            retired=retired,
            seconds=time.monotonic() - begun,
        )

    def reset(self) -> None:
        """Pull the reset line; the window keeps its content."""
        self._send(do="reset")
        self._answer(None)

    def read(self, offset: int, *, cycles: int = 0) -> int:
        """A control register, by its byte offset. RunError where the access is refused. cycles:
        that pass afterwards.
        """
        self._send(do="read", offset=offset, cycles=cycles)
        return self._accepted("read of", offset)["value"]

    def write(self, offset: int, value: int, *, cycles: int = 0) -> None:
        """Write a control register; the rest as of `read`."""
        self._send(do="write", offset=offset, value=value, cycles=cycles)
        self._accepted("write to", offset)

    def let_pass(self, cycles: int) -> None:
        """Time passes between accesses to control registers."""
        self._send(do="pass", cycles=cycles)
        self._answer(None)

    def wait(self, cycles: int) -> bool:
        """Time passes until the interrupt is high, so many cycles at most. Whether it is."""
        self._send(do="wait", cycles=cycles)
        return self._answer(None)["irq"]

    def _accepted(self, access: str, offset: int) -> dict[str, Any]:
        answer = self._answer(None)
        if answer["resp"]:
            what = f"the {access} {offset:#x} was answered with SLVERR"
            raise RunError("RTL simulation", what, "see docs/registers.md for what is allowed when")
        return answer

    def close(self) -> None:
        """End the simulation and remove its files; `window` must not be used any more."""
        interrupted = self._working
        if interrupted:  # nobody waits for the rest
            _end(self._child)
        if self._child.stdin and not self._child.stdin.closed:
            try:
                self._child.stdin.close()  # end of input ends the session, waves are complete
            except BrokenPipeError:
                log.debug("the simulator has already gone")
        try:
            self._child.wait(timeout=60)
        except subprocess.TimeoutExpired:
            _end(self._child)
        self._reader.join(timeout=10)
        if self._child.stdout:
            self._child.stdout.close()
        self._place_waves(whole=not interrupted)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _share(self, image: np.ndarray) -> np.ndarray:
        """The window as the caller sees it; the machine's ends with a whole beat of the bus."""
        bus = self.spec.dram.bus_bytes
        self._window_bytes = -(-image.size // bus) * bus
        shared = np.memmap(self.memory_file, np.uint8, "w+", shape=(self._window_bytes,))
        window = np.asarray(shared[: image.size])
        if image.any():  # a new file holds zeros, and takes no space
            window[:] = image
        return window

    @property
    def memory_file(self) -> Path:
        """File that holds the window, shared with the simulator. It is removed by `close`."""
        return self._folder / "dram.bin"

    def _temporary_waves(self) -> Path:
        """Where the simulator writes waves: they get their name when they are complete."""
        assert self._waves is not None
        path = Path(os.path.realpath(self._waves))
        return path.with_name(f".{self._folder.name}{path.suffix}")

    def _place_waves(self, *, whole: bool) -> None:
        if self._waves is None or not self._temporary_waves().exists():
            return
        if whole:
            self._temporary_waves().replace(os.path.realpath(self._waves))
        else:
            self._temporary_waves().unlink()

    def _write_spec(self) -> Path:
        path = self._folder / f"{self.spec.name}.yaml"
        path.write_text(self.spec.to_yaml(), encoding="utf-8")
        return path

    def _send(self, **command: object) -> None:
        stream: IO[str] | None = self._child.stdin
        if stream is None or stream.closed:
            raise InternalError("RTL simulation", "a command to a closed simulation")
        try:
            stream.write(json.dumps(command) + "\n")
            stream.flush()
            self._working = True
        except BrokenPipeError:
            raise self._died() from None

    def _answer(self, timeout_seconds: float | None, instructions: int = 0) -> dict[str, Any]:
        try:
            answer = self._reply(timeout_seconds, instructions)
        except queue.Empty:
            _end(self._child)
            self.close()
            raise RunError(
                "RTL simulation",
                f"not done after {timeout_seconds:g} seconds",
                "allow more time, or run fewer layers",
            ) from None
        self._working = False
        if answer is None:
            raise self._died()
        fatal = answer.get("fatal")
        if fatal:
            if fatal["user"]:
                raise RunError(fatal["where"], fatal["what"], fatal["help"])
            raise InternalError(fatal["stage"], fatal["what"])
        return answer

    def _reply(self, timeout_seconds: float | None, instructions: int) -> dict[str, Any] | None:
        """The next reply; queue.Empty when the time is over. Reports progress meanwhile."""
        end = float("inf") if timeout_seconds is None else time.monotonic() + timeout_seconds
        while (left := end - time.monotonic()) > _WATCH_SECONDS:
            with contextlib.suppress(queue.Empty):
                return self._replies.get(timeout=_WATCH_SECONDS)
            if instructions:
                done = min(self._retired_lines(), instructions)
                what = f"RTL: {done:,} of {instructions:,} instructions"
                report(what, done / instructions)
        return self._replies.get(timeout=max(left, 0.0))

    def _retired_lines(self) -> int:
        """Instructions of the current program that the simulator has written so far."""
        with (self._folder / "retired.txt").open("rb") as file:
            file.seek(self._retired_at)
            return file.read().count(b"\n")

    def _died(self) -> InternalError:
        return InternalError("RTL simulation", "the simulator ended:\n" + "\n".join(self._log))

    def _read(self) -> None:
        """Answers to the queue, everything else to the log; None when the child is gone."""
        stream = self._child.stdout
        for line in stream or ():
            text = line.rstrip("\n")
            if text.startswith(REPLY):
                self._replies.put(json.loads(text.removeprefix(REPLY)))
            elif text:
                self._log.append(text)
                log.info("%s", text)
        self._replies.put(None)

    def _take_retired(self) -> tuple[Retired, ...]:
        with (self._folder / "retired.txt").open(encoding="ascii") as file:
            file.seek(self._retired_at)
            lines = file.readlines()
            self._retired_at = file.tell()
        rows = (tuple(map(int, line.split())) for line in lines)
        return tuple(Retired(engine=Engine(e), pc=p, start=s, end=t) for e, p, s, t in rows)


def _start(arguments: list[str], folder: Path, cache: Path | None) -> subprocess.Popen[str]:
    environment = child_environment()
    if cache is not None:
        environment["OPU_FUSE_CACHE"] = str(cache.resolve())
    return subprocess.Popen(
        [sys.executable, "-m", "rtl_sim.run", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # so that it can be ended with the processes it has started
    )


def child_environment(*first: Path) -> dict[str, str]:
    """That of a process that imports `rtl_sim`. first: folders of further modules, before all."""
    packages = (resources.rtl_dir().parent, Path(resources.__file__).parents[1])
    paths = [*map(str, (*first, *packages)), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _end(child: subprocess.Popen[str]) -> None:
    """End our child and what it has started."""
    if child.poll() is None:
        os.killpg(child.pid, 15)
        try:
            child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            child.wait()
