"""`opu_fuse.sweep`: points on Dask workers, rows on disk, a table at the end."""

import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct, field

from opu_fuse.choices import option
from opu_fuse.errors import RunError
from opu_fuse.process.interrupts import deferred
from opu_fuse.sweeping.journal import Journal, journal
from opu_fuse.sweeping.plan import Setting, Task, read_plan
from opu_fuse.sweeping.point import described, failed, points, quantised
from opu_fuse.sweeping.source import source_digest
from opu_fuse.sweeping.table import frame

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[int, int, float], None]
"""Receives the points done, all points, and the seconds left (nan: unknown)."""

ANSWERS_WITHIN = 10.0
"""Seconds for a scheduler."""
TASKS_PER_THREAD = 3
"""Tasks per thread submitted to the scheduler at one time, however many remain."""


def sweep(
    plan: str | Path | Mapping[str, Any],
    folder: str | Path | None = None,
    *,
    cluster: str | None = None,
    jobs: int | None = None,
    progress: Progress = lambda *_: None,
) -> "pd.DataFrame":
    """All points of a sweep, a row each, in the order of the axes.

    plan: a YAML file, or a mapping (docs/sweep.md). folder: where rows are stored; those
    that exist already are not computed again; None: a temporary folder. cluster: address of a Dask
    scheduler; else processes of this machine, `jobs` of them (None: one a core). Points that fail
    are rows with an `error`. Raises UserError for a plan that says nothing sensible.
    """
    tasks = read_plan(plan)
    with ExitStack() as stack:
        journal_folder = folder or stack.enter_context(TemporaryDirectory())
        book = stack.enter_context(journal(Path(journal_folder)))
        todo = list(missing_points(tasks, book))
        if todo:
            client = stack.enter_context(workers(cluster, jobs))
            total = sum(len(task.settings) for task in tasks)
            Run(client=client, book=book, total=total, progress=progress).all(todo)
        return frame(tasks, book.rows)


Todo = tuple[Task, dict[str, Setting]]


def missing_points(tasks: Sequence[Task], book: Journal) -> Iterator[Todo]:
    """Tasks with the points that have no row; one that is named twice is computed once."""
    seen = set(book.rows)
    for task in tasks:
        missing = {key: setting for key, setting in task.points().items() if key not in seen}
        seen |= missing.keys()
        if missing:
            yield task, missing


@contextmanager
def workers(cluster: str | None, count: int | None) -> Generator[Any]:
    """Dask's client of a scheduler, or of processes of this machine."""
    try:
        from distributed import Client, LocalCluster
    except ModuleNotFoundError:
        raise RunError(
            "sweep", "workers are Dask's, which is not installed", "pip install 'opu-fuse[sweep]'"
        ) from None
    logging.getLogger("distributed").setLevel(logging.ERROR)  # comings and goings of workers
    if cluster is not None:
        try:
            client = Client(cluster, timeout=ANSWERS_WITHIN, set_as_default=False)
        except OSError:
            raise RunError(
                option("cluster"), f"no scheduler answers at {cluster}", "start one: dask scheduler"
            ) from None
        with client:
            require_same_source(client, source_digest())
            yield client
        return
    resource_tracker.ensure_running()  # where it starts, it lets signals through to what follows
    with _Local() as local:
        with deferred():  # a cluster that has only half started cannot be ended
            local.cluster = LocalCluster(
                n_workers=count,
                threads_per_worker=1,
                dashboard_address=":0",  # any free port: nobody opens it
                silence_logs=logging.ERROR,
            )
            local.client = Client(local.cluster, set_as_default=False)
        yield local.client


class _Local(Struct):
    """Workers of this machine. They end with the block. When it is interrupted they are killed, and
    the libraries' errors about that are not logged.
    """

    cluster: Any = None
    client: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with deferred():
            if self.cluster is not None and kind is not None and not issubclass(kind, Exception):
                self._kill()
            for end in (self.client, self.cluster):
                if end is not None:
                    end.close()

    def _kill(self) -> None:
        for library in ("asyncio", "distributed", "tornado"):
            logging.getLogger(library).setLevel(logging.CRITICAL + 1)
        for nanny in self.cluster.workers.values():
            nanny.auto_restart = False
            if nanny.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(nanny.pid, signal.SIGKILL)


def require_same_source(client: Any, mine: str) -> None:
    """Raises RunError for workers that would compute with another opu-fuse than `mine`, or none."""
    for worker, digest in client.run(source_digest, on_error="return").items():
        if isinstance(digest, Exception):
            raise RunError(f"worker {worker}", str(digest), "pip install 'opu-fuse[sweep]' on it")
        if digest != mine:
            raise RunError(
                f"worker {worker}", "has another opu-fuse than this computer", "install the same"
            )


class Run(Struct):
    """models: those that are held or whose tasks are not all done, on the workers; left: their
    tasks.
    """

    client: Any
    book: Journal
    total: int
    progress: Progress
    models: dict[str, Any] = field(default_factory=dict)
    left: Counter[str] = field(default_factory=Counter)

    def hold(self, tasks: Sequence[Task]) -> None:
        """Their models remain on the workers when no task of theirs is left."""
        self.left.update(task.model_key for task in tasks)

    def all(self, todo: list[Todo]) -> None:
        """A task is handed out when another one is done: the scheduler knows few at one time."""
        from distributed import as_completed

        self.left.update(task.model_key for task, _ in todo)
        threads = sum(self.client.nthreads().values()) or 1
        coming = iter(todo)
        running: dict[Any, Todo] = {}
        done = as_completed(loop=self.client.loop)

        def hand_out() -> None:
            if (following := next(coming, None)) is not None:
                future = self._submit(*following)
                running[future] = following
                done.add(future)

        for _ in range(TASKS_PER_THREAD * threads):
            hand_out()
        begun, computed = time.monotonic(), 0
        for future in done:
            task, missing = running.pop(future)
            computed += len(missing)
            self._keep(future, task, missing)
            hand_out()
            left = sum(len(settings) for _, settings in todo) - computed
            seconds = (time.monotonic() - begun) / computed * left
            self.progress(self.total - left, self.total, seconds)

    def _submit(self, task: Task, missing: dict[str, Setting]) -> Any:
        key = task.model_key
        if key not in self.models:
            data = None
            if task.model.path is not None:
                data = self.client.scatter(task.model.path.read_bytes(), hash=True)
            self.models[key] = self.client.submit(quantised, task, data, pure=False)
        settings = list(missing.values())
        return self.client.submit(points, task, settings, self.models[key], pure=False)

    def _keep(self, future: Any, task: Task, missing: dict[str, Setting]) -> None:
        """An exception is a bug of ours, or workers that were lost again and again."""
        error = future.exception()
        if error is None:
            results = future.result()
        else:
            results = [failed(f"internal error: {type(error).__name__}: {error}")] * len(missing)
        rows = zip(missing.items(), results, strict=True)
        self.book.add([described(task, *item) | row for item, row in rows])
        future.release()
        self.left[task.model_key] -= 1
        if not self.left[task.model_key]:
            self.models.pop(task.model_key).release()
