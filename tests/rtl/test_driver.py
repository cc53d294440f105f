"""The bare-metal driver, compiled by the C compiler, against a model of the control registers."""

import subprocess

import pytest

from opu_fuse.hw.isa.register_map import ERROR_DOC, OFFSET, ErrorCode
from opu_fuse.resources import rtl_dir

pytestmark = pytest.mark.rtl
DRIVER, GENERATED = rtl_dir() / "driver", rtl_dir() / "gen"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic")

MODEL = r"""
#include <stdio.h>
#include <stdint.h>
#include "opu_regs.h"
static uint32_t registers[64];
static uint32_t cycles_above;
static int polls;
static uint32_t model_read(uint32_t offset) {
    if (offset == OPU_CYCLES_LO) registers[OPU_CYCLES_HI / 4] = cycles_above;
    if (offset == 0x14 && polls && !--polls) registers[5] = registers[8] ? 4 : 2;
    return registers[offset / 4];
}
static void model_write(uint32_t offset, uint32_t value) {
    printf("%03x=%x\n", (unsigned)offset, (unsigned)value);
    registers[offset / 4] = value;
    if (offset == 0x10 && value == 1) { registers[5] = 1; polls = 4; }
}
#define OPU_READ(device, offset) ((void)(device), model_read(offset))
#define OPU_WRITE(device, offset, value) ((void)(device), model_write((offset), (value)))
#define OPU_BARRIER() puts("barrier")
#include "opu_driver.h"
#define SHOW(call) printf("%s -> %d\n", #call, (int)(call))
int main(void) {
    opu_device d = {0};
    SHOW(opu_probe(&d, 0x123456789abULL));
    registers[0] = OPU_ID_VALUE; registers[1] = OPU_VERSION_VALUE | 7;
    SHOW(opu_probe(&d, 0x123456789abULL));
    registers[2] = 0x456789ab; registers[3] = 0x123;
    SHOW(opu_probe(&d, 0x123456789abULL));
    SHOW(opu_window(&d, 0x880001000ULL, 1ULL << 32));
    SHOW(opu_window(&d, 0x800, 4096));
    SHOW(opu_window(&d, 0, (1ULL << 32) + 1));
    SHOW(opu_start(&d, 0x8020, 5, 0));
    SHOW(opu_start(&d, 0x8040, 5, OPU_IRQ_ENABLE_DONE | OPU_IRQ_ENABLE_ERROR));
    SHOW(opu_start(&d, 0x8040, 5, 0));
    SHOW(opu_window(&d, 0x2000, 4096));
    registers[1] = OPU_VERSION_VALUE - 1;
    SHOW(opu_window(&d, 0, 4096));
    SHOW(opu_wait(&d, 0));
    SHOW(opu_wait(&d, 100));
    registers[8] = 3 << 8 | OPU_ERR_WINDOW; registers[9] = 77;
    SHOW(opu_start(&d, 0, 1, 0));
    SHOW(opu_wait(&d, 100));
    opu_error e = opu_failure(&d);
    printf("%u %u %u ", (unsigned)e.code, (unsigned)e.engine, (unsigned)e.pc);
    puts(opu_error_text(e.code));
    registers[7] = 2;
    SHOW(opu_acknowledge(&d));
    opu_stop(&d);
    SHOW(opu_queue(&d, 0xc4, 9));
    SHOW(opu_queue(&d, 0xc0, 9));
    registers[5] = OPU_STATUS_QUEUED;
    SHOW(opu_queue(&d, 0xc0, 9));
    registers[1] = OPU_VERSION_VALUE;
    SHOW(opu_window(&d, 0, 4096));
    opu_abort(&d);
    registers[OPU_PROGRAMS / 4] = 7;
    SHOW(opu_programs(&d));
    registers[18] = 5; cycles_above = 1;
    printf("%llx %s\n", (unsigned long long)opu_cycles(&d), opu_error_text(1000));
    return 0;
}
"""


def compiled(source, folder, *options):
    path = folder / "program.c"
    path.write_text(source, encoding="utf-8")
    include = (f"-I{DRIVER}", f"-I{GENERATED}")
    subprocess.run(["gcc", *STRICT, *include, *options, str(path)], check=True, cwd=folder)


def test_the_driver_needs_no_operating_system(tmp_path):
    use = '#include "opu_driver.h"\nint main(void) { opu_device d = {0}; return opu_poll(&d); }\n'
    compiled(use, tmp_path, "-ffreestanding", "-c")


def test_the_driver_writes_the_registers_in_the_order_of_the_page(tmp_path):
    compiled(MODEL, tmp_path, "-o", "program")
    run = subprocess.run([tmp_path / "program"], check=True, capture_output=True, text=True)
    accesses = [f"{OFFSET[name]:03x}={value:x}" for name, value in WRITES]
    lines = run.stdout.splitlines()
    assert [line for line in lines if "=" in line] == accesses
    barrier = lines.index("barrier")
    assert lines[barrier + 1] == f"{OFFSET['CTRL']:03x}=1", "started before memory was written"
    answers = [int(line.split(" -> ")[1]) for line in lines if " -> " in line]
    assert answers[:13] == [-2, -3, 0, 0, -5, -5, -5, 0, -4, 0, -4, -1, 0]
    assert answers[13:] == [0, int(ErrorCode.WINDOW), 2, -5, 0, -4, -4, 7]
    assert f"3 3 77 {ERROR_DOC[ErrorCode.WINDOW]}" in lines
    assert lines[-1] == "100000005 unknown error code"


WRITES = (
    ("WINDOW_BASE_LO", 0x8000_1000),
    ("WINDOW_BASE_HI", 8),
    ("WINDOW_SIZE_LO", 0),
    ("WINDOW_SIZE_HI", 1),
    ("PROG_BASE_LO", 0x8040),
    ("PROG_BASE_HI", 0),
    ("PROG_WORDS", 5),
    ("CTRL", 4),
    ("IRQ_ENABLE", 3),
    ("CTRL", 1),
    ("WINDOW_BASE_LO", 0x2000),
    ("WINDOW_BASE_HI", 0),
    ("WINDOW_SIZE_LO", 4096),
    ("WINDOW_SIZE_HI", 0),
    ("PROG_BASE_LO", 0),
    ("PROG_BASE_HI", 0),
    ("PROG_WORDS", 1),
    ("CTRL", 4),
    ("IRQ_ENABLE", 0),
    ("CTRL", 1),
    ("IRQ_STATUS", 2),
    ("CTRL", 2),
    ("PROG_BASE_LO", 0xC0),
    ("PROG_BASE_HI", 0),
    ("PROG_WORDS", 9),
    ("CTRL", 8),
    ("CTRL", 16),
)
