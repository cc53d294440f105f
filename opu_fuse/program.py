"""A compiled program: saving, running, checking, and what a notebook shows of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from opu_fuse.bundle import file as bundle_file
from opu_fuse.bundle.program import Bundle
from opu_fuse.choices import require_choice
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw_text
from opu_fuse.input_arrays import Arrays
from opu_fuse.number_text import counted
from opu_fuse.summaries import summary

if TYPE_CHECKING:  # compiling has none
    import pandas as pd

    from opu_fuse.bundle.result import CheckResult, RunResult
    from opu_fuse.program_run import ProgramRun
    from opu_fuse.sim.cycle.run import MemoryOptions
    from opu_fuse.sim.engine_names import EngineLike
    from opu_fuse.sim.runner import RtlOptions

FRAMES = ("groups", "tensors")
FrameOf = Literal["groups", "tensors"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A compiled model with the machine it was compiled for."""

    bundle: Bundle
    hw: HwSpec

    @classmethod
    def load(cls, path: str | Path) -> "Program":
        """Read and check a program file; it contains its spec. Raises ProgramError."""
        bundle = bundle_file.load(path)
        return cls(bundle=bundle, hw=load_hw_text(bundle.spec_yaml, f"{path}: spec.yaml"))

    def save(self, path: str | Path) -> None:
        """Write the program file, whole or not at all."""
        bundle_file.save(self.bundle, path)

    def run(
        self,
        inputs: Arrays | None = None,
        *,
        engine: "EngineLike" = "functional",
        shuffle: int | None = None,
        capture: bool = False,
        rtl: "RtlOptions | None" = None,
        memory: "MemoryOptions | None" = None,
    ) -> "ProgramRun":
        """Run on an engine.

        inputs: name -> array of the model's dtype and shape, or (N, …) for N samples. For models
        with one input the array alone, or a list of arrays. None: seeded noise with a warning (the
        cycle engine has no data).
        shuffle (functional): seed of a random legal order.
        capture: the int8 tensors inside as well.
        rtl: how the RTL engine runs.
        memory (cycle): latency and bandwidth of the memory.

        Raises RunError for inputs that do not fit the model, for options that the engine does not
        have, and when the machine faults.
        """
        from opu_fuse.program_run import ProgramRun  # slow to import, and compiling runs nothing
        from opu_fuse.sim.engine import run

        result = run(
            self.bundle,
            self.hw,
            inputs,
            engine=engine,
            shuffle=shuffle,
            capture=capture,
            rtl=rtl,
            memory=memory,
        )
        return ProgramRun.of(result, self.bundle, self.hw)

    def check(
        self, inputs: Arrays, result: "RunResult", model: str | Path | None = None
    ) -> "CheckResult":
        """As `run --check`, of a captured run. inputs: those of the run; model: the file that was
        compiled.
        """
        from opu_fuse.sim.compare.users_model import check_run
        from opu_fuse.sim.ports import named_inputs

        arrays = named_inputs(self.bundle, inputs)
        return check_run(self.bundle, arrays, result, None if model is None else Path(model))

    def to_frame(self, of: FrameOf = "groups") -> "pd.DataFrame":
        """A pandas table: a row per group with predicted cycles, or of "tensors" a row per
        feature map in the memory window.
        """
        from opu_fuse.report.frames import groups_frame, tensors_frame

        require_choice("of", of, FRAMES)
        return groups_frame(self.bundle) if of == "groups" else tensors_frame(self.bundle)

    def __repr__(self) -> str:
        cycles = f"{sum(g.cycles for g in self.bundle.groups):,} cycles predicted"
        batch = f"{self.bundle.batch} images together" if self.bundle.batch > 1 else ""
        groups = counted(len(self.bundle.groups), "group")
        return summary(self, self.bundle.model, groups, cycles, batch, machine=self.hw.name)

    def _repr_html_(self) -> str:
        """The groups, and the machine's pipeline to open."""
        from opu_fuse.hw.spec.draw import draw_svg
        from opu_fuse.report.notebook import groups_html

        return groups_html(self.bundle, None, draw_svg(self.hw, legend=True))
