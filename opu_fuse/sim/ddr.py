"""DDR3 memory: when a controller that serves bursts in their order moves their data.

Time is counted in clocks of the memory, as in JESD79-3. The memory of the RTL simulation computes
the same in C++ (`rtl_sim/tb/opu_ddr.cpp`), with the numbers of `Ddr.numbers`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from opu_fuse.choices import option, require_choice
from opu_fuse.errors import RunError, UserError
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.engine_names import MemoryName

COLUMN_CLOCKS = 4
"""Data of one column command, burst length 8 at two words a clock (tCCD, BL / 2)."""

WRITE_SLOTS = 8
"""Write bursts that the controller holds, each until the memory has its data."""


class DdrTiming(Struct, frozen=True, kw_only=True):
    """One memory channel. Times in clocks, as JESD79-3 names them.

    width_bytes: of the data bus; row_bytes: of an open row, over all chips; capacity_bytes: of the
    channel.
    """

    clock_khz: int
    width_bytes: int
    row_bytes: int
    capacity_bytes: int
    banks: int
    rcd: int
    rp: int
    cl: int
    cwl: int
    ras: int
    rrd: int
    faw: int
    wr: int
    wtr: int
    rtp: int
    rfc: int
    refi: int

    @property
    def column_bytes(self) -> int:
        """Bytes of a column command."""
        return self.width_bytes * 2 * COLUMN_CLOCKS

    @property
    def idle_read(self) -> int:
        """Clocks from the request to the end of its first column's data, all banks closed."""
        return self.rcd + self.cl + COLUMN_CLOCKS


def _ddr3_1600(*, chips: int, chip_bits: int, rrd: int, faw: int) -> DdrTiming:
    """DDR3-1600K (11-11-11) of 4 Gbit chips with 1,024 columns a row."""
    return DdrTiming(
        clock_khz=800_000,
        width_bytes=chips * chip_bits // 8,
        row_bytes=1024 * chips * chip_bits // 8,
        capacity_bytes=chips << 29,
        banks=8,
        rcd=11,
        rp=11,
        cl=11,
        cwl=8,
        ras=28,  # 35 ns
        rrd=rrd,
        faw=faw,
        wr=12,  # 15 ns
        wtr=6,  # 7.5 ns
        rtp=6,  # 7.5 ns
        rfc=208,  # 260 ns
        refi=6240,  # 7.8 us
    )


MEMORIES: dict[str, DdrTiming] = {
    # A chip's row of 1 KB: tRRD 6 ns, tFAW 30 ns; of 2 KB: 7.5 ns, 40 ns.
    MemoryName.DDR3_1600_X64: _ddr3_1600(chips=8, chip_bits=8, rrd=5, faw=24),
    MemoryName.DDR3_1600_X16: _ddr3_1600(chips=1, chip_bits=16, rrd=6, faw=32),
}


class Command(NamedTuple):
    """What the controller sent, for tests: ACT, PRE, RD, WR or REF (bank -1) at clock `at`."""

    at: int
    name: str
    bank: int
    row: int


class _Bank:
    """row: the open one, -1 without. ready: clock from which it may be precharged, or, closed,
    activated.
    """

    __slots__ = ("ready", "row")

    def __init__(self) -> None:
        self.row, self.ready = -1, 0


