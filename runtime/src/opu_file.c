/* Opening: every number of the section is checked here, so that a run checks none. */
#include <string.h>

#include "opu_bytes.h"
#include "opu_file.h"

enum { HEAD_WORDS = 4, SIZES = 16, MACHINE_WORDS = sizeof(struct opu_machine_config) / 4 };

#define MAGIC 0x5255504fu
#define SECTION_VERSION 1u
#define LARGEST 0x7fffffffu /* elements and bytes of an array or a map, so that size_t holds them */
#define LARGEST_BATCH 0x10000u
#define LOWEST_INT8 0xffffff80u

size_t opu_dtype_bytes(uint32_t dtype) {
  static const uint8_t bytes[] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8};
  return dtype < sizeof bytes ? bytes[dtype] : 0;
}

static enum opu_status damaged(struct opu_file *file, const char *what) {
  file->what = what;
  return OPU_DAMAGED;
}

static uint32_t word_of(const struct opu_file *file, uint32_t at, uint32_t n) {
  return opu_u32(file->section + at + 4 * (size_t)n);
}

/* A text in the section, or a null pointer. */
static const char *text_of(const struct opu_file *file, uint32_t at) {
  if (at >= file->section_bytes) return 0;
  if (!memchr(file->section + at, 0, file->section_bytes - at)) return 0;
  return (const char *)file->section + at;
}

struct opu_segment opu_segment_of(const struct opu_file *file, uint32_t number) {
  const uint8_t *at = file->section + file->segment_at + 4 * OPU_SEGMENT_WORDS * (size_t)number;
  struct opu_segment segment;
  segment.host = opu_u32(at) != 0;
  segment.offset = opu_u64(at + 4);
  segment.words = opu_u32(at + 12);
  return segment;
}

struct opu_map opu_map_of(const struct opu_file *file, uint32_t number) {
  const uint8_t *at = file->section + file->map_at + 4 * OPU_MAP_WORDS * (size_t)number;
  struct opu_map map;
  map.offset = opu_u64(at);
  map.channels = opu_u32(at + 8);
  map.rows = opu_u32(at + 12);
  map.cols = opu_u32(at + 16);
  map.word = opu_u32(at + 20);
  map.lanes = opu_u32(at + 24);
  map.slot = opu_u32(at + 28);
  map.pieces = opu_u32(at + 32);
  map.pieces_at = opu_u32(at + 36);
  return map;
}

struct opu_port_record opu_port_of(const struct opu_file *file, uint32_t number) {
  uint32_t words[OPU_PORT_WORDS], n;
  const uint32_t at = file->port_at + 4 * OPU_PORT_WORDS * number;
  uint64_t elements = 1;
  struct opu_port_record port;
  for (n = 0; n < OPU_PORT_WORDS; n++) words[n] = word_of(file, at, n);
  memset(&port, 0, sizeof port);
  memcpy(&port, words, sizeof words);
  for (n = 0; n < port.axes && n < OPU_RANK; n++) {
    elements *= port.size[n];
    if (elements > LARGEST) elements = 0;
  }
  port.elements = (uint32_t)elements;
  port.work = opu_host_port(file, number, 0);
  port.unrounded = opu_host_port(file, number, 1);
  return port;
}

static uint64_t blocks_of(const struct opu_file *file, const struct opu_map *map) {
  uint64_t last = map->pieces ? 0 : map->channels;
  uint32_t n;
  if (map->slot < map->word) return 1;
  for (n = 0; n < map->pieces; n++) {
    const uint8_t *piece = file->section + map->pieces_at + OPU_PIECE_BYTES * (size_t)n;
    const uint64_t end = (uint64_t)opu_u32(piece) + opu_u32(piece + 4);
    if (end > last) last = end;
  }
  return (last + map->lanes - 1) / map->lanes;
}

uint64_t opu_map_row_bytes(const struct opu_map *map) {
  return ((uint64_t)map->cols * map->slot + map->word - 1) / map->word * map->word;
}

uint64_t opu_map_bytes(const struct opu_file *file, const struct opu_map *map) {
  return blocks_of(file, map) * map->rows * opu_map_row_bytes(map);
}

