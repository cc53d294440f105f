/* Between the caller's arrays, the maps of the window and the values of the host. The arithmetic is
 * that of opu_fuse/sim/ports.py. */
#include <string.h>

#include "opu_bytes.h"
#include "opu_file.h"

/* Where an element of the value is in the caller's array: the elements in order. */
struct cursor {
  const struct opu_port_record *port;
  uint32_t index[OPU_RANK];
  size_t at;
};

static void seek(struct cursor *c, const struct opu_port_record *port, uint32_t element) {
  uint32_t n;
  c->port = port;
  c->at = 0;
  for (n = port->axes; n--; element /= port->size[n]) {
    c->index[n] = element % port->size[n];
    c->at += (size_t)c->index[n] * port->stride[n];
  }
}

static void advance(struct cursor *c) {
  uint32_t n;
  for (n = c->port->axes; n--;) {
    c->at += c->port->stride[n];
    if (++c->index[n] < c->port->size[n]) return;
    c->at -= (size_t)c->port->size[n] * c->port->stride[n];
    c->index[n] = 0;
  }
}

/* Halves to even, then saturated, as ONNX QuantizeLinear. value is no NaN. */
static uint8_t quantised(float value, float scale, int32_t zero) {
  const float scaled = value / scale;
  int64_t whole;
  float rest;
  if (scaled > 1.0e6f) return 127;
  if (scaled < -1.0e6f) return 128;
  whole = (int64_t)scaled;
  rest = scaled - (float)whole;
  if (rest > 0.5f || (rest == 0.5f && whole % 2)) whole++;
  if (rest < -0.5f || (rest == -0.5f && whole % 2)) whole--;
  whole += zero;
  return (uint8_t)(whole > 127 ? 127 : whole < -128 ? -128 : whole);
}

/* What one element becomes, by the port. table: 256 results of a channel. */
struct conversion {
  uint32_t kind;
  float scale;
  int32_t zero;
  const uint8_t *table;
  uint32_t lowest;
};

static struct conversion conversion_of(const struct opu_port_record *port) {
  struct conversion c;
  c.kind = port->conversion;
  memcpy(&c.scale, &port->scale, 4);
  memcpy(&c.zero, &port->zero, 4);
  c.table = 0;
  c.lowest = port->lowest;
  return c;
}

/* 0: a NaN. */
static int inside(const struct conversion *c, const uint8_t *user, uint8_t *value) {
  float number;
  switch (c->kind) {
    case OPU_SAME:
      *value = *user;
      return 1;
    case OPU_SHIFT:
      *value = *user ^ 128u;
      return 1;
    case OPU_TABLE:
      *value = c->table[c->lowest ? *user ^ 128u : *user];
      return 1;
    default:
      memcpy(&number, user, 4);
      if (number != number) return 0;
      *value = quantised(number, c->scale, c->zero);
      return 1;
  }
}

static void outside(const struct conversion *c, uint8_t value, uint8_t *user) {
  float number;
  if (c->kind == OPU_REAL) {
    number = (float)((int64_t)(value ^ 128) - 128 - c->zero) * c->scale;
    memcpy(user, &number, 4);
  } else {
    *user = c->kind == OPU_SHIFT ? value ^ 128u : value;
  }
}

/* The bytes of a channel of an image: its first one, and how far rows are from each other. */
struct plane {
  uint8_t *first;
  size_t row_bytes;
  uint32_t rows, cols, slot;
};

static uint32_t lane_of(const struct opu_file *file, const struct opu_map *map, uint32_t channel) {
  const uint8_t *piece = file->section + map->pieces_at;
  if (!map->pieces) return channel;
  while (channel >= opu_u32(piece + 4)) channel -= opu_u32(piece + 4), piece += OPU_PIECE_BYTES;
  return opu_u32(piece) + channel;
}

static struct plane plane_of(const struct opu_session *s, const struct opu_map *map,
                             uint32_t image, uint32_t channel) {
  const uint32_t lane = lane_of(s->file, map, channel), narrow = map->slot < map->word;
  const size_t block = narrow ? 0 : lane / map->lanes, byte = narrow ? lane : lane % map->lanes;
  struct plane p;
  p.rows = map->rows / s->file->batch;
  p.cols = map->cols;
  p.slot = map->slot;
  p.row_bytes = (size_t)opu_map_row_bytes(map);
  p.first = s->window.data + map->offset + byte +
            (block * map->rows + (size_t)image * p.rows) * p.row_bytes;
  return p;
}

/* Bytes between the channels of a map without pieces become 0, as the machine expects them. */
static void clear(const struct opu_session *s, const struct opu_map *map, uint32_t image) {
  const size_t rows = map->rows / s->file->batch, row = (size_t)opu_map_row_bytes(map);
  const size_t blocks = (size_t)(opu_map_bytes(s->file, map) / (map->rows * row));
  size_t block;
  if (map->pieces) return;
  for (block = 0; block < blocks; block++)
    memset(s->window.data + map->offset + (block * map->rows + image * rows) * row, 0, rows * row);
}