class DdrChannel:
    """State of the banks and of the data bus. Bursts are served in the order of the calls.

    Rows stay open. The banks follow each other in the address above the columns, so neighbouring
    rows lie in different banks; a row is opened while data of earlier bursts still move. A refresh
    comes when it is due, once the burst's part of a row that is served is done.
    """

    def __init__(self, timing: DdrTiming) -> None:
        self.timing = timing
        self._banks = [_Bank() for _ in range(timing.banks)]
        self._activated = [-timing.faw] * 4  # the last four
        self._column, self._writing = -COLUMN_CLOCKS, False  # the last column command
        self._refresh = timing.refi  # due
        self.commands: list[Command] | None = None

    def serve(self, at: int, address: int, size: int, *, write: bool) -> list[int]:
        """Clock in which the data of each column of a burst have moved; it is known from clock
        `at` on, which never decreases.
        """
        t = self.timing
        column, last = address // t.column_bytes, (address + size - 1) // t.column_bytes
        per_row = t.row_bytes // t.column_bytes
        moved: list[int] = []
        while column <= last:
            row, inside = divmod(column, per_row)
            count = min(per_row - inside, last + 1 - column)
            first = self._columns(at, row, count, write=write) + COLUMN_CLOCKS
            first += t.cwl if write else t.cl
            moved += range(first, first + count * COLUMN_CLOCKS, COLUMN_CLOCKS)
            column += count
        return moved

    def _columns(self, at: int, row: int, count: int, *, write: bool) -> int:
        """Serve neighbouring columns of a row; clock of the first command."""
        t = self.timing
        begin = self._column + COLUMN_CLOCKS
        if write and not self._writing:
            begin = self._column + t.cl + COLUMN_CLOCKS + 2 - t.cwl
        elif self._writing and not write:
            begin = self._column + t.cwl + COLUMN_CLOCKS + t.wtr
        begin = max(begin, at)
        while self._refresh <= begin:
            self._refresh_all()
        number, row = row % t.banks, row // t.banks
        bank = self._banks[number]
        opened = bank.ready
        if bank.row != row:
            begin = max(begin, self._open(at, number, row) + t.rcd)
            opened = self._activated[-1] + t.ras
        last = begin + (count - 1) * COLUMN_CLOCKS
        closes = last + (t.cwl + COLUMN_CLOCKS + t.wr if write else t.rtp)
        bank.ready = max(opened, closes)
        self._column, self._writing = last, write
        if self.commands is not None:
            name = "WR" if write else "RD"
            ats = range(begin, last + 1, COLUMN_CLOCKS)
            self.commands += [Command(clock, name, number, row) for clock in ats]
        return begin

    def _open(self, at: int, number: int, row: int) -> int:
        """Clock in which the row is activated, after a precharge where another is open."""
        t, bank = self.timing, self._banks[number]
        ready = max(at, bank.ready)
        if bank.row >= 0:
            self._note(ready, "PRE", number)
            ready += t.rp
        activate = max(ready, self._activated[-1] + t.rrd, self._activated[0] + t.faw)
        self._activated = [*self._activated[1:], activate]
        bank.row = row
        self._note(activate, "ACT", number, row)
        return activate

    def _refresh_all(self) -> None:
        """Close all rows and refresh, at the clock that is due or as soon as the rows may close."""
        t, start = self.timing, self._refresh
        for number, bank in enumerate(self._banks):
            if bank.row >= 0:
                close = max(bank.ready, self._refresh - t.rp)
                self._note(close, "PRE", number)
                start = max(start, close + t.rp)
            else:
                start = max(start, bank.ready)
            bank.row = -1
        for bank in self._banks:
            bank.ready = start + t.rfc
        self._refresh += t.refi
        self._note(start, "REF", -1)

    def _note(self, at: int, name: str, bank: int, row: int = -1) -> None:
        if self.commands is not None:
            self.commands.append(Command(at, name, bank, row))


class Ddr:
    """A DDR memory behind the port of a machine: cycles of the machine in, cycles out."""

    def __init__(self, name: str, hw: HwSpec, latency: int) -> None:
        """latency: cycles from the address of a read to its first data, all banks closed. What the
        memory alone does not take of it is spent in controller and interconnect.

        Raises UserError for an unknown name.
        """
        require_choice("memory", name, MEMORIES)
        self.timing = MEMORIES[name]
        self._channel = DdrChannel(self.timing)
        self._bus = hw.dram.bus_bytes
        self._khz = round(hw.clock_mhz * 1000)
        self.lead = max(latency - self._cycle(self.timing.idle_read), 1)

    def numbers(self) -> tuple[int, ...]:
        """What `opu_ddr.cpp` has to know, in its order."""
        t = self.timing
        times = (t.rcd, t.rp, t.cl, t.cwl, t.ras, t.rrd, t.faw, t.wr, t.wtr, t.rtp, t.rfc, t.refi)
        shape = (COLUMN_CLOCKS, t.column_bytes, t.row_bytes, t.banks, WRITE_SLOTS)
        return (self._khz, t.clock_khz, self.lead, *shape, *times)

    def read(self, cycle: int, address: int, beats: int) -> list[int]:
        """Cycle from which each beat of a read may leave that comes in cycle `cycle`."""
        moved = self._serve(cycle, address, beats, write=False)
        unit, bus = self.timing.column_bytes, self._bus
        first = address // unit
        ends = range(address + bus - 1, address + beats * bus, bus)
        return [self._cycle(moved[end // unit - first]) + self.lead - 1 for end in ends]

    def write(self, cycle: int, address: int, beats: int) -> int:
        """Cycle from which the slot of a write is free whose last beat comes in cycle `cycle`."""
        return self._cycle(self._serve(cycle, address, beats, write=True)[-1])

    def _serve(self, cycle: int, address: int, beats: int, *, write: bool) -> Sequence[int]:
        at = -(-cycle * self.timing.clock_khz // self._khz)
        return self._channel.serve(at, address, beats * self._bus, write=write)

    def _cycle(self, clock: int) -> int:
        return -(-clock * self._khz // self.timing.clock_khz)


def require_dram(name: str, bytes_per_cycle: float | None, window_bytes: int) -> None:
    """Raises UserError for an unknown name and for another bandwidth next to it, RunError for a
    memory window that it cannot hold.
    """
    require_choice("memory", name, MEMORIES)
    if bytes_per_cycle is not None:
        what = f"{name} has a bandwidth of its own"
        raise UserError(option("bytes_per_cycle"), what, "leave out one of the two")
    capacity = MEMORIES[name].capacity_bytes
    if window_bytes > capacity:
        what = f"has {capacity} bytes, the memory window of the program {window_bytes}"
        raise RunError(f"memory {name}", what, "run it with a larger memory")
