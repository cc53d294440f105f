/* The memory of an engine: its size and its layout. */
#include "opu_native.h"

#define ALIGNMENT 64u
#define UNWRITTEN 0xA5 /* of memory that no instruction wrote: unlike 0, a wrong read shows */
#define MOST_WORDS (1u << 24)
#define WIDEST 4096u /* lanes or bytes of a word */

static int is_power_of_two(uint32_t value) { return value && !(value & (value - 1u)); }

static int modes_are_sound(const struct opu_machine_config *m) {
  uint32_t i;
  if (!m->modes || m->modes > OPU_MODES) return 0;
  for (i = 0; i < m->modes; i++) {
    const uint32_t ic = m->mode_ic[i], oc = m->mode_oc[i], px = m->mode_px[i];
    if (!ic || !oc || m->word_channels % ic || m->word_channels % oc) return 0;
    if (px != 1u && px != 2u && px != 4u) return 0;
    if (m->word_channels % px || oc > m->word_channels / px) return 0;
  }
  return 1;
}

static int chain_is_sound(const struct opu_machine_config *m) {
  uint32_t code;
  if (!m->codes || m->codes >= OPU_CODES) return 0;
  if (m->code_stage[OPU_CODE_REQUANT] != OPU_STAGE_REQUANT) return 0;
  for (code = 0; code < OPU_CODES; code++) {
    const uint32_t stage = m->code_stage[code];
    if (m->code_unit[code] >= OPU_UNITS || m->code_resource[code] > 31u) return 0;
    if (stage >= OPU_STAGES || stage == OPU_STAGE_PRE) return 0;
    if (stage == OPU_STAGE_NORM && m->code_unit[code] >= m->stage_units[stage]) return 0;
    /* A second requantiser would need a second set of constants. */
    if (code != OPU_CODE_REQUANT && stage == OPU_STAGE_REQUANT) return 0;
    if (m->follow[code] >> OPU_CODE_REQUANT & 1u) return 0;
  }
  return m->stage_units[OPU_STAGE_PRE] < OPU_UNITS && m->stage_units[OPU_STAGE_NORM] <= OPU_UNITS;
}

static int is_machine(const struct opu_machine_config *m) {
  uint32_t i;
  if (m->layout != OPU_MACHINE_LAYOUT || !m->word_channels) return 0;
  if (!is_power_of_two(m->word_bytes) || m->word_bytes > WIDEST) return 0;
  if (m->word_channels > m->word_bytes || m->word_bytes % OPU_IMAGE_SLOT) return 0;
  if (!m->bus_bytes || m->bus_bytes > m->word_bytes || !m->cycles || !m->residual_cycles) return 0;
  if (!is_power_of_two(m->weight_width) || m->weight_width > WIDEST) return 0;
  if (!m->units || !m->multipliers || m->units > WIDEST || m->multipliers > WIDEST) return 0;
  if (m->depthwise && m->word_channels % opu_min(m->units, m->word_channels)) return 0;
  if (m->window_side * m->window_side > m->multipliers || m->window_side > WIDEST) return 0;
  for (i = 0; i < OPU_SPACES; i++)
    if (m->memory_words[i] > MOST_WORDS) return 0;
  if (m->norm_pixels > MOST_WORDS) return 0;
  if (m->memory_words[OPU_SPACE_IMAGE] && m->word_bytes != m->word_channels) return 0;
  return modes_are_sound(m) && chain_is_sound(m);
}

static uint64_t ceil_to(uint64_t value, uint64_t step) { return (value + step - 1u) / step * step; }

/* The next `bytes` of an arena, or their place alone where there is no memory yet. */
struct arena {
  uint8_t *memory;
  uint64_t used;
};

static void *take(struct arena *a, uint64_t bytes) {
  void *result = a->memory ? a->memory + a->used : 0;
  a->used += ceil_to(bytes, ALIGNMENT);
  return result;
}

/* Most channels of weight rows among the modes, each with its terms filled to a multiple of
 * terms_step; 0: the channels alone. */
static uint64_t most_rows(const struct opu_machine_config *m, uint64_t terms_step) {
  uint64_t most = 0;
  uint32_t i;
  for (i = 0; i < m->modes; i++) {
    const uint64_t bytes = (uint64_t)m->mode_ic[i] * m->mode_oc[i];
    const uint64_t words = (bytes + m->weight_width - 1u) / m->weight_width;
    const uint64_t channels = ceil_to(m->mode_oc[i], OPU_TILE);
    const uint64_t terms = terms_step ? ceil_to(m->mode_ic[i], terms_step) : 1u;
    const uint64_t all = m->memory_words[OPU_SPACE_WEIGHT] / words * channels * terms;
    if (all > most) most = all;
  }
  return most;
}

