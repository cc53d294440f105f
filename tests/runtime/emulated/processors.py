"""Emulated processors (Unicorn): how their firmware is compiled, their reset, their interrupt."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from unicorn import arm64_const as arm
from unicorn import riscv_const as riscv
from unicorn import unicorn_const as const
from unicorn.unicorn import Uc

from opu_fuse.resources import rtl_dir
from tests.runtime.built import build

HERE = Path(__file__).parent
LITEX = rtl_dir() / "litex" / "firmware"
OPTIONS = (
    *("-ffreestanding", "-nostdlib", "-static", "-fno-stack-protector"),
    "-fno-asynchronous-unwind-tables",
    "-fno-tree-loop-distribute-patterns",  # memcpy is not to become a call of itself
    *(f"-I{HERE}", f"-I{LITEX}"),
    f"-Wl,-T,{HERE / 'link.ld'},--build-id=none,--no-warn-rwx-segments",
)
SOURCES = ("src/*.c", "hardware/opu_registers.c", LITEX / "payload.c", HERE / "firmware.c")
EL1H_MASKED = 0x3C5
"""PSTATE: EL1 with its own stack pointer, all interrupts masked."""
IRQ_MASK, IRQ_VECTOR = 1 << 7, 0x280
SPSR_EL1 = (4, 0, 3, 0, 0)
"""CRn, CRm, op0, op1, op2."""
MIE, MPIE, MPP = 1 << 3, 1 << 7, 3 << 11
"""mstatus: interrupts enabled, and before the trap; the mode before it."""
EXTERNAL = 1 << 31 | 11
"""mcause: interrupt from outside, in machine mode."""


class Processor(Struct, frozen=True):
    """name: of its compiler in `commands.py`, and in start_*.S. pc: Unicorn's register.

    interrupt: what the processor does at an interrupt, given its program counter: the next one.
    """

    name: str
    options: tuple[str, ...]
    pc: int
    reset: Callable[[], Uc]
    interrupt: Callable[[Uc, int], int]

    def firmware(self, folder: Path, compiler: str) -> bytes:
        """The image that starts at address 0."""
        options = (*OPTIONS, *self.options)
        words = [compiler, *self.options, "-print-libgcc-file-name"]
        said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        sources = (*SOURCES, HERE / f"start_{self.name}.S", Path(said.strip()))
        elf = build(folder / "firmware.elf", *sources, compiler=compiler, options=options)
        copy = compiler.replace("gcc", "objcopy")
        subprocess.run([copy, "-O", "binary", elf, folder / "firmware.bin"], check=True)
        return (folder / "firmware.bin").read_bytes()


def _reset_arm() -> Uc:
    uc = Uc(const.UC_ARCH_ARM64, const.UC_MODE_ARM)
    uc.ctl_set_cpu_model(arm.UC_CPU_ARM64_A72)
    uc.reg_write(arm.UC_ARM64_REG_PSTATE, EL1H_MASKED)
    return uc


def _interrupt_arm(uc: Uc, pc: int) -> int:
    """`AArch64.TakeException`, unless the interrupt is masked."""
    state = uc.reg_read(arm.UC_ARM64_REG_PSTATE)
    if state & IRQ_MASK:
        return pc
    uc.reg_write(arm.UC_ARM64_REG_CP_REG, (*SPSR_EL1, state))
    uc.reg_write(arm.UC_ARM64_REG_ELR_EL1, pc)
    uc.reg_write(arm.UC_ARM64_REG_PSTATE, EL1H_MASKED)
    return uc.reg_read(arm.UC_ARM64_REG_VBAR_EL1) + IRQ_VECTOR


def _reset_riscv() -> Uc:
    uc = Uc(const.UC_ARCH_RISCV, const.UC_MODE_RISCV32)
    uc.ctl_set_cpu_model(riscv.UC_CPU_RISCV32_SIFIVE_E31)
    return uc


def _interrupt_riscv(uc: Uc, pc: int) -> int:
    """A trap to machine mode (privileged architecture, 3.1.6.1), unless interrupts are masked."""
    state = uc.reg_read(riscv.UC_RISCV_REG_MSTATUS)
    if not state & MIE:
        return pc
    uc.reg_write(riscv.UC_RISCV_REG_MSTATUS, state & ~MIE | MPIE | MPP)
    uc.reg_write(riscv.UC_RISCV_REG_MEPC, pc)
    uc.reg_write(riscv.UC_RISCV_REG_MCAUSE, EXTERNAL)
    return uc.reg_read(riscv.UC_RISCV_REG_MTVEC)


CORTEX_A72 = Processor(
    name="aarch64",
    options=(
        *("-O1", "-no-pie", "-fno-pic", "-mno-outline-atomics"),
        "-mstrict-align",  # memory is of device type while the MMU is off
    ),
    pc=arm.UC_ARM64_REG_PC,
    reset=_reset_arm,
    interrupt=_interrupt_arm,
)
SIFIVE_E31 = Processor(
    name="riscv32",  # a microcontroller: no floats, no MMU
    options=(
        *("-Os", "-march=rv32imac", "-misa-spec=2.2", "-mabi=ilp32", "-mcmodel=medany"),
        f"-isystem{HERE / 'freestanding'}",
        "-Wl,--no-relax",  # gp is not set
    ),
    pc=riscv.UC_RISCV_REG_PC,
    reset=_reset_riscv,
    interrupt=_interrupt_riscv,
)
