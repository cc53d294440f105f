/* State of the native engine, and what its files share. */
#ifndef OPU_NATIVE_H
#define OPU_NATIVE_H

#include <string.h>

#include "opu.h"
#include "opu_tables.h"

#ifdef __cplusplus
#define OPU_RESTRICT __restrict__
#else
#define OPU_RESTRICT restrict
#endif

/* Operands of the inner products: bytes where the processor multiplies an unsigned by a signed byte
 * and adds four products at a time, else 16-bit numbers, of which every processor adds two. */
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
typedef uint8_t opu_feature;
typedef int8_t opu_weight;
#define OPU_FEATURE_OFFSET 128
#else
typedef int16_t opu_feature;
typedef int16_t opu_weight;
#define OPU_FEATURE_OFFSET 0
#endif

#define OPU_TERMS 64u          /* rows of operands are filled with zeros to a multiple of it */
#define OPU_CHUNK_TERMS 2048u  /* largest number of terms that are added up at a time */
#define OPU_PANEL 32u          /* pixels whose operands are gathered at a time */
#define OPU_TILE 4u            /* rows of features and of weights that are multiplied at a time */

/* Which weights are in `weights`; taps 0: none. */
struct opu_packed {
  uint32_t weight, taps, groups, ic, oc;
};

/* Constants of a channel block, an element for each lane: rne((x + bias) * mult / 2^shift) after
 * the array, rne((x * mult + bias) / 2^shift) before it. Left shifts are part of the factors. half,
 * some: see opu_rounded. */
struct opu_scales {
  int64_t *bias, *mult, *shift, *half, *some;
};

/* What a norm remembers of a pixel until its next pass of that kind. sum, squares: of the pass that
 * runs. Results are value * factor - offset, shifted. */
struct opu_statistics {
  int64_t maximum, factor, offset, shift, sum, squares;
};

/* Constants of a channel of a norm: rne((u * gain + offset) / 2^gain_shift). */
struct opu_gain {
  int32_t gain, offset;
  uint32_t gain_shift;
};

/* The state of an engine: at the start of the caller's memory, all else after it. */
struct opu_native {
  struct opu_machine_config machine;
  /* On-chip memories: bytes, or int32 of partial sums. word_bytes: of a word of each. */
  uint8_t *memory[OPU_SPACES];
  uint32_t word_bytes[OPU_SPACES];
  /* Those of units have a row for each unit, others are in row 0. */
  int32_t registers[OPU_ENGINES][OPU_UNITS][OPU_REGISTERS];
  /* Registers of units that the machine does not have and that are not 0, by engine. */
  uint32_t missing[OPU_ENGINES];
  /* Tokens from engine to engine. */
  uint32_t tokens[OPU_ENGINES][OPU_ENGINES];
  struct opu_window window;
  /* Operands and constants of the instruction that is executed. */
  struct opu_packed packed;
  opu_feature *features;
  opu_weight *weights;
  int32_t *corrections; /* of the sums, for the offset of features */
  struct opu_scales scales;
  int32_t *filter; /* of a depthwise part: lanes of every position of the window */
  int32_t *slopes; /* lanes of every stage of the chain */
  int32_t *sums;   /* of a pooling window, or of a depthwise pixel */
  int8_t *value, *pooled, *operand; /* operand: the second one, where pixels are spread */
  struct opu_gain *gains;            /* lanes of every stage of the chain */
  struct opu_statistics *statistics; /* pixels of every norm, from pass to pass */
};

/* The chain of a pass. pool: place of the pool, OPU_ORDER_STAGES without; requant: the array ran;
 * residual, norm: it has such a stage; writes: it has results; param_words: of a channel block;
 * first: of a stage. */
struct opu_chain {
  uint32_t codes[OPU_ORDER_STAGES], first[OPU_ORDER_STAGES];
  uint32_t count, pool, param_words;
  int requant, residual, norm, writes;
};

