/* Which instructions the machine refuses: the rules of docs/machine.md, and accesses outside their
 * memories. What passes here reaches nothing else, so the files that execute check no bounds. */
#include "opu_native.h"

/* Words or bytes from first to end - 1; empty where first = end. */
struct span {
  int64_t first, end;
};

static const struct span nothing = {0, 0};

static int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

/* Smallest and largest of the positions origin + o*stride + k*dilation + w inside [0, limit). */
static struct span visited(int64_t origin, uint32_t outputs, uint32_t stride, uint32_t kernel,
                           uint32_t dilation, uint32_t limit, uint32_t width) {
  struct span result = nothing;
  int64_t k;
  for (k = 0; k < (int64_t)kernel; k++) {
    /* Outputs whose positions reach into the tile: start + width > 0 and start < limit. */
    const int64_t start = origin + k * dilation;
    int64_t low = floor_div(-start - (int64_t)width, stride) + 1;
    int64_t high = floor_div((int64_t)limit - 1 - start, stride);
    if (low < 0) low = 0;
    if (high > (int64_t)outputs - 1) high = (int64_t)outputs - 1;
    if (low <= high && limit > 0u) {
      const int64_t first = start + low * stride, end = start + high * stride + width;
      const int64_t a = first < 0 ? 0 : first;
      const int64_t b = end > (int64_t)limit ? (int64_t)limit : end;
      if (result.first == result.end) {
        result.first = a;
        result.end = b;
      }
      if (a < result.first) result.first = a;
      if (b > result.end) result.end = b;
    }
  }
  return result;
}

/* Whether words [base + first, base + end) are in a memory. */
static int inside(const struct opu_native *e, uint32_t space, int64_t base, struct span words) {
  if (words.first == words.end) return 1;
  return base + words.first >= 0 && base + words.end <= (int64_t)e->machine.memory_words[space];
}

/* Words of `columns` in `rows` of a map and in `blocks` of them. */
static struct span of_map(struct span rows, uint32_t row_pitch, struct span columns,
                          uint32_t blocks, uint32_t block_pitch) {
  struct span result = nothing;
  if (rows.first == rows.end || columns.first == columns.end || blocks == 0u) return result;
  result.first = rows.first * row_pitch + columns.first;
  result.end = (int64_t)(blocks - 1u) * block_pitch + (rows.end - 1) * row_pitch + columns.end;
  return result;
}

static struct span from_zero(uint64_t count) {
  struct span result;
  result.first = 0;
  result.end = (int64_t)count;
  return result;
}

static int counts_are_zero(const struct opu_native *e, const struct opu_instruction *x) {
  const uint8_t *counts = opu_counts[x->engine][x->opcode];
  const int32_t *registers = e->registers[x->engine][0];
  for (; *counts != OPU_NO_REGISTER; counts++)
    if (registers[*counts] == 0) return 1;
  return 0;
}

static uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1u) / b; }

struct opu_sweep opu_sweep_of(const struct opu_native *e, uint32_t opcode) {
  const struct opu_machine_config *m = &e->machine;
  struct opu_sweep s;
  memset(&s, 0, sizeof s);
  s.kernel_rows = COMPUTE(KERNEL_ROWS);
  s.kernel_cols = COMPUTE(KERNEL_COLS);
  s.first_step = COMPUTE(IC_FIRST);
  s.steps = COMPUTE(IC_STEPS);
  s.px = s.at_once = 1;
  if (opcode == OPU_OP_COMPUTE_CONV) {
    const uint32_t mode = COMPUTE(MODE);
    s.ic = m->mode_ic[mode];
    s.first_group = COMPUTE(OC_FIRST);
    s.groups = COMPUTE(OC_STEPS);
    s.oc = m->mode_oc[mode];
    s.px = m->mode_px[mode];
    s.row_words = ceil_div(s.ic * s.oc, m->weight_width);
    return s;
  }
  s.row_words = ceil_div(m->units * m->multipliers, m->weight_width);
  s.ic = m->word_channels;
  if (opcode == OPU_OP_COMPUTE_DEPTHWISE) {
    s.ic = opu_min(m->units, m->word_channels);
    s.at_once = COMPUTE(OC_STEPS);
  } else {
    s.kernel_rows = s.kernel_cols = 1;
    s.first_step = 0;
  }
  s.first_group = s.first_step;
  s.groups = s.steps;
  s.oc = s.ic;
  return s;
}

