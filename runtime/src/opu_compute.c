/* conv, copy and depthwise (docs/machine.md, compute).
 *
 * conv is a product of matrices: the operands of some pixels are gathered (im2row), the weights
 * are repacked so that the terms of an output channel follow each other, and both are multiplied
 * in small tiles. Long sums are cut into chunks of taps; a tap is a kernel position of an input
 * segment. */
#include "opu_dot.h"

/* The pixels of the output whose operands are gathered. */
struct panel {
  uint32_t pixels;
  int64_t y[OPU_PANEL], x[OPU_PANEL]; /* tile position of kernel row 0, kernel column 0 */
  size_t sums[OPU_PANEL];             /* of lane 0 of the first output group */
};

static uint32_t ceil_to(uint32_t value, uint32_t step) { return (value + step - 1u) / step * step; }

static int32_t *psum_of(struct opu_native *e) {
  return (int32_t *)(void *)e->memory[OPU_SPACE_PSUM];
}

static opu_feature feature_of(int32_t value) { return (opu_feature)(value + OPU_FEATURE_OFFSET); }

static void copy_features(opu_feature *OPU_RESTRICT to, const int8_t *OPU_RESTRICT from,
                          uint32_t count) {
  uint32_t i;
  for (i = 0; i < count; i++) to[i] = feature_of(from[i]);
}

static void fill(opu_feature *to, int32_t value, uint32_t count) {
  uint32_t i;
  for (i = 0; i < count; i++) to[i] = feature_of(value);
}

/* Lanes [*first, *end) of a pixel in column x that are inside the tile, among [first, end). */
static void lanes_inside(const struct opu_native *e, int64_t x, uint32_t slot, int64_t *first,
                         int64_t *end) {
  const int64_t low = -x * slot, high = (COMPUTE(IN_COLS) - x) * (int64_t)slot;
  if (*first < low) *first = low;
  if (*end > high) *end = high;
}

/* The word of a row of the tile, as bytes: column x begins at x * slot. */
static const int8_t *row_of(const struct opu_native *e, uint32_t block, int64_t y) {
  const size_t word = COMPUTE(FEATURE) + (size_t)block * COMPUTE(BLOCK_PITCH) +
                      (size_t)y * COMPUTE(ROW_PITCH);
  return (const int8_t *)e->memory[OPU_SPACE_FEATURE] + word * e->machine.word_bytes;
}

/* Lanes first .. first + count - 1 of pixel (y, x) of a block, padding where it is outside. */
static void read_pixel(const struct opu_native *e, uint32_t block, uint32_t first, uint32_t count,
                       int64_t y, int64_t x, opu_feature *to) {
  const uint32_t slot = 1u << COMPUTE(SLOT_LOG2);
  const int32_t pad = (int32_t)SIGNED(COMPUTE, PAD_VALUE);
  int64_t low = first, high = (int64_t)first + count;
  if (y < 0 || y >= (int64_t)COMPUTE(IN_ROWS)) {
    fill(to, pad, count);
    return;
  }
  lanes_inside(e, x, slot, &low, &high);
  if (low >= high) {
    fill(to, pad, count);
    return;
  }
  if (low > (int64_t)first) fill(to, pad, (uint32_t)(low - first));
  copy_features(to + (low - first), row_of(e, block, y) + x * (int64_t)slot + low,
                (uint32_t)(high - low));
  if (high < (int64_t)first + count)
    fill(to + (high - first), pad, (uint32_t)((int64_t)first + count - high));
}

/* A unit of the pre chain on lanes of a pixel: constants of the channels, or a gate. */
static void scale(const struct opu_native *e, uint32_t unit, opu_feature *lanes, uint32_t count) {
  const int32_t *own = e->registers[OPU_ENGINE_COMPUTE][unit];
  const int64_t zero = own[OPU_REG_COMPUTE_PRE_ZERO];
  const int64_t lo = own[OPU_REG_COMPUTE_PRE_LO], hi = own[OPU_REG_COMPUTE_PRE_HI];
  const struct opu_scales *s = &e->scales;
  uint32_t l;
  for (l = 0; l < count; l++) {
    const int64_t total = (lanes[l] - OPU_FEATURE_OFFSET) * s->mult[l] + s->bias[l];
    const int64_t value = opu_rounded(total, s->shift[l], s->half[l], s->some[l]) + zero;
    lanes[l] = feature_of((int32_t)opu_limit(value, lo, hi));
  }
}

