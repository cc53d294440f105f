/* run of the post engine: partial sums through the chain (docs/machine.md, post), word by word. */
#include "opu_native.h"

#if OPU_STAGES != 9u
#error "a kind of stage is new: see run_stages"
#endif

#define OWN(name) (own[OPU_REG_POST_##name])

#define LARGEST_SHIFT64 62u
#define LARGEST_SHIFT32 30

static void requantize(const struct opu_native *e, const int32_t *OPU_RESTRICT sums,
                       int8_t *OPU_RESTRICT value) {
  const struct opu_scales *s = &e->scales;
  const int64_t *OPU_RESTRICT bias = s->bias, *OPU_RESTRICT mult = s->mult;
  const int64_t *OPU_RESTRICT shift = s->shift;
  const int64_t *OPU_RESTRICT half = s->half, *OPU_RESTRICT some = s->some;
  const int64_t zero = SIGNED(POST, REQUANT_ZERO);
  const uint32_t lanes = e->machine.word_channels;
  uint32_t l;
  for (l = 0; l < lanes; l++) {
    const int64_t total = (sums[l] + bias[l]) * mult[l];
    value[l] = (int8_t)opu_limit(opu_rounded(total, shift[l], half[l], some[l]) + zero, -128, 127);
  }
}

/* Slopes on both sides of the zero point: that above it for all lanes, below it for each. */
static void activate(int8_t *OPU_RESTRICT value, uint32_t lanes, int32_t x_zero, int32_t pos,
                     const int32_t *OPU_RESTRICT slopes, int32_t neg, int32_t shift, int32_t y_zero,
                     int32_t lo, int32_t hi) {
  const int32_t s = shift > LARGEST_SHIFT32 ? LARGEST_SHIFT32 : shift;
  const int32_t half = (int32_t)opu_half((uint32_t)s), some = s > 0;
  uint32_t l;
  for (l = 0; l < lanes; l++) {
    const int32_t centred = value[l] - x_zero;
    const int32_t below = slopes ? slopes[l] : neg;
    const int32_t product = centred * (centred < 0 ? below : pos);
    value[l] = (int8_t)opu_limit32(opu_rounded32(product, s, half, some) + y_zero, lo, hi);
  }
}

static void act(const struct opu_native *e, const int32_t *own, int8_t *value) {
  activate(value, e->machine.word_channels, OWN(ACT_X_ZERO), OWN(ACT_POS), 0, OWN(ACT_NEG),
           OWN(ACT_SHIFT), OWN(ACT_Y_ZERO), OWN(ACT_LO), OWN(ACT_HI));
}

static void prelu(const struct opu_native *e, const int32_t *own, uint32_t stage, int8_t *value) {
  const uint32_t lanes = e->machine.word_channels;
  activate(value, lanes, OWN(PRELU_X_ZERO), OWN(PRELU_POS), e->slopes + (size_t)stage * lanes, 0,
           OWN(PRELU_SHIFT), OWN(PRELU_Y_ZERO), -128, 127);
}

static void add(const int32_t *own, int8_t *OPU_RESTRICT a, const int8_t *OPU_RESTRICT b,
                uint32_t lanes) {
  const int32_t shift = OWN(RES_SHIFT) > LARGEST_SHIFT32 ? LARGEST_SHIFT32 : OWN(RES_SHIFT);
  const int32_t half = (int32_t)opu_half((uint32_t)shift), some = shift > 0;
  const int32_t a_mult = OWN(RES_NEGATIVE) & 1 ? -OWN(RES_A_MULT) : OWN(RES_A_MULT);
  const int32_t b_mult = OWN(RES_NEGATIVE) & 2 ? -OWN(RES_B_MULT) : OWN(RES_B_MULT);
  const int32_t a_zero = OWN(RES_A_ZERO), b_zero = OWN(RES_B_ZERO), y_zero = OWN(RES_Y_ZERO);
  uint32_t l;
  for (l = 0; l < lanes; l++) {
    const int32_t total = (a[l] - a_zero) * a_mult + (b[l] - b_zero) * b_mult;
    a[l] = (int8_t)opu_limit32(opu_rounded32(total, shift, half, some) + y_zero, -128, 127);
  }
}