uint64_t opu_map_elements(const struct opu_file *file, const struct opu_map *map) {
  return (uint64_t)map->channels * (map->rows / file->batch) * map->cols;
}

/* Whether the lanes of all channels are in words of the map. */
static int good_lanes(const struct opu_file *file, const struct opu_map *map) {
  const uint64_t lanes = map->slot < map->word ? map->slot : LARGEST;
  uint64_t channels = 0;
  uint32_t n;
  if (!opu_spans(map->pieces_at, (uint64_t)map->pieces * OPU_PIECE_BYTES, file->section_bytes))
    return 0;
  for (n = 0; n < map->pieces; n++) {
    const uint8_t *piece = file->section + map->pieces_at + OPU_PIECE_BYTES * (size_t)n;
    if ((uint64_t)opu_u32(piece) + opu_u32(piece + 4) > lanes) return 0;
    channels += opu_u32(piece + 4);
  }
  return map->pieces ? channels == map->channels : map->channels <= lanes;
}

static int good_map(const struct opu_file *file, const struct opu_map *map) {
  uint64_t lines, row;
  if (!map->channels || !map->rows || !map->cols || map->rows % file->batch) return 0;
  if (!map->slot || map->slot > map->word || map->word > 0x10000u || map->word % map->slot)
    return 0;
  if (!map->lanes || map->lanes > map->word || !good_lanes(file, map)) return 0;
  row = opu_map_row_bytes(map);
  lines = blocks_of(file, map);
  if (lines > LARGEST || (lines *= map->rows) > LARGEST) return 0;
  if (row > LARGEST || lines * row > LARGEST) return 0;
  return opu_map_elements(file, map) <= LARGEST &&
         opu_spans(map->offset, lines * row, file->window_bytes);
}

/* Whether the axes take no element outside the array. */
static int good_axes(const struct opu_port_record *port) {
  uint64_t last = 0;
  uint32_t n;
  if (port->axes < 1 || port->axes > OPU_RANK || !port->elements) return 0;
  for (n = 0; n < port->axes; n++) last += (uint64_t)(port->size[n] - 1) * port->stride[n];
  return last < port->elements;
}

static int good_table(const struct opu_file *file, const struct opu_port_record *port,
                      const struct opu_map *map) {
  const uint64_t inside = (uint64_t)(map->rows / file->batch) * map->cols;
  uint32_t n;
  if (port->dtype != OPU_INT8 && port->dtype != OPU_UINT8) return 0;
  if (port->lowest != (port->dtype == OPU_INT8 ? LOWEST_INT8 : 0)) return 0;
  if (!opu_spans(port->table_at, (uint64_t)map->channels * 260, file->section_bytes)) return 0;
  for (n = 0; n < map->channels; n++)
    if (((uint64_t)word_of(file, port->table_at, n) + 1) * inside > port->elements) return 0;
  return 1;
}

static int good_conversion(const struct opu_port_record *port) {
  const uint32_t dtype = port->dtype;
  float scale;
  switch (port->conversion) {
    case OPU_RAW:
      return port->map == OPU_NONE;
    case OPU_SAME:
      return dtype == OPU_INT8;
    case OPU_SHIFT:
      return dtype == OPU_UINT8;
    case OPU_REAL:
      memcpy(&scale, &port->scale, 4);
      return dtype == OPU_FLOAT32 && scale > 0 && scale <= 3.0e38f && port->zero + 128u < 256u;
    default:
      return port->map != OPU_NONE;
  }
}

