"""The machines that networks are compiled for: those of the package, and those of the RTL tests."""

import tempfile
from functools import cache
from pathlib import Path

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from tests.rtl.machines import write_machine

SHARES = {
    "opu-tiny": 4.0,
    "opu-micro": 4.0,
    "opu-light": 5.0,
    "opu-1024": 3.0,
    "opu-1024t": 2.0,
    "opu-1024a": 2.0,
    "opu-classic": 3.0,
    "every-module": 2.0,
    "few-modules": 1.0,
    "narrow-bus": 0.5,
    "no-multipliers": 1.0,
    "opu-1024-lean": 1.0,
    "opu-ulx3s": 1.0,
    "four-turns": 2.0,
    "slow-sums": 1.0,
}
SHIFTERS = ("opu-classic", "no-multipliers")
"""Machines that take powers of two alone: operators with other scales run on the host."""


@cache
def machine(name: str) -> HwSpec:
    """A machine by its name."""
    with tempfile.TemporaryDirectory() as folder:
        return load_hw(write_machine(name, Path(folder)))