/* Entries of all norms. */
static uint64_t statistics(const struct opu_machine_config *m) {
  return (uint64_t)m->stage_units[OPU_STAGE_NORM] * m->norm_pixels * OPU_QUARTERS;
}

/* The next `bytes` become e->member. */
#define PLACE(member, type, bytes)                                 \
  do {                                                             \
    void *const first = take(a, bytes);                            \
    if (e) e->member = (type *)first;                              \
  } while (0)

/* Lay an engine out in `a`; e: where its state goes, or null to learn the size alone. A second state
 * for that would take 20 KB of the stack. */
static void lay_out(struct opu_native *e, const struct opu_machine_config *m, struct arena *a) {
  const uint64_t lanes = m->word_channels;
  const uint64_t terms = ceil_to(OPU_CHUNK_TERMS > lanes ? OPU_CHUNK_TERMS : lanes, OPU_TERMS);
  uint32_t i;
  take(a, sizeof *e);
  for (i = 0; i < OPU_SPACES; i++) {
    const uint32_t bytes = i == OPU_SPACE_WEIGHT ? m->weight_width
                           : i == OPU_SPACE_PSUM ? 4u * m->word_channels
                                                 : m->word_bytes;
    if (e) e->word_bytes[i] = bytes;
    PLACE(memory[i], uint8_t, (uint64_t)m->memory_words[i] * bytes);
  }
  PLACE(features, opu_feature, OPU_PANEL * terms * sizeof(opu_feature));
  PLACE(weights, opu_weight, most_rows(m, OPU_TERMS) * sizeof(opu_weight));
  PLACE(corrections, int32_t, most_rows(m, 0) * sizeof(int32_t));
  PLACE(scales.bias, int64_t, lanes * sizeof(int64_t));
  PLACE(scales.mult, int64_t, lanes * sizeof(int64_t));
  PLACE(scales.shift, int64_t, lanes * sizeof(int64_t));
  PLACE(scales.half, int64_t, lanes * sizeof(int64_t));
  PLACE(scales.some, int64_t, lanes * sizeof(int64_t));
  PLACE(filter, int32_t, (uint64_t)m->multipliers * lanes * sizeof(int32_t));
  PLACE(slopes, int32_t, OPU_ORDER_STAGES * lanes * sizeof(int32_t));
  PLACE(sums, int32_t, lanes * sizeof(int32_t));
  PLACE(value, int8_t, lanes);
  PLACE(pooled, int8_t, lanes);
  PLACE(operand, int8_t, lanes);
  PLACE(gains, struct opu_gain, OPU_ORDER_STAGES * lanes * sizeof(struct opu_gain));
  PLACE(statistics, struct opu_statistics, statistics(m) * sizeof(struct opu_statistics));
}

size_t opu_native_size(const struct opu_machine_config *machine) {
  struct arena a = {0, 0};
  if (!machine || !is_machine(machine)) return 0;
  lay_out(0, machine, &a);
  return (size_t)a.used == a.used ? (size_t)a.used : 0;
}

enum opu_status opu_native_init(struct opu_native **engine,
                                const struct opu_machine_config *machine, void *arena,
                                size_t arena_size) {
  const size_t needed = opu_native_size(machine);
  struct arena a = {0, 0};
  struct opu_native *e = (struct opu_native *)arena;
  uint64_t pixel;
  uint32_t i;
  if (!engine || !machine || !arena || (uintptr_t)arena % ALIGNMENT) return OPU_BAD_ARGUMENT;
  if (!needed) return OPU_BAD_MACHINE;
  if (arena_size < needed) return OPU_SMALL_ARENA;
  memset(arena, 0, needed);
  a.memory = (uint8_t *)arena;
  e->machine = *machine;
  lay_out(e, machine, &a);
  for (i = 0; i < OPU_SPACES; i++)
    memset(e->memory[i], UNWRITTEN, (size_t)machine->memory_words[i] * e->word_bytes[i]);
  for (pixel = 0; pixel < statistics(machine); pixel++) {
    struct opu_statistics *s = e->statistics + pixel;
    s->maximum = s->factor = s->offset = OPU_UNWRITTEN_STATISTICS;
  }
  *engine = e;
  return OPU_OK;
}

void *opu_native_memory(struct opu_native *engine, uint32_t space, size_t *size) {
  if (!engine || space >= OPU_SPACES || !engine->machine.memory_words[space]) {
    if (size) *size = 0;
    return 0;
  }
  if (size) *size = (size_t)engine->machine.memory_words[space] * engine->word_bytes[space];
  engine->packed.taps = 0; /* the caller may write weights */
  return engine->memory[space];
}
