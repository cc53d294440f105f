/* Softmax, LayerNorm and RMSNorm over the channels of a pixel, GroupNorm: the arithmetic of
 * opu_fuse/normalisation.py in the passes of opu_fuse/units/norm.py. */
#include "opu_native.h"

#define OWN(name) (own[OPU_REG_POST_NORM_##name])

#define LARGEST_SHIFT 62

/* Sums and products modulo 2^64. Those of the compiler's programs never wrap; what records and
 * registers of others give must be the bits of the functional engine, too. */
static int64_t sum(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t product(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

/* rne(x / 2^shift) of any x; negative shifts multiply. */
static int64_t rounded(int64_t x, int64_t shift) {
  uint64_t rest;
  int64_t floor;
  if (shift < 0) return shift > -64 ? (int64_t)((uint64_t)x << -shift) : 0;
  if (shift == 0) return x;
  if (shift > LARGEST_SHIFT) shift = LARGEST_SHIFT;
  floor = x >> shift;
  rest = ((uint64_t)x & (((uint64_t)1 << shift) - 1u)) << 1;
  if (rest > (uint64_t)1 << shift || (rest == (uint64_t)1 << shift && (floor & 1))) floor++;
  return floor;
}

/* Position of the leading one; -1 of 0. */
static int32_t exponent_of(uint64_t x) {
  int32_t result = -1;
  for (; x; x >>= 1) result++;
  return result;
}

/* `bits` bits after the leading one; the rest is cut off. */
static uint32_t fraction_of(uint64_t x, int32_t exponent, int32_t bits) {
  if (!x) return 0;
  x = exponent > bits ? x >> (exponent - bits) : x << (bits - exponent);
  return (uint32_t)x & ((1u << bits) - 1u);
}

/* The value `along / 2^bits` of the way down a line. */
static int64_t value_at(const struct opu_line *line, uint32_t along, uint32_t bits) {
  const int64_t fall = ((int64_t)line->fall * along + ((int64_t)1 << (bits - 1u))) >> bits;
  const int64_t half = (int64_t)1 << (OPU_LINE_GUARD - 1u);
  const int64_t value = (line->start - fall + half) >> OPU_LINE_GUARD;
  return value < (int64_t)OPU_INVERSE_MAX ? value : (int64_t)OPU_INVERSE_MAX;
}

/* 1 / total = result / 2^(INVERSE_BITS + exponent). */
static int64_t reciprocal(uint64_t total, int32_t *exponent) {
  const uint32_t rest = OPU_RECIPROCAL_FRACTION - OPU_LINE_BITS;
  uint32_t fraction;
  *exponent = exponent_of(total);
  fraction = fraction_of(total, *exponent, (int32_t)OPU_RECIPROCAL_FRACTION);
  return value_at(opu_reciprocal + (fraction >> rest), fraction & ((1u << rest) - 1u), rest);
}

/* 1 / sqrt(x), likewise. */
static int64_t inverse_root(uint64_t x, int32_t *exponent) {
  const uint32_t rest = OPU_ROOT_FRACTION - OPU_LINE_BITS;
  const int32_t whole = exponent_of(x);
  const uint32_t fraction = fraction_of(x, whole, (int32_t)OPU_ROOT_FRACTION);
  const uint32_t odd = x ? (uint32_t)whole & 1u : 0u;
  *exponent = whole >> 1;
  return value_at(opu_inverse_root + ((odd << OPU_LINE_BITS) + (fraction >> rest)),
                  fraction & ((1u << rest) - 1u), rest);
}

static struct opu_statistics *statistics_of(const struct opu_native *e, uint32_t unit) {
  return e->statistics + (size_t)unit * e->machine.norm_pixels * OPU_QUARTERS;
}

static int finds_maximum(const int32_t *own) {
  const uint32_t op = (uint32_t)OWN(OP);
  return op == OPU_NORM_MAX || op == OPU_NORM_QUARTER_MAX;
}

/* Entry of the table for a value; the index is modulo the table's length. */
static int64_t exponential(const struct opu_native *e, const int32_t *own, int64_t below) {
  const size_t word = (size_t)OWN(TABLE) + ((uint64_t)below & (OPU_EXPONENTIALS - 1u));
  const uint8_t *entry = e->memory[OPU_SPACE_NORM] + word * e->machine.word_bytes;
  return (int64_t)(entry[0] | (uint32_t)entry[1] << 8 | (uint32_t)entry[2] << 16);
}

/* Add the values of a word, or of a quarter, to its statistics. */
static void gather(const struct opu_native *e, const int32_t *own, struct opu_statistics *s,
                   uint32_t lanes, const int8_t *value) {
  const uint32_t op = (uint32_t)OWN(OP);
  const int32_t zero = op == OPU_NORM_SQUARES ? OWN(ZERO) : 0;
  uint32_t l;
  for (l = 0; l < lanes; l++) {
    const int32_t x = value[l] - zero;
    if (finds_maximum(own)) {
      if (x > s->maximum) s->maximum = x;
    } else if (opu_norm_adds_exponentials(own)) {
      s->sum += exponential(e, own, s->maximum - x);
    } else {
      s->sum += x;
      s->squares += x * x;
    }
  }
}

static void results(const struct opu_native *e, const int32_t *own, const struct opu_statistics *s,
                    const struct opu_gain *gains, uint32_t lanes, int8_t *value) {
  const uint32_t op = (uint32_t)OWN(OP);
  const int softmax = op == OPU_NORM_SOFTMAX || op == OPU_NORM_QUARTER_SOFTMAX;
  uint32_t l;
  for (l = 0; l < lanes; l++) {
    int64_t y;
    if (softmax) {
      y = rounded(product(exponential(e, own, s->maximum - value[l]), s->factor), s->shift);
    } else {
      y = rounded(sum(product(value[l], s->factor), -s->offset), s->shift);
      y = rounded(sum(product(y, gains[l].gain), gains[l].offset), (int64_t)gains[l].gain_shift);
    }
    value[l] = (int8_t)opu_limit(sum(y, OWN(ZERO)), -128, 127);
  }
}

/* Whether a pass adds exponentials of the other quarters. */
static int leaves_out(const int32_t *own, uint32_t quarter) {
  const uint32_t odd = (uint32_t)OWN(OP) == OPU_NORM_QUARTER_EXPSUM_ODD;
  return opu_norm_is_of_quarters(own) && opu_norm_adds_exponentials(own) && quarter % 2u != odd;
}

static void of_quarters(const struct opu_native *e, const int32_t *own, struct opu_statistics *s,
                        const struct opu_gain *gains, int8_t *value) {
  const uint32_t lanes = e->machine.word_channels / OPU_QUARTERS;
  uint32_t q;
  for (q = 0; q < OPU_QUARTERS; q++) {
    int8_t *const own_lanes = value + (size_t)q * lanes;
    if (opu_norm_has_results(own))
      results(e, own, s + q, gains, lanes, own_lanes);
    else if (!leaves_out(own, q))
      gather(e, own, s + q, lanes, own_lanes);
  }
}

void opu_norm(const struct opu_native *e, uint32_t unit, const struct opu_gain *gains,
              uint32_t block, size_t pixel, int8_t *value) {
  const int32_t *own = e->registers[OPU_ENGINE_POST][unit];
  const uint32_t idle = block + 1u == POST(BLOCKS) ? (uint32_t)OWN(IDLE) : 0u;
  const uint32_t lanes = e->machine.word_channels - idle;
  struct opu_statistics *s = statistics_of(e, unit) + (opu_norm_is_of_map(own) ? 0u : pixel);
  if (opu_norm_is_of_quarters(own)) {
    of_quarters(e, own, statistics_of(e, unit) + OPU_QUARTERS * pixel, gains, value);
    return;
  }
  if (opu_norm_has_results(own)) {
    results(e, own, s, gains, lanes, value);
    memset(value + lanes, OWN(ZERO), idle);
    return;
  }
  gather(e, own, s, lanes, value);
}

static void finish_softmax(const int32_t *own, struct opu_statistics *s) {
  int32_t exponent;
  const int64_t inverse = reciprocal((uint64_t)s->sum, &exponent);
  const int64_t shift = (int64_t)exponent + OPU_INVERSE_BITS - OWN(SHIFT);
  s->factor = (inverse * (OWN(SCALE) + 1) + (1 << 15)) >> 16;
  s->offset = 0;
  s->shift = shift < (int64_t)OPU_LARGEST_NORM_SHIFT ? shift : (int64_t)OPU_LARGEST_NORM_SHIFT;
}

/* count: of values. The variance is below 2^58. */
static void finish_deviation(const int32_t *own, int64_t count, struct opu_statistics *s) {
  const int rms = (uint32_t)OWN(OP) == OPU_NORM_SQUARES;
  const int64_t total = rms ? count * OWN(ZERO) : s->sum;
  const int64_t spread = count * s->squares - (rms ? 0 : total * total);
  const int64_t epsilon = (int64_t)OWN(SCALE) * ((int64_t)1 << OWN(SHIFT));
  int32_t exponent, narrowed;
  const uint64_t variance = ((uint64_t)spread << OPU_VARIANCE_FRACTION) + (uint64_t)epsilon;
  const int64_t inverse = inverse_root(variance, &exponent);
  narrowed = exponent_of((uint64_t)(count * inverse)) + 1 - (int32_t)OPU_FACTOR_BITS;
  if (narrowed < 0) narrowed = 0;
  s->factor = rounded(count * inverse, narrowed);
  s->offset = rounded(total * inverse, narrowed);
  s->shift = (int64_t)OPU_INVERSE_BITS + exponent - (int64_t)(OPU_VARIANCE_FRACTION / 2u) -
             (int64_t)OPU_NORMALISED_FRACTION - narrowed;
}

/* Records that a pass writes. */
static uint32_t records_of(const struct opu_native *e, const int32_t *own) {
  const uint32_t of_pixel = opu_norm_is_of_quarters(own) ? OPU_QUARTERS : 1u;
  return opu_norm_is_of_map(own) ? 1u : of_pixel * POST(OUT_ROWS) * POST(OUT_COLS);
}

void opu_start_norm(const struct opu_native *e, uint32_t unit) {
  const int32_t *own = e->registers[OPU_ENGINE_POST][unit];
  struct opu_statistics *s = statistics_of(e, unit);
  const uint32_t pixels = records_of(e, own);
  const int is_max = finds_maximum(own);
  uint32_t i;
  if (opu_norm_has_results(own)) return;
  for (i = 0; i < pixels; i++) {
    s[i].sum = s[i].squares = 0;
    if (is_max) s[i].maximum = -128;
  }
}

void opu_finish_norm(const struct opu_native *e, uint32_t unit) {
  const int32_t *own = e->registers[OPU_ENGINE_POST][unit];
  const int64_t channels = (int64_t)POST(BLOCKS) * e->machine.word_channels - OWN(IDLE);
  const int64_t of_record = opu_norm_is_of_map(own) ? (int64_t)POST(OUT_ROWS) * POST(OUT_COLS) : 1;
  const int64_t count = channels * of_record;
  const uint32_t pixels = records_of(e, own);
  struct opu_statistics *s = statistics_of(e, unit);
  uint32_t i;
  if (finds_maximum(own) || opu_norm_has_results(own)) return;
  for (i = 0; i < pixels; i++) {
    if (leaves_out(own, i % OPU_QUARTERS)) continue;
    if (opu_norm_adds_exponentials(own))
      finish_softmax(own, s + i);
    else
      finish_deviation(own, count, s + i);
  }
}
