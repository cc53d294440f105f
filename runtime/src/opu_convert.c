/* Elements between the caller's arrays, in any order of axes, and the values inside. The arithmetic
 * is that of opu_fuse/sim/ports.py. */
#include "opu_convert.h"

#include <string.h>

#include "opu_bytes.h"

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

/* Pass over elements that follow each other along the last axis: at most `most`. Returns how many. */
static uint32_t pass(struct cursor *c, uint32_t most) {
  const struct opu_port_record *port = c->port;
  uint32_t n = port->axes - 1;
  const uint32_t left = port->size[n] - c->index[n], some = most < left ? most : left;
  c->index[n] += some;
  c->at += (size_t)some * port->stride[n];
  while (n && c->index[n] == port->size[n]) {
    c->at -= (size_t)port->size[n] * port->stride[n];
    c->index[n] = 0;
    n--;
    c->at += port->stride[n];
    c->index[n]++;
  }
  return some;
}

struct opu_conversion_of opu_conversion(const struct opu_port_record *port) {
  struct opu_conversion_of c;
  c.kind = port->conversion;
  memcpy(&c.scale, &port->scale, 4);
  memcpy(&c.zero, &port->zero, 4);
  c.table = 0;
  c.flip = c.kind == OPU_SHIFT || (c.kind == OPU_TABLE && port->lowest) ? 128u : 0u;
  c.user_bytes = opu_dtype_bytes(port->dtype);
  c.value_bytes = c.kind == OPU_RAW ? c.user_bytes : 1u;
  return c;
}

/* Halves to even, then saturated, as ONNX QuantizeLinear. Next to 1.5 * 2^23 a float has no bits of
 * a fraction, so the sum is rounded. 0: one is a NaN. */
static inline int quantise(float scale, int32_t zero, const uint8_t *user, size_t step,
                           uint32_t count, uint8_t *values) {
  const float most = 512.0f, whole_numbers = 12582912.0f;
  int good = 1;
  uint32_t n;
  for (n = 0; n < count; n++) {
    float number, scaled, sum;
    int32_t whole;
    memcpy(&number, user + n * step, 4);
    good &= number == number;
    scaled = number / scale;
    scaled = scaled < most ? scaled : most; /* and a NaN, which has no integer */
    scaled = scaled > -most ? scaled : -most;
    sum = scaled + whole_numbers;
    whole = (int32_t)(sum - whole_numbers) + zero;
    whole = whole < 127 ? whole : 127;
    values[n] = (uint8_t)(whole > -128 ? whole : -128);
  }
  return good;
}

static inline void dequantise(float scale, int32_t zero, const uint8_t *values, uint32_t count,
                              uint8_t *user, size_t step) {
  uint32_t n;
  for (n = 0; n < count; n++) {
    const float number = (float)((int32_t)(values[n] ^ 128u) - 128 - zero) * scale;
    memcpy(user + n * step, &number, 4);
  }
}

/* Elements of some bytes, `from_step` and `to_step` bytes from each other. */
static void copy(const uint8_t *from, size_t from_step, uint8_t *to, size_t to_step, size_t bytes,
                 uint32_t count) {
  if (from_step == bytes && to_step == bytes) {
    memcpy(to, from, count * bytes);
    return;
  }
  for (; count; count--, from += from_step, to += to_step) memcpy(to, from, bytes);
}

/* `step` bytes between elements of the caller. A constant step of its own lets compilers use
 * vectors. 0: one is a NaN. */
static int inside(const struct opu_conversion_of *c, const uint8_t *user, size_t step,
                  uint32_t count, uint8_t *values) {
  uint32_t n;
  switch (c->kind) {
    case OPU_RAW:
      copy(user, step, values, c->value_bytes, c->user_bytes, count);
      return 1;
    case OPU_TABLE:
      for (n = 0; n < count; n++) values[n] = c->table[user[n * step] ^ c->flip];
      return 1;
    case OPU_REAL:
      if (step == 4) return quantise(c->scale, c->zero, user, 4, count, values);
      return quantise(c->scale, c->zero, user, step, count, values);
    default:
      for (n = 0; n < count; n++) values[n] = user[n * step] ^ c->flip;
      return 1;
  }
}

static void outside(const struct opu_conversion_of *c, const uint8_t *values, uint32_t count,
                    uint8_t *user, size_t step) {
  uint32_t n;
  if (c->kind == OPU_RAW)
    copy(values, c->value_bytes, user, step, c->user_bytes, count);
  else if (c->kind == OPU_REAL && step == 4)
    dequantise(c->scale, c->zero, values, count, user, 4);
  else if (c->kind == OPU_REAL)
    dequantise(c->scale, c->zero, values, count, user, step);
  else
    for (n = 0; n < count; n++) user[n * step] = values[n] ^ c->flip;
}

int opu_take(const struct opu_conversion_of *c, const struct opu_port_record *port, uint32_t first,
             uint32_t count, const uint8_t *data, uint8_t *values) {
  const size_t step = port->stride[port->axes - 1] * c->user_bytes;
  struct cursor at;
  for (seek(&at, port, first); count;) {
    const uint8_t *user = data + at.at * c->user_bytes;
    const uint32_t some = pass(&at, count);
    if (!inside(c, user, step, some, values)) return 0;
    values += some * c->value_bytes;
    count -= some;
  }
  return 1;
}

void opu_give(const struct opu_conversion_of *c, const struct opu_port_record *port, uint32_t first,
              uint32_t count, const uint8_t *values, uint8_t *data) {
  const size_t step = port->stride[port->axes - 1] * c->user_bytes;
  struct cursor at;
  for (seek(&at, port, first); count;) {
    uint8_t *user = data + at.at * c->user_bytes;
    const uint32_t some = pass(&at, count);
    outside(c, values, some, user, step);
    values += some * c->value_bytes;
    count -= some;
  }
}