static void multiply_by_gate(const struct opu_native *e, uint32_t block, uint32_t first,
                             opu_feature *lanes, uint32_t count) {
  const int8_t *gate = (const int8_t *)e->memory[OPU_SPACE_PRE] +
                       ((size_t)COMPUTE(PRE_PARAM) + block) * e->machine.word_bytes + first;
  const int64_t lo = SIGNED(COMPUTE, PRE_LO), hi = SIGNED(COMPUTE, PRE_HI);
  const int64_t shift = COMPUTE(GATE_SHIFT), half = opu_half(COMPUTE(GATE_SHIFT)), some = shift > 0;
  uint32_t l;
  for (l = 0; l < count; l++) {
    const int64_t a = lanes[l] - OPU_FEATURE_OFFSET - SIGNED(COMPUTE, GATE_X_ZERO);
    const int64_t factor = (gate[l] - SIGNED(COMPUTE, GATE_ZERO)) * (int64_t)COMPUTE(GATE_MULT);
    const int64_t value = opu_rounded(a * factor, shift, half, some) + SIGNED(COMPUTE, PRE_ZERO);
    lanes[l] = feature_of((int32_t)opu_limit(opu_limit(value, -128, 127), lo, hi));
  }
}

/* A tap of the panel through the pre chain; padding does not pass it. */
static void pre_chain(struct opu_native *e, const struct panel *p, uint32_t block, uint32_t first,
                      uint32_t count, int64_t dy, int64_t dx, opu_feature *to, uint32_t pitch) {
  uint32_t unit, i;
  for (unit = 0; unit < COMPUTE(PRE); unit++) {
    if (!COMPUTE(GATE)) {
      const size_t record = (size_t)COMPUTE(PRE) * block + unit;
      opu_read_scales(e, OPU_SPACE_PRE, COMPUTE(PRE_PARAM) + OPU_PARAM_WORDS * record, first,
                      count);
    }
    for (i = 0; i < p->pixels; i++) {
      const int64_t y = p->y[i] + dy, x = p->x[i] + dx;
      if (y < 0 || x < 0 || y >= (int64_t)COMPUTE(IN_ROWS) || x >= (int64_t)COMPUTE(IN_COLS))
        continue;
      if (COMPUTE(GATE))
        multiply_by_gate(e, block, first, to + (size_t)i * pitch, count);
      else
        scale(e, unit, to + (size_t)i * pitch, count);
    }
    if (COMPUTE(GATE)) break;
  }
}

/* Operands of taps first .. end - 1 of the panel, a row of `pitch` for each pixel. */
static void gather(struct opu_native *e, const struct opu_sweep *s, const struct panel *p,
                   uint32_t first, uint32_t end, uint32_t pitch) {
  const uint32_t segments = e->machine.word_channels / s->ic;
  const uint32_t terms = (end - first) * s->ic;
  uint32_t tap, i;
  for (tap = first; tap < end; tap++) {
    const uint32_t kx = tap % s->kernel_cols, ky = tap / s->kernel_cols % s->kernel_rows;
    const uint32_t step = s->first_step + tap / (s->kernel_cols * s->kernel_rows);
    const uint32_t block = step / segments, lane = step % segments * s->ic;
    const int64_t dy = (int64_t)ky * COMPUTE(DILATION_Y), dx = (int64_t)kx * COMPUTE(DILATION_X);
    opu_feature *to = e->features + (size_t)(tap - first) * s->ic;
    for (i = 0; i < p->pixels; i++)
      read_pixel(e, block, lane, s->ic, p->y[i] + dy, p->x[i] + dx, to + (size_t)i * pitch);
    if (COMPUTE(PRE)) pre_chain(e, p, block, lane, s->ic, dy, dx, to, pitch);
  }
  if (terms < pitch)
    for (i = 0; i < p->pixels; i++)
      memset(e->features + (size_t)i * pitch + terms, 0, (pitch - terms) * sizeof(opu_feature));
}

/* Copy a row of weights; returns its sum. */
static int32_t copy_weights(opu_weight *OPU_RESTRICT to, const int8_t *OPU_RESTRICT from,
                            uint32_t count) {
  int32_t sum = 0;
  uint32_t i;
  for (i = 0; i < count; i++) {
    to[i] = from[i];
    sum += from[i];
  }
  return sum;
}

