/* Devices: the native engine, and machines behind registers. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opu_hardware.h"
#include "provider.h"

enum { ALIGNMENT = 64 };

/* What executes. The native engine is for one program; a machine is opened once in the process.
 * loaded: whose constants are in the window; current: whose words. */
struct engine {
  struct engine *next;
  char name[OPU_DEVICE_NAME];
  size_t users;
  pthread_mutex_t lock; /* of a run, and of what is in the window */
  struct opu_backend backend;
  struct opu_window window;
  const struct opu_device *loaded;
  const struct opu_session *current;
  void *arena; /* of the native engine, or a null pointer */
  union {
    struct opu_linux board;
    struct opu_sim simulation;
  } machine;
};

struct opu_device {
  struct engine *engine;
  size_t users;
  struct opu_constants *constants;
  struct opu_machine_config machine;
  uint64_t window_bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of `machines` and their users */
static struct engine *machines;

static int is_simulation(const char *name) { return strncmp(name, "sim:", 4) == 0; }

static int is_native(const char *name) { return !*name || strcmp(name, "native") == 0; }

OrtStatus *opu_device_check(const OrtApi *api, const struct opu_options *options) {
  const char *name = options->device;
  char what[OPU_DEVICE_NAME + 64];
  if (is_native(name) || is_simulation(name) || strncmp(name, "uio:", 4) == 0 ||
      strncmp(name, "mem:", 4) == 0)
    return NULL;
  snprintf(what, sizeof what, "there is no device %s", name);
  return opu_failed(api, "option device", what,
                    "say native, uio:N, uio:N,BUFFER, mem:REGISTERS,MEMORY,BYTES or sim:SOCKET");
}

static struct engine *new_engine(const char *name) {
  struct engine *e = (struct engine *)calloc(1, sizeof *e);
  if (!e) return NULL;
  pthread_mutex_init(&e->lock, NULL);
  snprintf(e->name, sizeof e->name, "%s", name);
  return e;
}

static void free_engine(struct engine *e) {
  if (e->arena)
    opu_window_unmap(e->window.data, e->window.size);
  else if (is_simulation(e->name))
    opu_sim_close(&e->machine.simulation);
  else
    opu_linux_close(&e->machine.board);
  free(e->arena);
  pthread_mutex_destroy(&e->lock);
  free(e);
}

/* The native engine, with the constants in its window. */
static OrtStatus *open_native(const OrtApi *api, const struct opu_context *context,
                              struct engine **result) {
  const struct opu_file *file = &context->file;
  const size_t size = opu_native_size(&file->machine);
  struct engine *e = new_engine("native");
  struct opu_native *native;
  enum opu_status status;
  if (!e) return opu_no_memory(api, context->name);
  if (posix_memalign(&e->arena, ALIGNMENT, size ? size : ALIGNMENT)) e->arena = NULL;
  e->window.data = e->arena ? opu_window_map(context->constants, file->window_bytes) : NULL;
  e->window.size = (size_t)file->window_bytes;
  if (!e->window.data) {
    free(e->arena);
    pthread_mutex_destroy(&e->lock);
    free(e);
    return opu_no_memory(api, context->name);
  }
  status = opu_native_init(&native, &file->machine, e->arena, size);
  if (status != OPU_OK) {
    free_engine(e);
    return opu_failed(api, context->name, opu_status_text(status), "compile the model again");
  }
  opu_native_backend(&e->backend, native);
  *result = e;
  return NULL;
}

/* Why it cannot be reached. */
static const char *what_of(const struct engine *e) {
  return is_simulation(e->name) ? e->machine.simulation.what : e->machine.board.what;
}

static struct opu_registers *registers_of(struct engine *e) {
  return is_simulation(e->name) ? &e->machine.simulation.registers : &e->machine.board.registers;
}

static enum opu_status connect_machine(struct engine *e, int timeout_ms) {
  const char *root = getenv("OPU_ROOT"); /* for tests: before /dev and /sys */
  const int simulated = is_simulation(e->name);
  const enum opu_status status =
      simulated ? opu_sim_open(&e->machine.simulation, e->name, timeout_ms)
                : opu_linux_open(&e->machine.board, e->name, root ? root : "", timeout_ms);
  if (status != OPU_OK) return status;
  e->window = simulated ? e->machine.simulation.window : e->machine.board.window;
  opu_registers_backend(&e->backend, registers_of(e));
  return OPU_OK;
}

/* Open a machine, or share the open one. With `lock` taken. */
static OrtStatus *open_machine(const OrtApi *api, const struct opu_options *options,
                               struct engine **result) {
  char what[OPU_MESSAGE];
  enum opu_status status;
  struct engine *e;
  for (e = machines; e && strcmp(e->name, options->device) != 0;) e = e->next;
  if (!e) {
    e = new_engine(options->device);
    if (!e) return opu_no_memory(api, options->device);
    status = connect_machine(e, options->timeout_ms);
    if (status != OPU_OK) {
      snprintf(what, sizeof what, "%s: %s", e->name,
               status == OPU_BAD_ARGUMENT ? "is no name of a device" : what_of(e));
      free_engine(e);
      return opu_failed(api, "option device", what, "look at docs/linux.md");
    }
    e->next = machines;
    machines = e;
  }
  e->users++;
  *result = e;
  return NULL;
}

static void close_engine(struct engine *e) {
  struct engine **link = &machines;
  if (e->arena) {
    free_engine(e);
    return;
  }
  pthread_mutex_lock(&lock);
  if (!--e->users) {
    while (*link != e) link = &(*link)->next;
    *link = e->next;
    free_engine(e);
  }
  pthread_mutex_unlock(&lock);
}

OrtStatus *opu_device_open(const OrtApi *api, const struct opu_options *options,
                           const struct opu_context *context, struct opu_device **device) {
  struct opu_device *d = (struct opu_device *)calloc(1, sizeof *d);
  OrtStatus *status;
  if (!d) return opu_no_memory(api, context->name);
  if (is_native(options->device)) {
    status = open_native(api, context, &d->engine);
    if (!status) d->engine->loaded = d;
  } else {
    pthread_mutex_lock(&lock);
    status = open_machine(api, options, &d->engine);
    pthread_mutex_unlock(&lock);
  }
  if (status) {
    free(d);
    return status;
  }
  d->users = 1;
  d->constants = opu_constants_again(context->constants);
  d->machine = context->file.machine;
  d->window_bytes = context->file.window_bytes;
  *device = d;
  return NULL;
}

struct opu_device *opu_device_again(struct opu_device *device) {
  device->users++;
  return device;
}

void opu_device_release(struct opu_device *d, const struct opu_session *session) {
  if (!d) return;
  pthread_mutex_lock(&d->engine->lock);
  if (d->engine->current == session) d->engine->current = NULL;
  if (d->users == 1 && d->engine->loaded == d) d->engine->loaded = NULL;
  pthread_mutex_unlock(&d->engine->lock);
  if (--d->users) return;
  close_engine(d->engine);
  opu_constants_release(d->constants);
  free(d);
}

struct opu_constants *opu_device_constants(const struct opu_device *device) {
  return device->constants;
}

int opu_device_suits(const struct opu_device *d, const struct opu_context *context) {
  return d->constants == context->constants && d->window_bytes == context->file.window_bytes &&
         memcmp(&d->machine, &context->file.machine, sizeof d->machine) == 0;
}

enum opu_status opu_device_attach(struct opu_device *d, struct opu_session *session,
                                  const struct opu_file *file, void *work) {
  enum opu_status status;
  pthread_mutex_lock(&d->engine->lock);
  status = opu_session_attach(session, file, &d->engine->backend, &d->engine->window, work,
                              (size_t)file->work_bytes);
  pthread_mutex_unlock(&d->engine->lock);
  return status;
}

const char *opu_device_name(const struct opu_device *d) { return d->engine->name; }

const char *opu_device_what(const struct opu_device *d) {
  return d->engine->arena || !*what_of(d->engine) ? opu_status_text(OPU_BUS) : what_of(d->engine);
}

/* Constants and words of this session into the window, unless they are there. */
static void load(struct opu_device *d, const struct opu_session *session) {
  const struct opu_file *file = session->file;
  struct engine *e = d->engine;
  const size_t constants = d->constants->bytes;
  if (e->loaded != d) {
    memcpy(e->window.data, d->constants->data, constants);
    memset(e->window.data + constants, 0, (size_t)d->window_bytes - constants);
    e->loaded = d;
    e->current = NULL;
  }
  if (e->current == session) return;
  memcpy(e->window.data + file->program_offset, file->words, (size_t)file->word_count * 4);
  e->current = session;
}

enum opu_status opu_device_run(struct opu_device *d, struct opu_session *session,
                               const struct opu_in *in, const struct opu_out *out, size_t images,
                               uint64_t *cycles) {
  enum opu_status status;
  pthread_mutex_lock(&d->engine->lock);
  load(d, session);
  status = opu_run(session, in, out, images);
  if (cycles) *cycles = d->engine->arena ? 0u : opu_registers_cycles(registers_of(d->engine));
  pthread_mutex_unlock(&d->engine->lock);
  return status;
}
