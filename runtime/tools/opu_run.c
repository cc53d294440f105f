/* opu-run: runs a program file from C.
 *
 *   opu-run PROGRAM.opu                            list inputs and outputs
 *   opu-run PROGRAM.opu IN... OUT...               run; one file for each input, then each output
 *   opu-run -d uio:0 -t SECONDS PROGRAM.opu ...    on a machine (opu_hardware.h), else natively
 *   opu-run -d sim:PATH ...                        on a simulation (opu-fuse hw sim)
 *
 * Files hold arrays as they are in memory: little-endian elements in C order, any number of images. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opu_hardware.h"

enum { ALIGNMENT = 64, MOST_PORTS = 256 };

static int fail(const char *where, const char *what) {
  fprintf(stderr, "opu-run: %s: %s\n", where, what);
  return 1;
}

/* All memory, freed when the command ends. */
struct block {
  struct block *next;
};
static struct block *blocks;

static void free_blocks(void) {
  while (blocks) {
    struct block *next = blocks->next;
    free(blocks);
    blocks = next;
  }
}

/* Fresh memory at a multiple of 64, or a null pointer. */
static void *memory_of(uint64_t size) {
  const size_t more = sizeof(struct block) + ALIGNMENT;
  struct block *block = size < SIZE_MAX - more ? (struct block *)malloc((size_t)size + more) : 0;
  uint8_t *memory;
  if (!block) return 0;
  memory = (uint8_t *)(block + 1);
  block->next = blocks;
  blocks = block;
  return memory + (ALIGNMENT - (uintptr_t)memory % ALIGNMENT) % ALIGNMENT;
}

/* A whole file, or a null pointer. */
static void *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  long end = -1;
  uint8_t *data = 0;
  if (file && fseek(file, 0, SEEK_END) == 0) end = ftell(file);
  if (end >= 0 && fseek(file, 0, SEEK_SET) == 0) data = (uint8_t *)memory_of((uint64_t)end);
  if (data && fread(data, 1, (size_t)end, file) != (size_t)end) data = 0;
  if (file) (void)fclose(file);
  *size = data ? (size_t)end : 0;
  return data;
}

static int write_file(const char *path, const void *data, size_t size) {
  FILE *file = fopen(path, "wb");
  const int good = file && fwrite(data, 1, size, file) == size;
  return file && fclose(file) == 0 && good;
}

static void list(const char *kind, const struct opu_port *port) {
  uint32_t n;
  printf("%s %s: type %u [", kind, port->name, (unsigned)port->dtype);
  for (n = 0; n < port->rank; n++) printf("%s%u", n ? ", " : "", (unsigned)port->shape[n]);
  printf("], %lu bytes\n", (unsigned long)port->bytes);
}

static int list_ports(const struct opu_file *file) {
  struct opu_port port;
  uint32_t n;
  printf("%s: %lu bytes of window, %lu of work memory, %u images together\n", file->name,
         (unsigned long)file->window_bytes, (unsigned long)file->work_bytes, (unsigned)file->batch);
  for (n = 0; n < file->inputs; n++)
    if (opu_input(file, n, &port) == OPU_OK) list("input", &port);
  for (n = 0; n < file->outputs; n++)
    if (opu_output(file, n, &port) == OPU_OK) list("output", &port);
  return 0;
}

static int failed_run(const struct opu_session *session, enum opu_status status) {
  fprintf(stderr, "opu-run: segment %u: %s", (unsigned)session->segment, opu_status_text(status));
  if (status == OPU_MACHINE_FAULT)
    fprintf(stderr, ": instruction %u: %s", (unsigned)session->fault.instruction,
            opu_fault_text(session->fault.code));
  fprintf(stderr, "\n");
  return 1;
}

/* Read inputs, run, write outputs. paths: of inputs, then outputs. */
static int run_files(struct opu_session *session, char **paths) {
  static struct opu_in in[MOST_PORTS];
  static struct opu_out out[MOST_PORTS];
  const struct opu_file *file = session->file;
  struct opu_port port;
  enum opu_status status;
  size_t images = 1;
  uint32_t n;
  for (n = 0; n < file->inputs; n++) {
    in[n].data = read_file(paths[n], &in[n].bytes);
    if (!in[n].data) return fail(paths[n], "cannot be read");
    (void)opu_input(file, n, &port);
    if (!port.bytes || !in[n].bytes || in[n].bytes % port.bytes)
      return fail(paths[n], "holds no whole images of this input");
    if (n && in[n].bytes / port.bytes != images)
      return fail(paths[n], "holds another number of images than the first input");
    images = in[n].bytes / port.bytes;
  }
  for (n = 0; n < file->outputs; n++) {
    (void)opu_output(file, n, &port);
    out[n].bytes = port.bytes * images;
    out[n].data = memory_of(out[n].bytes);
    if (!out[n].data) return fail("memory", "there is not enough");
  }
  status = opu_run(session, in, out, images);
  if (status != OPU_OK) return failed_run(session, status);
  for (n = 0; n < file->outputs; n++)
    if (!write_file(paths[file->inputs + n], out[n].data, out[n].bytes))
      return fail(paths[file->inputs + n], "cannot be written");
  return 0;
}