/* Weights of taps first .. end - 1 as rows of `pitch`, one for each output channel, and what the
 * offset of the features adds to a sum. */
static void pack(struct opu_native *e, const struct opu_sweep *s, uint32_t first, uint32_t end,
                 uint32_t pitch, opu_weight *to, int32_t *corrections) {
  const size_t row_bytes = (size_t)s->row_words * e->machine.weight_width;
  const size_t tap_bytes = row_bytes * s->groups;
  const int8_t *from = (const int8_t *)e->memory[OPU_SPACE_WEIGHT] +
                       (size_t)COMPUTE(WEIGHT) * e->machine.weight_width;
  const uint32_t ic = s->ic, taps = end - first;
  uint32_t g, o, tap;
  for (g = 0; g < s->groups; g++)
    for (o = 0; o < s->oc; o++) {
      const int8_t *row = from + first * tap_bytes + g * row_bytes + (size_t)o * ic;
      int32_t sum = 0;
      for (tap = 0; tap < taps; tap++, row += tap_bytes)
        sum += copy_weights(to + (size_t)tap * ic, row, ic);
      memset(to + (size_t)taps * ic, 0, (pitch - (size_t)taps * ic) * sizeof(opu_weight));
      to += pitch;
      *corrections = -OPU_FEATURE_OFFSET * sum;
      corrections++;
    }
}

/* A whole tile whose output channels are neighbours. */
static void add_tile(int32_t *OPU_RESTRICT psum, const int32_t *OPU_RESTRICT sums,
                     const int32_t *OPU_RESTRICT corrections, int overwrite) {
  uint32_t j;
  if (overwrite)
    for (j = 0; j < OPU_TILE; j++) psum[j] = opu_wrapped(sums[j], corrections[j]);
  else
    for (j = 0; j < OPU_TILE; j++)
      psum[j] = opu_wrapped(psum[j], opu_wrapped(sums[j], corrections[j]));
}

/* Add the products of the panel to the partial sums; overwrite: the first ones. */
static void multiply(struct opu_native *e, const struct opu_sweep *s, const struct panel *p,
                     uint32_t pitch, const opu_weight *weights, const int32_t *corrections,
                     int overwrite) {
  const uint32_t channels = s->groups * s->oc, lanes = e->machine.word_channels;
  int32_t *psum = psum_of(e);
  int32_t sums[OPU_TILE][OPU_TILE];
  uint32_t o, i, k, j;
  for (o = 0; o < channels; o += OPU_TILE) {
    const uint32_t width = opu_min(OPU_TILE, channels - o);
    size_t at[OPU_TILE];
    int whole;
    for (j = 0; j < width; j++) {
      const uint32_t channel = s->first_group * s->oc + o + j;
      at[j] = (size_t)(channel / lanes) * COMPUTE(PSUM_BLOCK_PITCH) * lanes + channel % lanes;
    }
    whole = width == OPU_TILE && at[OPU_TILE - 1u] - at[0] == OPU_TILE - 1u;
    for (i = 0; i < p->pixels; i += OPU_TILE) {
      const uint32_t height = opu_min(OPU_TILE, p->pixels - i);
      opu_multiply(e->features + (size_t)i * pitch, weights + (size_t)o * pitch, pitch, sums);
      if (whole) {
        for (k = 0; k < height; k++)
          add_tile(psum + p->sums[i + k] + at[0], sums[k], corrections + o, overwrite);
        continue;
      }
      for (k = 0; k < height; k++)
        for (j = 0; j < width; j++) {
          int32_t *sum = psum + p->sums[i + k] + at[j];
          *sum = opu_wrapped(overwrite ? 0 : *sum, opu_wrapped(sums[k][j], corrections[o + j]));
        }
    }
  }
}

