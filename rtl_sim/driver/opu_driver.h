/* Bare-metal driver: one header, C99, no heap, no operating system. How to start a machine: docs/bring-up.md.
 *
 * The platform may define, before it includes this file:
 *   OPU_READ(device, offset), OPU_WRITE(device, offset, value)  access to a 32-bit control register (default: through a pointer)
 *   OPU_BARRIER()  all accesses before it are done before later ones begin (default: the compiler's full barrier)
 * The driver does not touch caches: the caller cleans what it wrote before opu_start, and invalidates what it reads after
 * opu_poll gave OPU_DONE. */
#ifndef OPU_DRIVER_H
#define OPU_DRIVER_H

#include <stdint.h>

#include "opu_regs.h"

typedef struct {
    volatile uint32_t *registers; /* control registers, mapped uncached */
} opu_device;

#ifndef OPU_READ
#define OPU_READ(device, offset) ((device)->registers[(offset) / 4u])
#define OPU_WRITE(device, offset, value) ((device)->registers[(offset) / 4u] = (value))
#endif
#ifndef OPU_BARRIER
#define OPU_BARRIER() __sync_synchronize()
#endif

/* Answers of the functions; those of the machine itself (OPU_ERR_*, docs/registers.md) are positive. */
enum {
    OPU_DONE = 0,
    OPU_RUNNING = -1,
    OPU_NO_DEVICE = -2,    /* other letters or another major version in ID, VERSION */
    OPU_OTHER_MACHINE = -3, /* the program was compiled for another spec */
    OPU_IS_BUSY = -4,
    OPU_BAD_ADDRESS = -5   /* window not at a page or above 4 GiB, program not at a multiple of 64 */
};

typedef struct {
    uint32_t code;   /* OPU_ERR_* */
    uint32_t engine; /* OPU_ENGINE_* */
    uint32_t pc;     /* index of the program's word */
} opu_error;

/* The low half first: CYCLES_HI belongs to the CYCLES_LO that was read last. */
static inline uint64_t opu_read64(const opu_device *device, uint32_t low) {
    const uint32_t below = OPU_READ(device, low);
    return (uint64_t)OPU_READ(device, low + 4u) << 32 | below;
}

static inline void opu_write64(const opu_device *device, uint32_t low, uint64_t value) {
    OPU_WRITE(device, low, (uint32_t)value);
    OPU_WRITE(device, low + 4u, (uint32_t)(value >> 32));
}

/* Is this the machine that programs for `spec_hash` (manifest.json) run on? */
static inline int opu_probe(const opu_device *device, uint64_t spec_hash) {
    if (OPU_READ(device, OPU_ID) != OPU_ID_VALUE) return OPU_NO_DEVICE;
    if (OPU_READ(device, OPU_VERSION) >> 16 != OPU_VERSION_VALUE >> 16) return OPU_NO_DEVICE;
    return opu_read64(device, OPU_SPEC_HASH_LO) == spec_hash ? OPU_DONE : OPU_OTHER_MACHINE;
}

/* Memory that the next program may touch: bus address and bytes. Programs and their data have fixed offsets in it. A program that
 * runs keeps its own, from version 1.3 of the registers on. OPU_IS_BUSY: a program is queued, whose window it would be, or one
 * runs on an older machine. */
static inline int opu_window(const opu_device *device, uint64_t base, uint64_t bytes) {
    const uint32_t locked = (OPU_READ(device, OPU_VERSION) & 0xffffu) < 3u ? OPU_STATUS_BUSY : OPU_STATUS_QUEUED;
    if (OPU_READ(device, OPU_STATUS) & locked) return OPU_IS_BUSY;
    if (base % 4096u || bytes > (uint64_t)1 << 32) return OPU_BAD_ADDRESS;
    if (base > ((uint64_t)1 << 40) - bytes) return OPU_BAD_ADDRESS;
    opu_write64(device, OPU_WINDOW_BASE_LO, base);
    opu_write64(device, OPU_WINDOW_SIZE_LO, bytes);
    return OPU_DONE;
}

/* Name the program that a command starts. */
static inline void opu_name(const opu_device *device, uint32_t offset, uint32_t words) {
    opu_write64(device, OPU_PROG_BASE_LO, offset);
    OPU_WRITE(device, OPU_PROG_WORDS, words);
}

