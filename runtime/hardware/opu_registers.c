/* Machine segments on hardware, by the bare-metal driver. */
#include <stdint.h>
#include <string.h>

struct opu_reached;
static uint32_t reached_read(const void *device, uint32_t offset);
static void reached_write(const void *device, uint32_t offset, uint32_t value);

#define OPU_READ(device, offset) reached_read(device, offset)
#define OPU_WRITE(device, offset, value) reached_write(device, offset, value)
#define opu_wait opu_poll_for /* the driver's: another function than that of opu.h */
#include "opu_driver.h"
#undef opu_wait
#include "opu_hardware.h"

enum { POLLS = 100000 }; /* of a machine that has to stop */

/* Of a job. Its program is on the machine, or has ended; dropped: its predecessor failed, and the
 * machine has forgotten it. */
enum { JOB_OPEN = 1, JOB_DONE, JOB_FAILED, JOB_DROPPED };

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

/* Address of a window on the machine's bus. */
static uint64_t bus_address(const struct opu_registers *r, const struct opu_window *window) {
  return r->address + (uint64_t)(int64_t)((intptr_t)window->data - (intptr_t)r->memory);
}

static enum opu_status registers_attach(void *self, const struct opu_file *file,
                                        const struct opu_window *window) {
  const struct opu_reached reached = reach(self);
  struct opu_registers *r = (struct opu_registers *)self;
  const uint32_t *hash = file->machine.spec_hash;
  const int answer = opu_probe(&reached.device, (uint64_t)hash[1] << 32 | hash[0]);
  if (answer != OPU_DONE) return status_of(answer);
  if (!r->memory) r->memory = window->data;
  if (r->running) return OPU_OK; /* the window is set with each program */
  return status_of(opu_window(&reached.device, bus_address(r, window), window->size));
}

/* Instructions are words with the highest bit set. */
static void describe(const opu_device *device, struct opu_job *job) {
  struct opu_fault *fault = &job->fault;
  const opu_error error = opu_failure(device);
  const uint8_t *program = job->window->data + job->offset;
  uint32_t n;
  fault->code = error.code;
  fault->engine = error.engine;
  fault->word = error.pc;
  fault->instruction = 0;
  for (n = 0; n < error.pc && n < job->words; n++)
    fault->instruction += program[4 * (size_t)n + 3] >> 7;
}

static void end_running(const opu_device *device, struct opu_registers *r, int failed) {
  if (failed) describe(device, r->running);
  r->running->state = failed ? JOB_FAILED : JOB_DONE;
  r->running = r->queued;
  r->queued = 0;
  r->programs++;
}

/* What has become of the jobs. STATUS is read before PROGRAMS: of a machine that is idle both are
 * final, and one that is busy again after an end runs the queued program, which an error would have
 * dropped. Whatever is in doubt is decided at the next look. */
static void look(const opu_device *device, struct opu_registers *r) {
  const uint32_t status = OPU_READ(device, OPU_STATUS);
  const uint32_t ended = r->running ? opu_programs(device) - r->programs : 0;
  if (!r->running) return;
  if (status & (OPU_STATUS_BUSY | OPU_STATUS_QUEUED)) {
    if (ended != 1 || !r->queued || !(OPU_READ(device, OPU_STATUS) & OPU_STATUS_BUSY)) return;
    /* An error that came just before its successor was queued is in IRQ_STATUS alone. */
    end_running(device, r, 0 != (opu_acknowledge(device) & OPU_IRQ_STATUS_ERROR));
    return;
  }
  (void)opu_acknowledge(device);
  if (ended == 2 && r->queued) end_running(device, r, 0);
  end_running(device, r, !(status & OPU_STATUS_DONE));
  if (r->running) r->running->state = JOB_DROPPED;
  r->running = 0;
}

static enum opu_status registers_submit(void *self, struct opu_job *job) {
  const struct opu_reached reached = reach(self);
  struct opu_registers *r = (struct opu_registers *)self;
  const opu_device *device = &reached.device;
  const uint32_t interrupts = OPU_IRQ_ENABLE_DONE | OPU_IRQ_ENABLE_ERROR;
  int answer;
  if (job->offset > UINT32_MAX) return OPU_BAD_ARGUMENT;
  look(device, r);
  if (r->queued) return OPU_BUSY;
  if (r->to_device && r->to_device(r->self)) return OPU_BUS;
  answer = opu_window(device, bus_address(r, job->window), job->window->size);
  if (answer != OPU_DONE) return status_of(answer);
  if (r->running) {
    answer = opu_queue(device, (uint32_t)job->offset, job->words);
  } else {
    r->programs = opu_programs(device);
    answer = opu_start(device, (uint32_t)job->offset, job->words, interrupts);
  }
  if (answer != OPU_DONE) return status_of(answer);
  job->state = JOB_OPEN;
  *(r->running ? &r->queued : &r->running) = job;
  return OPU_OK;
}

/* Stop a program that takes too long; abort it where a silent memory keeps it. The one behind it is
 * dropped. */
static enum opu_status stop(const opu_device *device, struct opu_registers *r,
                            struct opu_job *job) {
  opu_stop(device);
  if (opu_poll_for(device, POLLS) == OPU_RUNNING) {
    opu_abort(device);
    (void)opu_poll_for(device, POLLS);
  }
  look(device, r);
  if (r->queued) r->queued->state = JOB_DROPPED;
  if (r->running) { /* not even then */
    describe(device, r->running);
    r->running->state = JOB_FAILED;
  }
  r->running = r->queued = 0;
  job->state = 0;
  return OPU_TIMEOUT;
}

static enum opu_status registers_wait(void *self, struct opu_job *job) {
  const struct opu_reached reached = reach(self);
  struct opu_registers *r = (struct opu_registers *)self;
  while (look(&reached.device, r), job->state == JOB_OPEN || job->state == JOB_DROPPED) {
    if (job->state == JOB_DROPPED) {
      const enum opu_status status = registers_submit(self, job);
      if (status != OPU_OK && status != OPU_BUSY) return status;
    }
    if (r->wait && r->wait(r->self)) return stop(&reached.device, r, job);
  }
  if (r->to_processor && r->to_processor(r->self)) return OPU_BUS;
  return job->state == JOB_DONE ? OPU_OK : OPU_MACHINE_FAULT;
}

static enum opu_status registers_run(void *self, const struct opu_window *window, uint64_t offset,
                                     uint32_t words, struct opu_fault *fault) {
  struct opu_registers *r = (struct opu_registers *)self;
  struct opu_job job;
  enum opu_status status;
  memset(&job, 0, sizeof job);
  job.window = window;
  job.offset = offset;
  job.words = words;
  while ((status = registers_submit(self, &job)) == OPU_BUSY && r->running)
    if (r->wait && r->wait(r->self)) return OPU_TIMEOUT;
  if (status == OPU_OK) status = registers_wait(self, &job);
  *fault = job.fault;
  return status;
}

void opu_registers_backend(struct opu_backend *backend, struct opu_registers *registers) {
  const int reached = registers && registers->read && registers->write;
  if (!backend) return;
  backend->attach = registers_attach;
  backend->run = reached ? registers_run : 0;
  backend->self = registers;
  backend->submit = reached ? registers_submit : 0;
  backend->wait = reached ? registers_wait : 0;
  if (!registers) return;
  registers->memory = 0;
  registers->running = registers->queued = 0;
  registers->programs = 0;
}

uint64_t opu_registers_cycles(struct opu_registers *registers) {
  const struct opu_reached reached = reach(registers);
  return opu_cycles(&reached.device);
}
