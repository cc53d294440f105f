/* Changes numbers of a program's members behind their CRCs, opens them and runs what opens on the
 * native engine, every memory of exactly its size. For the sanitizers of the compiler.
 *
 *   fuzz SEED COUNT runtime.bin dram.bin program.bin [FOLDER]
 *
 * The programs of SEED, SEED + 1 and so on; each is written to FOLDER before it is opened. Prints how
 * many were refused, ended with another status, and ran. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "opu_file.h"

enum { MEMBERS = 3, LARGEST = 1 << 26, MILLISECONDS = 40, MOST_PORTS = 16 };

struct member {
  uint8_t *data;
  size_t size;
};

static sigjmp_buf late;

static void alarmed(int number) {
  (void)number;
  siglongjmp(late, 1);
}

/* Sanitizers call these when they begin a report. It holds locks: a jump out of it would lose it, or
 * never end. */
void __asan_on_error(void);
void __ubsan_on_report(void);
void __asan_on_error(void) { (void)signal(SIGALRM, SIG_IGN); }
void __ubsan_on_report(void) { (void)signal(SIGALRM, SIG_IGN); }

static struct member read_member(const char *path) {
  struct member m = {0, 0};
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) exit(2);
  m.size = (size_t)ftell(file);
  rewind(file);
  m.data = (uint8_t *)malloc(m.size ? m.size : 1);
  if (fread(m.data, 1, m.size, file) != m.size) exit(2);
  fclose(file);
  return m;
}

static void write_member(const char *folder, const char *name, const struct member *m) {
  char path[4096];
  FILE *file;
  (void)snprintf(path, sizeof path, "%s/%s", folder, name);
  file = fopen(path, "wb");
  if (!file || fwrite(m->data, 1, m->size, file) != m->size || fclose(file)) exit(2);
}

/* Numbers that are at an end of some range more often than not. */
static uint32_t odd_number(uint32_t old) {
  static const uint32_t ends[] = {0, 1, 2, 8, 63, 64, 255, 0x7fffffff, 0x80000000u, 0xffffffffu};
  switch (rand() % 4) {
    case 0:
      return ends[(size_t)rand() % (sizeof ends / sizeof *ends)];
    case 1:
      return old ^ 1u << rand() % 32;
    case 2:
      return old + (uint32_t)(rand() % 9) - 4;
    default:
      return (uint32_t)rand() << 16 ^ (uint32_t)rand();
  }
}

static void change(struct member *m, size_t first) {
  const size_t words = m->size / 4;
  uint32_t word;
  size_t at;
  if (words <= first) return;
  at = 4 * (first + (size_t)rand() % (words - first));
  memcpy(&word, m->data + at, 4);
  word = odd_number(word);
  memcpy(m->data + at, &word, 4);
}

static void *exactly(uint64_t size) {
  void *memory = size ? aligned_alloc(64, (size_t)(size + 63) / 64 * 64) : 0;
  if (size && !memory) exit(2);
  return memory;
}

/* Run once on arrays of just the size; OPU_TIMEOUT where it takes too long. */
static enum opu_status run(const struct opu_file *file) {
  static struct opu_in in[MOST_PORTS];
  static struct opu_out out[MOST_PORTS];
  const struct itimerval limit = {{0, 0}, {0, MILLISECONDS * 1000}}, none = {{0, 0}, {0, 0}};
  const size_t arena_size = opu_native_size(&file->machine);
  struct opu_window window = {0, (size_t)file->window_bytes};
  struct opu_backend backend;
  struct opu_session session;
  struct opu_native *engine;
  volatile enum opu_status status;
  struct opu_port port;
  void *arena, *work;
  uint32_t n;
  if (!arena_size || arena_size > LARGEST || file->window_bytes > LARGEST ||
      file->work_bytes > LARGEST || file->inputs > MOST_PORTS || file->outputs > MOST_PORTS)
    return OPU_BAD_MACHINE;
  for (n = 0; n < file->inputs + file->outputs; n++) {
    const int input = n < file->inputs;
    uint8_t *data;
    (void)(input ? opu_input(file, n, &port) : opu_output(file, n - file->inputs, &port));
    data = (uint8_t *)calloc(port.bytes, 1);
    if (!data) exit(2);
    if (input)
      in[n].data = data, in[n].bytes = port.bytes;
    else
      out[n - file->inputs].data = data, out[n - file->inputs].bytes = port.bytes;
  }
  arena = exactly(arena_size);
  work = exactly(file->work_bytes);
  window.data = (uint8_t *)exactly(file->window_bytes);
  status = opu_native_init(&engine, &file->machine, arena, arena_size);
  if (status == OPU_OK) {
    opu_native_backend(&backend, engine);
    status = opu_session_init(&session, file, &backend, &window, work, (size_t)file->work_bytes);
  }
  if (status == OPU_OK) {
    if (!sigsetjmp(late, 1)) {
      setitimer(ITIMER_REAL, &limit, 0);
      status = opu_run(&session, in, out, 1);
    } else {
      status = OPU_TIMEOUT;
    }
    setitimer(ITIMER_REAL, &none, 0);
  }
  for (n = 0; n < file->inputs; n++) free((void *)in[n].data);
  for (n = 0; n < file->outputs; n++) free(out[n].data);
  free(arena);
  free(work);
  free(window.data);
  return status;
}

int main(int count, char **words) {
  static const char *const names[MEMBERS] = {"runtime.bin", "dram.bin", "program.bin"};
  struct member whole[MEMBERS], changed[MEMBERS];
  unsigned refused = 0, ended = 0, ran = 0, n, k, changes;
  struct sigaction action;
  if (count != 6 && count != 7) return 2;
  for (k = 0; k < MEMBERS; k++) whole[k] = read_member(words[3 + k]);
  memset(&action, 0, sizeof action);
  action.sa_handler = alarmed;
  sigaction(SIGALRM, &action, 0);
  for (n = 0; n < (unsigned)atoi(words[2]); n++) {
    struct opu_file file;
    enum opu_status status;
    uint32_t crc;
    srand((unsigned)strtoul(words[1], 0, 10) + n);
    for (k = 0; k < MEMBERS; k++) {
      changed[k] = whole[k];
      changed[k].data = (uint8_t *)malloc(whole[k].size ? whole[k].size : 1);
      memcpy(changed[k].data, whole[k].data, whole[k].size);
    }
    for (changes = 1 + (unsigned)rand() % 3; changes; changes--) change(changed, 4);
    if (rand() % 4 == 0) change(changed + 2, 0);
    crc = opu_crc32(changed[0].data + 16, changed[0].size - 16);
    memcpy(changed[0].data + 12, &crc, 4);
    for (k = 0; count == 7 && k < MEMBERS; k++) write_member(words[6], names[k], changed + k);
    status = opu_open_members(&file, changed[0].data, changed[0].size, changed[1].data,
                              changed[1].size, changed[2].data, changed[2].size);
    if (status == OPU_OK && !*file.refused)
      status = run(&file), *(status == OPU_OK ? &ran : &ended) += 1;
    else
      refused++;
    for (k = 0; k < MEMBERS; k++) free(changed[k].data);
  }
  for (k = 0; k < MEMBERS; k++) free(whole[k].data);
  printf("%u %u %u\n", refused, ended, ran);
  return 0;
}