static void place(const struct opu_native *e, const struct opu_sweep *s, struct panel *p,
                  size_t first, size_t count) {
  const uint32_t cols = COMPUTE(OUT_COLS), lanes = e->machine.word_channels;
  uint32_t i;
  p->pixels = (uint32_t)(count - first < OPU_PANEL ? count - first : OPU_PANEL);
  for (i = 0; i < p->pixels; i++) {
    const size_t oy = (first + i) / cols, ox = (first + i) % cols;
    p->y[i] = SIGNED(COMPUTE, ORIGIN_Y) + (int64_t)(oy * COMPUTE(STRIDE_Y));
    p->x[i] = SIGNED(COMPUTE, ORIGIN_X) + (int64_t)(ox * COMPUTE(STRIDE_X));
    p->sums[i] = (COMPUTE(PSUM) + oy * (cols / s->px) + ox / s->px) * (size_t)lanes +
                 ox % s->px * (lanes / s->px);
  }
}

static int is_packed(const struct opu_native *e, const struct opu_sweep *s, uint32_t taps) {
  const struct opu_packed *p = &e->packed;
  return p->taps == taps && p->weight == COMPUTE(WEIGHT) && p->groups == s->groups &&
         p->ic == s->ic && p->oc == s->oc;
}

static void conv(struct opu_native *e, const struct opu_sweep *s) {
  const uint32_t taps = s->steps * s->kernel_rows * s->kernel_cols;
  const uint32_t chunk = opu_min(taps, opu_max(1u, OPU_CHUNK_TERMS / s->ic));
  const uint32_t channels = ceil_to(s->groups * s->oc, OPU_TILE);
  const size_t pixels = (size_t)COMPUTE(OUT_ROWS) * COMPUTE(OUT_COLS);
  const int known = is_packed(e, s, taps);
  opu_weight *weights = e->weights;
  int32_t *corrections = e->corrections;
  struct panel panel;
  uint32_t tap;
  size_t first;
  for (tap = 0; tap < taps; tap += chunk) {
    const uint32_t end = opu_min(taps, tap + chunk);
    const uint32_t pitch = ceil_to((end - tap) * s->ic, OPU_TERMS);
    const int overwrite = tap == 0u && !COMPUTE(ACCUMULATE);
    if (!known) pack(e, s, tap, end, pitch, weights, corrections);
    for (first = 0; first < pixels; first += OPU_PANEL) {
      place(e, s, &panel, first, pixels);
      gather(e, s, &panel, tap, end, pitch);
      multiply(e, s, &panel, pitch, weights, corrections, overwrite);
    }
    weights += (size_t)channels * pitch;
    corrections += channels;
  }
  e->packed.weight = COMPUTE(WEIGHT);
  e->packed.taps = taps;
  e->packed.groups = s->groups;
  e->packed.ic = s->ic;
  e->packed.oc = s->oc;
}

/* The filters of a part, position by position. */
static void read_filter(struct opu_native *e, const struct opu_sweep *s, uint32_t row) {
  const uint32_t side = e->machine.window_side, units = e->machine.multipliers;
  const int8_t *from = (const int8_t *)e->memory[OPU_SPACE_WEIGHT] +
                       ((size_t)COMPUTE(WEIGHT) + (size_t)row * s->row_words) *
                           e->machine.weight_width;
  uint32_t ky, kx, l;
  for (ky = 0; ky < s->kernel_rows; ky++)
    for (kx = 0; kx < s->kernel_cols; kx++)
      for (l = 0; l < s->ic; l++)
        e->filter[(size_t)(ky * s->kernel_cols + kx) * s->ic + l] =
            from[(size_t)l * units + ky * side + kx];
}

static void add_products(int32_t *OPU_RESTRICT sums, const int8_t *OPU_RESTRICT values,
                         const int32_t *OPU_RESTRICT filter, uint32_t count) {
  uint32_t l;
  for (l = 0; l < count; l++) sums[l] += values[l] * filter[l];
}

static void add_padding(int32_t *OPU_RESTRICT sums, int32_t pad, const int32_t *OPU_RESTRICT filter,
                        uint32_t count) {
  uint32_t l;
  for (l = 0; l < count; l++) sums[l] += pad * filter[l];
}