static void multiply(const int32_t *own, int8_t *OPU_RESTRICT a, const int8_t *OPU_RESTRICT b,
                     uint32_t lanes) {
  const uint32_t shift = opu_min((uint32_t)OWN(RES_SHIFT), LARGEST_SHIFT64);
  const int64_t half = opu_half(shift), some = shift > 0u, mult = OWN(RES_A_MULT);
  const int64_t a_zero = OWN(RES_A_ZERO), b_zero = OWN(RES_B_ZERO), y_zero = OWN(RES_Y_ZERO);
  uint32_t l;
  for (l = 0; l < lanes; l++) {
    const int64_t product = (a[l] - a_zero) * (b[l] - b_zero) * mult;
    a[l] = (int8_t)opu_limit(opu_rounded(product, shift, half, some) + y_zero, -128, 127);
  }
}

/* A pixel of `width` lanes to each slot of a word; it may be one of them. */
static void copy_to_slots(int8_t *word, const int8_t *pixel, uint32_t width, uint32_t lanes) {
  uint32_t l;
  memmove(word, pixel, width);
  for (l = width; l < lanes; l += width) memcpy(word + l, word, width);
}

static void residual(const struct opu_native *e, const int32_t *own, uint32_t block, int64_t y,
                     int64_t x, int8_t *value) {
  const uint32_t lanes = e->machine.word_channels, spread = opu_spread_pixels(POST(SPREAD));
  size_t word = (size_t)OWN(RES) + (size_t)block * (uint32_t)OWN(RES_BLOCK_PITCH);
  const int8_t *other;
  uint32_t l;
  if (!OWN(RES_BROADCAST)) word += (size_t)(y * OWN(RES_ROW_PITCH) + x);
  other = (const int8_t *)e->memory[OPU_SPACE_RESIDUAL] + word * e->machine.word_bytes;
  if (spread) {
    const uint32_t width = lanes / spread;
    copy_to_slots(e->operand, other + (POST(SPREAD) - spread) * width, width, lanes);
    other = e->operand;
  }
  if (OWN(RES_KIND) == (int32_t)OPU_RESIDUAL_ADD) {
    add(own, value, other, lanes);
  } else if (OWN(RES_KIND) == (int32_t)OPU_RESIDUAL_MULTIPLY) {
    multiply(own, value, other, lanes);
  } else {
    for (l = 0; l < lanes; l++) value[l] = value[l] > other[l] ? value[l] : other[l];
  }
}

static void look_up(const struct opu_native *e, const int32_t *own, int8_t *value) {
  const size_t word = e->machine.word_bytes;
  const int8_t *entries = (const int8_t *)e->memory[OPU_SPACE_TABLE] + (size_t)OWN(TABLE) * word;
  uint32_t l;
  for (l = 0; l < e->machine.word_channels; l++)
    value[l] = entries[(size_t)(value[l] + (int32_t)OPU_TABLE_WORDS / 2) * word + l];
}

/* Stages first .. end - 1 of a word at pixel (y, x): of the tile before a pool, else of the output.
 * sums: the accumulators, for the requantiser. */
static void run_stages(const struct opu_native *e, const struct opu_chain *c, uint32_t first,
                       uint32_t end, uint32_t block, int64_t y, int64_t x, const int32_t *sums,
                       int8_t *value) {
  uint32_t i;
  for (i = first; i < end; i++) {
    const uint32_t code = c->codes[i];
    const int32_t *own = opu_own(e, code);
    switch (e->machine.code_stage[code]) {
      case OPU_STAGE_REQUANT:
        requantize(e, sums, value);
        break;
      case OPU_STAGE_ACT:
        act(e, own, value);
        break;
      case OPU_STAGE_PRELU:
        prelu(e, own, i, value);
        break;
      case OPU_STAGE_RESIDUAL:
        residual(e, own, block, y, x, value);
        break;
      case OPU_STAGE_TABLE:
        look_up(e, own, value);
        break;
      case OPU_STAGE_NORM:
        /* A pass of a norm has no pool: (y, x) is a pixel of the output. */
        opu_norm(e, e->machine.code_unit[code], e->gains + (size_t)i * e->machine.word_channels,
                 block, (size_t)y * POST(OUT_COLS) + (size_t)x, value);
        break;
      default:
        break;
    }
  }
}

