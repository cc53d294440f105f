/* Runs programs that a file describes on the native engine, one after the other on one machine: for
 * tests under the sanitizers of the compiler, in which every memory has exactly its size.
 *
 * Input, numbers of 32 bits: words of the machine, those words; bytes of the window, the window;
 * then for each program its words, those words. Output: for each program its status, error code,
 * engine and number of the instruction; then the window. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opu.h"

static uint32_t number(FILE *in) {
  uint32_t value = 0;
  if (fread(&value, sizeof value, 1, in) != 1) exit(feof(in) ? 0 : 2);
  return value;
}

/* The next `size` bytes, in a memory of just that size. */
static void *bytes(FILE *in, size_t size, size_t alignment) {
  void *data = aligned_alloc(alignment, size);
  if (size && (!data || fread(data, 1, size, in) != size)) exit(2);
  return data;
}

int main(int count, char **names) {
  FILE *in = count == 3 ? fopen(names[1], "rb") : NULL;
  FILE *out = in ? fopen(names[2], "wb") : NULL;
  struct opu_machine_config machine;
  struct opu_window window;
  struct opu_native *engine = NULL;
  struct opu_retired retired[4];
  void *arena, *words;
  size_t size;
  int next;
  if (!out) return 2;
  size = (size_t)number(in) * 4u;
  if (size != sizeof machine) return 3;
  words = bytes(in, size, 4);
  memcpy(&machine, words, size);
  free(words);
  window.size = number(in);
  window.data = (uint8_t *)bytes(in, window.size, 1);
  size = opu_native_size(&machine);
  arena = aligned_alloc(64, size);
  if (!size || !arena || opu_native_init(&engine, &machine, arena, size) != OPU_OK) return 4;
  while ((next = fgetc(in)) != EOF) {
    struct opu_program program;
    struct opu_report report;
    uint32_t result[4];
    ungetc(next, in);
    memset(&report, 0, sizeof report);
    report.retired = retired;
    report.room = sizeof retired / sizeof retired[0];
    program.count = number(in);
    words = bytes(in, program.count * 4u, 4);
    program.words = (const uint32_t *)words;
    result[0] = (uint32_t)opu_native_run(engine, &program, &window, &report);
    result[1] = report.fault.code;
    result[2] = report.fault.engine;
    result[3] = report.fault.instruction;
    fwrite(result, sizeof result, 1, out);
    free(words);
  }
  fwrite(window.data, 1, window.size, out);
  free(window.data);
  free(arena);
  return fclose(out);
}
