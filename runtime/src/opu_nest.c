/* Executes loop nests: the payload on up to OPU_LANES iterations of the innermost loop at a time. */
#include <string.h>

#include "opu_bytes.h"
#include "opu_host.h"
#include "opu_math.h"

/* A nest at one point of its outer loops. */
struct run {
  const struct opu_file *file;
  const struct opu_nest *nest;
  union opu_lanes *lanes;
  struct opu_operand operand[OPU_OPERANDS];
  uint8_t *memory[OPU_OPERANDS]; /* that the operand is in */
  uint32_t index[OPU_RANK];
  int64_t row[OPU_OPERANDS]; /* of the innermost loop: bytes from the start of the memory */
  int outside;               /* an index was */
};

static int64_t table_of(const struct run *r, const struct opu_operand *x, uint32_t loop,
                        uint32_t index) {
  if (x->table[loop] == OPU_NONE) return 0;
  return (int32_t)opu_u32(r->file->section + r->file->host_at + x->table[loop] + 4 * (size_t)index);
}

/* The innermost loop's elements of an operand: offset in its memory for index 0. An offset and no
 * address, since with a negative stride that may be outside. */
static int64_t row_of(const struct run *r, uint32_t number) {
  const struct opu_operand *x = r->operand + number;
  int64_t at = 0;
  uint32_t n;
  for (n = 0; n + 1 < r->nest->loops; n++)
    at += (int64_t)x->stride[n] * r->index[n] + table_of(r, x, n, r->index[n]);
  return x->first + at * (int64_t)opu_dtype_bytes(x->dtype);
}

static int64_t inner_of(const struct run *r, const struct opu_operand *x, uint32_t index) {
  const uint32_t inner = r->nest->loops - 1;
  if (!r->nest->loops) return 0;
  return (int64_t)x->stride[inner] * index + table_of(r, x, inner, index);
}

#define READ(type, member)                                        \
  for (k = 0; k < count; k++) {                                   \
    type value;                                                   \
    const int64_t step = inner_of(r, x, first + k) + (beyond ? beyond[k] : 0); \
    const int64_t at = r->row[number] + step * (int64_t)sizeof value; \
    memcpy(&value, r->memory[number] + at, sizeof value);         \
    to->member[k] = value;                                        \
  }                                                               \
  break

/* beyond: elements behind those of the loops, for every lane; null: none. */
static void read_lanes(const struct run *r, uint32_t number, union opu_lanes *to,
                       const int64_t *beyond, uint32_t first, uint32_t count) {
  const struct opu_operand *x = r->operand + number;
  uint32_t k;
  switch (x->dtype) {
    case OPU_FLOAT32: READ(float, f);
    case OPU_FLOAT64: READ(double, d);
    case OPU_INT8: READ(int8_t, i);
    case OPU_INT16: READ(int16_t, i);
    case OPU_UINT16: case OPU_FLOAT16: READ(uint16_t, i);
    case OPU_INT32: READ(int32_t, i);
    case OPU_UINT32: READ(uint32_t, i);
    case OPU_INT64: case OPU_UINT64: READ(int64_t, i);
    default: READ(uint8_t, i);
  }
}

#define WRITE(type, member)                                       \
  for (k = 0; k < count; k++) {                                   \
    const type value = (type)from->member[k];                     \
    const int64_t at = r->row[number] + inner_of(r, x, first + k) * (int64_t)sizeof value; \
    memcpy(r->memory[number] + at, &value, sizeof value);         \
  }                                                               \
  break

static void write_lanes(const struct run *r, uint32_t number, const union opu_lanes *from,
                        uint32_t first, uint32_t count) {
  const struct opu_operand *x = r->operand + number;
  uint32_t k;
  switch (x->dtype) {
    case OPU_FLOAT32: WRITE(float, f);
    case OPU_FLOAT64: WRITE(double, d);
    case OPU_INT8: WRITE(int8_t, i);
    case OPU_INT16: WRITE(int16_t, i);
    case OPU_UINT16: case OPU_FLOAT16: WRITE(uint16_t, i);
    case OPU_INT32: WRITE(int32_t, i);
    case OPU_UINT32: WRITE(uint32_t, i);
    case OPU_INT64: case OPU_UINT64: WRITE(int64_t, i);
    default: WRITE(uint8_t, i);
  }
}

/* The integer as its type holds it. */
static int64_t wrapped(int64_t value, uint32_t dtype) {
  switch (dtype) {
    case OPU_INT8: return (int8_t)value;
    case OPU_UINT8: return (uint8_t)value;
    case OPU_INT16: return (int16_t)value;
    case OPU_UINT16: return (uint16_t)value;
    case OPU_INT32: return (int32_t)value;
    case OPU_UINT32: return (uint32_t)value;
    case OPU_BOOL: return value != 0;
    default: return value;
  }
}