/* One pixel of a part: its window, lane by lane. */
static void window(struct opu_native *e, const struct opu_sweep *s, uint32_t block, uint32_t lane,
                   int64_t y0, int64_t x0) {
  const int32_t pad = (int32_t)SIGNED(COMPUTE, PAD_VALUE);
  const int32_t *filter = e->filter;
  uint32_t ky, kx;
  memset(e->sums, 0, s->ic * sizeof *e->sums);
  for (ky = 0; ky < s->kernel_rows; ky++)
    for (kx = 0; kx < s->kernel_cols; kx++, filter += s->ic) {
      const int64_t y = y0 + (int64_t)ky * COMPUTE(DILATION_Y);
      const int64_t x = x0 + (int64_t)kx * COMPUTE(DILATION_X);
      if (y < 0 || x < 0 || y >= (int64_t)COMPUTE(IN_ROWS) || x >= (int64_t)COMPUTE(IN_COLS))
        add_padding(e->sums, pad, filter, s->ic);
      else
        add_products(e->sums, row_of(e, block, y) + x * (int64_t)e->machine.word_bytes + lane,
                     filter, s->ic);
    }
}

static void depthwise(struct opu_native *e, const struct opu_sweep *s) {
  const uint32_t lanes = e->machine.word_channels, parts = lanes / s->ic;
  const uint32_t rows = COMPUTE(OUT_ROWS), cols = COMPUTE(OUT_COLS);
  uint32_t step, n, l;
  size_t oy, ox;
  for (step = 0; step < s->steps; step++) {
    const uint32_t block = (s->first_step + step) / parts;
    const uint32_t lane = (s->first_step + step) % parts * s->ic;
    for (n = 0; n < s->at_once; n++) {
      read_filter(e, s, step * s->at_once + n);
      for (oy = 0; oy < rows; oy++)
        for (ox = 0; ox < cols; ox++) {
          const size_t word = COMPUTE(PSUM) + (size_t)block * COMPUTE(PSUM_BLOCK_PITCH) +
                              (oy * s->at_once + n) * cols + ox;
          int32_t *psum = psum_of(e) + word * lanes + lane;
          window(e, s, block, lane, SIGNED(COMPUTE, ORIGIN_Y) + (int64_t)(oy * COMPUTE(STRIDE_Y)),
                 SIGNED(COMPUTE, ORIGIN_X) + (int64_t)(ox * COMPUTE(STRIDE_X)));
          for (l = 0; l < s->ic; l++)
            psum[l] = opu_wrapped(COMPUTE(ACCUMULATE) ? psum[l] : 0, e->sums[l]);
        }
    }
  }
}

static void copy(struct opu_native *e, const struct opu_sweep *s) {
  const uint32_t lanes = e->machine.word_channels, cols = COMPUTE(OUT_COLS);
  uint32_t block, l;
  size_t oy, ox;
  for (block = 0; block < s->steps; block++)
    for (oy = 0; oy < COMPUTE(OUT_ROWS); oy++)
      for (ox = 0; ox < cols; ox++) {
        const size_t word =
            COMPUTE(PSUM) + (size_t)block * COMPUTE(PSUM_BLOCK_PITCH) + oy * cols + ox;
        int32_t *psum = psum_of(e) + word * lanes;
        read_pixel(e, block, 0, lanes,
                   SIGNED(COMPUTE, ORIGIN_Y) + (int64_t)(oy * COMPUTE(STRIDE_Y)),
                   SIGNED(COMPUTE, ORIGIN_X) + (int64_t)(ox * COMPUTE(STRIDE_X)), e->features);
        for (l = 0; l < lanes; l++) psum[l] = e->features[l] - OPU_FEATURE_OFFSET;
      }
}

uint32_t opu_execute_compute(struct opu_native *e, uint32_t opcode) {
  const struct opu_sweep s = opu_sweep_of(e, opcode);
  if (opcode == OPU_OP_COMPUTE_CONV) {
    if (COMPUTE(PRE) && !COMPUTE(GATE)) {
      const uint32_t segments = e->machine.word_channels / s.ic;
      const uint32_t block = s.first_step / segments;
      const uint32_t blocks = (s.first_step + s.steps - 1u) / segments + 1u - block;
      const uint32_t units = COMPUTE(PRE);
      const size_t first = COMPUTE(PRE_PARAM) + (size_t)OPU_PARAM_WORDS * units * block;
      if (!opu_are_scales(e, OPU_SPACE_PRE, first, blocks * units, OPU_PARAM_WORDS))
        return OPU_ERR_PARAMETER;
    }
    conv(e, &s);
  } else if (opcode == OPU_OP_COMPUTE_DEPTHWISE) {
    depthwise(e, &s);
  } else {
    copy(e, &s);
  }
  return OPU_ERR_NONE;
}
