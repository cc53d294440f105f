/* What the back ends for POSIX systems share. */
#ifndef OPU_POSIX_H
#define OPU_POSIX_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "opu_regs.h"

/* Append a text, cut off at the end of the array. */
static inline void append(char *to, size_t size, const char *text) {
  const size_t used = strlen(to);
  size_t n = strlen(text);
  if (used + n >= size) n = size - used - 1;
  memcpy(to + used, text, n);
  to[used + n] = 0;
}

/* "WHERE: WHY" */
static inline void say(char *to, size_t size, const char *where, const char *why) {
  *to = 0;
  append(to, size, where);
  append(to, size, ": ");
  append(to, size, why);
}

static inline int64_t now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* The time of a program starts with it, or when the end of its predecessor is noticed. */
static inline int restarts_time(uint32_t offset, uint32_t value) {
  return offset == OPU_IRQ_STATUS ||
         (offset == OPU_CTRL && value & (OPU_CTRL_START | OPU_CTRL_QUEUE));
}

#endif
