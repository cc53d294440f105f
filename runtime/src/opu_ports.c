/* Between the caller's arrays, the maps of the window and the values of the host. */
#include <string.h>

#include "opu_bytes.h"
#include "opu_convert.h"

#define PIECE 128u /* elements that are converted at a time, on the stack */

/* What is done with each row of each channel of a map. `bytes` has the row's first element, which is
 * number `element` of the image; the next one is `slot` bytes on. 0 ends the traversal.
 *
 * tables: of a port with tables, for each channel that of the caller, then 256 results each. from,
 * to: the caller's array, or values of the host. */
struct visitor {
  int (*visit)(const struct visitor *self, uint8_t *bytes, uint32_t channel, uint32_t element);
  const struct opu_port_record *port;
  struct opu_conversion_of change;
  const uint8_t *tables, *from;
  uint8_t *to;
  uint32_t channels, plane, cols, slot; /* of the map; plane: elements of a channel */
};

/* How many channels from `channel` on are in neighbouring lanes of a block. lane: of the first. */
static uint32_t neighbours(const struct opu_file *file, const struct opu_map *map,
                           uint32_t channel, uint32_t *lane) {
  const uint8_t *piece = file->section + map->pieces_at;
  uint32_t left = map->channels - channel, room;
  *lane = channel;
  if (map->pieces) {
    while (channel >= opu_u32(piece + 4)) channel -= opu_u32(piece + 4), piece += OPU_PIECE_BYTES;
    *lane = opu_u32(piece) + channel;
    left = opu_u32(piece + 4) - channel;
  }
  if (map->slot < map->word) return left; /* one block has all */
  room = map->lanes - *lane % map->lanes;
  return left < room ? left : room;
}

/* Visit an image of a map: row after row, each with all channels of a block, whose bytes are then in
 * the processor's cache. clear: before, bytes of a map without pieces become 0, as the machine
 * expects those between channels. Returns 0 where a visit ended it. */
static int visit_map(const struct opu_session *s, const struct opu_map *map, uint32_t image,
                     int clear, struct visitor *v) {
  const uint32_t rows = map->rows / s->file->batch, narrow = map->slot < map->word;
  const size_t row_bytes = (size_t)opu_map_row_bytes(map);
  uint32_t channel, count, lane, row, n;
  v->channels = map->channels;
  v->plane = rows * map->cols;
  v->cols = map->cols;
  v->slot = map->slot;
  for (channel = 0; channel < map->channels; channel += count) {
    uint8_t *line = s->window.data + map->offset + (size_t)image * rows * row_bytes;
    count = neighbours(s->file, map, channel, &lane);
    if (!narrow) {
      line += lane / map->lanes * (size_t)map->rows * row_bytes;
      lane %= map->lanes;
    }
    for (row = 0; row < rows; row++, line += row_bytes) {
      const uint32_t element = channel * v->plane + row * map->cols;
      if (clear && !map->pieces) memset(line, 0, row_bytes);
      for (n = 0; n < count; n++)
        if (!v->visit(v, line + lane + n, channel + n, element + n * v->plane)) return 0;
    }
  }
  return 1;
}

static void scatter(const uint8_t *values, uint32_t count, uint8_t *bytes, size_t slot) {
  uint32_t n;
  for (n = 0; n < count; n++) bytes[n * slot] = values[n];
}

static void gather(const uint8_t *bytes, size_t slot, uint32_t count, uint8_t *values) {
  uint32_t n;
  for (n = 0; n < count; n++) values[n] = bytes[n * slot];
}

static uint32_t piece_at(const struct visitor *v, uint32_t col) {
  return v->cols - col < PIECE ? v->cols - col : PIECE;
}

static int pack_row(const struct visitor *v, uint8_t *bytes, uint32_t channel, uint32_t element) {
  struct opu_conversion_of change = v->change;
  uint8_t values[PIECE];
  uint32_t col, some;
  if (v->tables) {
    const uint32_t users = opu_u32(v->tables + 4 * (size_t)channel);
    change.table = v->tables + 4 * (size_t)v->channels + 256 * (size_t)channel;
    element = element - channel * v->plane + users * v->plane;
  }
  for (col = 0; col < v->cols; col += some) {
    some = piece_at(v, col);
    if (!opu_take(&change, v->port, element + col, some, v->from, values)) return 0;
    scatter(values, some, bytes + (size_t)col * v->slot, v->slot);
  }
  return 1;
}

