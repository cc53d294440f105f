"""What every device is to its user."""

from abc import ABC, abstractmethod
from typing import Self

from opu_fuse.input_arrays import Arrays
from opu_fuse.program import Program
from opu_fuse.program_run import ProgramRun


class Device(ABC):
    """A machine that runs programs; closed at the end of a `with`."""

    @abstractmethod
    def run(self, program: Program, inputs: Arrays | None = None) -> ProgramRun:
        """Run a program. inputs: as of `Program.run`."""

    def close(self) -> None:  # noqa: B027  a simulation has nothing open between runs
        """Close what was opened for the device."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
