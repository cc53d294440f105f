/* The archive: finding the members that a run needs, and the CRC of every member. */
#include <string.h>

#include "opu_bytes.h"
#include "opu_file.h"

enum {
  NIBBLES = 16, /* of the bytes whose CRC is computed at a time */
  END_BYTES = 22,
  ENTRY_BYTES = 46,
  LOCAL_BYTES = 30,
  END_MARK = 0x06054b50,
  ENTRY_MARK = 0x02014b50,
  LOCAL_MARK = 0x04034b50
};

/* Eight bytes at a time. Row k has the CRC of each nibble that k nibbles follow. They are 1 KB of the
 * caller's stack; rows of bytes would be 8 KB, too many for a microcontroller. */
uint32_t opu_crc32(const uint8_t *p, size_t n) {
  uint32_t row[NIBBLES][16], crc = 0xffffffffu, first, k;
  for (first = 0; first < 16u; first++) {
    uint32_t value = first;
    for (k = 0; k < 4u * NIBBLES; k++) {
      value = value >> 1 ^ (0xedb88320u & (0u - (value & 1u)));
      row[k / 4u][first] = value; /* the last of four bits stays */
    }
  }
  for (; n >= NIBBLES / 2u; n -= NIBBLES / 2u, p += NIBBLES / 2u) {
    uint64_t nibbles = opu_u64(p) ^ crc;
    crc = 0;
    for (k = NIBBLES; k--; nibbles >>= 4) crc ^= row[k][nibbles & 15u];
  }
  for (; n; n--, p++) {
    crc ^= *p;
    crc = crc >> 4 ^ row[0][crc & 15u];
    crc = crc >> 4 ^ row[0][crc & 15u];
  }
  return ~crc;
}

static int named(const uint8_t *name, uint32_t size, const char *text) {
  return size == strlen(text) && memcmp(name, text, size) == 0;
}

/* One entry of the directory; `at` becomes the next one. Returns what is wrong, or a null pointer. */
static const char *entry(const uint8_t *data, size_t size, uint64_t *at,
                         struct opu_members *members) {
  const uint8_t *e = data + *at, *name = e + ENTRY_BYTES, *local, *body;
  uint32_t bytes, length;
  uint64_t start;
  if (!opu_spans(*at, ENTRY_BYTES, size)) return "ZIP directory";
  bytes = opu_u32(e + 24);
  length = opu_u16(e + 28);
  start = opu_u32(e + 42);
  if (opu_u32(e) != ENTRY_MARK || opu_u16(e + 10) != 0 || opu_u32(e + 20) != bytes ||
      !opu_spans(*at + ENTRY_BYTES, length, size) || !opu_spans(start, LOCAL_BYTES, size))
    return "ZIP directory";
  local = data + start;
  start += LOCAL_BYTES + opu_u16(local + 26) + opu_u16(local + 28);
  if (opu_u32(local) != LOCAL_MARK || opu_u16(local + 26) != length ||
      !opu_spans(start, bytes, size) || memcmp(local + LOCAL_BYTES, name, length) != 0)
    return "ZIP member";
  body = data + start;
  if (opu_crc32(body, bytes) != opu_u32(e + 16)) return "CRC of a ZIP member";
  if (named(name, length, "runtime.bin")) {
    members->section = body;
    members->section_bytes = bytes;
  } else if (named(name, length, "dram.bin")) {
    members->constants = body;
    members->constant_bytes = bytes;
    members->constants_crc = opu_u32(e + 16);
  } else if (named(name, length, "program.bin")) {
    members->words = body;
    members->words_bytes = bytes;
  } else {
    /* a member for Python alone */
  }
  *at += ENTRY_BYTES + (uint64_t)length + opu_u16(e + 30) + opu_u16(e + 32);
  return 0;
}

const char *opu_find_members(const uint8_t *data, size_t size, struct opu_members *members) {
  const uint8_t *end;
  uint32_t count;
  uint64_t at;
  memset(members, 0, sizeof *members);
  if (size < END_BYTES) return "end of the ZIP";
  end = data + size - END_BYTES;
  if (opu_u32(end) != END_MARK) return "end of the ZIP";
  count = opu_u16(end + 10);
  at = opu_u32(end + 16);
  while (count--) {
    const char *wrong = entry(data, size, &at, members);
    if (wrong) return wrong;
  }
  return 0;
}
