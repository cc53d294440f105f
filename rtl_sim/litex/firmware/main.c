/* Firmware of the simulated SoC: runs one program on the machine and prints the bytes that the host wants of its memory.
 * program.h: PROGRAM_* (offset, words, spec hash of its machine), WINDOW_*, REGIONS (offset, bytes) in the window. */
#include <generated/csr.h>
#include <generated/mem.h>
#include <generated/soc.h>
#include <irq.h>
#include <libbase/uart.h>
#include <stdio.h>
#include <system.h>

#include "opu_driver.h"

#include "program.h"

#define WINDOW (MAIN_RAM_BASE + WINDOW_OFFSET)
#define MOST_POLLS 100000000u

static const opu_device opu = {(volatile uint32_t *)OPU_BASE};
static const struct { uint32_t offset, bytes; } regions[] = REGIONS;

static int run(void) {
    const uint64_t spec_hash = (uint64_t)PROGRAM_MACHINE_HI << 32 | PROGRAM_MACHINE_LO;
    int outcome = opu_probe(&opu, spec_hash);
    if (!outcome) outcome = opu_window(&opu, WINDOW, WINDOW_BYTES);
    flush_cpu_dcache();
    flush_l2_cache();
    if (!outcome) outcome = opu_start(&opu, PROGRAM_OFFSET, PROGRAM_WORDS, 0);
    if (!outcome) outcome = opu_wait(&opu, MOST_POLLS);
    flush_cpu_dcache();
    flush_l2_cache();
    return outcome;
}

int main(void) {
    irq_setmask(0);
    irq_setie(1);
    uart_init();
    const int outcome = run();
    if (outcome) {
        const opu_error error = opu_failure(&opu);
        printf("opu: error %d engine %u word %u\n", outcome, (unsigned)error.engine, (unsigned)error.pc);
    } else {
        for (unsigned r = 0; r < sizeof regions / sizeof *regions; r++) {
            const volatile uint8_t *bytes = (const uint8_t *)(WINDOW + regions[r].offset);
            printf("opu: at %u ", (unsigned)regions[r].offset);
            for (uint32_t i = 0; i < regions[r].bytes; i++) printf("%02x", bytes[i]);
            printf("\n");
        }
        printf("opu: done in %u cycles\n", (unsigned)opu_cycles(&opu));
    }
    uart_sync();
    for (;;) {}
}
