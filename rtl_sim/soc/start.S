/* Reset at 0, interrupts at 0x10. The processor keeps the interrupted address in its register q0 and takes no other interrupt until
 * retirq; its instructions for that are no RISC-V, so they are written as numbers. */
#define MASKIRQ(rd, rs) .insn r 0x0b, 0, 3, rd, rs, x0
#define RETIRQ .insn r 0x0b, 0, 2, x0, x0, x0

    .section .start, "ax"
    .option norvc
    j reset
    .org 0x10

/* What a C function may change is saved on the stack of whoever was interrupted, register n at 4n. */
    addi sp, sp, -128
    .irp n, 1, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17, 28, 29, 30, 31
    sw x\n, 4*\n(sp)
    .endr
    call interrupt
    .irp n, 1, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17, 28, 29, 30, 31
    lw x\n, 4*\n(sp)
    .endr
    addi sp, sp, 128
    RETIRQ

reset:
    la t0, zeros
    la t1, zeros_end
1:  bgeu t0, t1, 2f
    sw x0, 0(t0)
    addi t0, t0, 4
    j 1b
2:  li t0, ~(1 << 3) /* the machine's interrupt only: what the processor itself finds wrong is to stop it */
    MASKIRQ(x0, t0)
    call main
    lui t0, 0x10000
    sw a0, 4(t0)
1:  j 1b