/* Whether every access of packing is inside window, array, work memory and section. */
static int good_port(const struct opu_file *file, uint32_t number) {
  const struct opu_port_record port = opu_port_of(file, number);
  const size_t bytes = opu_dtype_bytes(port.dtype);
  const size_t inside = port.conversion == OPU_RAW ? bytes : 1;
  uint64_t elements = 1;
  struct opu_map map;
  uint32_t n;
  if (!text_of(file, port.name) || !bytes || port.rank > OPU_RANK) return 0;
  for (n = 0; n < port.rank; n++)
    if ((elements *= port.shape[n]) > LARGEST) return 0;
  if (!good_axes(&port) || elements != port.elements || elements * bytes > LARGEST) return 0;
  if (port.conversion >= OPU_CONVERSIONS || !good_conversion(&port)) return 0;
  if (port.conversion == OPU_TABLE && number >= file->inputs) return 0;
  if (port.map == OPU_NONE && port.work == OPU_NONE) return 0;
  if (port.work != OPU_NONE && !opu_spans(port.work, elements * inside, file->image_bytes))
    return 0;
  if (port.unrounded != OPU_NONE && !opu_spans(port.unrounded, elements * bytes, file->image_bytes))
    return 0;
  if (port.map == OPU_NONE) return 1;
  if (port.map >= file->maps) return 0;
  map = opu_map_of(file, port.map);
  return opu_map_elements(file, &map) == elements &&
         (port.conversion != OPU_TABLE || good_table(file, &port, &map));
}

/* Whether its words are among those of the program, or its steps are in the file. */
static int good_segment(const struct opu_file *file, uint32_t number) {
  const struct opu_segment s = opu_segment_of(file, number);
  if (s.host) return file->host_bytes > 0;
  return s.words && s.offset % 4 == 0 && s.offset >= file->program_offset &&
         opu_spans(s.offset - file->program_offset, (uint64_t)s.words * 4,
                   (uint64_t)file->word_count * 4);
}

static enum opu_status read_sizes(struct opu_file *file, uint32_t at, size_t words_bytes) {
  file->window_bytes = opu_u64(file->section + at);
  file->program_offset = opu_u64(file->section + at + 8);
  file->word_count = word_of(file, at, 6);
  if (opu_u64(file->section + at + 16) != file->constant_bytes ||
      (uint64_t)file->word_count * 4 != words_bytes)
    return damaged(file, "runtime.bin: sizes of dram.bin and program.bin");
  file->batch = word_of(file, at, 7);
  file->segments = word_of(file, at, 8);
  file->inputs = word_of(file, at, 9);
  file->outputs = word_of(file, at, 10);
  file->maps = word_of(file, at, 11);
  file->host_at = word_of(file, at, 12);
  file->host_bytes = word_of(file, at, 13);
  file->refused = text_of(file, word_of(file, at, 14));
  file->name = text_of(file, word_of(file, at, 15));
  if (!file->refused || !file->name || !file->batch || file->batch > LARGEST_BATCH ||
      file->window_bytes > (uint64_t)1 << 40 ||
      !opu_spans(file->host_at, file->host_bytes, file->section_bytes))
    return damaged(file, "runtime.bin: sizes");
  if (file->program_offset % 4 || file->constant_bytes > file->program_offset ||
      !opu_spans(file->program_offset, words_bytes, file->window_bytes))
    return damaged(file, "runtime.bin: program outside the window");
  return OPU_OK;
}

/* Where the records are; whether all are in the section. */
static int place_records(struct opu_file *file, uint32_t at) {
  const uint64_t segments = at, maps = segments + 4 * OPU_SEGMENT_WORDS * (uint64_t)file->segments;
  const uint64_t ports = maps + 4 * OPU_MAP_WORDS * (uint64_t)file->maps;
  const uint64_t all = (uint64_t)file->inputs + file->outputs;
  file->segment_at = at;
  file->map_at = (uint32_t)maps;
  file->port_at = (uint32_t)ports;
  return ports <= file->section_bytes &&
         opu_spans(ports, all * 4 * OPU_PORT_WORDS, file->section_bytes);
}

static enum opu_status check_records(struct opu_file *file) {
  const char *wrong;
  uint32_t n;
  for (n = 0; n < file->maps; n++) {
    const struct opu_map map = opu_map_of(file, n);
    if (!good_map(file, &map)) return damaged(file, "runtime.bin: a map");
  }
  if (*file->refused) { /* it is not run: ports and segments need not be complete */
    file->host_bytes = 0;
    return OPU_OK;
  }
  wrong = opu_host_check(file);
  if (wrong) return damaged(file, wrong);
  for (n = 0; n < file->segments; n++)
    if (!good_segment(file, n)) return damaged(file, "runtime.bin: a segment");
  for (n = 0; n < file->inputs + file->outputs; n++)
    if (!good_port(file, n)) return damaged(file, "runtime.bin: a port");
  return OPU_OK;
}

