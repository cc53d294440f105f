/* Firmware of a LiteX SoC with the machine: runs the program file in main memory through libopu (machine segments on the
 * machine, host segments on this processor; payload.h) and prints outputs, classes and cycles. Then, and where there is no
 * program, it answers a host (commands.h), which loads one and lets it run.
 *
 * Main memory: this code, at PAYLOAD_OFFSET the payload. All other data is in the SRAM of the SoC, with the stack. */
#include <generated/csr.h>
#include <generated/mem.h>
#include <irq.h>
#include <libbase/crc.h>
#include <libbase/uart.h>
#include <stdio.h>
#include <string.h>
#include <system.h>

#include "commands.h"
#define opu_wait opu_poll_for /* the driver's: another function than that of opu.h */
#include "opu_driver.h"
#undef opu_wait
#include "opu_hardware.h"
#include "payload.h"

enum { PAYLOAD_OFFSET = 1 << 17, PAINT = 0x5a };
#define MOST_POLLS 1000000000u /* of the status, for one segment */

/* The registers' back end, with the time of its calls. */
struct timed {
    struct opu_backend inner;
    uint64_t machine, calls; /* cycles of the machine, and of the calls that start it and wait for it */
};

extern uint8_t _fdata[], _end[], _fstack[]; /* of the linker script */

static const opu_device device = {(volatile uint32_t *)OPU_BASE};
static uint32_t polls;

static uint64_t now(void) {
    timer0_uptime_latch_write(1);
    return timer0_uptime_cycles_read();
}

static uint32_t read_register(void *self, uint32_t offset) {
    (void)self;
    return OPU_READ(&device, offset);
}

static void write_register(void *self, uint32_t offset, uint32_t value) {
    (void)self;
    OPU_WRITE(&device, offset, value);
}

static int flush(void *self) {
    (void)self;
    flush_cpu_dcache();
    flush_l2_cache();
    return 0;
}

static int too_long(void *self) {
    (void)self;
    return ++polls > MOST_POLLS;
}

static enum opu_status timed_attach(void *self, const struct opu_file *file, const struct opu_window *window) {
    const struct timed *timed = self;
    return timed->inner.attach(timed->inner.self, file, window);
}

static enum opu_status timed_run(void *self, const struct opu_window *window, uint64_t offset, uint32_t words,
                                 struct opu_fault *fault) {
    struct timed *timed = self;
    const uint64_t start = now();
    enum opu_status status;
    polls = 0;
    status = timed->inner.run(timed->inner.self, window, offset, words, fault);
    timed->calls += now() - start;
    timed->machine += opu_cycles(&device);
    return status;
}

/* Bytes of SRAM in use: data, and the stack as deep as it has been. */
static unsigned sram_bytes(void) {
    const uint8_t *deepest = _end;
    while (deepest < _fstack && *deepest == PAINT) deepest++;
    return (unsigned)(_end - _fdata) + (unsigned)(_fstack - deepest);
}

static void paint_stack(void) {
    const uint8_t here = 0, *const below = &here - 256;
    for (volatile uint8_t *p = _end; p < below; p++) *p = PAINT;
}

/* The bytes, and a CRC-16 of them and of the number of the output. */
static void print_output(uint32_t number, const uint8_t *bytes, size_t count) {
    static const char digits[] = "0123456789abcdef";
    printf("opu: output %u ", (unsigned)number);
    for (size_t i = 0; i < count; i++) {
        putchar(digits[bytes[i] >> 4]);
        putchar(digits[bytes[i] & 15]);
    }
    printf(" %04x\n", crc16(bytes, (int)count) ^ (unsigned)number);
}

static void print(const char *text) { printf("%s", text); }

static void *payload_memory(void) { return (void *)(MAIN_RAM_BASE + PAYLOAD_OFFSET); }

static int run(void) {
    static struct payload payload;
    static struct opu_registers registers = {.read = read_register, .write = write_register, .to_device = flush,
                                             .to_processor = flush, .wait = too_long};
    static struct timed timed;
    const struct opu_backend backend = {timed_attach, timed_run, &timed};
    uint64_t start, cycles;

    if (!payload_open(&payload, payload_memory(), MAIN_RAM_SIZE - PAYLOAD_OFFSET, print)) return 0;
    timed = (struct timed){.machine = 0};
    registers.address = (uintptr_t)payload.window.data;
    opu_registers_backend(&timed.inner, &registers);
    if (!payload_load(&payload, &backend)) return 0;
    uart_sync();
    start = now();
    if (!payload_run(&payload)) return 0;
    cycles = now() - start;
    for (uint32_t n = 0; n < payload.file.outputs; n++) print_output(n, payload.out[n].data, payload.out[n].bytes);
    payload_print_classes(&payload);
    payload_print(&payload, "opu: % cycles: machine %, its start and end %, processor %\n",
                  (uint64_t[]){cycles, timed.machine, timed.calls - timed.machine, cycles - timed.calls});
    printf("opu: %u bytes of SRAM\n", sram_bytes());
    printf("opu: done\n");
    return 1;
}

/* A byte of the line; -1 where none comes in time. Without interrupts: they take longer than the line takes for a byte. */
static int take(int first) {
    uint64_t start = 0;
    uint8_t byte;
    while (uart_rxempty_read()) {
        if (first) continue;
        if (start && now() - start > CONFIG_CLOCK_FREQUENCY / 4) return -1;
        if (!start) start = now();
    }
    byte = (uint8_t)uart_rxtx_read();
    uart_ev_pending_write(UART_EV_RX);
    return byte;
}

static void give(uint8_t byte) {
    while (uart_txfull_read()) {}
    uart_rxtx_write(byte);
}

static void run_and_print(void) {
    irq_setie(1);
    uart_init();
    if (!run()) printf("opu: failed\n");
    uart_sync();
    irq_setmask(0);
}

int main(void) {
    static const struct line line = {take, give};
    static const struct memory memory = {(uint8_t *)MAIN_RAM_BASE, MAIN_RAM_BASE, MAIN_RAM_SIZE, PAYLOAD_OFFSET};
    paint_stack();
    irq_setmask(0);
    if (payload_is_at(payload_memory())) run_and_print();
    while (command_next(&line, &memory) == COMMAND_RUN) run_and_print();
    ctrl_reset_write(1);
    for (;;) {}
}
