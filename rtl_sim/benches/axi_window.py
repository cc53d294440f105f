"""The machine between the bus models of cocotbext-axi.

A memory window on the bus, control registers by name.
"""

import logging
import warnings
from typing import Any

import numpy as np
from cocotb.triggers import ClockCycles, FallingEdge, First, RisingEdge, Timer
from cocotbext.axi import (
    AxiBus,
    AxiLiteBus,
    AxiLiteMaster,
    AxiResp,
    AxiSlave,
    MemoryRegion,
)

from opu_fuse.cosim.driver import OpuDriver
from opu_fuse.cosim.stalls import stall, stall_all
from opu_fuse.hw.isa.register_map import FIELD, OFFSET, ErrorCode
from rtl_sim.benches.cycles import begin, generator

BASE = 0x80_0000_0000
WINDOW = 1 << 16
CHANNELS = ("ar", "r", "aw", "w", "b")


class Window(MemoryRegion):
    """Memory of the window; addresses are the bus's.

    Outside of it, and at offsets in `bad`, accesses fail; so do number `fail_read` and `fail_write`
    of the accesses in `reads` and `writes` (offsets, since `count`). answer: how they fail.
    """

    def __init__(self):
        self.mem: bytearray = bytearray(WINDOW)
        super().__init__(size=1 << 40, mem=self.mem)
        self.bad = range(0)
        self.touched_outside = []
        self.answer = AxiResp.SLVERR
        self.count()

    def count(self, *, fail_read=None, fail_write=None):
        """Begin to count accesses."""
        self.reads, self.fail_read = [], fail_read
        self.writes, self.fail_write = [], fail_write

    @staticmethod
    def _turn(passed, offset, fail):
        passed.append(offset)
        if len(passed) - 1 == fail:
            raise ValueError(offset)

    def _offset(self, address, length):
        offset = address - BASE
        if offset < 0 or offset + length > len(self.mem):
            self.touched_outside.append(address)
            raise ValueError(address)
        if offset in self.bad:
            raise ValueError(address)
        return offset

    async def _read(self, address, length, **_):
        offset = self._offset(address, length)
        self._turn(self.reads, offset, self.fail_read)
        return bytes(self.mem[offset : offset + length])

    async def _write(self, address, data, **_):
        offset = self._offset(address, len(data))
        self._turn(self.writes, offset, self.fail_write)
        self.mem[offset : offset + len(data)] = data