enum opu_status opu_open_members(struct opu_file *file, const void *section, size_t section_bytes,
                                 const void *constants, size_t constant_bytes, const void *words,
                                 size_t words_bytes) {
  const uint8_t *head = (const uint8_t *)section;
  const uint32_t fixed = 4 * (HEAD_WORDS + 1 + MACHINE_WORDS), one = 1;
  uint32_t numbers[MACHINE_WORDS], n;
  enum opu_status status;
  if (!file || !section || !constants || !words) return OPU_BAD_ARGUMENT;
  memset(file, 0, sizeof *file);
  file->what = file->name = file->refused = "";
  if (!*(const uint8_t *)&one) {
    file->what = "the processor is big-endian";
    return OPU_UNSUPPORTED;
  }
  if (section_bytes < 4 * HEAD_WORDS || section_bytes > LARGEST || opu_u32(head) != MAGIC)
    return damaged(file, "runtime.bin");
  if (opu_u32(head + 4) != SECTION_VERSION) return OPU_OTHER_VERSION;
  if (opu_u32(head + 8) != section_bytes ||
      opu_u32(head + 12) != opu_crc32(head + 16, section_bytes - 16))
    return damaged(file, "runtime.bin: size or CRC");
  if (section_bytes < fixed + 4 * SIZES) return damaged(file, "runtime.bin: size");
  if (opu_u32(head + 16) != MACHINE_WORDS || opu_u32(head + 20) != OPU_MACHINE_LAYOUT)
    return OPU_OTHER_VERSION;
  file->section = head;
  file->section_bytes = (uint32_t)section_bytes;
  file->constants = (const uint8_t *)constants;
  file->constant_bytes = constant_bytes;
  file->words = (const uint8_t *)words;
  for (n = 0; n < MACHINE_WORDS; n++) numbers[n] = opu_u32(head + 20 + 4 * (size_t)n);
  memcpy(&file->machine, numbers, sizeof file->machine);
  status = read_sizes(file, fixed, words_bytes);
  if (status != OPU_OK) return status;
  if (!place_records(file, fixed + 4 * SIZES)) return damaged(file, "runtime.bin: records");
  return check_records(file);
}

enum opu_status opu_open(struct opu_file *file, const void *bytes, size_t size) {
  struct opu_members found;
  const char *wrong;
  if (!file || !bytes) return OPU_BAD_ARGUMENT;
  memset(file, 0, sizeof *file);
  file->what = file->name = file->refused = "";
  wrong = opu_find_members((const uint8_t *)bytes, size, &found);
  if (wrong) return damaged(file, wrong);
  if (!found.constants || !found.words) return damaged(file, "dram.bin or program.bin is missing");
  if (!found.section) return OPU_NO_SECTION;
  return opu_open_members(file, found.section, found.section_bytes, found.constants,
                          found.constant_bytes, found.words, found.words_bytes);
}

static enum opu_status describe(const struct opu_file *file, uint32_t number,
                                struct opu_port *port) {
  const struct opu_port_record record = opu_port_of(file, number);
  uint32_t n;
  memset(port, 0, sizeof *port);
  port->name = text_of(file, record.name) ? (const char *)file->section + record.name : "";
  port->dtype = record.dtype;
  port->rank = record.rank < OPU_RANK ? record.rank : OPU_RANK;
  for (n = 0; n < port->rank; n++) port->shape[n] = record.shape[n];
  port->elements = record.elements;
  port->bytes = port->elements * opu_dtype_bytes(record.dtype);
  return OPU_OK;
}

enum opu_status opu_input(const struct opu_file *file, uint32_t number, struct opu_port *port) {
  if (!file || !port || number >= file->inputs) return OPU_BAD_ARGUMENT;
  return describe(file, number, port);
}

enum opu_status opu_output(const struct opu_file *file, uint32_t number, struct opu_port *port) {
  if (!file || !port || number >= file->outputs) return OPU_BAD_ARGUMENT;
  return describe(file, file->inputs + number, port);
}
