/* Host segments: their steps are checked when a file is opened, so that a run checks none. */
#include "opu_host.h"

#include "opu_bytes.h"

enum { HEAD = 8, MOVE_WORDS = 3, NEST_WORDS = 6 };

static uint32_t word(const struct opu_file *file, uint32_t at, uint32_t n) {
  return opu_u32(file->section + at + 4 * (size_t)n);
}

uint32_t opu_host_port(const struct opu_file *file, uint32_t number, uint32_t which) {
  return file->host_bytes ? word(file, file->host_at + HEAD, 2 * number + which) : OPU_NONE;
}

/* Where segment `number` has the offset of its steps, and how many. */
static uint32_t segment_at(const struct opu_file *file, uint32_t number) {
  return file->host_at + HEAD + 8 * (file->inputs + file->outputs) + 8 * number;
}

struct opu_nest opu_nest_of(const struct opu_file *file, uint32_t at) {
  struct opu_nest nest;
  uint32_t n, operands;
  nest.loops = word(file, at, 2);
  nest.inputs = word(file, at, 3);
  nest.results = word(file, at, 4);
  nest.instructions = word(file, at, 5);
  for (n = 0; n < OPU_RANK; n++)
    nest.extent[n] = n < nest.loops ? word(file, at, NEST_WORDS + n) : 1;
  operands = nest.inputs + nest.results;
  nest.operands_at = at + 4 * (NEST_WORDS + nest.loops);
  nest.body_at = nest.operands_at + 4 * operands * (3 + 2 * nest.loops);
  nest.yields_at = nest.body_at + 4 * OPU_INSTRUCTION_WORDS * nest.instructions;
  return nest;
}

struct opu_operand opu_operand_of(const struct opu_file *file, const struct opu_nest *nest,
                                  uint32_t number) {
  const uint32_t at = nest->operands_at + 4 * number * (3 + 2 * nest->loops);
  struct opu_operand x;
  uint32_t n;
  x.constant = word(file, at, 0);
  x.dtype = word(file, at, 1);
  x.first = word(file, at, 2);
  for (n = 0; n < OPU_RANK; n++) {
    x.stride[n] = n < nest->loops ? (int32_t)word(file, at, 3 + n) : 0;
    x.table[n] = n < nest->loops ? word(file, at, 3 + nest->loops + n) : OPU_NONE;
  }
  return x;
}

/* Whether every element that an operand touches, and those up to `beyond` elements behind, are in
 * the section or in the work memory. */
static int good_operand(const struct opu_file *file, const struct opu_nest *nest,
                        const struct opu_operand *x, int result, uint64_t beyond) {
  const uint64_t size = opu_dtype_bytes(x->dtype);
  const uint64_t limit = x->constant ? file->host_bytes : file->image_bytes;
  int64_t low = 0, high = 0;
  uint32_t n, i;
  if (!size || x->constant > 1 || (x->constant && result)) return 0;
  for (n = 0; n < nest->loops; n++) {
    const int64_t reach = (int64_t)x->stride[n] * (nest->extent[n] - 1);
    int64_t least = reach < 0 ? reach : 0, most = reach > 0 ? reach : 0;
    if (x->table[n] != OPU_NONE) {
      int32_t near = 0, far = 0;
      if (!opu_spans(x->table[n], 4 * (uint64_t)nest->extent[n], file->host_bytes)) return 0;
      for (i = 0; i < nest->extent[n]; i++) {
        const int32_t entry = (int32_t)word(file, file->host_at + x->table[n], i);
        if (entry < near) near = entry;
        if (entry > far) far = entry;
      }
      least += near;
      most += far;
    }
    low += least;
    high += most;
  }
  /* below 2^63: eight loops of at most 2^31 iterations and strides below 2^31 */
  if (low < -(int64_t)(x->first / size) || high > (int64_t)1 << 40) return 0;
  if (beyond > (uint64_t)1 << 40) return 0;
  return opu_spans(x->first, ((uint64_t)high + 1 + beyond) * size, limit);
}

static int good_instruction(const struct opu_file *file, const struct opu_nest *nest, uint32_t at,
                            uint32_t number) {
  const uint32_t op = word(file, at, 0);
  uint32_t n;
  if (op >= OPU_SCALAR_OPS || !opu_dtype_bytes(word(file, at, 1))) return 0;
  if (op == OPU_INDEX) return word(file, at, 2) < nest->loops;
  if (op == OPU_AT) {
    const struct opu_operand x =
        opu_operand_of(file, nest, word(file, at, 2) < nest->inputs ? word(file, at, 2) : 0);
    return word(file, at, 2) < nest->inputs && word(file, at, 3) < number &&
           word(file, at, 1) == x.dtype &&
           good_operand(file, nest, &x, 0, opu_u64(file->section + at + 20));
  }
  for (n = 0; n < 3 && op != OPU_CONST; n++)
    if (word(file, at, 2 + n) >= number) return 0;
  return 1;
}