static uint64_t weight_rows(const struct opu_sweep *s, uint32_t opcode) {
  if (opcode == OPU_OP_COMPUTE_CONV)
    /* Four factors of 16 bits. */
    return (uint64_t)s->steps * s->kernel_rows * s->kernel_cols * s->groups;
  return opcode == OPU_OP_COMPUTE_DEPTHWISE ? (uint64_t)s->steps * s->at_once : 0u;
}

/* Modes of several pixels, and the pre chain. */
static int mode_is_illegal(const struct opu_native *e, uint32_t slot) {
  const struct opu_machine_config *m = &e->machine;
  const uint32_t mode = COMPUTE(MODE);
  uint64_t distance;
  uint32_t ic, oc, px;
  if (mode >= m->modes) return 1;
  ic = m->mode_ic[mode];
  oc = m->mode_oc[mode];
  px = m->mode_px[mode];
  if (COMPUTE(PRE) && (slot < m->word_bytes || px > 1u)) return 1;
  if (px == 1u) return 0;
  if (COMPUTE(OUT_COLS) % px) return 1;
  if ((uint64_t)(COMPUTE(OC_FIRST) + COMPUTE(OC_STEPS)) * oc > m->word_channels / px) return 1;
  distance = (uint64_t)(px - 1u) * COMPUTE(STRIDE_X);
  return slot == m->word_bytes ? distance > 1u : distance * slot + ic > m->word_bytes + slot;
}