static enum opu_status native(const struct opu_file *file, struct opu_backend *backend,
                              struct opu_window *window) {
  const size_t size = opu_native_size(&file->machine);
  void *arena = memory_of(size);
  struct opu_native *engine;
  enum opu_status status = OPU_SMALL_MEMORY;
  window->size = (size_t)file->window_bytes;
  window->data = (uint8_t *)memory_of(file->window_bytes);
  if (arena && window->data) status = opu_native_init(&engine, &file->machine, arena, size);
  if (status == OPU_OK) opu_native_backend(backend, engine);
  return status;
}

/* registers: of a machine with the memory `window`, else a null pointer. */
static int run_on(const struct opu_file *file, struct opu_registers *registers,
                  struct opu_window window, char **paths) {
  struct opu_session session;
  struct opu_backend backend;
  enum opu_status status = OPU_OK;
  void *work = file->work_bytes ? memory_of(file->work_bytes) : 0;
  if (file->work_bytes && !work) return fail("memory", "there is not enough");
  if (registers)
    opu_registers_backend(&backend, registers);
  else
    status = native(file, &backend, &window);
  if (status == OPU_OK)
    status = opu_session_init(&session, file, &backend, &window, work, (size_t)file->work_bytes);
  return status == OPU_OK ? run_files(&session, paths) : fail(file->name, opu_status_text(status));
}

static int cannot_open(const char *name, enum opu_status status, const char *what) {
  return fail(name, status == OPU_BAD_ARGUMENT ? "is no name of a device" : what);
}

static int run_linux(const struct opu_file *file, const char *name, int timeout_ms, char **paths) {
  struct opu_linux device;
  const char *root = getenv("OPU_ROOT"); /* for tests: before /dev and /sys */
  const enum opu_status status = opu_linux_open(&device, name, root ? root : "", timeout_ms);
  int result;
  if (status != OPU_OK) return cannot_open(name, status, device.what);
  result = run_on(file, &device.registers, device.window, paths);
  opu_linux_close(&device);
  return result;
}

static int run_sim(const struct opu_file *file, const char *name, int timeout_ms, char **paths) {
  struct opu_sim device;
  const enum opu_status status = opu_sim_open(&device, name, timeout_ms);
  int result;
  if (status != OPU_OK) return cannot_open(name, status, device.what);
  result = run_on(file, &device.registers, device.window, paths);
  if (device.failed) (void)fail(name, device.what);
  opu_sim_close(&device);
  return result;
}

/* Whole seconds as milliseconds, or 0 for another text. */
static int milliseconds_of(const char *text) {
  char *end;
  const long seconds = strtol(text, &end, 10);
  return *end || seconds < 1 || seconds > INT_MAX / 1000 ? 0 : (int)seconds * 1000;
}

static int damaged(const char *path, const struct opu_file *file, enum opu_status status) {
  fprintf(stderr, "opu-run: %s: %s%s%s\n", path, file->what, *file->what ? ": " : "",
          opu_status_text(status));
  return 1;
}

int main(int count, char **words) {
  struct opu_file file;
  const struct opu_window nothing = {0, 0};
  const char *device = 0, *path;
  enum opu_status status;
  size_t size;
  void *bytes;
  int timeout_ms = 10000, first = 1, given;
  if (atexit(free_blocks)) return fail("memory", "there is not enough");
  while (first + 1 < count && words[first][0] == '-') {
    if (!strcmp(words[first], "-d"))
      device = words[first + 1];
    else if (!strcmp(words[first], "-t"))
      timeout_ms = milliseconds_of(words[first + 1]);
    else
      return fail(words[first], "there is no such option (-d DEVICE, -t SECONDS)");
    first += 2;
  }
  if (!timeout_ms) return fail("-t", "is no whole number of seconds, 1 or more");
  if (first >= count) return fail("usage", "opu-run [-d DEVICE] [-t SECONDS] PROGRAM.opu IN... OUT...");
  path = words[first];
  first++;
  given = count - first;
  bytes = read_file(path, &size);
  if (!bytes) return fail(path, "cannot be read");
  status = opu_open(&file, bytes, size);
  if (status != OPU_OK) return damaged(path, &file, status);
  if (!given) return list_ports(&file);
  if (*file.refused) return fail(path, file.refused);
  if (file.inputs > MOST_PORTS || file.outputs > MOST_PORTS)
    return fail(path, "has more inputs or outputs than opu-run takes");
  if ((unsigned)given != file.inputs + file.outputs) {
    list_ports(&file);
    return fail(path, "give one file for each input, then one for each output");
  }
  if (!device) return run_on(&file, 0, nothing, words + first);
  if (!strncmp(device, "sim:", 4)) return run_sim(&file, device, timeout_ms, words + first);
  return run_linux(&file, device, timeout_ms, words + first);
}
