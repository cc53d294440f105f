/* Elements of ports: between the types of the caller and those inside. */
#ifndef OPU_CONVERT_H
#define OPU_CONVERT_H

#include "opu_file.h"

/* What an element becomes. table: 256 results, to be set for each channel. flip: 128 where bytes are
 * unsigned outside. user_bytes, value_bytes: of an element outside and inside. */
struct opu_conversion_of {
  uint32_t kind; /* enum opu_conversion */
  float scale;
  int32_t zero;
  const uint8_t *table;
  uint8_t flip;
  size_t user_bytes, value_bytes;
};

struct opu_conversion_of opu_conversion(const struct opu_port_record *port);

/* Elements of an input, from number `first` of the value on, from the caller's array to `values`.
 * 0: one is a NaN, 1: none is. */
int opu_take(const struct opu_conversion_of *c, const struct opu_port_record *port,
             uint32_t first, uint32_t count, const uint8_t *data, uint8_t *values);

/* Elements of an output, from `values` to the caller's array. */
void opu_give(const struct opu_conversion_of *c, const struct opu_port_record *port,
              uint32_t first, uint32_t count, const uint8_t *values, uint8_t *data);

#endif
