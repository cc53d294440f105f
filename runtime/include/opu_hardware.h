/* Back ends of libopu that drive a machine through its control registers (docs/registers.md). The
 * sources are in runtime/hardware; they need rtl_sim/driver/opu_driver.h. */
#ifndef OPU_HARDWARE_H
#define OPU_HARDWARE_H

#include "opu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How this platform reaches a machine. One of these for each machine: sessions that submit frames
 * to it share it, and a back end of it.
 *
 * read, write: a control register, by its byte offset.
 * to_device, to_processor: clean and invalidate caches of the window; null pointers where it is
 * uncached or coherent. Not 0: it failed, and the run ends with OPU_BUS.
 * wait: called while the machine runs, between two looks at its status: returns at once, or after
 * an interrupt. Not 0: the time is up, and the machine is stopped.
 * address: of the window of the first session on the machine's bus. Windows of further sessions are
 * in the same memory, so as far from it on the bus as for the processor.
 *
 * The rest is the library's own, set by opu_registers_backend: call that again after a change. */
struct opu_registers {
  uint32_t (*read)(void *self, uint32_t offset);
  void (*write)(void *self, uint32_t offset, uint32_t value);
  int (*to_device)(void *self);
  int (*to_processor)(void *self);
  int (*wait)(void *self);
  void *self;
  uint64_t address; /* a multiple of 4096, and so are distances between windows */
  const uint8_t *memory;           /* window of the first session */
  struct opu_job *running, *queued; /* submitted, and not known to have ended */
  uint32_t programs;               /* that had ended when `running` was started */
};

/* registers must stay where they are. A machine whose registers are older than version 1.3 takes
 * no window while it runs: a frame that is submitted then gets OPU_BUSY. */
void opu_registers_backend(struct opu_backend *backend, struct opu_registers *registers);

/* Clock cycles of the program that was started last, from its start to its end. */
uint64_t opu_registers_cycles(struct opu_registers *registers);

/* A machine on Linux, from user space. All members are the library's own. */
struct opu_linux {
  struct opu_registers registers;
  struct opu_window window; /* all memory of the machine */
  volatile uint32_t *words; /* control registers */
  int interrupts;           /* descriptor of the UIO device, or -1 */
  int for_device, for_processor; /* descriptors of u-dma-buf's sync files, or -1 */
  int timeout_ms;
  int64_t deadline_ms;
  char what[512]; /* what could not be opened, after OPU_BUS */
};

/* Open a machine: "uio:N" or "uio:N,NAME" (generic-uio with the memory of u-dma-buf, udmabufN or
 * NAME), or "mem:REGISTERS,MEMORY,BYTES" (/dev/mem; numbers as of strtoull). root: before /dev and
 * /sys, an empty text on a real system. timeout_ms: that a machine segment may take. */
enum opu_status opu_linux_open(struct opu_linux *device, const char *name, const char *root,
                               int timeout_ms);
void opu_linux_close(struct opu_linux *device);

/* A machine in simulation: the process of `opu-fuse hw sim` (docs/run-on-a-board.md), by a socket
 * and memory that both map. Time passes in it while it is accessed or waited for. One client at a
 * time; the machine is reset when it leaves. All members are the library's own. */
struct opu_sim {
  struct opu_registers registers;
  struct opu_window window; /* all memory of the machine */
  int socket;               /* -1: closed */
  int timeout_ms;
  int64_t deadline_ms;
  int failed;     /* the process has gone or refuses an access: calls end with OPU_BUS */
  char what[512]; /* why, after OPU_BUS, OPU_BUSY and OPU_OTHER_VERSION */
};

/* Open a simulation: "sim:PATH", the socket's, with a slash in it. timeout_ms: of real time, that a
 * machine segment may take. OPU_BUSY: another client has it. */
enum opu_status opu_sim_open(struct opu_sim *device, const char *name, int timeout_ms);
void opu_sim_close(struct opu_sim *device);

#ifdef __cplusplus
}
#endif

#endif
