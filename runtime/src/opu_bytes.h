/* Little-endian numbers in bytes of a file, and ranges in it. */
#ifndef OPU_BYTES_H
#define OPU_BYTES_H

#include <stdint.h>

#define OPU_NONE 0xffffffffu

static inline uint32_t opu_u16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }

static inline uint32_t opu_u32(const uint8_t *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t opu_u64(const uint8_t *p) {
  return (uint64_t)opu_u32(p + 4) << 32 | opu_u32(p);
}

/* Whether `count` bytes from `first` on are among `size`. */
static inline int opu_spans(uint64_t first, uint64_t count, uint64_t size) {
  return first <= size && count <= size - first;
}

#endif