class Machine:
    """opu_top with memory and a bus master; random stalls on every channel when `stalls` > 0. at:
    where the machine's window begins in the memory.
    """

    def __init__(self, dut, rng, stalls=0.0):
        logging.getLogger("cocotb.opu_top").setLevel(logging.ERROR)  # the bus models' chatter
        # Of the bus models, which we only use.
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="cocotbext")
        self.dut, self.rng, self.stalls = dut, rng, stalls
        self.window, self.at = Window(), 0
        bus = AxiBus.from_prefix(dut, "m_axi")
        self.memory: Any = AxiSlave(
            bus, dut.clk_i, dut.rst_ni, target=self.window, reset_active_level=False
        )
        self._answers(self.memory.read_if.r_channel, "rresp")
        self._answers(self.memory.write_if.b_channel, "bresp")
        control = AxiLiteBus.from_prefix(dut, "s_axil")
        self.control = AxiLiteMaster(control, dut.clk_i, dut.rst_ni, reset_active_level=False)
        self.opu = OpuDriver(self.control, irq=dut.irq_o)
        if stalls:
            for side in (self.memory, self.control):
                stall_all(side, stalls, rng)

    def _answers(self, channel, name):
        """Failed accesses answer as the window says (the bus model knows SLVERR only)."""
        send = channel.send

        async def answer(beat):
            if getattr(beat, name) != AxiResp.OKAY:
                setattr(beat, name, self.window.answer)
            await send(beat)

        channel.send = answer

    def stall(self, channel, chance=None):
        """Pause a channel at random; with chance 1 for good."""
        stall(channel, self.stalls if chance is None else chance, self.rng)

    def channel(self, name):
        """A channel of the memory: ar, r, aw, w or b."""
        side = self.memory.read_if if name in ("ar", "r") else self.memory.write_if
        return getattr(side, f"{name}_channel")

    async def reset_memory(self, cycles=4):
        """Reset of the interconnect alone: what it took is forgotten, no channel is silent."""
        sides = self.memory.read_if, self.memory.write_if
        parts = *sides, *(self.channel(name) for name in CHANNELS)
        for part in parts:
            part.assert_reset(True)
        for name in CHANNELS:
            self.stall(self.channel(name))
        await ClockCycles(self.dut.clk_i, cycles)
        for part in parts:
            part.assert_reset(False)
        await FallingEdge(self.dut.clk_i)

    async def begin(self):
        await begin(self.dut)
        await self.configure()

    async def configure(self, watchdog=100_000):
        await self.opu.configure(BASE + self.at, WINDOW, watchdog=watchdog)

    async def write(self, name, value, *, expect=AxiResp.OKAY):
        address = OFFSET[name] if isinstance(name, str) else name
        answer: Any = await self.control.write(address, int(value).to_bytes(4, "little"))
        assert answer.resp == expect, f"write to {name}: {answer.resp}"

    async def read(self, name, *, expect=AxiResp.OKAY):
        address = OFFSET[name] if isinstance(name, str) else name
        answer: Any = await self.control.read(address, 4)
        assert answer.resp == expect, f"read of {name}: {answer.resp}"
        return int.from_bytes(answer.data, "little")

    async def field(self, register, name):
        return await self.opu.field(register, name)

    def put(self, offset, data):
        raw = np.ascontiguousarray(data).view(np.uint8).tobytes()
        offset += self.at
        self.window.mem[offset : offset + len(raw)] = raw

    def get(self, offset, shape, dtype=np.int8):
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        offset += self.at
        return np.frombuffer(bytes(self.window.mem[offset : offset + size]), dtype).reshape(shape)

    async def start(self, words, at=0x8000):
        """Put a program into the window and start it."""
        self.put(at, np.asarray(words, "<u4"))
        await self.opu.start(at, len(words))

    async def wait(self, cycles=100_000):
        """To the interrupt."""
        if not int(self.dut.irq_o.value):
            limit = Timer(2 * cycles, "step")
            assert await First(RisingEdge(self.dut.irq_o), limit) is not limit, "no interrupt"
        await FallingEdge(self.dut.clk_i)

    async def run(self, words):
        """A program to its end: (error code, engine, pc), or None when done."""
        await self.start(words)
        await self.wait()
        return await self.outcome()

    async def outcome(self):
        """Status, error and interrupt agree; then the interrupt is cleared."""
        status = await self.read("STATUS")
        done = status & FIELD["STATUS", "done"].mask
        error = status & FIELD["STATUS", "error"].mask
        assert bool(done) != bool(error), f"status {status:#x}"
        assert not status & FIELD["STATUS", "busy"].mask, "busy after the end"
        idle = sum(f.mask for (register, name), f in FIELD.items() if name.startswith("idle_"))
        assert status & idle == idle, f"status {status:#x}: an engine is not idle"
        code = ErrorCode(await self.field("ERROR", "code"))
        assert (code is ErrorCode.NONE) == bool(done)
        irq = await self.read("IRQ_STATUS")
        assert irq == (1 if done else 2), f"IRQ_STATUS {irq}"
        await self.write("IRQ_STATUS", irq)
        await ClockCycles(self.dut.clk_i, 2)
        assert not int(self.dut.irq_o.value), "the interrupt is not cleared"
        if done:
            return None
        return code, await self.field("ERROR", "engine"), await self.read("ERROR_PC")

    async def error_code(self):
        """The code of a program that ended with an error, by `outcome`."""
        outcome = await self.outcome()
        assert outcome is not None, "no error"
        code, _, _ = outcome
        return code

    async def assert_quiet(self, cycles=150):
        """Nothing comes out of the bus port any more, and nothing is open."""
        for _ in range(cycles):
            await FallingEdge(self.dut.clk_i)
            for name in ("arvalid", "awvalid", "wvalid"):
                assert not int(getattr(self.dut, f"m_axi_{name}").value), f"{name} after the end"
            for name in ("rvalid", "bvalid"):
                assert not int(getattr(self.dut, f"m_axi_{name}").value), f"{name}: was open"


async def started(dut, stalls=0.0):
    """The machine, configured, and random numbers of the bench's seed."""
    rng = generator()
    machine = Machine(dut, rng, stalls)
    await machine.begin()
    return machine, rng
