/* Constants of programs: in the process once, however many contexts and sessions have them. */
#define _GNU_SOURCE /* memfd_create */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "provider.h"

/* file: an anonymous file, which windows map. The fields of opu_constants are what others see. */
struct shared {
  struct opu_constants seen;
  struct shared *next;
  size_t users;
  int file;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static struct shared *all;

static size_t whole_pages(uint64_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return bytes > (size_t)-1 - page ? 0 : ((size_t)bytes + page - 1u) / page * page;
}

static void *map(void *at, size_t bytes, int access, int flags, int file) {
  void *memory = mmap(at, bytes, access, flags, file, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

/* Copy the constants into a file; a null pointer where there is no memory. */
static const uint8_t *fill(int file, const uint8_t *data, size_t bytes) {
  const size_t pages = whole_pages(bytes ? bytes : 1u);
  uint8_t *memory = NULL;
  if (file >= 0 && pages && ftruncate(file, (off_t)pages) == 0)
    memory = (uint8_t *)map(NULL, pages, PROT_READ | PROT_WRITE, MAP_SHARED, file);
  if (!memory) return NULL;
  memcpy(memory, data, bytes);
  (void)mprotect(memory, pages, PROT_READ);
  return memory;
}

static struct shared *create(const uint8_t *data, size_t bytes, uint32_t crc) {
  struct shared *s = (struct shared *)calloc(1, sizeof *s);
  if (!s) return NULL;
  s->file = memfd_create("opu constants", MFD_CLOEXEC);
  s->seen.data = fill(s->file, data, bytes);
  s->seen.bytes = bytes;
  s->seen.crc = crc;
  if (s->seen.data) return s;
  if (s->file >= 0) close(s->file);
  free(s);
  return NULL;
}

struct opu_constants *opu_constants_share(const uint8_t *data, size_t bytes, uint32_t crc) {
  struct shared *s;
  pthread_mutex_lock(&lock);
  for (s = all; s; s = s->next)
    if (s->seen.crc == crc && s->seen.bytes == bytes && memcmp(s->seen.data, data, bytes) == 0)
      break;
  if (!s && (s = create(data, bytes, crc))) {
    s->next = all;
    all = s;
  }
  if (s) s->users++;
  pthread_mutex_unlock(&lock);
  return s ? &s->seen : NULL;
}

struct opu_constants *opu_constants_again(struct opu_constants *constants) {
  pthread_mutex_lock(&lock);
  ((struct shared *)(void *)constants)->users++;
  pthread_mutex_unlock(&lock);
  return constants;
}

void opu_constants_release(struct opu_constants *constants) {
  struct shared *s = (struct shared *)(void *)constants, **link = &all;
  if (!s) return;
  pthread_mutex_lock(&lock);
  if (!--s->users) {
    while (*link != s) link = &(*link)->next;
    *link = s->next;
    munmap((void *)(uintptr_t)s->seen.data, whole_pages(s->seen.bytes ? s->seen.bytes : 1u));
    close(s->file);
    free(s);
  }
  pthread_mutex_unlock(&lock);
}

uint8_t *opu_window_map(const struct opu_constants *constants, uint64_t window_bytes) {
  const struct shared *s = (const struct shared *)(const void *)constants;
  const size_t pages = whole_pages(window_bytes ? window_bytes : 1u);
  const int access = PROT_READ | PROT_WRITE;
  uint8_t *window =
      pages ? (uint8_t *)map(NULL, pages, access, MAP_PRIVATE | MAP_ANONYMOUS, -1) : NULL;
  if (!window || !constants->bytes) return window;
  /* Pages that are written, such as the last one, become this window's own. */
  if (map(window, whole_pages(constants->bytes), access, MAP_PRIVATE | MAP_FIXED, s->file))
    return window;
  munmap(window, pages);
  return NULL;
}

void opu_window_unmap(uint8_t *window, uint64_t window_bytes) {
  if (window) munmap(window, whole_pages(window_bytes ? window_bytes : 1u));
}
