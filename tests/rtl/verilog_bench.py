"""cocotb test of a machine in plain Verilog; `test_plain_verilog.py` starts it."""

import logging
import os
import warnings

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

from opu_fuse import Program
from opu_fuse.cosim import OpuDriver, ProgramBench

WINDOW = 0x4000_0000


@cocotb.test()
async def the_network_runs_bit_for_bit(dut):
    logging.getLogger(f"cocotb.{dut._name}").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", category=DeprecationWarning, module="cocotbext")
    reset = {"reset": dut.rst_ni, "reset_active_level": False}
    control = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk_i, **reset)
    memory = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.clk_i, **reset, size=1 << 40)
    dut.rst_ni.value = 0
    cocotb.start_soon(Clock(dut.clk_i, 10, "ns").start())
    await ClockCycles(dut.clk_i, 4)
    dut.rst_ni.value = 1
    await ClockCycles(dut.clk_i, 4)
    program = Program.load(os.environ["PROGRAM"])
    bench = ProgramBench(program, OpuDriver(control, irq=dut.irq_o), memory, base=WINDOW)
    await bench.load()
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    inputs = {port.name: rng.normal(size=port.shape).astype(port.dtype) for port in bench.inputs}
    result = await bench.run(inputs)
    expected = program.run(inputs).outputs
    assert expected.keys() == result.outputs.keys()
    for name, array in expected.items():
        assert np.array_equal(result.outputs[name], array), name
    cocotb.log.info("%d cycles", result.counters["cycles"])
