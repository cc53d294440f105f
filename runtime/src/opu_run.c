/* Runs a program: checks all words, then executes the instructions in program order. Every word is
 * a register write or an instruction (docs/isa.md). */
#include "opu_native.h"

#define ENGINE(word) ((word) >> 28 & 7u)
#define INDEX(word) ((word) >> 22 & 63u)
#define IS_INSTRUCTION(word) ((word) >> 31)

static struct opu_instruction decoded(uint32_t word) {
  struct opu_instruction x;
  x.engine = ENGINE(word);
  x.opcode = word >> 24 & 15u;
  x.waits = word >> 16 & 255u;
  x.signals = word >> 8 & 255u;
  return x;
}

static int32_t value_of(uint32_t word, const struct opu_register *r) {
  const uint32_t value = word & ((1u << OPU_VALUE_BITS) - 1u);
  const uint32_t sign = 1u << (OPU_VALUE_BITS - 1u);
  return r->is_signed ? (int32_t)(value ^ sign) - (int32_t)sign : (int32_t)value;
}

/* Whether a word is legal: a register that the machine has with a value that it holds, or an
 * instruction whose engine has the opcode and exchanges tokens with the engines that it names. */
static int is_word(uint32_t word) {
  const uint32_t engine = ENGINE(word);
  const struct opu_register *r;
  int32_t value;
  if (engine >= OPU_ENGINES) return 0;
  if (IS_INSTRUCTION(word)) {
    const struct opu_instruction x = decoded(word);
    const uint32_t others = ~(uint32_t)opu_partners[engine];
    return x.opcode < opu_opcodes[engine] && !((x.waits | x.signals) & others) && !(word & 255u);
  }
  r = &opu_registers[engine][INDEX(word)];
  if (!r->bits) return 0;
  value = value_of(word, r);
  if (r->is_signed) return value >= -(1 << (r->bits - 1)) && value < 1 << (r->bits - 1);
  return value < 1 << r->bits;
}

/* The register by which an engine selects a unit. Only compute and post have several units. */
static uint32_t bank_of(uint32_t engine) {
  return engine == OPU_ENGINE_COMPUTE ? OPU_REG_COMPUTE_BANK : OPU_REG_POST_BANK;
}

/* Write a register; where every unit has one, that of the selected unit. `missing` counts registers
 * other than 0 of units that the machine does not have: compute and post refuse to run with any. */
static void set_register(struct opu_native *e, uint32_t word) {
  const uint32_t engine = ENGINE(word), index = INDEX(word);
  const struct opu_register *r = &opu_registers[engine][index];
  const uint32_t unit = r->stage ? (uint32_t)e->registers[engine][0][bank_of(engine)] : 0u;
  const int32_t value = value_of(word, r);
  int32_t *target = &e->registers[engine][unit][index];
  if (unit && unit >= e->machine.stage_units[r->stage])
    e->missing[engine] += (value ? 1u : 0u) - (*target ? 1u : 0u);
  *target = value;
}

/* Index of the first word that breaks a rule, or the number of words of a correct program: all words
 * are legal, the first instruction is `check`, the last word is `end`, and after each register write
 * comes an instruction of its engine. instruction: number of the one that the word belongs to. */
static size_t first_mistake(const struct opu_program *program, size_t *instruction) {
  size_t pending[OPU_ENGINES], i, first; /* pending: first write that no instruction has read */
  uint32_t engine;
  int checked = 0;
  *instruction = 0;
  for (engine = 0; engine < OPU_ENGINES; engine++) pending[engine] = program->count;
  for (i = 0; i < program->count; i++) {
    const uint32_t word = program->words[i];
    struct opu_instruction x;
    if (!is_word(word)) return i;
    engine = ENGINE(word);
    if (!IS_INSTRUCTION(word)) {
      if (pending[engine] == program->count) pending[engine] = i;
      continue;
    }
    x = decoded(word);
    if (!checked && (engine != OPU_ENGINE_FETCH || x.opcode != OPU_OP_FETCH_CHECK)) return i;
    checked = 1;
    pending[engine] = program->count;
    if (engine == OPU_ENGINE_FETCH && x.opcode == OPU_OP_FETCH_END) {
      if (i + 1u < program->count) return i + 1u;
      first = program->count;
      for (engine = 0; engine < OPU_ENGINES; engine++)
        if (pending[engine] < first) first = pending[engine];
      return first;
    }
    ++*instruction;
  }
  return program->count ? program->count - 1u : 0;
}

