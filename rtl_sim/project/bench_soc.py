"""cocotb tests of `soc.sv`; `test_soc.py` starts them."""

import logging
import os
import warnings
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiMaster, AxiRam

from opu_fuse import Program
from opu_fuse.cosim import OpuDriver, ProgramBench, stall_all

WINDOW = 0x4000_0000  # base address of the machine's memory on the bus


async def started(dut, stalls=0.0):
    """Bus models, clock, reset; then load the program into memory and configure the machine."""
    logging.getLogger("cocotb.soc").setLevel(logging.WARNING)  # not every word on every bus
    # Of the bus models, which we only use.
    warnings.filterwarnings("ignore", category=DeprecationWarning, module="cocotbext")
    reset = {"reset": dut.rst_n, "reset_active_level": False}
    control = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, **reset)
    processor = AxiMaster(AxiBus.from_prefix(dut, "s_axi"), dut.clk, **reset)
    memory = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.clk, **reset, size=1 << 40)
    if stalls:
        rng = np.random.default_rng(cocotb.RANDOM_SEED)
        for model in (control, processor, memory):
            stall_all(model, stalls, rng)
    dut.rst_n.value = 0
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    await ClockCycles(dut.clk, 4)
    dut.rst_n.value = 1
    await ClockCycles(dut.clk, 2)

    opu = OpuDriver(control, irq=dut.irq)
    program = Program.load(os.environ["PROGRAM"])
    bench = ProgramBench(program, opu, memory, base=WINDOW, machine=dut.u_opu)
    await bench.load()
    return bench, processor, memory


def noise(bench, seed=1):
    """An array for every input of the network."""
    rng = np.random.default_rng(seed)
    return {port.name: rng.normal(size=port.shape).astype(port.dtype) for port in bench.inputs}


@cocotb.test()
async def the_network_runs_bit_for_bit(dut):
    """Every store of the machine is compared with the functional engine while it runs."""
    bench, _, _ = await started(dut)
    result = await bench.run(noise(bench))
    for name, array in result.outputs.items():
        cocotb.log.info("%s %s: %s ...", name, array.shape, array.reshape(-1)[:4])
    cocotb.log.info("%d cycles, %d instructions", result.counters["cycles"], len(result.trace))


@cocotb.test()
async def it_does_so_on_a_stalling_bus_that_the_processor_uses_too(dut):
    bench, processor, _ = await started(dut, stalls=0.2)

    async def other_work():
        for address in range(0x1000, 0x9000, 64):
            data = os.urandom(64)
            await processor.write(address, data)
            found: Any = await processor.read(address, 64)
            assert bytes(found.data) == data

    traffic = cocotb.start_soon(other_work())
    await bench.run(noise(bench, seed=2))
    await traffic
