"""The machine's control registers in a cocotb bench, as docs/bring-up.md uses them."""

from typing import Any, Protocol

from cocotb.triggers import RisingEdge, Timer

from opu_fuse.hw.isa.register_map import FIELD, OFFSET, ErrorCode
from opu_fuse.hw.isa.table import WATCHDOG_RESET, Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.rtl.machine_run import Counters, MachineStop, require_identity

_OKAY = 0  # of AXI
_WORD = 0xFFFF_FFFF


class ControlBus(Protocol):
    """Interface of an `AxiLiteMaster` of cocotbext-axi; any other bus master will do."""

    async def read(self, address: int, length: int) -> Any:
        """The answer has `data` (bytes) and `resp`."""
        ...

    async def write(self, address: int, data: bytes) -> Any:
        """The answer has `resp`."""
        ...


class OpuDriver:
    """One machine, driven through a master of its control registers.

    control: the master
    base: bus address of the registers
    irq: handle of `irq_o`, None where the bench does not see it: then STATUS is polled, every
        `poll` steps of the simulator's time

    Methods raise AssertionError where the machine refuses an access.
    """

    def __init__(
        self, control: ControlBus, *, base: int = 0, irq: Any = None, poll: int = 1000
    ) -> None:
        self.control = control
        self._base, self._irq, self._poll = base, irq, poll

    async def read(self, name: str) -> int:
        """A register, by its name in docs/registers.md."""
        answer = await self.control.read(self._base + OFFSET[name], 4)
        assert answer.resp == _OKAY, f"read of {name}: {answer.resp!r}"
        return int.from_bytes(answer.data, "little")

    async def write(self, name: str, value: int) -> None:
        address = self._base + OFFSET[name]
        answer = await self.control.write(address, value.to_bytes(4, "little"))
        assert answer.resp == _OKAY, f"write to {name}: {answer.resp!r}"

    async def field(self, register: str, name: str) -> int:
        field = FIELD[register, name]
        return (await self.read(register) & field.mask) >> field.lsb

    async def command(self, name: str) -> None:
        """Write one bit of CTRL: start, stop, irq_clear …"""
        await self.write("CTRL", FIELD["CTRL", name].mask)

    async def probe(self, spec: HwSpec) -> None:
        """First contact. RunError when no machine answers, or another than the one of `spec`."""
        identity, version = await self.read("ID"), await self.read("VERSION")
        spec_hash = await self.read("SPEC_HASH_LO") | await self.read("SPEC_HASH_HI") << 32
        require_identity("opu", identity, version, spec_hash, spec)

    async def configure(self, base: int, size: int, *, watchdog: int = WATCHDOG_RESET) -> None:
        """The memory window: bus address (a multiple of 4096) and bytes. watchdog: cycles without
        a retirement after which the machine stops; 0 switches it off.
        """
        await self.window(base, size)
        await self.write("WATCHDOG", watchdog)
        interrupts = FIELD["IRQ_ENABLE", "done"].mask | FIELD["IRQ_ENABLE", "error"].mask
        await self.write("IRQ_ENABLE", interrupts)

    async def window(self, base: int, size: int) -> None:
        """The memory window of the programs that are started or queued from now on; a program that
        runs keeps its own. Not while a program is queued.
        """
        for name, value in (
            ("WINDOW_BASE_LO", base & _WORD),
            ("WINDOW_BASE_HI", base >> 32),
            ("WINDOW_SIZE_LO", size & _WORD),
            ("WINDOW_SIZE_HI", size >> 32),
        ):
            await self.write(name, value)

    async def start(self, offset: int, words: int) -> None:
        """Start the program of `words` words at a byte offset of the window (multiple of 64)."""
        await self._name(offset, words)
        await self.command("start")

    async def _name(self, offset: int, words: int) -> None:
        await self.write("PROG_BASE_LO", offset)
        await self.write("PROG_WORDS", words)

    async def queue(self, offset: int, words: int) -> None:
        """Start a program as soon as the one that runs is done, at once while none runs. An error
        drops it. The register PROGRAMS counts those that came to an end.
        """
        await self._name(offset, words)
        await self.command("queue")

    async def wait(self) -> MachineStop | None:
        """To the end of the program: None when done, else why it stopped. The interrupt is cleared.

        For a limit: `cocotb.triggers.with_timeout(opu.wait(), 5, "ms")`.
        """
        if self._irq is None:
            while await self.field("STATUS", "busy"):
                await Timer(self._poll, "step")
        elif not int(self._irq.value):
            await RisingEdge(self._irq)
        stop = await self.stopped()
        await self.command("irq_clear")
        return stop

    async def stopped(self) -> MachineStop | None:
        """Why the last program stopped; None when it reached its end."""
        if not await self.field("STATUS", "error"):
            return None
        return MachineStop(
            code=ErrorCode(await self.field("ERROR", "code")),
            engine=Engine(await self.field("ERROR", "engine")),
            pc=await self.read("ERROR_PC"),
        )

    async def run(self, offset: int, words: int) -> MachineStop | None:
        """`start`, then `wait`."""
        await self.start(offset, words)
        return await self.wait()

    async def counters(self) -> Counters:
        """Counters of the last program, or of the running one so far."""
        return Counters(
            cycles=await self.read("CYCLES_LO") | await self.read("CYCLES_HI") << 32,
            busy={engine: await self.read(f"BUSY_{engine.name}") for engine in Engine},
            stall={engine: await self.read(f"STALL_{engine.name}") for engine in Engine},
            read_beats=await self.read("AXI_READ_BEATS"),
            write_beats=await self.read("AXI_WRITE_BEATS"),
        )
