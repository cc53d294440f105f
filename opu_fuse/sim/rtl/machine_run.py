"""Results of one program's run on RTL: counters and retire records, or why the machine stopped."""

from collections.abc import Mapping

from msgspec import Struct

from opu_fuse.errors import RunError
from opu_fuse.hw.isa.register_map import ERROR_DOC, ID_VALUE, VERSION_VALUE, ErrorCode
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec

_ADVICE = {
    ErrorCode.SPEC_MISMATCH: "compile the model for this machine",
    ErrorCode.WATCHDOG: "raise the watchdog if the memory is that slow, else report a deadlock",
}


class Retired(Struct, frozen=True, kw_only=True):
    """One retired instruction.

    pc: word index of its C-type in the program.
    start, end: cycles since `CTRL.start` was written.
    """

    engine: Engine
    pc: int
    start: int
    end: int


class Counters(Struct, frozen=True, kw_only=True):
    """The machine's counters after a program.

    busy, stall: cycles per engine.
    read_beats, write_beats: beats on the AXI master port.
    """

    cycles: int
    busy: Mapping[Engine, int]
    stall: Mapping[Engine, int]
    read_beats: int
    write_beats: int


class ProgramRun(Counters, frozen=True, kw_only=True):
    """One completed run. seconds: wall-clock time of the simulation."""

    retired: tuple[Retired, ...]
    seconds: float


class MachineStop(Struct, frozen=True, kw_only=True):
    """Why and where the machine stopped; pc: word index in the program."""

    code: ErrorCode
    engine: Engine
    pc: int


def require_identity(where: str, identity: int, version: int, spec_hash: int, spec: HwSpec) -> None:
    """Raises RunError unless the registers ID, VERSION and SPEC_HASH are those of a machine of
    `spec`. where: its name.
    """
    if identity != ID_VALUE:
        what = f"ID is {identity:#010x}, not {ID_VALUE:#010x}: no machine answers"
        raise RunError(where, what, "look at base address, clock and reset")
    if version >> 16 != VERSION_VALUE >> 16:
        what = f"has register map {version >> 16}, this is for {VERSION_VALUE >> 16}"
        raise RunError(where, what, "build its RTL again with `opu-fuse hw rtl`")
    if spec_hash != spec.spec_hash:
        what = f"was built for spec {spec_hash:011x}, {spec.name} is {spec.spec_hash:011x}"
        help_ = f"build its RTL for {spec.name}, or compile the model for the machine that is there"
        raise RunError(where, what, help_)


def stop_error(stop: MachineStop, where: str, instruction: str) -> RunError:
    """The user's view of a stopped machine. instruction: disassembly of the one at `stop.pc`."""
    what = f"the machine stopped with {stop.code.name.lower()} ({ERROR_DOC[stop.code]})"
    engine = stop.engine.name.lower()
    return RunError(
        where,
        f"{what}; engine {engine}, program word {stop.pc}: {instruction}",
        _ADVICE.get(stop.code, "compile the model again for this machine"),
    )