/* The value of a tile pixel after the stages before `end`. column: of its partial sums; at_y, at_x:
 * its coordinates for stages with a second operand. */
static void pixel(const struct opu_native *e, const struct opu_chain *c, uint32_t end,
                  uint32_t block, int64_t y, int64_t column, int64_t at_y, int64_t at_x,
                  int8_t *value) {
  const uint32_t lanes = e->machine.word_channels;
  const size_t word = POST(PSUM) + (size_t)block * POST(PSUM_BLOCK_PITCH) +
                      (size_t)(y * POST(PSUM_ROW_PITCH) + column);
  const int32_t *sums = (const int32_t *)(const void *)e->memory[OPU_SPACE_PSUM] + word * lanes;
  if (!c->requant) {
    uint32_t l;
    for (l = 0; l < lanes; l++) value[l] = (int8_t)(((uint32_t)sums[l] & 255u) ^ 128u) - 128;
  }
  run_stages(e, c, 0, end, block, at_y, at_x, sums, value);
}

/* Larger of neighbouring pixels of a word, at most the value that is known of them. */
static void fold(const int8_t *value, uint32_t lanes, uint32_t slots, int8_t *result) {
  const uint32_t width = lanes / slots;
  uint32_t pair, l;
  for (pair = 0; pair < slots / 2u; pair++)
    for (l = 0; l < width; l++) {
      const int8_t left = value[2u * pair * width + l], right = value[(2u * pair + 1u) * width + l];
      const int8_t larger = left > right ? left : right;
      if (larger > result[pair * width + l]) result[pair * width + l] = larger;
    }
}

/* The window of output pixel (oy, ox), in e->pooled. */
static void pool(struct opu_native *e, const struct opu_chain *c, uint32_t block, uint32_t oy,
                 uint32_t ox) {
  const int32_t *own = opu_own(e, c->codes[c->pool]);
  const uint32_t lanes = e->machine.word_channels, slots = POST(POOL_SLOTS);
  const int average = OWN(POOL_KIND) == (int32_t)OPU_POOL_AVERAGE;
  const int32_t zero = OWN(POOL_X_ZERO);
  const int64_t y0 = SIGNED(POST, ORIGIN_Y) + (int64_t)oy * POST(STRIDE_Y);
  const int64_t x0 = SIGNED(POST, ORIGIN_X) + (int64_t)ox * POST(STRIDE_X);
  uint32_t wy, wx, l;
  memset(e->sums, 0, lanes * sizeof *e->sums);
  memset(e->pooled, 0x80, lanes);
  for (wy = 0; wy < POST(WIN_ROWS); wy++)
    for (wx = 0; wx < POST(WIN_COLS); wx++) {
      const int64_t y = y0 + wy, x = x0 + wx;
      if (y < 0 || x < 0 || y >= (int64_t)POST(IN_ROWS) || x >= (int64_t)POST(IN_COLS)) continue;
      pixel(e, c, c->pool, block, y, x, y, x, e->value);
      if (average)
        for (l = 0; l < lanes; l++) e->sums[l] += e->value[l] - zero;
      else if (slots)
        fold(e->value, lanes, slots, e->pooled + wx * (lanes / 2u));
      else
        for (l = 0; l < lanes; l++)
          if (e->value[l] > e->pooled[l]) e->pooled[l] = e->value[l];
    }
  if (average) {
    const uint32_t shift = opu_min((uint32_t)OWN(POOL_SHIFT), LARGEST_SHIFT64);
    const int64_t half = opu_half(shift), some = shift > 0u, mult = OWN(POOL_MULT);
    for (l = 0; l < lanes; l++) {
      const int64_t mean = opu_rounded(e->sums[l] * mult, shift, half, some) + OWN(POOL_Y_ZERO);
      e->pooled[l] = (int8_t)opu_limit(mean, -128, 127);
    }
  }
}

