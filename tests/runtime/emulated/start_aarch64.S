/* Reset and exceptions of an AArch64 processor at EL1 (Arm ARM DDI 0487, D1.3). */
#include "board.h"

    .section .start, "ax"
    .global reset
reset:
    ldr x0, =MAILBOX
    mov sp, x0
    mov x0, #(3 << 20) /* CPACR_EL1.FPEN: libopu computes with floats */
    msr cpacr_el1, x0
    adr x0, vectors
    msr vbar_el1, x0
    isb
    bl main
    b .

    .balign 2048
vectors:
    .rept 4 /* from EL1 with SP_EL0, which is not used */
    b unexpected
    .balign 128
    .endr
    b unexpected
    .balign 128
/* The machine's interrupt is level-sensitive and libopu acknowledges it later, so this masks interrupts
 * where the processor returns to. */
    stp x0, x1, [sp, #-16]!
    ldr x0, =interrupts
    ldr w1, [x0]
    add w1, w1, #1
    str w1, [x0]
    mrs x0, spsr_el1
    orr x0, x0, #0x80
    msr spsr_el1, x0
    ldp x0, x1, [sp], #16
    eret
    .balign 128
    b unexpected /* FIQ */
    .balign 128

unexpected:
    ldr x0, =BOARD
    mrs x1, esr_el1
    str w1, [x0, #BOARD_BROKEN]
    wfi
    b .