/* Towards zero; what int64 does not hold saturates, a NaN becomes the least. */
static int64_t whole(double value) {
  if (value >= 9223372036854775807.0) return INT64_MAX;
  return value > -9223372036854775808.0 ? (int64_t)value : INT64_MIN;
}

enum { INTEGER, SINGLE, DOUBLE };

static int class_of(uint32_t dtype) {
  return dtype == OPU_FLOAT32 ? SINGLE : dtype == OPU_FLOAT64 ? DOUBLE : INTEGER;
}

static uint32_t dtype_of(const struct run *r, uint32_t number) {
  const uint32_t operands = r->nest->inputs + r->nest->results;
  if (number < operands) return r->operand[number].dtype;
  return opu_u32(r->file->section + r->nest->body_at +
                 4 * OPU_INSTRUCTION_WORDS * (size_t)(number - operands) + 4);
}

static void cast(union opu_lanes *to, uint32_t dtype, const union opu_lanes *from, int kind,
                 uint32_t count) {
  const int target = class_of(dtype);
  uint32_t k;
  for (k = 0; k < count; k++) {
    const double real = kind == SINGLE ? (double)from->f[k] : kind == DOUBLE ? from->d[k] : 0;
    if (target == SINGLE)
      to->f[k] = kind == INTEGER ? (float)from->i[k] : (float)real;
    else if (target == DOUBLE)
      to->d[k] = kind == INTEGER ? (double)from->i[k] : real;
    else if (dtype == OPU_BOOL)
      to->i[k] = kind == INTEGER ? from->i[k] != 0 : real != 0;
    else
      to->i[k] = wrapped(kind == INTEGER ? from->i[k] : whole(real), dtype);
  }
}

