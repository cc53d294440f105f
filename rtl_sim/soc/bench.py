"""Lets `soc.sv` run until its firmware ends."""

import cocotb
from cocotb.triggers import RisingEdge, with_timeout

LIMIT = 2_000_000  # cycles, of 2 ns


@cocotb.test()
async def the_firmware_finds_every_answer_right(dut):
    await with_timeout(RisingEdge(dut.finished), 2 * LIMIT, "ns")
    assert int(dut.exit_code.value) == 0, "answers are wrong, see the console"