static uint32_t refuses_compute(const struct opu_native *e, uint32_t opcode) {
  const struct opu_machine_config *m = &e->machine;
  const uint32_t slot = 1u << COMPUTE(SLOT_LOG2), lanes = m->word_channels;
  const uint64_t pixels = (uint64_t)COMPUTE(OUT_ROWS) * COMPUTE(OUT_COLS);
  const int conv = opcode == OPU_OP_COMPUTE_CONV;
  struct opu_sweep s;
  uint64_t rows, words;
  uint32_t first_block, blocks, first_lane, end_lane, first_psum, psum_blocks, before, width;
  struct span ys, xs, columns, psum;

  if (opcode == OPU_OP_COMPUTE_DEPTHWISE && !m->depthwise) return OPU_ERR_ILLEGAL_INSTRUCTION;
  if (slot > m->word_bytes || COMPUTE(PRE) > m->stage_units[OPU_STAGE_PRE])
    return OPU_ERR_ILLEGAL_INSTRUCTION;
  if (conv) {
    if (COMPUTE(PRE) && !m->memory_words[OPU_SPACE_PRE]) return OPU_ERR_ILLEGAL_INSTRUCTION;
    if (mode_is_illegal(e, slot)) return OPU_ERR_ILLEGAL_INSTRUCTION;
    if (COMPUTE(PRE) && COMPUTE(GATE) && (!m->gates || COMPUTE(GATE_SHIFT) > OPU_MAX_SHIFT))
      return OPU_ERR_ILLEGAL_INSTRUCTION;
  } else {
    if (COMPUTE(PRE)) return OPU_ERR_ILLEGAL_INSTRUCTION;
  }
  if (opcode == OPU_OP_COMPUTE_DEPTHWISE) {
    const uint32_t parts = ceil_div(lanes, m->units), n = COMPUTE(OC_STEPS);
    if (slot < m->word_bytes) return OPU_ERR_ILLEGAL_INSTRUCTION;
    if (opu_max(COMPUTE(KERNEL_ROWS), COMPUTE(KERNEL_COLS)) > m->window_side)
      return OPU_ERR_ILLEGAL_INSTRUCTION;
    if (n > 1u && (COMPUTE(IC_STEPS) > 1u || n > parts)) return OPU_ERR_ILLEGAL_INSTRUCTION;
  }
  if (slot < m->word_bytes) {
    if (m->word_bytes != lanes) return OPU_ERR_ILLEGAL_INSTRUCTION;
    if (COMPUTE(IC_STEPS) > 1u || (conv && COMPUTE(IC_FIRST))) return OPU_ERR_ILLEGAL_INSTRUCTION;
  }
  s = opu_sweep_of(e, opcode);
  first_psum = s.first_group / (lanes / s.oc);
  psum_blocks = (s.first_group + s.groups - 1u) / (lanes / s.oc) + 1u - first_psum;
  if (psum_blocks > 1u && COMPUTE(PSUM_BLOCK_PITCH) < pixels) return OPU_ERR_ILLEGAL_INSTRUCTION;
  rows = weight_rows(&s, opcode);
  /* Both factors may have 64 bits, so they are compared first. */
  words = rows > s.steps ? rows : s.steps;
  if (words > ((uint64_t)OPU_LARGEST_CYCLES + 1u) * s.px) return OPU_ERR_ILLEGAL_INSTRUCTION;
  if (words * pixels / s.px > OPU_LARGEST_CYCLES) return OPU_ERR_ILLEGAL_INSTRUCTION;

  first_block = s.first_step / (lanes / s.ic);
  blocks = (s.first_step + s.steps - 1u) / (lanes / s.ic) + 1u - first_block;
  first_lane = blocks > 1u ? 0u : s.first_step % (lanes / s.ic) * s.ic;
  end_lane = blocks > 1u ? lanes : first_lane + s.steps * s.ic;
  before = 0;
  width = 1;
  if (slot < m->word_bytes) { /* lanes continue in right-hand neighbours */
    before = first_lane / slot;
    width = ceil_div(end_lane, slot) - before;
  }
  ys = visited(SIGNED(COMPUTE, ORIGIN_Y), COMPUTE(OUT_ROWS), COMPUTE(STRIDE_Y), s.kernel_rows,
               COMPUTE(DILATION_Y), COMPUTE(IN_ROWS), 1u);
  xs = visited(SIGNED(COMPUTE, ORIGIN_X) + before, COMPUTE(OUT_COLS), COMPUTE(STRIDE_X),
               s.kernel_cols, COMPUTE(DILATION_X), COMPUTE(IN_COLS), width);
  columns = nothing;
  if (xs.first < xs.end) {
    columns.first = xs.first * slot / m->word_bytes;
    columns.end = (xs.end - 1) * slot / m->word_bytes + 1;
  }
  if (!inside(e, OPU_SPACE_FEATURE, COMPUTE(FEATURE) + (int64_t)first_block * COMPUTE(BLOCK_PITCH),
              of_map(ys, COMPUTE(ROW_PITCH), columns, blocks, COMPUTE(BLOCK_PITCH))))
    return OPU_ERR_BUFFER;
  if (!inside(e, OPU_SPACE_WEIGHT, COMPUTE(WEIGHT), from_zero(rows * s.row_words)))
    return OPU_ERR_BUFFER;
  if (COMPUTE(PRE)) {
    const int64_t each = COMPUTE(GATE) ? 1 : (int64_t)OPU_PARAM_WORDS * COMPUTE(PRE);
    if (!inside(e, OPU_SPACE_PRE, COMPUTE(PRE_PARAM) + each * first_block,
                from_zero((uint64_t)each * blocks)))
      return OPU_ERR_BUFFER;
  }
  psum = from_zero((uint64_t)(psum_blocks - 1u) * COMPUTE(PSUM_BLOCK_PITCH) +
                   pixels * s.at_once / s.px);
  if (!inside(e, OPU_SPACE_PSUM,
              COMPUTE(PSUM) + (int64_t)first_psum * COMPUTE(PSUM_BLOCK_PITCH), psum))
    return OPU_ERR_BUFFER;
  return OPU_ERR_NONE;
}

static uint32_t largest_pixels(const struct opu_machine_config *m) {
  uint32_t result = 1, i;
  for (i = 0; i < m->modes; i++) result = opu_max(result, m->mode_px[i]);
  return result;
}

static int packs(const struct opu_machine_config *m, uint32_t pixels) {
  return (pixels == 2u || pixels == 4u) && pixels <= largest_pixels(m);
}