static uint32_t check_hash(const struct opu_native *e) {
  const uint64_t wanted = (uint64_t)SIGNED(FETCH, HASH_LO) |
                         (uint64_t)SIGNED(FETCH, HASH_HI) << OPU_VALUE_BITS;
  const uint64_t own = e->machine.spec_hash[0] | (uint64_t)e->machine.spec_hash[1] << 32;
  return wanted == own ? OPU_ERR_NONE : OPU_ERR_SPEC_MISMATCH;
}

/* Consume a token of every engine that the instruction waits for. Instructions run one by one, so a
 * token that is missing now never comes: the machine would wait until its watchdog stops it. */
static uint32_t wait(struct opu_native *e, const struct opu_instruction *x) {
  uint32_t other;
  for (other = 0; other < OPU_ENGINES; other++)
    if (x->waits >> other & 1u) {
      if (!e->tokens[other][x->engine]) return OPU_ERR_WATCHDOG;
      e->tokens[other][x->engine]--;
    }
  return OPU_ERR_NONE;
}

/* Returns an error code; moved: bytes of DRAM that the instruction reads or writes. */
static uint32_t execute(struct opu_native *e, const struct opu_instruction *x, uint64_t *moved) {
  uint32_t wrong, other;
  *moved = 0;
  wrong = wait(e, x);
  if (!wrong) wrong = opu_refuses(e, x, moved);
  if (wrong) return wrong;
  switch (x->engine) {
    case OPU_ENGINE_FETCH:
      if (x->opcode == OPU_OP_FETCH_CHECK) wrong = check_hash(e);
      break;
    case OPU_ENGINE_LOAD:
      opu_execute_load(e, x->opcode);
      break;
    case OPU_ENGINE_COMPUTE:
      wrong = opu_execute_compute(e, x->opcode);
      break;
    case OPU_ENGINE_POST:
      wrong = opu_execute_post(e);
      break;
    default:
      opu_execute_store(e);
      break;
  }
  for (other = 0; other < OPU_ENGINES; other++)
    e->tokens[x->engine][other] += x->signals >> other & 1u;
  return wrong;
}

static void reset(struct opu_native *e) {
  memset(e->registers, 0, sizeof e->registers);
  memset(e->missing, 0, sizeof e->missing);
  memset(e->tokens, 0, sizeof e->tokens);
}

static enum opu_status failed(struct opu_report *report, enum opu_status status, uint32_t code,
                              uint32_t engine, size_t instruction, size_t word) {
  report->fault.code = code;
  report->fault.engine = engine;
  report->fault.instruction = (uint32_t)instruction;
  report->fault.word = (uint32_t)word;
  return status;
}

enum opu_status opu_native_run(struct opu_native *engine, const struct opu_program *program,
                               const struct opu_window *window, struct opu_report *report) {
  struct opu_report unread;
  size_t i, number;
  if (!engine || !program || !window || (program->count && !program->words) ||
      (window->size && !window->data))
    return OPU_BAD_ARGUMENT;
  if (!report) {
    memset(&unread, 0, sizeof unread);
    report = &unread;
  }
  if (report->room && !report->retired) return OPU_BAD_ARGUMENT;
  report->instructions = 0;
  memset(&report->fault, 0, sizeof report->fault);
  i = first_mistake(program, &number);
  if (i < program->count || !program->count)
    return failed(report, OPU_BAD_PROGRAM, OPU_ERR_ILLEGAL_INSTRUCTION,
                  program->count ? ENGINE(program->words[i]) : 0u, number, i);
  engine->window = *window;
  reset(engine);
  for (i = 0; i < program->count; i++) {
    const uint32_t word = program->words[i];
    const struct opu_instruction x = decoded(word);
    const size_t n = report->instructions;
    uint64_t moved;
    uint32_t wrong;
    if (!IS_INSTRUCTION(word)) {
      set_register(engine, word);
      continue;
    }
    wrong = execute(engine, &x, &moved);
    if (wrong) return failed(report, OPU_MACHINE_FAULT, wrong, x.engine, n, i);
    if (n < report->room) {
      report->retired[n].moved = moved;
      report->retired[n].engine = (uint8_t)x.engine;
      report->retired[n].opcode = (uint8_t)x.opcode;
    }
    report->instructions = n + 1u;
  }
  return OPU_OK;
}