/* The words of the nest at `at`, all of which are in the section; 0: it is none. */
static uint32_t good_nest(const struct opu_file *file, uint32_t at, uint32_t room,
                          uint32_t *values) {
  struct opu_nest nest;
  uint64_t words, steps = 1;
  uint32_t n, operands;
  if (room < NEST_WORDS || word(file, at, 1) > room) return 0;
  if (word(file, at, 2) > OPU_RANK || word(file, at, 3) > OPU_OPERANDS ||
      word(file, at, 4) > OPU_OPERANDS || word(file, at, 5) > OPU_VALUES)
    return 0;
  operands = word(file, at, 3) + word(file, at, 4);
  words = NEST_WORDS + word(file, at, 2) + (uint64_t)operands * (3 + 2 * word(file, at, 2)) +
          (uint64_t)OPU_INSTRUCTION_WORDS * word(file, at, 5) + word(file, at, 4);
  if (words != word(file, at, 1) || !word(file, at, 4) || operands > OPU_OPERANDS) return 0;
  nest = opu_nest_of(file, at);
  *values = operands + nest.instructions;
  if (*values > OPU_VALUES) return 0;
  for (n = 0; n < nest.loops; n++) {
    if (!nest.extent[n] || nest.extent[n] > 0x7fffffffu) return 0;
    if ((steps *= nest.extent[n]) > (uint64_t)1 << 40) return 0;
  }
  for (n = 0; n < operands; n++) {
    const struct opu_operand x = opu_operand_of(file, &nest, n);
    if (!good_operand(file, &nest, &x, n >= nest.inputs, 0)) return 0;
  }
  for (n = 0; n < nest.instructions; n++)
    if (!good_instruction(file, &nest, nest.body_at + 4 * OPU_INSTRUCTION_WORDS * n, operands + n))
      return 0;
  for (n = 0; n < nest.results; n++)
    if (word(file, nest.yields_at, n) >= *values) return 0;
  return (uint32_t)words;
}

/* The words of a map's step; 0: it is none. */
static uint32_t good_move(const struct opu_file *file, uint32_t at, uint32_t room) {
  struct opu_map map;
  if (room < MOVE_WORDS || word(file, at, 1) >= file->maps) return 0;
  map = opu_map_of(file, word(file, at, 1));
  return opu_spans(word(file, at, 2), opu_map_elements(file, &map), file->image_bytes)
             ? MOVE_WORDS
             : 0;
}

static uint32_t good_step(const struct opu_file *file, uint32_t at, uint32_t room,
                          uint32_t *values) {
  struct opu_topk topk;
  *values = 0;
  if (!room) return 0;
  switch (word(file, at, 0)) {
    case OPU_STEP_LOAD: case OPU_STEP_STORE: return good_move(file, at, room);
    case OPU_STEP_NEST: return good_nest(file, at, room, values);
    case OPU_STEP_TOPK:
      if (room < OPU_TOPK_WORDS) return 0;
      topk = opu_topk_of(file, at);
      return opu_topk_check(file, &topk) ? OPU_TOPK_WORDS : 0;
    default: return 0;
  }
}

const char *opu_host_check(struct opu_file *file) {
  const uint32_t ports = file->inputs + file->outputs, section = file->host_bytes;
  uint32_t n, most = 0;
  file->image_bytes = file->work_bytes = 0;
  if (!section) return 0;
  if (section < HEAD + 8 * ((uint64_t)ports + file->segments) || section % 4 || file->host_at % 4)
    return "runtime.bin: host section";
  file->image_bytes = opu_u64(file->section + file->host_at);
  if (file->image_bytes > (uint64_t)1 << 32 || file->image_bytes % 64)
    return "runtime.bin: work memory";
  for (n = 0; n < file->segments; n++) {
    uint32_t at = word(file, segment_at(file, n), 0), steps = word(file, segment_at(file, n), 1);
    if (at > section || at % 4) return "runtime.bin: steps of a host segment";
    while (steps--) {
      uint32_t values;
      const uint32_t room = (section - at) / 4;
      const uint32_t words = good_step(file, file->host_at + at, room, &values);
      if (!words) return "runtime.bin: a step of a host segment";
      if (values > most) most = values;
      at += 4 * words;
    }
  }
  file->work_bytes = file->image_bytes * file->batch + most * sizeof(union opu_lanes);
  return 0;
}

enum opu_status opu_host_run(const struct opu_session *s, uint32_t number, uint32_t image) {
  const struct opu_file *file = s->file;
  uint8_t *work = s->work + (size_t)file->image_bytes * image;
  union opu_lanes *lanes =
      (union opu_lanes *)(void *)(s->work + (size_t)file->image_bytes * file->batch);
  uint32_t at = file->host_at + word(file, segment_at(file, number), 0);
  uint32_t steps = word(file, segment_at(file, number), 1);
  while (steps--) {
    const uint32_t kind = word(file, at, 0);
    if (kind == OPU_STEP_NEST) {
      const struct opu_nest nest = opu_nest_of(file, at);
      if (!opu_nest_run(file, &nest, work, lanes)) return OPU_BAD_INDEX;
      at += 4 * word(file, at, 1);
    } else if (kind == OPU_STEP_TOPK) {
      const struct opu_topk topk = opu_topk_of(file, at);
      opu_topk_run(&topk, work);
      at += 4 * OPU_TOPK_WORDS;
    } else {
      const struct opu_map map = opu_map_of(file, word(file, at, 1));
      uint8_t *values = work + word(file, at, 2);
      if (kind == OPU_STEP_LOAD) opu_load_map(s, &map, image, values);
      if (kind == OPU_STEP_STORE) opu_store_map(s, &map, image, values);
      at += 4 * MOVE_WORDS;
    }
  }
  return OPU_OK;
}
