/* A machine on Linux: UIO and u-dma-buf, or /dev/mem. The same files as opu_fuse/devices/linux.py. */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "opu_hardware.h"
#include "opu_posix.h"

enum { REGISTER_BYTES = 4096, PATH_BYTES = 384, NAME_BYTES = 64 };

static void join(char *to, const char *first, const char *second, const char *third) {
  *to = 0;
  append(to, PATH_BYTES, first);
  append(to, PATH_BYTES, second);
  append(to, PATH_BYTES, third);
}

static enum opu_status failed(struct opu_linux *device, const char *path) {
  say(device->what, sizeof device->what, path, errno ? strerror(errno) : "unexpected contents");
  return OPU_BUS;
}

static uint32_t linux_read(void *self, uint32_t offset) {
  return ((struct opu_linux *)self)->words[offset / 4];
}

static void linux_write(void *self, uint32_t offset, uint32_t value) {
  struct opu_linux *device = (struct opu_linux *)self;
  if (restarts_time(offset, value)) device->deadline_ms = now_ms() + device->timeout_ms;
  device->words[offset / 4] = value;
}

static int sync_caches(int descriptor) {
  return descriptor >= 0 && pwrite(descriptor, "1", 1, 0) != 1;
}

static int linux_to_device(void *self) {
  return sync_caches(((struct opu_linux *)self)->for_device);
}

static int linux_to_processor(void *self) {
  return sync_caches(((struct opu_linux *)self)->for_processor);
}

/* A written 1 arms an interrupt of UIO, a read of 4 bytes takes it. */
static int linux_wait(void *self) {
  struct opu_linux *device = (struct opu_linux *)self;
  const int64_t left = device->deadline_ms - now_ms();
  const uint32_t arm = 1;
  uint32_t count;
  struct pollfd ready;
  if (left <= 0) return 1;
  if (device->interrupts < 0) return 0;
  ready.fd = device->interrupts;
  ready.events = POLLIN;
  if (write(device->interrupts, &arm, sizeof arm) != (ssize_t)sizeof arm) return 0;
  if (device->words[OPU_STATUS / 4] & OPU_STATUS_BUSY && poll(&ready, 1, (int)left) > 0)
    return read(device->interrupts, &count, sizeof count) < 0;
  return 0;
}

static void *map(int descriptor, size_t size, uint64_t offset) {
  void *memory =
      mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, (off_t)offset);
  return memory == MAP_FAILED ? 0 : memory;
}

/* Open a file, map it and close it, but for UIO: *kept is its descriptor. */
static void *map_file(struct opu_linux *device, const char *path, int flags, size_t size,
                      uint64_t offset, int *kept) {
  const int descriptor = open(path, O_RDWR | O_CLOEXEC | flags);
  void *memory = descriptor < 0 ? 0 : map(descriptor, size, offset);
  if (!memory) (void)failed(device, path);
  if (memory && kept) {
    *kept = descriptor;
  } else {
    if (descriptor >= 0) (void)close(descriptor);
  }
  return memory;
}

static int read_number(struct opu_linux *device, const char *folder, const char *name,
                       uint64_t *value) {
  char path[PATH_BYTES], text[NAME_BYTES], *end = text;
  FILE *file;
  errno = 0;
  join(path, folder, "/", name);
  file = fopen(path, "r");
  if (file && fgets(text, sizeof text, file)) *value = strtoull(text, &end, 0);
  if (file) (void)fclose(file);
  if (!file || end == text) (void)failed(device, path);
  return file && end != text;
}

static int write_text(struct opu_linux *device, const char *folder, const char *name,
                      const char *text) {
  char path[PATH_BYTES];
  FILE *file;
  int good;
  join(path, folder, "/", name);
  file = fopen(path, "w");
  good = file && fputs(text, file) >= 0;
  if (file) good = fclose(file) == 0 && good;
  if (!good) (void)failed(device, path);
  return good;
}

static int open_sync(struct opu_linux *device, const char *folder, const char *name) {
  char path[PATH_BYTES];
  int descriptor;
  join(path, folder, "/", name);
  descriptor = open(path, O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) (void)failed(device, path);
  return descriptor;
}

