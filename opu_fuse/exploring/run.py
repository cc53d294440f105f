"""`opu_fuse.explore`: machines for some models on one FPGA, proposed by Optuna, timed by the
workers of a sweep.

Proposals come in batches of a fixed size, so that a seed gives the same ones with any number of
workers. The journal holds the results of each batch. An exploration that was killed makes the same
proposals again, and times the first machine that is not in the journal next.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.choices import option, require_choice, require_names
from opu_fuse.errors import RunError, UserError
from opu_fuse.exploring.design import OPTIONS, WHOLE, Design, on_board
from opu_fuse.exploring.space import parameters_of, propose
from opu_fuse.extras import frame
from opu_fuse.frontend.choice_names import Scales
from opu_fuse.fuse.strategies.strategy_names import DEFAULT_STRATEGY, StrategyLike, StrategyName
from opu_fuse.hw.area.devices import Device, device
from opu_fuse.hw.area.estimate import Area, area, share
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.limits import FASTEST_CLOCK, SLOWEST_CLOCK
from opu_fuse.hw.spec.load_spec import load_hw, load_hw_text, spec_names
from opu_fuse.number_text import counted
from opu_fuse.summaries import summary
from opu_fuse.sweeping.journal import Journal, Row, journal
from opu_fuse.sweeping.plan import Machine, Model, Task, model_of
from opu_fuse.sweeping.run import Progress, Run, missing_points, workers

if TYPE_CHECKING:
    import pandas as pd

Sampler = Literal["tpe", "random"]

BATCH = 4
"""Machines per batch: they are proposed before the first of them is timed."""
KNOWN = 2
"""A search begins with this many machines of the package, the fastest ones."""
UNTRIED = 12
"""Machines that are timed before the search learns from results."""
MOST_REFUSED = 2000
"""Most consecutive proposals that are no machine, or larger than the device."""
SLOWER = 1.02
"""Most slowdown by leaving out an optional module that a search still accepts."""
MOST_ROWS = 60
"""Most machines of a table that a notebook shows."""
_BAD = 1e12
"""Objective of a machine that cannot run the models; the search uses its violation instead."""


class Candidate(Struct, frozen=True, kw_only=True):
    """A machine with its figures.

    milliseconds: by model, of one sample.
    share: of the device, for the kind of cell of which it uses the largest part.
    dram_bytes: of all models.
    """

    spec: HwSpec
    milliseconds: Mapping[str, float]
    area: Area
    share: float
    dram_bytes: int

    @property
    def latency(self) -> float:
        """Milliseconds of all models, one after the other."""
        return sum(self.milliseconds.values())

    @property
    def figures(self) -> dict[str, float]:
        """Sizes, times by model, and resources, as columns of a table."""
        return {
            "mac_units": self.spec.macs,
            "lanes": self.spec.post.lanes,
            **{f"{name} ms": milliseconds for name, milliseconds in self.milliseconds.items()},
            "lut": self.area.lut,
            "dsp": self.area.dsp,
            "bram": self.area.bram,
        }

    def __repr__(self) -> str:
        speed = f"{self.latency:.3f} ms", f"{self.spec.macs:,} MAC/cycle"
        return summary(self, self.spec.name, *speed, f"{self.share:.0%} of the device")


Objective = Literal["latency", "area", "dram", "dsp", "bram", "lut"]

OBJECTIVES: Mapping[str, Callable[[Candidate], float]] = {
    "latency": lambda candidate: candidate.latency,
    "area": lambda candidate: candidate.share,
    "dram": lambda candidate: candidate.dram_bytes,
    "dsp": lambda candidate: candidate.area.dsp,
    "bram": lambda candidate: candidate.area.bram,
    "lut": lambda candidate: candidate.area.lut,
}
"""Objectives that an exploration may minimise."""


class Exploration(Struct, frozen=True, kw_only=True):
    """The result of an exploration.

    best: machines that no other one beats in all objectives, sorted by the first objective.
    tried: all machines, in the order of the proposals.
    shipped: those of `hw_specs/` that fit the device and leave no more to the host, at the same
    clock and memory.
    """

    best: tuple[Candidate, ...]
    tried: tuple[Candidate, ...]
    shipped: tuple[Candidate, ...]

    def __repr__(self) -> str:
        models = ", ".join(self.tried[0].milliseconds)
        fastest = min(self.tried, key=lambda c: c.latency)
        return summary(
            self,
            models,
            f"{len(self.best)} best of {counted(len(self.tried), 'machine')}",
            f"{len(self.shipped)} shipped",
            f"fastest {fastest.latency:.3f} ms with {fastest.spec.macs:,} MAC/cycle",
        )

    def to_frame(self) -> "pd.DataFrame":
        """A pandas table, a row per machine that was tried or is shipped: `rank` among the best,
        sizes, milliseconds of every model, resources, share of the device, DRAM bytes.
        """
        rank = {id(candidate): number for number, candidate in enumerate(self.best, 1)}
        rows = [
            {"machine": c.spec.name, "rank": rank.get(id(c)), "shipped": shipped}
            | c.figures
            | {"share": c.share, "dram_bytes": c.dram_bytes}
            for shipped, candidates in ((False, self.tried), (True, self.shipped))
            for c in candidates
        ]
        return frame(rows, rows[0]).astype({"rank": "Int64"})

    def _repr_html_(self) -> str:
        return self.to_frame().to_html(max_rows=MOST_ROWS)


def explore(
    models: Sequence[str | Mapping[str, Any]],
    device_name: str,
    *,
    objectives: Sequence[Objective] = ("latency", "area"),
    folder: str | Path | None = None,
    trials: int = 60,
    seed: int = 0,
    clock_mhz: float | None = None,
    fill: float | None = None,
    strategy: StrategyLike = DEFAULT_STRATEGY,
    sampler: Sampler = "tpe",
    cluster: str | None = None,
    jobs: int | None = None,
    progress: Progress = lambda *_: None,
) -> Exploration:
    """Machines that fit a device and run some models well.

    models: as in a sweep (docs/sweep.md), quantised to powers of two. folder: where answers are
    stored. trials: machines that are timed; proposals that are none or do not fit do not count.
    clock_mhz: at which all machines are compared; fill: share of the tables, over 0 and at most 1,
    that a machine may take; both None: the device's. sampler: "random" learns nothing, to compare
    with. Raises UserError for what is unknown, a model that no machine takes, and a device on which
    nothing fits.
    """
    if fill is not None and not 0 < fill <= 1:
        raise UserError(
            option("fill", fill), "not a share of the device's tables", "over 0, at most 1"
        )
    if clock_mhz is not None and not SLOWEST_CLOCK <= clock_mhz <= FASTEST_CLOCK:
        what, help_ = "not a clock of a machine", f"{SLOWEST_CLOCK} to {FASTEST_CLOCK:,} MHz"
        raise UserError(option("clock_mhz", clock_mhz), what, help_)
    require_choice("strategy", strategy, StrategyName)
    require_choice("sampler", sampler, get_args(Sampler))
    require_names("objectives", objectives)
    require_names("models", models)
    for name in objectives:
        if name not in OBJECTIVES:
            known = ", ".join(OBJECTIVES)
            raise UserError(option("objectives", name), "unknown objective", f"known: {known}")
    board = device(device_name)
    overrides = {"clock_mhz": clock_mhz, "fill": fill}
    board = replace(board, **{k: v for k, v in overrides.items() if v is not None})
    sources = [model_of(entry, Path()) for entry in models]
    with ExitStack() as stack:
        journal_folder = folder or stack.enter_context(TemporaryDirectory())
        book = stack.enter_context(journal(Path(journal_folder)))
        clock = _Timer(stack, cluster, jobs, book, sources, StrategyName(strategy))
        search = _Search(device_name, board, clock, objectives, progress)
        return search.run(_study(sampler, seed, len(objectives)), trials)


def _study(sampler: Sampler, seed: int, objectives: int) -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise RunError(
            "explore",
            "the search is Optuna's, which is not installed",
            "pip install 'opu-fuse[explore]'",
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    chosen = (
        optuna.samplers.RandomSampler(seed)
        if sampler == "random"
        else optuna.samplers.TPESampler(seed=seed, n_startup_trials=UNTRIED, multivariate=True)
    )
    return optuna.create_study(directions=["minimize" for _ in range(objectives)], sampler=chosen)


class _Timer:
    """Times machines; workers are started when something is not in the journal."""

    def __init__(
        self,
        stack: ExitStack,
        cluster: str | None,
        worker_count: int | None,
        book: Journal,
        models: Sequence[Model],
        strategy: StrategyName,
    ) -> None:
        self._stack, self._cluster, self._book = stack, cluster, book
        self._worker_count = worker_count
        self.models, self._strategy = models, strategy
        self._run: Run | None = None

    def rows(self, specs: Sequence[HwSpec]) -> list[list[Row]]:
        """A row for every model of every machine."""
        tasks = [
            Task(
                model=model,
                machine=Machine(base=spec, values={}),
                strategy=self._strategy,
                scales=Scales.POW2,
                settings=((None, None),),
            )
            for spec in specs
            for model in self.models
        ]
        if todo := list(missing_points(tasks, self._book)):
            if self._run is None:
                client = self._stack.enter_context(workers(self._cluster, self._worker_count))
                self._run = Run(client=client, book=self._book, total=0, progress=lambda *_: None)
                self._run.hold(tasks)
            self._run.all(todo)
        rows = [self._book.rows[key] for task in tasks for key in task.points()]
        each = len(self.models)
        return [rows[i : i + each] for i in range(0, len(rows), each)]


class _Search(Struct):
    name: str
    board: Device
    clock: _Timer
    objectives: Sequence[str]
    progress: Progress

    def run(self, study: Any, trials: int) -> Exploration:
        """Time `trials` machines, and the shipped ones."""
        without, host = self._needed()
        shipped = [c for c in self._candidates(self._shipped(), host) if c is not None]
        for known in sorted(shipped, key=lambda c: c.latency)[:KNOWN]:
            study.enqueue_trial(parameters_of(known.spec))
        tried: dict[Design, Candidate | None] = {}
        begun = time.monotonic()
        while len(tried) < trials:
            proposed = self._proposals(study, tried, min(BATCH, trials - len(tried)), without)
            candidates = self._candidates([spec for _, _, spec in proposed], host)
            for (trial, design, _), candidate in zip(proposed, candidates, strict=True):
                tried[design] = candidate
                self._report(study, trial, candidate)
            left = (time.monotonic() - begun) / len(tried) * (trials - len(tried))
            self.progress(len(tried), trials, left)
        good = [c for c in tried.values() if c is not None]
        if not good:
            names = ", ".join(m.name for m in self.clock.models)
            what = f"none of {trials} machines that fit ran {names}"
            raise UserError(self.name, what, f"try more {option('trials')}, or a larger device")
        return Exploration(
            best=tuple(pareto(good, self.objectives)), tried=tuple(good), shipped=tuple(shipped)
        )

    def _needed(self) -> tuple[tuple[str, ...], list[int]]:
        """Options that the models gain nothing by, and operators that run on the host anyway."""
        designs = [replace(WHOLE, without=(o,)) for o in OPTIONS]
        specs = [design.spec(self.board) for design in (WHOLE, *designs)]
        whole, *less = self.clock.rows([spec for spec in specs if spec is not None])
        for model, row in zip(self.clock.models, whole, strict=True):
            if row["error"] is not None:
                raise UserError(model.name, f"no machine takes it: {row['error']}", "change it")
        host = [row["host_operators"] for row in whole]
        without = tuple(
            option
            for option, rows in zip(OPTIONS, less, strict=True)
            if all(
                row["error"] is None
                and row["host_operators"] <= before["host_operators"]
                and row["cycles"] <= SLOWER * before["cycles"]
                for row, before in zip(rows, whole, strict=True)
            )
        )
        return without, host

    def _shipped(self) -> list[HwSpec]:
        specs = [load_hw(name) for name in spec_names()]
        built = [spec for spec in specs if spec.build and self._share(spec) <= 1]
        return [
            load_hw_text(json.dumps(on_board(spec.to_tree(), self.board)), spec.name)
            for spec in built
        ]

    def _share(self, spec: HwSpec) -> float:
        return share(area(spec, self.board.family), self.board.has)

    def _fits(self, spec: HwSpec) -> bool:
        """Whether a proposal fits with spare tables: its area is an estimate, not synthesised."""
        own = area(spec, self.board.family)
        return share(own, self.board.has) <= 1 and own.lut <= self.board.fill * self.board.has.lut

    def _proposals(
        self,
        study: Any,
        tried: Mapping[Design, Candidate | None],
        count: int,
        without: tuple[str, ...],
    ) -> list[tuple[Any, Design, HwSpec]]:
        """Machines that fit and are new. The search does not learn from the others, which
        are nearly all proposals: it would rate everything that fits as good.
        """
        from optuna.trial import TrialState

        proposed: dict[Design, tuple[Any, Design, HwSpec]] = {}
        refused = 0
        while len(proposed) < count:
            trial = study.ask()
            design, spec = self._sliced(propose(trial, without=without))
            if design in tried:
                self._report(study, trial, tried[design])
            elif spec is None or design in proposed or not self._fits(spec):
                study.tell(trial, state=TrialState.FAIL)
            else:
                proposed[design] = (trial, design, spec)
                continue
            refused += 1
            if refused > MOST_REFUSED:
                what = f"none of {refused} machines in a row was new and fitted"
                raise UserError(self.name, what, self._remedy(some=bool(tried or proposed)))
        return list(proposed.values())

    def _remedy(self, *, some: bool) -> str:
        """some: there are machines, if fewer than `trials`."""
        fuller = [f"a larger {option('fill')}"] if self.board.fill < device(self.name).fill else []
        fewer = [f"fewer {option('trials')}"] if some else []
        return f"give {' or '.join([*fuller, *fewer, 'a larger device'])}"

    def _sliced(self, design: Design) -> tuple[Design, HwSpec | None]:
        """The design with as many products of the array in tables as DSP slices are missing, and
        its machine. Fewer do not fit, more are no faster. None where the numbers give no machine.
        """
        spec = design.spec(self.board)
        if spec is None or (missing := self._slices(spec) - self.board.has.dsp) <= 0:
            return design, spec
        two = replace(design, tables=2).spec(self.board)
        freed = 0 if two is None else self._slices(spec) - self._slices(two)
        if freed > 0:
            design = replace(design, tables=2 * math.ceil(missing / freed))
            spec = design.spec(self.board)
        return design, spec

    def _slices(self, spec: HwSpec) -> float:
        return area(spec, self.board.family).dsp

    def _candidates(
        self, specs: Sequence[HwSpec], host: Sequence[int] | None = None
    ) -> list[Candidate | None]:
        """None for machines on which a model fails, or leaves more to the host than on others."""
        return [
            None
            if any(row["error"] is not None for row in rows)
            or (host and any(r["host_operators"] > h for r, h in zip(rows, host, strict=True)))
            else Candidate(
                spec=spec,
                milliseconds={
                    model.name: row["milliseconds"]
                    for model, row in zip(self.clock.models, rows, strict=True)
                },
                area=area(spec, self.board.family),
                share=self._share(spec),
                dram_bytes=sum(row["dram_bytes"] for row in rows),
            )
            for spec, rows in zip(specs, self.clock.rows(specs), strict=True)
        ]

    def _report(self, study: Any, trial: Any, candidate: Candidate | None) -> None:
        trial.set_constraint("unfit", float(candidate is None))
        if candidate is None:
            study.tell(trial, [_BAD] * len(self.objectives))
        else:
            study.tell(trial, [OBJECTIVES[name](candidate) for name in self.objectives])


def pareto(candidates: Sequence[Candidate], objectives: Sequence[str]) -> list[Candidate]:
    """The Pareto front, sorted by the first objective; of equal candidates the first."""
    worth = {id(c): tuple(OBJECTIVES[name](c) for name in objectives) for c in candidates}

    def beaten(mine: tuple[float, ...]) -> bool:
        return any(
            other != mine and all(o <= m for o, m in zip(other, mine, strict=True))
            for other in worth.values()
        )

    first: dict[tuple[float, ...], Candidate] = {}
    for candidate in candidates:
        first.setdefault(worth[id(candidate)], candidate)
    return [first[mine] for mine in sorted(first) if not beaten(mine)]
