/* What a user writes for libopu on a processor without an operating system, next to a machine: registers
 * that are mapped, memory that is shared, a wait for interrupts. The mailbox says what to run. */
#include <string.h>

#include "board.h"
#include "opu_hardware.h"
#include "payload.h"

/* In the order of board.py. */
struct mailbox {
  uint64_t file; /* 0: the machine's memory begins with a payload, whose classes are printed */
  uint64_t file_bytes, input, output;
  uint64_t window_bytes; /* memory of the machine */
  uint32_t images;
  uint32_t overlap;    /* frames alternate between two windows */
  uint32_t timeout_ms;
  uint32_t damaged_word, damage; /* of the first program: exclusive or, undone afterwards */
  /* What came of it. */
  uint32_t status, fault_code, fault_engine, fault_instruction, fault_word;
  uint32_t interrupts, waits, reads;
};

#ifdef __riscv
#define SLEEP "csrsi mstatus, 8\n\twfi\n\tcsrci mstatus, 8"
#else
#define SLEEP "msr daifclr, #2\n\twfi\n\tmsr daifset, #2"
#endif

static volatile struct mailbox *const mailbox = (volatile struct mailbox *)MAILBOX;
static uint32_t started;
uint32_t interrupts; /* counted in assembly */

static uint32_t board_read(uint32_t offset) { return *(volatile uint32_t *)(uintptr_t)(BOARD + offset); }

static uint32_t read(void *self, uint32_t offset) {
  (void)self;
  mailbox->reads++;
  return *(volatile uint32_t *)(uintptr_t)(REGISTERS + offset);
}

static void write(void *self, uint32_t offset, uint32_t value) {
  (void)self;
  if (offset == OPU_CTRL || offset == OPU_IRQ_STATUS) started = board_read(BOARD_CLOCK);
  *(volatile uint32_t *)(uintptr_t)(REGISTERS + offset) = value;
}

/* The interrupt may come at any time after the first instruction; the second one does not wait then. */
static int wait(void *self) {
  (void)self;
  mailbox->waits++;
  if (board_read(BOARD_CLOCK) - started >= mailbox->timeout_ms) return 1;
  __asm__ volatile(SLEEP ::: "memory");
  return 0;
}

static enum opu_status run_frames(struct opu_session *sessions, struct opu_in in, struct opu_out out,
                                  uint32_t images) {
  const uint8_t *from = (const uint8_t *)in.data;
  uint8_t *to = (uint8_t *)out.data;
  enum opu_status status = OPU_OK;
  uint32_t n;
  for (n = 0; n <= images && status == OPU_OK; n++) {
    if (n < images) {
      in.data = from + n * in.bytes;
      status = opu_submit(&sessions[n % 2], &in, 1);
    }
    if (n && status == OPU_OK) {
      out.data = to + (n - 1) * out.bytes;
      status = opu_wait(&sessions[(n - 1) % 2], &out);
    }
  }
  return status;
}

static enum opu_status run_images(struct opu_session *session, struct opu_in in, struct opu_out out,
                                  uint32_t images) {
  in.bytes *= images;
  out.bytes *= images;
  return opu_run(session, &in, &out, images);
}

static void damage(const struct opu_session *session) {
  uint32_t *words = (uint32_t *)(session->window.data + session->file->program_offset);
  words[mailbox->damaged_word] ^= mailbox->damage;
}

