/* What a user of opu_driver.h writes, on a processor without an operating system: two programs one after the other, woken by
 * interrupts, and everything that can go wrong between them. Prints the results on the console; its exit code is 0 when every
 * answer was the right one. cases.h: SPEC_HASH and PROGRAMS, of the programs that are in memory. */
#define OPU_BARRIER() __asm__ volatile("" ::: "memory") /* accesses of this processor are in order and uncached */
#include "opu_driver.h"

#include "cases.h"

#define CONSOLE (*(volatile uint32_t *)0x10000000u)
#define REFUSED (*(volatile uint32_t *)0x10000008u)
#define DRAM ((volatile uint32_t *)0x80000000u)
#define NOWHERE 0x8000000000ull /* bus address without memory */
#define BOTH (OPU_IRQ_ENABLE_DONE | OPU_IRQ_ENABLE_ERROR)

typedef struct {
    uint32_t base, bytes;   /* memory window */
    uint32_t offset, words; /* program in it */
    uint32_t cycles;        /* that it takes */
} program;

static const program programs[] = PROGRAMS;
static const opu_device opu = {(volatile uint32_t *)0x40000000u};
static volatile uint32_t pending;
static unsigned wrong;

void interrupt(void) {
    pending |= opu_acknowledge(&opu);
}

static void say(const char *text) {
    while (*text) CONSOLE = (uint8_t)*text++;
}

static void say_number(uint32_t value) {
    char digits[11];
    char *at = digits + sizeof digits;
    *--at = 0;
    do *--at = (char)('0' + value % 10); while (value /= 10);
    say(at);
}

static void expect(const char *what, uint32_t actual, uint32_t wanted) {
    say(what);
    say(" ");
    say_number(actual);
    if (actual != wanted) {
        wrong++;
        say(", expected ");
        say_number(wanted);
    }
    say("\n");
}

/* A negative answer of the driver as a positive number. */
static void expect_refusal(const char *what, int actual, int wanted) {
    expect(what, (uint32_t)-actual, (uint32_t)-wanted);
}

/* Until the interrupt of the program's end; its outcome. */
static int ended(void) {
    while (!pending) {}
    const uint32_t came = pending;
    const int outcome = opu_poll(&opu);
    pending = 0;
    if (came != (outcome ? OPU_IRQ_STATUS_ERROR : OPU_IRQ_STATUS_DONE)) {
        wrong++;
        say("another interrupt came than the outcome's\n");
    }
    return outcome;
}

static int started(const program *p) {
    const int refusal = opu_window(&opu, p->base, p->bytes);
    return refusal ? refusal : opu_start(&opu, p->offset, p->words, BOTH);
}

static void run(unsigned number) {
    expect("start", (uint32_t)-started(&programs[number]), 0);
    expect("program", (uint32_t)ended(), OPU_DONE);
    expect("cycles", (uint32_t)opu_cycles(&opu), programs[number].cycles);
}

/* The machine stops with this error, at this word of the program where it has one. */
static void expect_error(uint32_t code, int pc) {
    const uint32_t outcome = (uint32_t)ended();
    const opu_error error = opu_failure(&opu);
    expect(opu_error_text(code), outcome, code);
    if (pc >= 0) expect("word", error.pc, (uint32_t)pc);
}

static void fail(const program *p, uint32_t code, int pc) {
    expect("start", (uint32_t)-started(p), 0);
    expect_error(code, pc);
}

/* The program with another word in memory. */
static void fail_with(const program *p, uint32_t word, uint32_t value, uint32_t code) {
    volatile uint32_t *const patched = DRAM + (p->base + p->offset) / 4u + word;
    const uint32_t before = *patched;
    *patched = value;
    fail(p, code, -1);
    *patched = before;
}

static void refusals(const program *p) {
    expect_refusal("other machine", opu_probe(&opu, SPEC_HASH ^ 1), OPU_OTHER_MACHINE);
    expect_refusal("probe", opu_probe(&opu, SPEC_HASH), OPU_DONE);
    expect_refusal("window between pages", opu_window(&opu, p->base + 64, p->bytes), OPU_BAD_ADDRESS);
    expect_refusal("window at the end", opu_window(&opu, (1ull << 40) - 4096, 8192), OPU_BAD_ADDRESS);
    expect_refusal("program between 64 bytes", opu_start(&opu, p->offset + 4, p->words, 0), OPU_BAD_ADDRESS);
    expect("not one access refused", REFUSED, 0);
    (void)opu.registers[0x800 / 4];
    expect("no such register", REFUSED, 1);
}

static void while_it_runs(const program *p) {
    expect("start", (uint32_t)-started(p), 0);
    expect_refusal("start of a busy machine", opu_start(&opu, p->offset, p->words, 0), OPU_IS_BUSY);
    expect_refusal("window of the next program", opu_window(&opu, p->base, p->bytes), OPU_DONE);
    opu_stop(&opu);
    expect_error(OPU_ERR_STOPPED, -1);
}

/* The machine starts the queued program by itself; each end is an interrupt. */
static void queued_programs(const program *p) {
    const uint32_t before = opu_programs(&opu);
    expect("start", (uint32_t)-started(p), 0);
    expect("queue", (uint32_t)-opu_queue(&opu, p->offset, p->words), 0);
    expect_refusal("queue after a queued program", opu_queue(&opu, p->offset, p->words), OPU_IS_BUSY);
    expect_refusal("window of a queued program", opu_window(&opu, p->base, p->bytes), OPU_IS_BUSY);
    REFUSED = 0;
    OPU_WRITE(&opu, OPU_WINDOW_SIZE_LO, 4096u);
    expect("configuration of a queued program", REFUSED, 1);
    while (opu_programs(&opu) != before + 2) {}
    expect("programs", (uint32_t)ended(), OPU_DONE);
    expect("cycles", (uint32_t)opu_cycles(&opu), p->cycles);
}

static void faults(const program *p) {
    const program cut = {p->base, p->bytes, p->offset, 3, 0};
    fail(&cut, OPU_ERR_PROGRAM_END, 3);
    const program outside = {p->base, p->offset, p->offset, p->words, 0};
    fail(&outside, OPU_ERR_WINDOW, 0);
    expect("window nowhere", (uint32_t)-opu_window(&opu, NOWHERE, p->bytes), 0);
    expect("start", (uint32_t)-opu_start(&opu, p->offset, p->words, BOTH), 0);
    expect_error(OPU_ERR_AXI_READ, 0);
    fail_with(p, 0, DRAM[(p->base + p->offset) / 4u] ^ 1u, OPU_ERR_SPEC_MISMATCH);
    fail_with(p, 8, 0xE0000000u, OPU_ERR_ILLEGAL_INSTRUCTION); /* no such engine */
    const uint32_t patience = OPU_READ(&opu, OPU_WATCHDOG);
    OPU_WRITE(&opu, OPU_WATCHDOG, 5u);
    fail(p, OPU_ERR_WATCHDOG, -1);
    OPU_WRITE(&opu, OPU_WATCHDOG, patience);
}

int main(void) {
    refusals(&programs[0]);
    run(0);
    while_it_runs(&programs[0]);
    faults(&programs[0]);
    queued_programs(&programs[0]);
    run(0);
    run(1);
    say(wrong ? "wrong\n" : "right\n");
    return (int)wrong;
}