static enum opu_status open_buffer(struct opu_linux *device, const char *root, const char *name) {
  char folder[PATH_BYTES], path[PATH_BYTES], size_text[NAME_BYTES];
  uint64_t size = 0;
  join(folder, root, "/sys/class/u-dma-buf/", name);
  join(path, root, "/dev/", name);
  if (!read_number(device, folder, "phys_addr", &device->registers.address) ||
      !read_number(device, folder, "size", &size))
    return OPU_BUS;
  (void)snprintf(size_text, sizeof size_text, "%llu", (unsigned long long)size);
  if (!write_text(device, folder, "sync_offset", "0") ||
      !write_text(device, folder, "sync_size", size_text) ||
      !write_text(device, folder, "sync_direction", "0"))
    return OPU_BUS;
  device->for_device = open_sync(device, folder, "sync_for_device");
  device->for_processor = open_sync(device, folder, "sync_for_cpu");
  if (device->for_device < 0 || device->for_processor < 0) return OPU_BUS;
  device->window.data = (uint8_t *)map_file(device, path, 0, (size_t)size, 0, 0);
  device->window.size = (size_t)size;
  return device->window.data ? OPU_OK : OPU_BUS;
}

static enum opu_status open_uio(struct opu_linux *device, const char *name, const char *root) {
  char path[PATH_BYTES], uio[NAME_BYTES], buffer[NAME_BYTES];
  unsigned number;
  int end = 0, named = 0;
  if (sscanf(name, "uio:%u%n,%63[A-Za-z0-9_-]%n", &number, &end, buffer, &named) < 1 ||
      name[named ? named : end])
    return OPU_BAD_ARGUMENT;
  if (!named) (void)snprintf(buffer, sizeof buffer, "udmabuf%u", number);
  (void)snprintf(uio, sizeof uio, "uio%u", number);
  join(path, root, "/dev/", uio);
  device->words = (volatile uint32_t *)map_file(device, path, O_SYNC, REGISTER_BYTES, 0,
                                                &device->interrupts);
  return device->words ? open_buffer(device, root, buffer) : OPU_BUS;
}

static enum opu_status open_mem(struct opu_linux *device, const char *name, const char *root) {
  char path[PATH_BYTES], *next;
  uint64_t numbers[3];
  int n;
  const char *text = name + 4;
  for (n = 0; n < 3; n++, text = next + (*next == ',')) {
    errno = 0;
    numbers[n] = strtoull(text, &next, 0);
    if (errno != 0 || next == text || *next != (n < 2 ? ',' : 0)) return OPU_BAD_ARGUMENT;
  }
  join(path, root, "/dev/", "mem");
  device->words =
      (volatile uint32_t *)map_file(device, path, O_SYNC, REGISTER_BYTES, numbers[0], 0);
  if (!device->words) return OPU_BUS;
  device->registers.address = numbers[1];
  device->window.size = (size_t)numbers[2];
  device->window.data =
      (uint8_t *)map_file(device, path, O_SYNC, device->window.size, numbers[1], 0);
  return device->window.data ? OPU_OK : OPU_BUS;
}

enum opu_status opu_linux_open(struct opu_linux *device, const char *name, const char *root,
                               int timeout_ms) {
  enum opu_status status = OPU_BAD_ARGUMENT;
  if (!device || !name || !root) return OPU_BAD_ARGUMENT;
  memset(device, 0, sizeof *device);
  device->interrupts = device->for_device = device->for_processor = -1;
  device->timeout_ms = timeout_ms;
  device->registers.read = linux_read;
  device->registers.write = linux_write;
  device->registers.to_device = linux_to_device;
  device->registers.to_processor = linux_to_processor;
  device->registers.wait = linux_wait;
  device->registers.self = device;
  if (strncmp(name, "uio:", 4) == 0) status = open_uio(device, name, root);
  if (strncmp(name, "mem:", 4) == 0) status = open_mem(device, name, root);
  if (status != OPU_OK) opu_linux_close(device);
  return status;
}

void opu_linux_close(struct opu_linux *device) {
  const int descriptors[3] = {device->interrupts, device->for_device, device->for_processor};
  int n;
  for (n = 0; n < 3; n++)
    if (descriptors[n] >= 0) close(descriptors[n]);
  if (device->words) munmap((void *)device->words, REGISTER_BYTES);
  if (device->window.data) munmap(device->window.data, device->window.size);
  device->words = 0;
  device->window.data = 0;
  device->interrupts = device->for_device = device->for_processor = -1;
}