static int residual_is_illegal(const struct opu_machine_config *m, const int32_t *p, int product) {
  const uint32_t kind = (uint32_t)p[OPU_REG_POST_RES_KIND];
  const uint32_t a = (uint32_t)p[OPU_REG_POST_RES_A_MULT];
  const uint32_t b = (uint32_t)p[OPU_REG_POST_RES_B_MULT];
  if (product ? kind != OPU_RESIDUAL_MULTIPLY
              : kind != OPU_RESIDUAL_ADD && kind != OPU_RESIDUAL_MAXIMUM)
    return 1;
  if (!m->only_shifts || kind == OPU_RESIDUAL_MAXIMUM) return 0;
  return (a & (a - 1u)) != 0u || (kind == OPU_RESIDUAL_ADD && (b & (b - 1u)) != 0u);
}

static int norm_is_illegal(const struct opu_native *e, const int32_t *own) {
  const uint32_t op = (uint32_t)own[OPU_REG_POST_NORM_OP], lanes = e->machine.word_channels;
  const int32_t shift = own[OPU_REG_POST_NORM_SHIFT];
  const uint64_t pixels = (uint64_t)POST(OUT_ROWS) * POST(OUT_COLS);
  if ((uint32_t)own[OPU_REG_POST_NORM_IDLE] >= lanes) return 1;
  if (POST(WIN_ROWS) > 1u || POST(WIN_COLS) > 1u || POST(SPREAD)) return 1;
  if (op > OPU_NORM_LAST) return 1;
  if (opu_norm_is_of_quarters(own) &&
      (e->machine.cycles != 2u || (lanes & (lanes - 1u)) || POST(BLOCKS) > 1u ||
       own[OPU_REG_POST_NORM_IDLE]))
    return 1;
  if (opu_norm_adds_exponentials(own) && (shift < -(int32_t)OPU_LOWEST_OUTPUT_SHIFT_NEGATED ||
                                          shift > (int32_t)OPU_LARGEST_OUTPUT_SHIFT))
    return 1;
  if ((op == OPU_NORM_MOMENTS || op == OPU_NORM_SQUARES || op == OPU_NORM_MAP_MOMENTS) &&
      (shift < 0 || shift > (int32_t)OPU_LARGEST_EPSILON_SHIFT))
    return 1;
  if (pixels > e->machine.norm_pixels && !opu_norm_is_of_map(own)) return 1;
  if ((uint64_t)POST(BLOCKS) * lanes > OPU_CHANNELS_MAX) return 1;
  return op == OPU_NORM_MAP_MOMENTS && pixels * POST(BLOCKS) > OPU_MAP_MAX / lanes;
}

static int norm_looks_up(const int32_t *own) {
  const uint32_t op = (uint32_t)own[OPU_REG_POST_NORM_OP];
  return opu_norm_adds_exponentials(own) || op == OPU_NORM_SOFTMAX || op == OPU_NORM_QUARTER_SOFTMAX;
}

/* Iterations of a block, as hw/unit_rates.py counts them. */
static uint64_t iterations(const struct opu_native *e, int maximum) {
  const uint32_t rows = POST(WIN_ROWS), cols = POST(WIN_COLS), stride = POST(STRIDE_X);
  const int keeps = maximum && cols > stride && cols - stride <= OPU_RETAINED_COLUMNS;
  const uint64_t row = cols + (uint64_t)(POST(OUT_COLS) - 1u) * (keeps ? stride : cols);
  return (uint64_t)POST(OUT_ROWS) * rows * row;
}