static enum opu_status run(struct opu_session *sessions) {
  static uint8_t work[2][1 << 20] __attribute__((aligned(64)));
  static struct opu_file file;
  static struct opu_registers registers;
  struct opu_backend backend;
  struct opu_window window;
  struct opu_port port;
  struct opu_in in;
  struct opu_out out;
  uint32_t n;
  enum opu_status status =
      opu_open(&file, (const void *)(uintptr_t)mailbox->file, (size_t)mailbox->file_bytes);
  if (status != OPU_OK) return status;
  memset(&registers, 0, sizeof registers);
  registers.read = read;
  registers.write = write;
  registers.wait = wait;
  opu_registers_backend(&backend, &registers);
  window.size = (size_t)mailbox->window_bytes / 2;
  for (n = 0; n < 2; n++) {
    window.data = (uint8_t *)(uintptr_t)DRAM + n * window.size;
    status = opu_session_init(&sessions[n], &file, &backend, &window, work[n], sizeof work[n]);
    if (status != OPU_OK) return status;
  }
  opu_input(&file, 0, &port);
  in.data = (const void *)(uintptr_t)mailbox->input;
  in.bytes = port.bytes;
  opu_output(&file, 0, &port);
  out.data = (void *)(uintptr_t)mailbox->output;
  out.bytes = port.bytes;
  damage(&sessions[0]);
  return mailbox->overlap ? run_frames(sessions, in, out, mailbox->images)
                          : run_images(&sessions[0], in, out, mailbox->images);
}

static void print(const char *text) {
  for (; *text; text++) *(volatile uint32_t *)(uintptr_t)(BOARD + BOARD_CONSOLE) = (uint32_t)*text;
}

/* As the firmware of a LiteX SoC does (rtl_sim/litex/firmware/main.c). */
static void run_payload(void) {
  static struct payload payload;
  static struct opu_registers registers;
  struct opu_backend backend;
  uint8_t *memory = (uint8_t *)(uintptr_t)DRAM;
  if (!payload_open(&payload, memory, (size_t)mailbox->window_bytes, print)) return;
  memset(&registers, 0, sizeof registers);
  registers.read = read;
  registers.write = write;
  registers.wait = wait;
  registers.address = (uint64_t)(payload.window.data - memory);
  opu_registers_backend(&backend, &registers);
  if (payload_load(&payload, &backend) && payload_run(&payload)) payload_print_classes(&payload);
}

static void finish(void) {
  *(volatile uint32_t *)(uintptr_t)(BOARD + BOARD_DONE) = 1;
  __asm__ volatile("wfi" ::: "memory");
}

int main(void) {
  static struct opu_session sessions[2];
  for (;;) {
    const struct opu_fault *fault = &sessions[0].fault;
    if (!mailbox->file) {
      mailbox->timeout_ms = 100000;
      run_payload();
      finish();
      continue;
    }
    interrupts = 0;
    mailbox->waits = mailbox->reads = 0;
    memset(sessions, 0, sizeof sessions);
    mailbox->status = run(sessions);
    mailbox->fault_code = fault->code;
    mailbox->fault_engine = fault->engine;
    mailbox->fault_instruction = fault->instruction;
    mailbox->fault_word = fault->word;
    mailbox->interrupts = interrupts;
    finish();
  }
}

void *memcpy(void *to, const void *from, size_t size) {
  size_t n;
  for (n = 0; n < size; n++) ((uint8_t *)to)[n] = ((const uint8_t *)from)[n];
  return to;
}

void *memmove(void *to, const void *from, size_t size) {
  if ((uintptr_t)to <= (uintptr_t)from) return memcpy(to, from, size);
  while (size--) ((uint8_t *)to)[size] = ((const uint8_t *)from)[size];
  return to;
}

void *memset(void *to, int value, size_t size) {
  size_t n;
  for (n = 0; n < size; n++) ((uint8_t *)to)[n] = (uint8_t)value;
  return to;
}

int memcmp(const void *a, const void *b, size_t size) {
  size_t n;
  for (n = 0; n < size; n++)
    if (((const uint8_t *)a)[n] != ((const uint8_t *)b)[n])
      return ((const uint8_t *)a)[n] < ((const uint8_t *)b)[n] ? -1 : 1;
  return 0;
}

void *memchr(const void *data, int value, size_t size) {
  size_t n;
  for (n = 0; n < size; n++)
    if (((const uint8_t *)data)[n] == (uint8_t)value) return (void *)((uintptr_t)data + n);
  return 0;
}

size_t strlen(const char *text) {
  size_t n = 0;
  while (text[n]) n++;
  return n;
}
