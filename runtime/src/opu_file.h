/* Program files inside the library. Records are written by opu_fuse/bundle/runtime_member.py. */
#ifndef OPU_FILE_H
#define OPU_FILE_H

#include "opu.h"

/* Members of the archive, null pointers where it has none. */
struct opu_members {
  const uint8_t *section, *constants, *words;
  size_t section_bytes, constant_bytes, words_bytes;
  uint32_t constants_crc;
};

/* Check the archive, and the CRC of every member. Returns what is wrong, or a null pointer. */
const char *opu_find_members(const uint8_t *data, size_t size, struct opu_members *members);

uint32_t opu_crc32(const uint8_t *p, size_t n);

enum opu_conversion { OPU_RAW, OPU_SAME, OPU_SHIFT, OPU_REAL, OPU_TABLE, OPU_CONVERSIONS };

enum { OPU_MAP_WORDS = 10, OPU_PORT_WORDS = 34, OPU_SEGMENT_WORDS = 4, OPU_PIECE_BYTES = 8 };

/* A feature map in the window: Layout of docs/program-file.md. */
struct opu_map {
  uint64_t offset;
  uint32_t channels, rows, cols, word, lanes, slot, pieces, pieces_at;
};

/* A port. The words after `name` are those of the record, in order. work, unrounded: offsets in the
 * work memory of an image, or OPU_NONE. */
struct opu_port_record {
  uint32_t name, dtype, rank, shape[OPU_RANK], conversion, scale, zero, axes;
  uint32_t size[OPU_RANK], stride[OPU_RANK], map, lowest, table_at;
  uint32_t work, unrounded;
  uint32_t elements;
};

struct opu_segment {
  int host;
  uint64_t offset;
  uint32_t words;
};

struct opu_map opu_map_of(const struct opu_file *file, uint32_t number);
struct opu_port_record opu_port_of(const struct opu_file *file, uint32_t number);
struct opu_segment opu_segment_of(const struct opu_file *file, uint32_t number);

/* Bytes that a map takes in the window. */
uint64_t opu_map_bytes(const struct opu_file *file, const struct opu_map *map);
uint64_t opu_map_row_bytes(const struct opu_map *map);

/* Elements of one image of a map. */
uint64_t opu_map_elements(const struct opu_file *file, const struct opu_map *map);

/* One image of an input, from the caller's array to the window and the work memory; of an output,
 * back. data: the image's first element. OPU_NAN, or OPU_OK. */
enum opu_status opu_pack(const struct opu_session *s, const struct opu_port_record *port,
                         uint32_t image, const uint8_t *data);
void opu_unpack(const struct opu_session *s, const struct opu_port_record *port,
                uint32_t image, uint8_t *data);

/* Zeros for an image that the caller does not give. */
void opu_pack_nothing(const struct opu_session *s, const struct opu_port_record *port,
                      uint32_t image);

/* One image of a map as int8 in the order of its elements: to or from the window. */
void opu_load_map(const struct opu_session *s, const struct opu_map *map, uint32_t image,
                  uint8_t *values);
void opu_store_map(const struct opu_session *s, const struct opu_map *map, uint32_t image,
                   const uint8_t *values);

/* Check the steps of host segments, and size the work memory. Returns what is wrong, or a null
 * pointer. */
const char *opu_host_check(struct opu_file *file);

/* Run host segment `number` for one image. */
enum opu_status opu_host_run(const struct opu_session *s, uint32_t number, uint32_t image);

/* Offset in the work memory of a port: which 0 is the value inside, 1 the unrounded one. */
uint32_t opu_host_port(const struct opu_file *file, uint32_t number, uint32_t which);

#endif