/* What the machine does not have, or does not do at once. */
static int post_is_illegal(const struct opu_native *e, const struct opu_chain *c) {
  const struct opu_machine_config *m = &e->machine;
  const uint32_t slots = POST(POOL_SLOTS), spread = opu_spread_pixels(POST(SPREAD));
  const int pools = c->pool < OPU_ORDER_STAGES;
  uint32_t i;
  uint64_t cycles;
  int maximum;

  if (POST(KEEP) && !m->keep) return 1;
  if (!opu_has_order(e, c)) return 1;
  maximum = POST(POOL_KIND) == OPU_POOL_MAX; /* without a pool that of the first unit */
  for (i = 0; i < c->count; i++) {
    const int32_t *own = opu_own(e, c->codes[i]);
    switch (m->code_stage[c->codes[i]]) {
      case OPU_STAGE_RESIDUAL:
        if (residual_is_illegal(m, own, m->code_product[c->codes[i]] != 0u)) return 1;
        break;
      case OPU_STAGE_NORM:
        if (norm_is_illegal(e, own)) return 1;
        break;
      case OPU_STAGE_POOL:
        maximum = (uint32_t)own[OPU_REG_POST_POOL_KIND] == OPU_POOL_MAX;
        if (slots && (!maximum || POST(WIN_COLS) != 2u || POST(STRIDE_X) != 2u)) return 1;
        break;
      default:
        break;
    }
  }
  if (c->norm && pools) return 1;
  if (slots && (!pools || !packs(m, slots))) return 1;
  if (spread && (!packs(m, spread) || pools || POST(ORIGIN_X) != 0u || POST(STRIDE_X) != 1u))
    return 1;
  if (!pools) {
    const int64_t y = SIGNED(POST, ORIGIN_Y), x = SIGNED(POST, ORIGIN_X);
    if (POST(WIN_ROWS) != 1u || POST(WIN_COLS) != 1u || y < 0 || x < 0) return 1;
    if (y + (int64_t)(POST(OUT_ROWS) - 1u) * POST(STRIDE_Y) >= (int64_t)POST(IN_ROWS) ||
        x + (int64_t)(POST(OUT_COLS) - 1u) * POST(STRIDE_X) >= (int64_t)POST(IN_COLS))
      return 1;
  }
  cycles = iterations(e, maximum);
  if (cycles > OPU_LARGEST_CYCLES) return 1;
  cycles *= (uint64_t)POST(BLOCKS) * (c->residual ? m->residual_cycles : m->cycles);
  return cycles > OPU_LARGEST_CYCLES;
}

static uint32_t refuses_post(const struct opu_native *e) {
  const struct opu_machine_config *m = &e->machine;
  const uint32_t blocks = POST(BLOCKS), spread = opu_spread_pixels(POST(SPREAD));
  const struct opu_chain c = opu_chain_of(e);
  const int pools = c.pool < OPU_ORDER_STAGES;
  uint32_t i;
  struct span ys, xs, sums, rows, cols, outputs;

  if (post_is_illegal(e, &c)) return OPU_ERR_ILLEGAL_INSTRUCTION;
  ys = visited(SIGNED(POST, ORIGIN_Y), POST(OUT_ROWS), POST(STRIDE_Y), POST(WIN_ROWS), 1,
               POST(IN_ROWS), 1);
  xs = visited(SIGNED(POST, ORIGIN_X), POST(OUT_COLS), POST(STRIDE_X), POST(WIN_COLS), 1,
               POST(IN_COLS), 1);
  if (ys.first == ys.end) xs = nothing;
  if (xs.first == xs.end) ys = nothing;
  rows = from_zero(POST(OUT_ROWS));
  cols = from_zero(POST(OUT_COLS));
  sums = spread ? from_zero(ceil_div(POST(OUT_COLS), spread)) : xs;
  if (!inside(e, OPU_SPACE_PSUM, POST(PSUM),
              of_map(ys, POST(PSUM_ROW_PITCH), sums, blocks, POST(PSUM_BLOCK_PITCH))))
    return OPU_ERR_BUFFER;
  if (!inside(e, OPU_SPACE_PARAM, POST(PARAM), from_zero((uint64_t)c.param_words * blocks)))
    return OPU_ERR_BUFFER;
  for (i = 0; i < c.count; i++) {
    const uint32_t stage = m->code_stage[c.codes[i]];
    const int32_t *own = opu_own(e, c.codes[i]);
    const int before_pool = pools && i <= c.pool;
    const int reads = !before_pool || ys.first < ys.end;
    if (stage == OPU_STAGE_RESIDUAL) {
      const uint32_t block_pitch = (uint32_t)own[OPU_REG_POST_RES_BLOCK_PITCH];
      const uint32_t row_pitch = (uint32_t)own[OPU_REG_POST_RES_ROW_PITCH];
      struct span words = nothing;
      if (own[OPU_REG_POST_RES_BROADCAST]) {
        if (reads) words = of_map(from_zero(1), 0, from_zero(1), blocks, block_pitch);
      } else {
        words = before_pool ? of_map(ys, row_pitch, xs, blocks, block_pitch)
                            : of_map(rows, row_pitch, cols, blocks, block_pitch);
      }
      if (!inside(e, OPU_SPACE_RESIDUAL, own[OPU_REG_POST_RES], words)) return OPU_ERR_BUFFER;
    }
    if (stage == OPU_STAGE_TABLE && reads &&
        !inside(e, OPU_SPACE_TABLE, own[OPU_REG_POST_TABLE], from_zero(OPU_TABLE_WORDS)))
      return OPU_ERR_BUFFER;
    if (stage == OPU_STAGE_NORM && reads && norm_looks_up(own) &&
        !inside(e, OPU_SPACE_NORM, own[OPU_REG_POST_NORM_TABLE], from_zero(OPU_EXPONENTIALS)))
      return OPU_ERR_BUFFER;
  }
  if (!c.writes) return OPU_ERR_NONE;
  outputs = of_map(rows, POST(OUT_ROW_PITCH), cols, blocks, POST(OUT_BLOCK_PITCH));
  if (!inside(e, OPU_SPACE_OUTPUT, POST(OUT), outputs)) return OPU_ERR_BUFFER;
  if (POST(KEEP)) {
    outputs = of_map(rows, POST(KEEP_ROW_PITCH), cols, blocks, POST(KEEP_BLOCK_PITCH));
    if (!inside(e, OPU_SPACE_FEATURE, POST(KEEP_AT), outputs)) return OPU_ERR_BUFFER;
  }
  return OPU_ERR_NONE;
}

