"""Lets `ulx3s_board.sv` run until the other side of its serial line closes."""

import cocotb
from cocotb.triggers import RisingEdge


@cocotb.test()
async def the_board_serves_its_line(dut):
    await RisingEdge(dut.finished)
