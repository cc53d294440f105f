"""Runs inside the simulator of `opu_system`, as a cocotb test: commands from standard input.

One JSON object per line. `{"do": "run", "base", "words", "window", "watchdog", "limit"}` runs one
program and answers with the counters; `{"do": "reset"}` resets the machine; the end of input ends
the simulation. Answers go to standard output behind `REPLY`, between whatever else the simulator
prints. The DRAM image is a file shared with the process that commands.
"""

import json
import os
import sys

import cocotb
from cocotb.triggers import First, RisingEdge, Timer

from opu_fuse.hw.isa import Engine
from opu_fuse.hw.regmap import CONTROL_REGISTERS, OFFSET

REPLY = "@opu "
CYCLE = 2  # steps; the clock rises at odd times, this side acts at even ones
FIELD = {(r.name, f.name): f for r in CONTROL_REGISTERS for f in r.fields}


def reply(**content):
    """One answer. It starts on a new line, whatever the simulator has printed before."""
    os.write(1, f"\n{REPLY}{json.dumps(content)}\n".encode())


class Registers:
    """AXI4-Lite master that suits opu_csr: an access is answered one cycle after it is taken."""

    def __init__(self, dut):
        self.dut = dut

    async def write(self, name, value):
        dut = self.dut
        dut.awaddr.value = OFFSET[name]
        dut.wdata.value = value
        dut.awvalid.value = dut.wvalid.value = 1
        await self._until(dut.bvalid)
        dut.awvalid.value = dut.wvalid.value = 0
        response = int(dut.bresp.value)
        dut.bready.value = 1
        await Timer(CYCLE, "step")
        dut.bready.value = 0
        assert response == 0, f"write to {name} refused"

    async def read(self, name):
        dut = self.dut
        dut.araddr.value = OFFSET[name]
        dut.arvalid.value = 1
        await self._until(dut.rvalid)
        dut.arvalid.value = 0
        value, response = int(dut.rdata.value), int(dut.rresp.value)
        dut.rready.value = 1
        await Timer(CYCLE, "step")
        dut.rready.value = 0
        assert response == 0, f"read of {name} refused"
        return value

    async def _until(self, signal):
        for _ in range(8):
            await Timer(CYCLE, "step")
            if int(signal.value):
                return
        raise AssertionError("the control registers do not answer")


async def reset(dut):
    dut.rst_n.value = 0
    await Timer(4 * CYCLE, "step")
    dut.rst_n.value = 1
    await Timer(2 * CYCLE, "step")


async def run(dut, command):
    """Start one program and wait for its end; counters, or `timeout` when `limit` cycles passed."""
    registers = Registers(dut)
    for name, value in (
        ("PROG_BASE_LO", command["base"]),
        ("PROG_WORDS", command["words"]),
        ("WINDOW_SIZE_LO", command["window"] & 0xFFFF_FFFF),
        ("WINDOW_SIZE_HI", command["window"] >> 32),
        ("WATCHDOG", command["watchdog"]),
        ("IRQ_ENABLE", 3),
    ):
        await registers.write(name, value)
    await registers.write("CTRL", FIELD["CTRL", "start"].mask)
    limit = Timer(command["limit"] * CYCLE, "step")
    if await First(RisingEdge(dut.irq), limit) is limit:
        await Timer(CYCLE, "step")
        return {"timeout": True, "pc": await registers.read("ERROR_PC")}
    await Timer(CYCLE + 1, "step")
    error = await registers.read("ERROR")
    code, engine = FIELD["ERROR", "code"], FIELD["ERROR", "engine"]
    result = {
        "error": (error & code.mask) >> code.lsb,
        "engine": (error & engine.mask) >> engine.lsb,
        "pc": await registers.read("ERROR_PC"),
        "cycles": await registers.read("CYCLES_LO") | await registers.read("CYCLES_HI") << 32,
        "read_beats": await registers.read("AXI_READ_BEATS"),
        "write_beats": await registers.read("AXI_WRITE_BEATS"),
    }
    for kind in ("BUSY", "STALL"):
        names = [f"{kind}_{e.name}" for e in Engine]
        result[kind.lower()] = [await registers.read(name) for name in names]
    await registers.write("CTRL", FIELD["CTRL", "irq_clear"].mask)
    return result


@cocotb.test()
async def session(dut):
    await reset(dut)
    reply(ready=True)
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "reset":
            await reset(dut)
            reply()
        else:
            reply(**await run(dut, command))
