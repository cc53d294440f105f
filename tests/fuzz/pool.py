"""Processes that judge cases, under limits of time and memory.

Work comes as jobs: generators that give requests and are sent the verdicts. So a campaign and the
shrinking of a find are loops that read straight on, while any number of them run side by side.
"""

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, BinaryIO, Self

from tests.fuzz.cases import Kind, Outcome, Verdict
from tests.fuzz.worker import SECONDS_PER_CASE, SHOW_STACK, Begun, Request, resident_mib, serve
from tests.some import some

Job = Generator[Request, list[Verdict], None]

REQUESTS_PER_PROCESS = 300
MIB_PER_CASE = 1024
_POLL_SECONDS = 0.2
_PATIENCE = 6
"""Limits are of processor time; of time on the wall a case has so many times as much."""


@dataclass(slots=True)
class _Worker:
    """A process, and the job it works for. machine: which one it is at, since when, how long it
    may take. inherited: MiB that it held from its parent when it began.
    """

    process: Any
    pipe: Connection
    stack: BinaryIO
    inherited: int
    job: Job | None = None
    machine: str = ""
    since: float = 0.0
    used: float = 0.0
    seconds: float = SECONDS_PER_CASE
    requests: int = 0
    verdicts: list[Verdict] = field(default_factory=list)

    def give(self, job: Job, request: Request) -> None:
        self.job, self.verdicts = job, []
        self.start_clocks()
        self.machine = request.machine or ""
        self.requests += 1
        self.pipe.send(request)

    def held_mib(self) -> int:
        """Memory that it holds now of its own."""
        return resident_mib(self.process.pid) - self.inherited

    def start_clocks(self) -> None:
        self.since, self.used = time.monotonic(), _processor_seconds(self.process.pid)

    def end(self) -> None:
        self.pipe.close()
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.stack.close()

    def place(self) -> str:
        """Where it is, or was when it died."""
        if self.process.is_alive():
            os.kill(self.process.pid, SHOW_STACK)
            time.sleep(_POLL_SECONDS)
        self.stack.seek(0)
        lines = self.stack.read().decode(errors="replace").splitlines()
        ours = [line.strip() for line in lines if "/opu_fuse/" in line]
        return (ours or [line.strip() for line in lines if "File" in line] or ["?"])[0]


class Pool:
    """Runs jobs, `count` at a time. A context manager: its processes end with it."""

    def __init__(self, kinds: dict[str, Kind], count: int) -> None:
        self._kinds, self._count = kinds, count
        self._context = multiprocessing.get_context("fork")
        self._workers: list[_Worker] = []
        self._urgent: list[Job] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.end()

    def add(self, job: Job) -> None:
        """A job to begin before all others that wait."""
        self._urgent.append(job)

    def run(self, jobs: Iterable[Job]) -> None:
        """All jobs, and those that are added on the way, to their ends."""
        waiting = iter(jobs)
        while True:
            busy = [w for w in self._workers if w.job is not None]
            while len(busy) < self._count and (found := self._next(waiting)) is not None:
                worker = self._idle()
                worker.give(*found)
                busy.append(worker)
            if not busy:
                return
            for pipe in wait([w.pipe for w in busy], timeout=_POLL_SECONDS):
                self._listen(next(w for w in busy if w.pipe is pipe))
            for worker in busy:
                self._hold_limits(worker)

    def _next(self, waiting: Iterator[Job]) -> tuple[Job, Request] | None:
        """A job and its first request; jobs that want nothing are done."""
        while True:
            job = self._urgent.pop() if self._urgent else next(waiting, None)
            if job is None:
                return None
            request = next(job, None)
            if request is not None:
                return job, request

    def _idle(self) -> _Worker:
        for worker in self._workers:
            if worker.job is None:
                return worker
        ours, theirs = self._context.Pipe()
        stack = tempfile.TemporaryFile()  # noqa: SIM115 lives as long as the process
        arguments = (self._kinds, theirs, stack)
        process = self._context.Process(target=serve, args=arguments, daemon=True)
        process.start()
        theirs.close()
        inherited = resident_mib(some(process.pid))
        worker = _Worker(process=process, pipe=ours, stack=stack, inherited=inherited)
        self._workers.append(worker)
        return worker

    def _listen(self, worker: _Worker) -> None:
        try:
            said = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            worker.process.join()
            self._lost(worker, Outcome.CRASH, f"the process ended: {worker.process.exitcode}")
            return
        worker.start_clocks()
        if isinstance(said, Begun):
            worker.machine, worker.seconds = said.machine, said.seconds
        elif said is None:
            self._done(worker)
        else:
            worker.verdicts.append(_within_limits(said))

    def _hold_limits(self, worker: _Worker) -> None:
        if worker.job is None or worker not in self._workers:
            return
        waited = time.monotonic() - worker.since
        used = _processor_seconds(worker.process.pid) - worker.used
        if used > worker.seconds or waited > _PATIENCE * worker.seconds:
            self._lost(worker, Outcome.HANG, f"not done after {worker.seconds:g} seconds")
        elif (mib := worker.held_mib()) > 2 * MIB_PER_CASE:
            self._lost(worker, Outcome.MEMORY, f"{mib} MiB and growing")

    def _lost(self, worker: _Worker, outcome: Outcome, line: str) -> None:
        """The process is given up; what it was working on is a find."""
        line = f"{line} at {worker.place()}"
        worker.verdicts.append(Verdict(outcome=outcome, line=line, machine=worker.machine))
        self._workers.remove(worker)
        worker.end()
        self._done(worker)

    def _done(self, worker: _Worker) -> None:
        """Verdicts to the job; its next request goes to the same process, if that is still good."""
        job, worker.job = worker.job, None
        assert job is not None
        if worker.requests >= REQUESTS_PER_PROCESS and worker in self._workers:
            self._workers.remove(worker)
            worker.end()
        try:
            request = job.send(worker.verdicts)
        except StopIteration:
            return
        self._idle().give(job, request)


def _within_limits(verdict: Verdict) -> Verdict:
    """A case that was right but took too much is a find."""
    if verdict.outcome.is_find or verdict.peak_mib <= MIB_PER_CASE:
        return verdict
    line = f"peak of {verdict.peak_mib} MiB"
    return Verdict(outcome=Outcome.MEMORY, line=line, machine=verdict.machine)


def _processor_seconds(pid: int) -> float:
    """Time that a process has run, which other work of the computer does not count into."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