/* Start the program of `words` words at a byte offset of the window. interrupts: OPU_IRQ_ENABLE_* bits, 0 to poll. */
static inline int opu_start(const opu_device *device, uint32_t offset, uint32_t words, uint32_t interrupts) {
    if (OPU_READ(device, OPU_STATUS) & OPU_STATUS_BUSY) return OPU_IS_BUSY;
    if (offset % 64u) return OPU_BAD_ADDRESS;
    opu_name(device, offset, words);
    OPU_WRITE(device, OPU_CTRL, OPU_CTRL_IRQ_CLEAR);
    OPU_WRITE(device, OPU_IRQ_ENABLE, interrupts);
    OPU_BARRIER();
    OPU_WRITE(device, OPU_CTRL, OPU_CTRL_START);
    return OPU_DONE;
}

/* Start a program, in the window that was set last, as soon as the one that runs is done; at once while none runs. OPU_IS_BUSY:
 * another waits already. An error drops it. opu_programs counts those that came to an end. */
static inline int opu_queue(const opu_device *device, uint32_t offset, uint32_t words) {
    if (OPU_READ(device, OPU_STATUS) & OPU_STATUS_QUEUED) return OPU_IS_BUSY;
    if (offset % 64u) return OPU_BAD_ADDRESS;
    opu_name(device, offset, words);
    OPU_BARRIER();
    OPU_WRITE(device, OPU_CTRL, OPU_CTRL_QUEUE);
    return OPU_DONE;
}

/* Programs that came to an end since the reset, with or without error. */
static inline uint32_t opu_programs(const opu_device *device) {
    return OPU_READ(device, OPU_PROGRAMS);
}

/* OPU_RUNNING, OPU_DONE or the error code of the last program. */
static inline int opu_poll(const opu_device *device) {
    const uint32_t status = OPU_READ(device, OPU_STATUS);
    if (status & OPU_STATUS_BUSY) return OPU_RUNNING;
    OPU_BARRIER();
    if (status & OPU_STATUS_DONE) return OPU_DONE;
    return (int)(OPU_READ(device, OPU_ERROR) & OPU_ERROR_CODE);
}

/* Poll at most `polls` times. Still OPU_RUNNING then: opu_failure reports whether a silent memory keeps a stopped machine busy. */
static inline int opu_wait(const opu_device *device, uint32_t polls) {
    int outcome = OPU_RUNNING;
    while (outcome == OPU_RUNNING && polls--) outcome = opu_poll(device);
    return outcome;
}

/* The first error since the start; valid as soon as it happened, also while open transactions keep the machine busy. */
static inline opu_error opu_failure(const opu_device *device) {
    const uint32_t value = OPU_READ(device, OPU_ERROR);
    opu_error error;
    error.code = (value & OPU_ERROR_CODE) >> OPU_ERROR_CODE_SHIFT;
    error.engine = (value & OPU_ERROR_ENGINE) >> OPU_ERROR_ENGINE_SHIFT;
    error.pc = OPU_READ(device, OPU_ERROR_PC);
    return error;
}

/* In the interrupt handler: what came (OPU_IRQ_STATUS_*), cleared. */
static inline uint32_t opu_acknowledge(const opu_device *device) {
    const uint32_t pending = OPU_READ(device, OPU_IRQ_STATUS);
    OPU_WRITE(device, OPU_IRQ_STATUS, pending);
    return pending;
}

/* End the program; opu_poll gives OPU_ERR_STOPPED when the last transaction is answered. */
static inline void opu_stop(const opu_device *device) {
    OPU_WRITE(device, OPU_CTRL, OPU_CTRL_STOP);
}

/* End the program although the memory does not answer. The interconnect and the memory must be reset before the next start; the
 * machine need not be. */
static inline void opu_abort(const opu_device *device) {
    OPU_WRITE(device, OPU_CTRL, OPU_CTRL_ABORT);
}

/* Cycles of the last program. */
static inline uint64_t opu_cycles(const opu_device *device) {
    return opu_read64(device, OPU_CYCLES_LO);
}

/* What an error code means. */
static inline const char *opu_error_text(uint32_t code) {
    static const char *const texts[] = OPU_ERROR_TEXTS;
    return code < sizeof texts / sizeof *texts ? texts[code] : "unknown error code";
}

#endif