static enum opu_status pack_map(const struct opu_session *s, const struct opu_port_record *port,
                                uint32_t image, const uint8_t *data) {
  const struct opu_map map = opu_map_of(s->file, port->map);
  const size_t bytes = opu_dtype_bytes(port->dtype);
  struct conversion change = conversion_of(port);
  struct cursor at;
  uint32_t channel, row, col;
  clear(s, &map, image);
  seek(&at, port, 0);
  for (channel = 0; channel < map.channels; channel++) {
    const struct plane p = plane_of(s, &map, image, channel);
    if (change.kind == OPU_TABLE) {
      const uint8_t *table = s->file->section + port->table_at;
      seek(&at, port, opu_u32(table + 4 * (size_t)channel) * p.rows * p.cols);
      change.table = table + 4 * (size_t)map.channels + 256 * (size_t)channel;
    }
    for (row = 0; row < p.rows; row++) {
      uint8_t *to = p.first + row * p.row_bytes;
      for (col = 0; col < p.cols; col++, to += p.slot, advance(&at))
        if (!inside(&change, data + at.at * bytes, to)) return OPU_NAN;
    }
  }
  return OPU_OK;
}

static uint8_t *work_of(const struct opu_session *s, uint32_t image, uint32_t offset) {
  return s->work + (size_t)image * (size_t)s->file->image_bytes + offset;
}

static enum opu_status pack_value(const struct opu_session *s, const struct opu_port_record *port,
                                  uint32_t image, const uint8_t *data) {
  const size_t bytes = opu_dtype_bytes(port->dtype);
  const struct conversion change = conversion_of(port);
  uint8_t *to = work_of(s, image, port->work);
  struct cursor at;
  uint32_t n;
  seek(&at, port, 0);
  for (n = 0; n < port->elements; n++, advance(&at)) {
    if (change.kind == OPU_RAW)
      memcpy(to + n * bytes, data + at.at * bytes, bytes);
    else if (!inside(&change, data + at.at * bytes, to + n))
      return OPU_NAN;
  }
  return OPU_OK;
}

enum opu_status opu_pack(const struct opu_session *s, const struct opu_port_record *port,
                         uint32_t image, const uint8_t *data) {
  enum opu_status status = OPU_OK;
  struct opu_map map;
  if (port->unrounded != OPU_NONE)
    memcpy(work_of(s, image, port->unrounded), data,
           port->elements * opu_dtype_bytes(port->dtype));
  if (port->map != OPU_NONE) status = pack_map(s, port, image, data);
  if (status != OPU_OK || port->work == OPU_NONE) return status;
  if (port->map == OPU_NONE) return pack_value(s, port, image, data);
  /* The value in the map has it all, bytes that were looked up too. */
  map = opu_map_of(s->file, port->map);
  opu_load_map(s, &map, image, work_of(s, image, port->work));
  return OPU_OK;
}

void opu_pack_nothing(const struct opu_session *s, const struct opu_port_record *port,
                      uint32_t image) {
  struct opu_map map;
  uint32_t channel, row, col;
  if (port->map == OPU_NONE) return; /* host segments do not run for this image */
  map = opu_map_of(s->file, port->map);
  clear(s, &map, image);
  for (channel = 0; channel < map.channels && map.pieces; channel++) {
    const struct plane p = plane_of(s, &map, image, channel);
    for (row = 0; row < p.rows; row++)
      for (col = 0; col < p.cols; col++) p.first[row * p.row_bytes + (size_t)col * p.slot] = 0;
  }
}

static void unpack_map(const struct opu_session *s, const struct opu_port_record *port,
                       uint32_t image, uint8_t *data) {
  const struct opu_map map = opu_map_of(s->file, port->map);
  const struct conversion change = conversion_of(port);
  const size_t bytes = opu_dtype_bytes(port->dtype);
  struct cursor at;
  uint32_t channel, row, col;
  seek(&at, port, 0);
  for (channel = 0; channel < map.channels; channel++) {
    const struct plane p = plane_of(s, &map, image, channel);
    for (row = 0; row < p.rows; row++) {
      const uint8_t *from = p.first + row * p.row_bytes;
      for (col = 0; col < p.cols; col++, from += p.slot, advance(&at))
        outside(&change, *from, data + at.at * bytes);
    }
  }
}

void opu_unpack(const struct opu_session *s, const struct opu_port_record *port, uint32_t image,
                uint8_t *data) {
  const size_t bytes = opu_dtype_bytes(port->dtype);
  const struct conversion change = conversion_of(port);
  const uint8_t *from;
  struct cursor at;
  uint32_t n;
  if (port->work == OPU_NONE) {
    unpack_map(s, port, image, data);
    return;
  }
  from = work_of(s, image, port->work);
  seek(&at, port, 0);
  for (n = 0; n < port->elements; n++, advance(&at)) {
    if (change.kind == OPU_RAW)
      memcpy(data + at.at * bytes, from + n * bytes, bytes);
    else
      outside(&change, from[n], data + at.at * bytes);
  }
}

void opu_load_map(const struct opu_session *s, const struct opu_map *map, uint32_t image,
                  uint8_t *values) {
  uint32_t channel, row, col;
  for (channel = 0; channel < map->channels; channel++) {
    const struct plane p = plane_of(s, map, image, channel);
    for (row = 0; row < p.rows; row++)
      for (col = 0; col < p.cols; col++)
        *values++ = p.first[row * p.row_bytes + (size_t)col * p.slot];
  }
}

void opu_store_map(const struct opu_session *s, const struct opu_map *map, uint32_t image,
                   const uint8_t *values) {
  uint32_t channel, row, col;
  clear(s, map, image);
  for (channel = 0; channel < map->channels; channel++) {
    const struct plane p = plane_of(s, map, image, channel);
    for (row = 0; row < p.rows; row++)
      for (col = 0; col < p.cols; col++)
        p.first[row * p.row_bytes + (size_t)col * p.slot] = *values++;
  }
}