/* Constants of a block for all stages. */
static void read_constants(struct opu_native *e, const struct opu_chain *c, size_t word) {
  const uint32_t lanes = e->machine.word_channels;
  uint32_t i;
  for (i = 0; i < c->count; i++) {
    const uint32_t stage = e->machine.code_stage[c->codes[i]];
    const size_t first = word + c->first[i], row = (size_t)i * lanes;
    if (stage == OPU_STAGE_REQUANT) opu_read_scales(e, OPU_SPACE_PARAM, first, 0, lanes);
    if (stage == OPU_STAGE_NORM) opu_read_gains(e, first, e->gains + row);
    if (stage == OPU_STAGE_PRELU) opu_read_slopes(e, first, e->slopes + row);
  }
}

static void write(struct opu_native *e, uint32_t block, uint32_t oy, uint32_t ox,
                  const int8_t *value) {
  const size_t word = e->machine.word_bytes, lanes = e->machine.word_channels;
  size_t at = POST(OUT) + (size_t)block * POST(OUT_BLOCK_PITCH) + (size_t)oy * POST(OUT_ROW_PITCH);
  memcpy(e->memory[OPU_SPACE_OUTPUT] + (at + ox) * word, value, lanes);
  if (!POST(KEEP)) return;
  at = POST(KEEP_AT) + (size_t)block * POST(KEEP_BLOCK_PITCH) + (size_t)oy * POST(KEEP_ROW_PITCH);
  memcpy(e->memory[OPU_SPACE_FEATURE] + (at + ox) * word, value, lanes);
}

/* Output pixel (oy, ox) of a block. */
static void output(struct opu_native *e, const struct opu_chain *c, uint32_t block, uint32_t oy,
                   uint32_t ox) {
  const uint32_t spread = opu_spread_pixels(POST(SPREAD)), lanes = e->machine.word_channels;
  int8_t *value = e->value;
  if (c->pool < OPU_ORDER_STAGES) {
    value = e->pooled;
    pool(e, c, block, oy, ox);
    run_stages(e, c, c->pool + 1u, c->count, block, oy, ox, 0, value);
  } else {
    const int64_t y = SIGNED(POST, ORIGIN_Y) + (int64_t)oy * POST(STRIDE_Y);
    const int64_t x = SIGNED(POST, ORIGIN_X) + (int64_t)ox * POST(STRIDE_X);
    pixel(e, c, c->count, block, y, spread ? x / spread : x, oy, ox, value);
    if (spread)
      copy_to_slots(value, value + ox % spread * (lanes / spread), lanes / spread, lanes);
  }
  if (c->writes) write(e, block, oy, ox, value);
}

uint32_t opu_execute_post(struct opu_native *e) {
  const struct opu_chain c = opu_chain_of(e);
  uint32_t block, oy, ox, i;
  if (c.requant && !opu_are_scales(e, OPU_SPACE_PARAM, POST(PARAM), POST(BLOCKS), c.param_words))
    return OPU_ERR_PARAMETER;
  for (i = 0; i < c.count; i++)
    if (e->machine.code_stage[c.codes[i]] == OPU_STAGE_NORM)
      opu_start_norm(e, e->machine.code_unit[c.codes[i]]);
  for (block = 0; block < POST(BLOCKS); block++) {
    read_constants(e, &c, POST(PARAM) + (size_t)block * c.param_words);
    for (oy = 0; oy < POST(OUT_ROWS); oy++)
      for (ox = 0; ox < POST(OUT_COLS); ox++) output(e, &c, block, oy, ox);
  }
  for (i = 0; i < c.count; i++)
    if (e->machine.code_stage[c.codes[i]] == OPU_STAGE_NORM)
      opu_finish_norm(e, e->machine.code_unit[c.codes[i]]);
  return OPU_ERR_NONE;
}
