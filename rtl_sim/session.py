"""Runs inside the simulator of `opu_system`, as a cocotb test: commands from standard input.

One JSON object per line. `{"do": "run", "base", "words", "window", "watchdog", "limit"}` runs one
program and answers with the counters; `{"do": "reset"}` resets the machine. Who drives the control
registers: `{"do": "read", "offset", "cycles"}` answers with their value, `{"do": "write", "offset",
"value", "cycles"}` writes one; so many cycles pass afterwards. `{"do": "pass", "cycles"}` lets time
pass, `{"do": "wait", "cycles"}` does so until the interrupt is high. The end of input ends the
simulation. Answers go to standard output after `REPLY`, between whatever else the simulator prints.
The DRAM image is a file shared with the process that commands.
"""

import contextlib
import json
import os
import sys
from dataclasses import dataclass

import cocotb
from cocotb.triggers import RisingEdge, SimTimeoutError, Timer, with_timeout
from cocotb.utils import get_sim_time
from msgspec.structs import asdict

from opu_fuse.cosim.driver import OpuDriver

REPLY = "@opu "
CYCLE = 2  # steps; the clock rises at odd times, this side acts at even ones


def reply(**content):
    """One answer. It starts on a new line, whatever the simulator has printed before."""
    os.write(1, f"\n{REPLY}{json.dumps(content)}\n".encode())


@dataclass(frozen=True, slots=True)
class Answer:
    resp: int
    data: bytes = b""


class Registers:
    """AXI4-Lite master that suits opu_csr: an access is answered one cycle after it is taken."""

    def __init__(self, dut):
        self.dut = dut

    async def write(self, address, data):
        dut = self.dut
        await self._between_edges()
        dut.awaddr.value = address
        dut.wdata.value = int.from_bytes(data, "little")
        dut.awvalid.value = dut.wvalid.value = 1
        await self._until(dut.bvalid)
        dut.awvalid.value = dut.wvalid.value = 0
        response = int(dut.bresp.value)
        dut.bready.value = 1
        await Timer(CYCLE, "step")
        dut.bready.value = 0
        return Answer(response)

    async def read(self, address, length):
        dut = self.dut
        await self._between_edges()
        dut.araddr.value = address
        dut.arvalid.value = 1
        await self._until(dut.rvalid)
        dut.arvalid.value = 0
        value, response = int(dut.rdata.value), int(dut.rresp.value)
        dut.rready.value = 1
        await Timer(CYCLE, "step")
        dut.rready.value = 0
        return Answer(response, value.to_bytes(length, "little"))

    async def _between_edges(self):
        """An interrupt comes with the clock's edge."""
        if get_sim_time("step") % CYCLE:
            await Timer(CYCLE + 1, "step")

    async def _until(self, signal):
        for _ in range(8):
            await Timer(CYCLE, "step")
            if int(signal.value):
                return
        raise AssertionError("the control registers do not answer")


async def reset(dut, _=None):
    dut.rst_n.value = 0
    await Timer(4 * CYCLE, "step")
    dut.rst_n.value = 1
    await Timer(2 * CYCLE, "step")
    return {}


async def read(dut, command):
    answer = await Registers(dut).read(command["offset"], 4)
    await let_pass(dut, command)
    return {"value": int.from_bytes(answer.data, "little"), "resp": answer.resp}


async def write(dut, command):
    answer = await Registers(dut).write(command["offset"], command["value"].to_bytes(4, "little"))
    await let_pass(dut, command)
    return {"resp": answer.resp}


async def let_pass(_, command):
    if command["cycles"]:
        await Timer(command["cycles"] * CYCLE, "step")
    return {}


async def wait(dut, command):
    if not int(dut.irq.value):
        with contextlib.suppress(SimTimeoutError):
            await with_timeout(RisingEdge(dut.irq), command["cycles"] * CYCLE, "step")
    return {"irq": bool(int(dut.irq.value))}


async def run(dut, command):
    """Start one program and wait for its end; counters, or `timeout` when `limit` cycles passed."""
    opu = OpuDriver(Registers(dut), irq=dut.irq)
    await opu.configure(0, command["window"], watchdog=command["watchdog"])
    await opu.start(command["base"], command["words"])
    try:
        stop = await with_timeout(opu.wait(), command["limit"] * CYCLE, "step")
    except SimTimeoutError:
        return {"timeout": True, "pc": await opu.read("ERROR_PC")}
    if stop is not None:
        return {"error": stop.code, "engine": stop.engine, "pc": stop.pc}
    result = await opu.counters()
    lists = {"busy": list(result.busy.values()), "stall": list(result.stall.values())}
    return {"error": 0, **asdict(result), **lists}


DO = {"run": run, "reset": reset, "read": read, "write": write, "pass": let_pass, "wait": wait}


@cocotb.test()
async def session(dut):
    await reset(dut)
    reply(ready=True)
    for line in sys.stdin:
        command = json.loads(line)
        reply(**await DO[command["do"]](dut, command))
