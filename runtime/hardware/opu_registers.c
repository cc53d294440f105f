/* Machine segments on hardware, by the bare-metal driver. */
#include <stdint.h>

struct opu_reached;
static uint32_t reached_read(const void *device, uint32_t offset);
static void reached_write(const void *device, uint32_t offset, uint32_t value);

#define OPU_READ(device, offset) reached_read(device, offset)
#define OPU_WRITE(device, offset, value) reached_write(device, offset, value)
#include "opu_driver.h"
#include "opu_hardware.h"

enum { POLLS = 100000 }; /* of a machine that has to stop */

/* The driver's device first: a pointer to it is one to this, with the platform's functions. */
struct opu_reached {
  opu_device device;
  const struct opu_registers *registers;
};

static uint32_t reached_read(const void *device, uint32_t offset) {
  const struct opu_registers *r = ((const struct opu_reached *)device)->registers;
  return r->read(r->self, offset);
}

static void reached_write(const void *device, uint32_t offset, uint32_t value) {
  const struct opu_registers *r = ((const struct opu_reached *)device)->registers;
  r->write(r->self, offset, value);
}

static struct opu_reached reach(void *self) {
  struct opu_reached reached;
  reached.device.registers = 0;
  reached.registers = (const struct opu_registers *)self;
  return reached;
}

static enum opu_status status_of(int answer) {
  switch (answer) {
    case OPU_DONE:
      return OPU_OK;
    case OPU_NO_DEVICE:
      return OPU_NO_MACHINE;
    case OPU_OTHER_MACHINE:
      return OPU_OTHER_SPEC;
    case OPU_IS_BUSY:
      return OPU_BUSY;
    case OPU_RUNNING:
      return OPU_TIMEOUT;
    default:
      return OPU_BAD_ARGUMENT;
  }
}

static enum opu_status registers_attach(void *self, const struct opu_file *file,
                                        const struct opu_window *window) {
  const struct opu_reached reached = reach(self);
  const uint32_t *hash = file->machine.spec_hash;
  int answer = opu_probe(&reached.device, (uint64_t)hash[1] << 32 | hash[0]);
  if (answer == OPU_DONE)
    answer = opu_window(&reached.device, reached.registers->address, window->size);
  return status_of(answer);
}

/* Stop a program that takes too long; abort it where a silent memory keeps it. */
static enum opu_status stop(const opu_device *device) {
  opu_stop(device);
  if (opu_wait(device, POLLS) == OPU_RUNNING) {
    opu_abort(device);
    opu_wait(device, POLLS);
  }
  return OPU_TIMEOUT;
}

/* Instructions are words with the highest bit set. */
static void describe(const opu_device *device, const struct opu_window *window, uint64_t offset,
                     uint32_t words, struct opu_fault *fault) {
  const opu_error error = opu_failure(device);
  const uint8_t *program = window->data + offset;
  uint32_t n;
  fault->code = error.code;
  fault->engine = error.engine;
  fault->word = error.pc;
  fault->instruction = 0;
  for (n = 0; n < error.pc && n < words; n++) fault->instruction += program[4 * (size_t)n + 3] >> 7;
}

static enum opu_status registers_run(void *self, const struct opu_window *window, uint64_t offset,
                                     uint32_t words, struct opu_fault *fault) {
  const struct opu_reached reached = reach(self);
  const struct opu_registers *r = reached.registers;
  const opu_device *device = &reached.device;
  int answer;
  if (offset > UINT32_MAX) return OPU_BAD_ARGUMENT;
  if (r->to_device && r->to_device(r->self)) return OPU_BUS;
  answer = opu_start(device, (uint32_t)offset, words, OPU_IRQ_ENABLE_DONE | OPU_IRQ_ENABLE_ERROR);
  if (answer != OPU_DONE) return status_of(answer);
  while ((answer = opu_poll(device)) == OPU_RUNNING)
    if (r->wait && r->wait(r->self)) return stop(device);
  opu_acknowledge(device);
  if (r->to_processor && r->to_processor(r->self)) return OPU_BUS;
  if (answer == OPU_DONE) return OPU_OK;
  describe(device, window, offset, words, fault);
  return OPU_MACHINE_FAULT;
}

void opu_registers_backend(struct opu_backend *backend, struct opu_registers *registers) {
  if (!backend) return;
  backend->attach = registers_attach;
  backend->run = registers && registers->read && registers->write ? registers_run : 0;
  backend->self = registers;
}
