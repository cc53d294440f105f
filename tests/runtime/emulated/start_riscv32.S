/* Reset and traps of a RISC-V processor in machine mode (The RISC-V Instruction Set Manual, volume II). */
#include "board.h"

    .section .start, "ax"
    .global reset
reset:
    li sp, MAILBOX
    la t0, trap
    csrw mtvec, t0
    call main
    j .

/* The machine's interrupt is level-sensitive and libopu acknowledges it later, so this masks interrupts
 * where the processor returns to. */
    .balign 4
trap:
    addi sp, sp, -16
    sw t0, 0(sp)
    sw t1, 4(sp)
    csrr t1, mcause
    bgez t1, unexpected
    la t0, interrupts
    lw t1, 0(t0)
    addi t1, t1, 1
    sw t1, 0(t0)
    li t0, 1 << 7 /* MPIE */
    csrc mstatus, t0
    lw t0, 0(sp)
    lw t1, 4(sp)
    addi sp, sp, 16
    mret

unexpected:
    li t0, BOARD
    addi t1, t1, 1 /* so that no cause is 0 */
    sw t1, BOARD_BROKEN(t0)
    wfi
    j .
