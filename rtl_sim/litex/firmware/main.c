/* Firmware of a LiteX SoC with the machine: opens the program file in main memory, runs it through libopu (machine
 * segments on the machine, host segments on this processor) and prints outputs, classes and cycles. Then, and where there
 * is no program, it answers a host (commands.h), which loads one and lets it run.
 *
 * Main memory: this code, at PAYLOAD_OFFSET a payload as rtl_sim/litex/image.py writes it, then window, work memory and
 * outputs. All other data is in the SRAM of the SoC, with the stack. */
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

enum {
    PAYLOAD_OFFSET = 1 << 17,
    MAGIC = 0x4c55504f, /* "OPUL" */
    ALIGNMENT = 64,
    WINDOW_ALIGNMENT = 4096,
    MOST_PORTS = 16,
    MOST_CLASSES = 4096,
    DIGITS = 21, /* of a number of 64 bits, with the end */
    PAINT = 0x5a
};
#define MOST_POLLS 1000000000u /* of the status, for one segment */

/* Before the file and, aligned, the images of each input in the order of the file. */
struct payload {
    uint32_t magic, file_bytes, images, reserved;
};

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

static uintptr_t aligned(uintptr_t at, uintptr_t unit) { return (at + unit - 1) / unit * unit; }

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

static double element(const struct opu_port *port, const void *data, size_t n) {
    switch (port->dtype) {
        case OPU_FLOAT32:
            return ((const float *)data)[n];
        case OPU_INT8:
            return ((const int8_t *)data)[n];
        default:
            return ((const uint8_t *)data)[n];
    }
}

/* The place of the largest element of each image, where the port can hold scores. */
static void print_classes(const struct opu_port *port, const uint8_t *data, size_t images) {
    if (port->dtype != OPU_FLOAT32 && port->dtype != OPU_INT8 && port->dtype != OPU_UINT8) return;
    if (port->elements < 2 || port->elements > MOST_CLASSES) return;
    for (size_t image = 0; image < images; image++, data += port->bytes) {
        size_t best = 0;
        for (size_t n = 1; n < port->elements; n++)
            if (element(port, data, n) > element(port, data, best)) best = n;
        printf("opu: image %u: class %u\n", (unsigned)image, (unsigned)best);
    }
}

/* LiteX' printf has no 64 bits, and 32 are a minute of cycles. */
static const char *decimal(uint64_t value, char text[DIGITS]) {
    char *at = text + DIGITS;
    *--at = 0;
    do *--at = (char)('0' + value % 10);
    while (value /= 10);
    return at;
}

static int failed(const char *text, const char *detail) {
    printf("opu: error: %s %s\n", text, detail);
    return 1;
}

static const struct payload *payload(void) { return (const struct payload *)(MAIN_RAM_BASE + PAYLOAD_OFFSET); }

static int run(void) {
    static struct opu_file file;
    static struct opu_session session;
    static struct opu_registers registers = {.read = read_register, .write = write_register, .to_device = flush,
                                             .to_processor = flush, .wait = too_long};
    static struct timed timed;
    static struct opu_in in[MOST_PORTS];
    static struct opu_out out[MOST_PORTS];
    const struct opu_backend backend = {timed_attach, timed_run, &timed};
    const struct payload *const head = payload();
    uintptr_t at = (uintptr_t)head + ALIGNMENT;
    struct opu_window window;
    struct opu_port port;
    enum opu_status status;
    uint64_t start, cycles;
    uint8_t *work;
    char text[4][DIGITS];

    if (head->magic != MAGIC || head->file_bytes > MAIN_RAM_SIZE - PAYLOAD_OFFSET - ALIGNMENT)
        return failed("no payload in main memory:", "load the file of image.py");
    status = opu_open(&file, (const void *)at, head->file_bytes);
    if (status != OPU_OK) return failed(opu_status_text(status), file.what);
    if (*file.refused) return failed(opu_status_text(OPU_UNSUPPORTED), file.refused);
    if (file.inputs > MOST_PORTS || file.outputs > MOST_PORTS) return failed("more than 16 inputs or outputs", "");
    at += head->file_bytes;
    for (uint32_t n = 0; n < file.inputs; n++) {
        opu_input(&file, n, &port);
        in[n] = (struct opu_in){(const void *)(at = aligned(at, ALIGNMENT)), port.bytes * head->images};
        at += in[n].bytes;
    }
    at = aligned(at, WINDOW_ALIGNMENT);
    window = (struct opu_window){(uint8_t *)at, (size_t)file.window_bytes};
    work = (uint8_t *)aligned(at + window.size, ALIGNMENT);
    at = (uintptr_t)work + (uintptr_t)file.work_bytes;
    for (uint32_t n = 0; n < file.outputs; n++) {
        opu_output(&file, n, &port);
        out[n] = (struct opu_out){(void *)(at = aligned(at, ALIGNMENT)), port.bytes * head->images};
        at += out[n].bytes;
    }
    if (at - MAIN_RAM_BASE > MAIN_RAM_SIZE) {
        printf("opu: error: main memory has %u bytes, the program needs %u\n", (unsigned)MAIN_RAM_SIZE,
               (unsigned)(at - MAIN_RAM_BASE));
        return 1;
    }
    timed = (struct timed){.machine = 0};
    registers.address = (uintptr_t)window.data;
    opu_registers_backend(&timed.inner, &registers);
    status = opu_session_init(&session, &file, &backend, &window, work, (size_t)file.work_bytes);
    if (status != OPU_OK) return failed(opu_status_text(status), "");
    printf("opu: %s, %u segments, %u images\n", file.name, (unsigned)file.segments, (unsigned)head->images);
    uart_sync();
    start = now();
    status = opu_run(&session, in, out, head->images);
    cycles = now() - start;
    if (status != OPU_OK) {
        printf("opu: segment %u: ", (unsigned)session.segment);
        return failed(opu_status_text(status), opu_fault_text(session.fault.code));
    }
    for (uint32_t n = 0; n < file.outputs; n++) {
        opu_output(&file, n, &port);
        print_output(n, out[n].data, out[n].bytes);
    }
    opu_output(&file, 0, &port);
    print_classes(&port, out[0].data, head->images);
    printf("opu: %s cycles: machine %s, its start and end %s, processor %s\n", decimal(cycles, text[0]),
           decimal(timed.machine, text[1]), decimal(timed.calls - timed.machine, text[2]),
           decimal(cycles - timed.calls, text[3]));
    printf("opu: %u bytes of SRAM\n", sram_bytes());
    printf("opu: done\n");
    return 0;
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
    if (run()) printf("opu: failed\n");
    uart_sync();
    irq_setmask(0);
}

int main(void) {
    static const struct line line = {take, give};
    static const struct memory memory = {(uint8_t *)MAIN_RAM_BASE, MAIN_RAM_BASE, MAIN_RAM_SIZE, PAYLOAD_OFFSET};
    paint_stack();
    irq_setmask(0);
    if (payload()->magic == MAGIC) run_and_print();
    while (command_next(&line, &memory) == COMMAND_RUN) run_and_print();
    ctrl_reset_write(1);
    for (;;) {}
}
