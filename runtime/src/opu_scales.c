/* Constants of channels (docs/machine.md, Parameters of a block). */
#include "opu_native.h"

#define RECORD OPU_PARAM_WORDS

/* A byte of the records from `word` on; only the lanes of a word hold some. */
static uint8_t byte_of(const struct opu_native *e, uint32_t space, size_t word, size_t at) {
  const size_t lanes = e->machine.word_channels;
  return e->memory[space][(word + at / lanes) * e->machine.word_bytes + at % lanes];
}

static int32_t signed_byte(uint8_t byte) { return (int32_t)(byte ^ 0x80u) - 0x80; }

static int32_t int16_of(const struct opu_native *e, uint32_t space, size_t word, size_t at) {
  const int32_t low = byte_of(e, space, word, at);
  return low + 256 * signed_byte(byte_of(e, space, word, at + 1u));
}

/* Without a sign after the array. */
static int32_t mult_of(const struct opu_native *e, uint32_t space, size_t word, size_t at) {
  const int32_t value = int16_of(e, space, word, at);
  return space == OPU_SPACE_PARAM ? value & 0xFFFF : value;
}

static int32_t bias_of(const struct opu_native *e, uint32_t space, size_t word, size_t at) {
  uint32_t low = 0, i;
  for (i = 0; i < 3u; i++) low |= (uint32_t)byte_of(e, space, word, at + i) << (8u * i);
  return (int32_t)low + (1 << 24) * signed_byte(byte_of(e, space, word, at + 3u));
}

int opu_are_scales(const struct opu_native *e, uint32_t space, size_t word, uint32_t blocks,
                   size_t pitch) {
  const int only_shifts = space == OPU_SPACE_PARAM && e->machine.only_shifts;
  const int32_t least = only_shifts || space == OPU_SPACE_PRE ? -(int32_t)OPU_MAX_LEFT_SHIFT : 0;
  uint32_t b, l;
  for (b = 0; b < blocks; b++, word += pitch)
    for (l = 0; l < e->machine.word_channels; l++) {
      const int32_t shift = signed_byte(byte_of(e, space, word, (size_t)RECORD * l + 6u));
      if (shift < least || shift > (int32_t)OPU_MAX_SHIFT) return 0;
      if (only_shifts && mult_of(e, space, word, (size_t)RECORD * l + 4u) > 1) return 0;
    }
  return 1;
}

void opu_read_scales(struct opu_native *e, uint32_t space, size_t word, uint32_t first_lane,
                     uint32_t lanes) {
  const struct opu_scales *s = &e->scales;
  uint32_t l;
  for (l = 0; l < lanes; l++) {
    const size_t at = (size_t)RECORD * (first_lane + l);
    const int32_t shift = signed_byte(byte_of(e, space, word, at + 6u));
    const int64_t left = (int64_t)1 << (shift < 0 ? -shift : 0);
    s->mult[l] = mult_of(e, space, word, at + 4u) * left;
    s->bias[l] = bias_of(e, space, word, at) * (space == OPU_SPACE_PRE ? left : 1);
    s->shift[l] = shift < 0 ? 0 : shift;
    s->some[l] = shift > 0;
    s->half[l] = opu_half((uint32_t)s->shift[l]);
  }
}

void opu_read_gains(const struct opu_native *e, size_t word, struct opu_gain *gains) {
  uint32_t l;
  for (l = 0; l < e->machine.word_channels; l++) {
    const size_t at = (size_t)RECORD * l;
    gains[l].gain = int16_of(e, OPU_SPACE_PARAM, word, at);
    gains[l].gain_shift = byte_of(e, OPU_SPACE_PARAM, word, at + 2u) & OPU_GAIN_SHIFT_MASK;
    gains[l].offset = bias_of(e, OPU_SPACE_PARAM, word, at + 4u);
  }
}

void opu_read_slopes(const struct opu_native *e, size_t word, int32_t *slopes) {
  uint32_t l;
  for (l = 0; l < e->machine.word_channels; l++)
    slopes[l] = int16_of(e, OPU_SPACE_PARAM, word, (size_t)2u * l);
}