/* A load or store: dram .. dram + bytes - 1 of the window, and words of a memory. */
static uint32_t refuses_transfer(const struct opu_native *e, uint64_t dram, uint32_t word,
                                 uint64_t words, uint64_t moved) {
  if (moved / e->machine.bus_bytes > OPU_LARGEST_CYCLES) return OPU_ERR_ILLEGAL_INSTRUCTION;
  if (dram % word) return OPU_ERR_ILLEGAL_INSTRUCTION;
  if (words > e->window.size / word || dram > e->window.size - words * word) return OPU_ERR_WINDOW;
  return OPU_ERR_NONE;
}

/* Lanes of weights that a load sets to zero. */
static int zeroes_wrongly(const struct opu_native *e) {
  const struct opu_machine_config *m = &e->machine;
  const uint32_t zeros = LOAD(ZERO_LOW) + LOAD(ZERO_HIGH);
  const int can = m->stage_units[OPU_STAGE_NORM] && m->weight_width == m->word_bytes;
  return zeros && (!can || zeros >= m->word_bytes);
}

static uint32_t refuses_load(const struct opu_native *e, uint32_t space, uint64_t *moved) {
  const uint64_t run = LOAD(RUN), rows = LOAD(ROWS), blocks = LOAD(BLOCKS);
  const uint64_t dram = LOAD(DRAM_LO) | (uint64_t)LOAD(DRAM_HI) << OPU_VALUE_BITS;
  const uint32_t word = e->word_bytes[space];
  const uint64_t reach = run + (rows - 1u) * LOAD(ROW_PITCH) + (blocks - 1u) * LOAD(BLOCK_PITCH);
  uint32_t wrong;
  if (space == OPU_SPACE_WEIGHT && zeroes_wrongly(e)) return OPU_ERR_ILLEGAL_INSTRUCTION;
  *moved = run * rows * blocks * word;
  wrong = refuses_transfer(e, dram, word, reach, *moved);
  if (wrong) return wrong;
  return inside(e, space, LOAD(DST), from_zero(run * rows * blocks)) ? OPU_ERR_NONE
                                                                     : OPU_ERR_BUFFER;
}