/* A register by its name; of units that of the first. By its engine: as a number without sign. */
#define SIGNED(engine, name) \
  ((int64_t)e->registers[OPU_ENGINE_##engine][0][OPU_REG_##engine##_##name])
#define LOAD(name) ((uint32_t)e->registers[OPU_ENGINE_LOAD][0][OPU_REG_LOAD_##name])
#define STORE(name) ((uint32_t)e->registers[OPU_ENGINE_STORE][0][OPU_REG_STORE_##name])
#define COMPUTE(name) ((uint32_t)e->registers[OPU_ENGINE_COMPUTE][0][OPU_REG_COMPUTE_##name])
#define POST(name) ((uint32_t)e->registers[OPU_ENGINE_POST][0][OPU_REG_POST_##name])

/* Registers of the unit that runs a code of the chain. */
static inline const int32_t *opu_own(const struct opu_native *e, uint32_t code) {
  return e->registers[OPU_ENGINE_POST][e->machine.code_unit[code]];
}

/* Pixels of a word of partial sums by the register `spread`, 0 without it: its highest bit. */
static inline uint32_t opu_spread_pixels(uint32_t spread) {
  return spread & 4u ? 4u : spread & 2u ? 2u : spread;
}

/* One instruction, decoded. */
struct opu_instruction {
  uint32_t engine, opcode, waits, signals;
};

/* Loops of a compute instruction over channels (docs/machine.md, compute): input segments of `ic`
 * lanes, output groups of `oc` lanes, px pixels in a word, at_once output rows of one read. */
struct opu_sweep {
  uint32_t kernel_rows, kernel_cols;
  uint32_t first_step, steps, ic;
  uint32_t first_group, groups, oc;
  uint32_t px, at_once;
  uint32_t row_words; /* weight words of a row */
};

static inline uint32_t opu_min(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t opu_max(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* rne(x / 2^shift): adds a half less one, and one where the quotient is odd. half: 2^(shift-1) - 1
 * and some: 1, both 0 where shift is. |x| is below 2^61 and shift at most 62. Processors on which
 * right shifts of negative numbers do not copy the sign are none of ours (C99 leaves it open). */
static inline int64_t opu_rounded(int64_t x, int64_t shift, int64_t half, int64_t some) {
  return (x + half + ((x >> shift) & some)) >> shift;
}

static inline int64_t opu_half(uint32_t shift) {
  return shift ? ((int64_t)1 << (shift - 1u)) - 1 : 0;
}

/* The same on 32 bits: |x| is below 2^26, so that 30 is as good as any larger shift. */
static inline int32_t opu_rounded32(int32_t x, int32_t shift, int32_t half, int32_t some) {
  return (x + half + ((x >> shift) & some)) >> shift;
}

static inline int64_t opu_limit(int64_t x, int64_t lo, int64_t hi) {
  const int64_t above = x < lo ? lo : x;
  return above > hi ? hi : above;
}

static inline int32_t opu_limit32(int32_t x, int32_t lo, int32_t hi) {
  const int32_t above = x < lo ? lo : x;
  return above > hi ? hi : above;
}

/* Low 32 bits of a sum, as the machine's accumulators have them. */
static inline int32_t opu_wrapped(int32_t a, int32_t b) {
  return (int32_t)((uint32_t)a + (uint32_t)b);
}

/* opu_legal.c: OPU_ERR_* of an instruction that the machine refuses, else OPU_ERR_NONE; nothing of
 * a legal instruction reaches outside the memories. moved: see opu_retired. */
uint32_t opu_refuses(const struct opu_native *e, const struct opu_instruction *x,
                     uint64_t *moved);
struct opu_sweep opu_sweep_of(const struct opu_native *e, uint32_t opcode);

/* Execute a legal instruction. OPU_ERR_PARAMETER where constants of channels are none. */
void opu_execute_load(struct opu_native *e, uint32_t opcode);
void opu_execute_store(struct opu_native *e);
uint32_t opu_execute_compute(struct opu_native *e, uint32_t opcode);
uint32_t opu_execute_post(struct opu_native *e);

/* opu_scales.c: whether all constants of `blocks` blocks from `word` on are such; those of a block.
 * pitch: words from block to block; space: PARAM after the array, PRE before it. */
int opu_are_scales(const struct opu_native *e, uint32_t space, size_t word, uint32_t blocks,
                   size_t pitch);
void opu_read_scales(struct opu_native *e, uint32_t space, size_t word, uint32_t first_lane,
                     uint32_t lanes);
/* Constants of a block for a norm and for a PReLU. */
void opu_read_gains(const struct opu_native *e, size_t word, struct opu_gain *gains);
void opu_read_slopes(const struct opu_native *e, size_t word, int32_t *slopes);

/* opu_norm.c: a word of a block through a norm; the results of a pass that has some are in value.
 * pixel: of the output, row by row. start, finish: before the first and after the last word of a
 * pass. own: registers of the norm. */
void opu_norm(const struct opu_native *e, uint32_t unit, const struct opu_gain *gains,
              uint32_t block, size_t pixel, int8_t *value);
void opu_start_norm(const struct opu_native *e, uint32_t unit);
void opu_finish_norm(const struct opu_native *e, uint32_t unit);
static inline int opu_norm_has_results(const int32_t *own) {
  const uint32_t op = (uint32_t)own[OPU_REG_POST_NORM_OP];
  return op == OPU_NORM_SOFTMAX || op == OPU_NORM_NORMALISE || op == OPU_NORM_MAP_NORMALISE ||
         op == OPU_NORM_QUARTER_SOFTMAX;
}
/* Whether each quarter of a word has statistics of its own. */
static inline int opu_norm_is_of_quarters(const int32_t *own) {
  return (uint32_t)own[OPU_REG_POST_NORM_OP] >= OPU_NORM_QUARTER_MAX;
}
/* Whether a pass adds exponentials. */
static inline int opu_norm_adds_exponentials(const int32_t *own) {
  const uint32_t op = (uint32_t)own[OPU_REG_POST_NORM_OP];
  return op == OPU_NORM_EXPSUM || op == OPU_NORM_QUARTER_EXPSUM || op == OPU_NORM_QUARTER_EXPSUM_ODD;
}
/* Whether all pixels of a pass have statistics in common. */
static inline int opu_norm_is_of_map(const int32_t *own) {
  const uint32_t op = (uint32_t)own[OPU_REG_POST_NORM_OP];
  return op == OPU_NORM_MAP_MOMENTS || op == OPU_NORM_MAP_NORMALISE;
}

/* opu_chain.c: the chain of a pass, and whether the machine has its order. */
struct opu_chain opu_chain_of(const struct opu_native *e);
int opu_has_order(const struct opu_native *e, const struct opu_chain *c);

#endif
