/* Reset at 0: no interrupts, zeros where C wants them, the firmware. The stack pointer is set by the processor (ulx3s_cpu.sv). */
    .section .start, "ax"
    la t0, zeros
    la t1, zeros_end
1:  bgeu t0, t1, 2f
    sw x0, 0(t0)
    addi t0, t0, 4
    j 1b
2:  call main
1:  j 1b