static uint32_t refuses_store(const struct opu_native *e, uint64_t *moved) {
  const uint64_t run = STORE(RUN), rows = STORE(ROWS), blocks = STORE(BLOCKS);
  const uint64_t dram = STORE(DRAM_LO) | (uint64_t)STORE(DRAM_HI) << OPU_VALUE_BITS;
  const uint64_t across = STORE(REPEAT_COLS) + 1u, down = STORE(REPEAT_ROWS) + 1u;
  const uint32_t word = e->machine.word_bytes;
  const uint64_t reach = across + (run - 1u) * (across + STORE(WORD_GAP)) +
                         (rows * down - 1u) * STORE(ROW_PITCH) +
                         (blocks - 1u) * STORE(BLOCK_PITCH);
  uint32_t wrong;
  if ((across > 1u || down > 1u) && !e->machine.upsample) return OPU_ERR_ILLEGAL_INSTRUCTION;
  if (STORE(SKIP_LOW) + STORE(SKIP_HIGH) >= word) return OPU_ERR_ILLEGAL_INSTRUCTION;
  /* A word takes a cycle at least; without this the product below could exceed 64 bits. */
  if (run * rows * blocks > OPU_LARGEST_CYCLES) return OPU_ERR_ILLEGAL_INSTRUCTION;
  *moved = run * rows * blocks * across * down * word;
  wrong = refuses_transfer(e, dram, word, reach, *moved);
  if (wrong) return wrong;
  return inside(e, OPU_SPACE_OUTPUT, STORE(SRC), from_zero(run * rows * blocks)) ? OPU_ERR_NONE
                                                                                 : OPU_ERR_BUFFER;
}

static uint32_t refuses_unfold(const struct opu_native *e) {
  const uint32_t kernel = LOAD(KERNEL_ROWS), run = LOAD(RUN), rows = LOAD(ROWS);
  const int64_t image = SIGNED(LOAD, IMAGE), origin = SIGNED(LOAD, ORIGIN_Y);
  uint64_t words;
  uint32_t r, k;
  if (!e->machine.memory_words[OPU_SPACE_IMAGE]) return OPU_ERR_ILLEGAL_INSTRUCTION;
  if (kernel > OPU_LARGEST_KERNEL_ROWS || !opu_column_bytes[kernel])
    return OPU_ERR_ILLEGAL_INSTRUCTION;
  for (r = 0; r < rows; r++)
    for (k = 0; k < kernel; k++) {
      const int64_t y = origin + (int64_t)r * LOAD(STRIDE_Y) + k;
      const int64_t first = image + (int64_t)r * LOAD(ROW_PITCH) + (int64_t)k * run;
      if (y >= 0 && y < (int64_t)LOAD(IN_ROWS) &&
          !inside(e, OPU_SPACE_IMAGE, first, from_zero(run)))
        return OPU_ERR_BUFFER;
    }
  words = ((uint64_t)run * opu_column_bytes[kernel] + OPU_IMAGE_SLOT - 1u) / OPU_IMAGE_SLOT;
  return inside(e, OPU_SPACE_FEATURE, LOAD(DST), from_zero(rows * words)) ? OPU_ERR_NONE
                                                                          : OPU_ERR_BUFFER;
}

uint32_t opu_refuses(const struct opu_native *e, const struct opu_instruction *x, uint64_t *moved) {
  *moved = 0;
  if (e->missing[x->engine] || counts_are_zero(e, x)) return OPU_ERR_ILLEGAL_INSTRUCTION;
  switch (x->engine) {
    case OPU_ENGINE_LOAD:
      if (x->opcode == OPU_OP_LOAD_UNFOLD) return refuses_unfold(e);
      if (!e->machine.memory_words[opu_loaded[x->opcode]]) return OPU_ERR_ILLEGAL_INSTRUCTION;
      return refuses_load(e, opu_loaded[x->opcode], moved);
    case OPU_ENGINE_COMPUTE:
      return refuses_compute(e, x->opcode);
    case OPU_ENGINE_POST:
      return refuses_post(e);
    case OPU_ENGINE_STORE:
      return refuses_store(e, moved);
    default:
      return OPU_ERR_NONE;
  }
}