static int unpack_row(const struct visitor *v, uint8_t *bytes, uint32_t channel,
                      uint32_t element) {
  uint8_t values[PIECE];
  uint32_t col, some;
  (void)channel;
  for (col = 0; col < v->cols; col += some) {
    some = piece_at(v, col);
    gather(bytes + (size_t)col * v->slot, v->slot, some, values);
    opu_give(&v->change, v->port, element + col, some, values, v->to);
  }
  return 1;
}

static int load_row(const struct visitor *v, uint8_t *bytes, uint32_t channel, uint32_t element) {
  (void)channel;
  gather(bytes, v->slot, v->cols, v->to + element);
  return 1;
}

static int store_row(const struct visitor *v, uint8_t *bytes, uint32_t channel, uint32_t element) {
  (void)channel;
  scatter(v->from + element, v->cols, bytes, v->slot);
  return 1;
}

static int zero_row(const struct visitor *v, uint8_t *bytes, uint32_t channel, uint32_t element) {
  uint32_t col;
  (void)channel;
  (void)element;
  for (col = 0; col < v->cols; col++) bytes[(size_t)col * v->slot] = 0;
  return 1;
}

static struct visitor visitor_of(int (*visit)(const struct visitor *, uint8_t *, uint32_t,
                                              uint32_t)) {
  struct visitor v;
  memset(&v, 0, sizeof v);
  v.visit = visit;
  return v;
}

static enum opu_status pack_map(const struct opu_session *s, const struct opu_port_record *port,
                                uint32_t image, const uint8_t *data) {
  const struct opu_map map = opu_map_of(s->file, port->map);
  struct visitor v = visitor_of(pack_row);
  v.port = port;
  v.change = opu_conversion(port);
  if (port->conversion == OPU_TABLE) v.tables = s->file->section + port->table_at;
  v.from = data;
  return visit_map(s, &map, image, 1, &v) ? OPU_OK : OPU_NAN;
}

static void unpack_map(const struct opu_session *s, const struct opu_port_record *port,
                       uint32_t image, uint8_t *data) {
  const struct opu_map map = opu_map_of(s->file, port->map);
  struct visitor v = visitor_of(unpack_row);
  v.port = port;
  v.change = opu_conversion(port);
  v.to = data;
  (void)visit_map(s, &map, image, 0, &v);
}

static uint8_t *work_of(const struct opu_session *s, uint32_t image, uint32_t offset) {
  return s->work + (size_t)image * (size_t)s->file->image_bytes + offset;
}

static enum opu_status pack_value(const struct opu_session *s, const struct opu_port_record *port,
                                  uint32_t image, const uint8_t *data) {
  const struct opu_conversion_of change = opu_conversion(port);
  uint8_t *to = work_of(s, image, port->work);
  return opu_take(&change, port, 0, port->elements, data, to) ? OPU_OK : OPU_NAN;
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
  struct visitor v = visitor_of(zero_row);
  struct opu_map map;
  if (port->map == OPU_NONE) return; /* host segments do not run for this image */
  map = opu_map_of(s->file, port->map);
  (void)visit_map(s, &map, image, 1, &v);
}

void opu_unpack(const struct opu_session *s, const struct opu_port_record *port, uint32_t image,
                uint8_t *data) {
  struct opu_conversion_of change;
  if (port->work == OPU_NONE) {
    unpack_map(s, port, image, data);
    return;
  }
  change = opu_conversion(port);
  opu_give(&change, port, 0, port->elements, work_of(s, image, port->work), data);
}

void opu_load_map(const struct opu_session *s, const struct opu_map *map, uint32_t image,
                  uint8_t *values) {
  struct visitor v = visitor_of(load_row);
  v.to = values;
  (void)visit_map(s, map, image, 0, &v);
}

void opu_store_map(const struct opu_session *s, const struct opu_map *map, uint32_t image,
                   const uint8_t *values) {
  struct visitor v = visitor_of(store_row);
  v.from = values;
  (void)visit_map(s, map, image, 1, &v);
}