/* The quotient towards zero, as C has it; of what C leaves open, 0 and the wrapped number. */
static int64_t quotient(int64_t a, int64_t b) {
  if (!b) return 0;
  return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static int64_t integer_power(int64_t base, int64_t exponent) {
  uint64_t power = 1, square = (uint64_t)base;
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
  for (; exponent; exponent >>= 1, square *= square)
    if (exponent & 1) power *= square;
  return (int64_t)power;
}

#define EACH(result) for (k = 0; k < count; k++) to->result; break

static void integers(uint32_t op, uint32_t dtype, union opu_lanes *to, const union opu_lanes *a,
                     const union opu_lanes *b, uint32_t count) {
  uint32_t k;
  switch (op) {
    case OPU_NEG: EACH(i[k] = wrapped((int64_t)(0 - (uint64_t)a->i[k]), dtype));
    case OPU_ABS:
      EACH(i[k] = wrapped(a->i[k] < 0 ? (int64_t)(0 - (uint64_t)a->i[k]) : a->i[k], dtype));
    case OPU_SIGN: EACH(i[k] = (a->i[k] > 0) - (a->i[k] < 0));
    case OPU_ADD: EACH(i[k] = wrapped((int64_t)((uint64_t)a->i[k] + (uint64_t)b->i[k]), dtype));
    case OPU_SUB: EACH(i[k] = wrapped((int64_t)((uint64_t)a->i[k] - (uint64_t)b->i[k]), dtype));
    case OPU_MUL: EACH(i[k] = wrapped((int64_t)((uint64_t)a->i[k] * (uint64_t)b->i[k]), dtype));
    case OPU_DIV: EACH(i[k] = wrapped(quotient(a->i[k], b->i[k]), dtype));
    case OPU_MOD:
      EACH(i[k] = b->i[k] ? a->i[k] - (int64_t)((uint64_t)quotient(a->i[k], b->i[k]) * (uint64_t)b->i[k]) : 0);
    case OPU_POW: EACH(i[k] = wrapped(integer_power(a->i[k], b->i[k]), dtype));
    case OPU_MAX: case OPU_MAXNUM: EACH(i[k] = a->i[k] > b->i[k] ? a->i[k] : b->i[k]);
    case OPU_MIN: EACH(i[k] = a->i[k] < b->i[k] ? a->i[k] : b->i[k]);
    case OPU_AND: EACH(i[k] = a->i[k] && b->i[k]);
    case OPU_OR: EACH(i[k] = a->i[k] || b->i[k]);
    case OPU_NOT: EACH(i[k] = !a->i[k]);
    default: EACH(i[k] = a->i[k]); /* rounding a whole number */
  }
}

#define REAL(f, type)                                                        \
  case OPU_NEG: EACH(f[k] = -a->f[k]);                                       \
  case OPU_ABS: EACH(f[k] = (type)opu_abs((double)a->f[k]));                 \
  case OPU_SIGN: EACH(f[k] = a->f[k] > 0 ? 1 : a->f[k] < 0 ? -1 : a->f[k]);  \
  case OPU_SQRT: EACH(f[k] = (type)opu_sqrt((double)a->f[k]));               \
  case OPU_ROUND: EACH(f[k] = (type)opu_round((double)a->f[k]));             \
  case OPU_FLOOR: EACH(f[k] = (type)opu_floor((double)a->f[k]));             \
  case OPU_CEIL: EACH(f[k] = (type)opu_ceil((double)a->f[k]));               \
  case OPU_EXP: EACH(f[k] = (type)opu_exp((double)a->f[k]));                 \
  case OPU_LOG: EACH(f[k] = (type)opu_log((double)a->f[k]));                 \
  case OPU_ERF: EACH(f[k] = (type)opu_erf((double)a->f[k]));                 \
  case OPU_TANH: EACH(f[k] = (type)opu_tanh((double)a->f[k]));               \
  case OPU_SIGMOID: EACH(f[k] = (type)opu_sigmoid((double)a->f[k]));         \
  case OPU_SIN: EACH(f[k] = (type)opu_wave((double)a->f[k], 0));             \
  case OPU_COS: EACH(f[k] = (type)opu_wave((double)a->f[k], 1));             \
  case OPU_MOD: EACH(f[k] = (type)opu_rest((double)a->f[k], (double)b->f[k])); \
  case OPU_POW: EACH(f[k] = (type)opu_pow((double)a->f[k], (double)b->f[k])); \
  case OPU_ADD: EACH(f[k] = a->f[k] + b->f[k]);                              \
  case OPU_SUB: EACH(f[k] = a->f[k] - b->f[k]);                              \
  case OPU_MUL: EACH(f[k] = a->f[k] * b->f[k]);                              \
  case OPU_DIV: EACH(f[k] = a->f[k] / b->f[k]);                              \
  case OPU_MAX: EACH(f[k] = a->f[k] > b->f[k] || a->f[k] != a->f[k] ? a->f[k] : b->f[k]); \
  case OPU_MIN: EACH(f[k] = a->f[k] < b->f[k] || a->f[k] != a->f[k] ? a->f[k] : b->f[k]); \
  case OPU_MAXNUM: EACH(f[k] = a->f[k] > b->f[k] || b->f[k] != b->f[k] ? a->f[k] : b->f[k]); \
  default: break

static void singles(uint32_t op, union opu_lanes *to, const union opu_lanes *a,
                    const union opu_lanes *b, uint32_t count) {
  uint32_t k;
  switch (op) { REAL(f, float); }
}

static void doubles(uint32_t op, union opu_lanes *to, const union opu_lanes *a,
                    const union opu_lanes *b, uint32_t count) {
  uint32_t k;
  switch (op) { REAL(d, double); }
}

#define COMPARED(m)                                     \
  switch (op) {                                         \
    case OPU_LT: EACH(i[k] = a->m[k] < b->m[k]);        \
    case OPU_LE: EACH(i[k] = a->m[k] <= b->m[k]);       \
    case OPU_GT: EACH(i[k] = a->m[k] > b->m[k]);        \
    case OPU_GE: EACH(i[k] = a->m[k] >= b->m[k]);       \
    default: EACH(i[k] = a->m[k] == b->m[k]);           \
  }

static void compared(uint32_t op, int kind, union opu_lanes *to, const union opu_lanes *a,
                     const union opu_lanes *b, uint32_t count) {
  uint32_t k;
  if (kind == SINGLE) {
    COMPARED(f)
  } else if (kind == DOUBLE) {
    COMPARED(d)
  } else {
    COMPARED(i)
  }
}

static void selected(int kind, union opu_lanes *to, const union opu_lanes *which,
                     const union opu_lanes *a, const union opu_lanes *b, uint32_t count) {
  uint32_t k;
  for (k = 0; k < count; k++) {
    const union opu_lanes *from = which->i[k] ? a : b;
    if (kind == SINGLE)
      to->f[k] = from->f[k];
    else if (kind == DOUBLE)
      to->d[k] = from->d[k];
    else
      to->i[k] = from->i[k];
  }
}

static void constant(union opu_lanes *to, const uint8_t *words, int kind, uint32_t count) {
  const uint64_t bits = opu_u64(words + 20);
  const uint32_t low = opu_u32(words + 20);
  uint32_t k;
  for (k = 0; k < count; k++) {
    if (kind == SINGLE)
      memcpy(to->f + k, &low, 4);
    else
      memcpy(to->i + k, &bits, 8);
  }
}

static void indices(const struct run *r, union opu_lanes *to, uint32_t loop, uint32_t first,
                    uint32_t count) {
  const int inner = loop + 1 == r->nest->loops;
  uint32_t k;
  for (k = 0; k < count; k++) to->i[k] = inner ? first + k : r->index[loop];
}

/* Indices of an axis of `size` elements, from its end where they are negative. */
static void within(struct run *r, union opu_lanes *to, const union opu_lanes *a, int64_t size,
                   uint32_t count) {
  uint32_t k;
  for (k = 0; k < count; k++) {
    const int64_t index = a->i[k] < 0 && a->i[k] >= -size ? a->i[k] + size : a->i[k];
    const int good = index >= 0 && index < size;
    to->i[k] = good ? index : 0;
    r->outside |= !good;
  }
}

static void execute(struct run *r, uint32_t number, uint32_t first, uint32_t count) {
  const uint8_t *words = r->file->section + r->nest->body_at +
                         4 * OPU_INSTRUCTION_WORDS * (size_t)number;
  const uint32_t op = opu_u32(words), dtype = opu_u32(words + 4), arg = opu_u32(words + 8);
  const int kind = class_of(dtype);
  union opu_lanes *to = r->lanes + r->nest->inputs + r->nest->results + number;
  const union opu_lanes *a, *b, *c;
  if (op == OPU_CONST) {
    constant(to, words, kind, count);
    return;
  }
  if (op == OPU_INDEX) {
    indices(r, to, arg, first, count);
    return;
  }
  a = r->lanes + arg;
  b = r->lanes + opu_u32(words + 12);
  c = r->lanes + opu_u32(words + 16);
  if (op == OPU_WITHIN) {
    within(r, to, a, (int64_t)(opu_u64(words + 20) & INT64_MAX), count);
    return;
  }
  if (op == OPU_AT) {
    union opu_lanes beyond;
    /* once more, since a file may hold any number: the limit is what was checked */
    within(r, &beyond, b, (int64_t)opu_u64(words + 20) + 1, count);
    read_lanes(r, arg, to, beyond.i, first, count);
    return;
  }
  if (op == OPU_CAST)
    cast(to, dtype, a, class_of(dtype_of(r, arg)), count);
  else if (op == OPU_SELECT)
    selected(kind, to, a, b, c, count);
  else if (op >= OPU_LT && op <= OPU_EQ)
    compared(op, class_of(dtype_of(r, arg)), to, a, b, count);
  else if (kind == SINGLE)
    singles(op, to, a, b, count);
  else if (kind == DOUBLE)
    doubles(op, to, a, b, count);
  else
    integers(op, dtype, to, a, b, count);
}

/* A result that an iteration reads and the next one has changed: one iteration at a time. */
static int carries(const struct run *r) {
  const uint32_t inner = r->nest->loops - 1;
  uint32_t n;
  if (!r->nest->loops || r->nest->extent[inner] == 1) return 0;
  for (n = r->nest->inputs; n < r->nest->inputs + r->nest->results; n++)
    if (r->operand[n].stride[inner] == 0) return 1;
  return 0;
}

static void inner_loop(struct run *r, uint32_t most) {
  const struct opu_nest *nest = r->nest;
  const uint32_t extent = nest->loops ? nest->extent[nest->loops - 1] : 1;
  const uint32_t operands = nest->inputs + nest->results;
  uint32_t first, n;
  for (n = 0; n < operands; n++) r->row[n] = row_of(r, n);
  for (first = 0; first < extent; first += most) {
    const uint32_t count = extent - first < most ? extent - first : most;
    for (n = 0; n < operands; n++) read_lanes(r, n, r->lanes + n, 0, first, count);
    for (n = 0; n < nest->instructions; n++) execute(r, n, first, count);
    for (n = 0; n < nest->results; n++) {
      const uint32_t value = opu_u32(r->file->section + nest->yields_at + 4 * (size_t)n);
      write_lanes(r, nest->inputs + n, r->lanes + value, first, count);
    }
  }
}

/* The next point of the outer loops; 0 after the last one. */
static int next(struct run *r) {
  uint32_t n = r->nest->loops ? r->nest->loops - 1 : 0;
  while (n--) {
    if (++r->index[n] < r->nest->extent[n]) return 1;
    r->index[n] = 0;
  }
  return 0;
}

int opu_nest_run(const struct opu_file *file, const struct opu_nest *nest, uint8_t *work,
                 union opu_lanes *lanes) {
  struct run r;
  uint32_t n, most;
  r.file = file;
  r.nest = nest;
  r.lanes = lanes;
  r.outside = 0;
  memset(r.index, 0, sizeof r.index);
  for (n = 0; n < nest->inputs + nest->results; n++) {
    r.operand[n] = opu_operand_of(file, nest, n);
    /* constants are only read: results are in the work memory */
    r.memory[n] = r.operand[n].constant ? (uint8_t *)file->section + file->host_at : work;
  }
  most = carries(&r) ? 1 : OPU_LANES;
  do inner_loop(&r, most);
  while (next(&r) && !r.outside);
  return !r.outside;
}
