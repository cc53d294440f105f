/* Steps of host segments. Written by opu_fuse/host/build/steps/build.py. */
#ifndef OPU_HOST_H
#define OPU_HOST_H

#include "opu_file.h"

enum {
  OPU_LANES = 64, /* iterations of the innermost loop that are computed at a time */
  OPU_OPERANDS = 64,
  OPU_VALUES = 255,
  OPU_INSTRUCTION_WORDS = 7
};

enum opu_step_kind { OPU_STEP_LOAD, OPU_STEP_STORE, OPU_STEP_NEST, OPU_STEP_TOPK };

enum opu_scalar_op {
  OPU_CONST, OPU_INDEX, OPU_CAST, OPU_NEG, OPU_ABS, OPU_SIGN, OPU_SQRT, OPU_ROUND, OPU_FLOOR,
  OPU_CEIL, OPU_EXP, OPU_TANH, OPU_SIGMOID, OPU_ADD, OPU_SUB, OPU_MUL, OPU_DIV, OPU_MAX, OPU_MIN,
  OPU_MAXNUM, OPU_LT, OPU_LE, OPU_GT, OPU_GE, OPU_EQ, OPU_AND, OPU_OR, OPU_NOT, OPU_SELECT,
  OPU_LOG, OPU_ERF, OPU_POW, OPU_MOD, OPU_SIN, OPU_COS, OPU_WITHIN, OPU_AT, OPU_SCALAR_OPS
};

/* A value of the payload in consecutive iterations: integers of any width as int64. */
union opu_lanes {
  int64_t i[OPU_LANES];
  float f[OPU_LANES];
  double d[OPU_LANES];
};

/* An operand. first: of its elements, in bytes; strides in elements; tables: offsets in the
 * section, or OPU_NONE. */
struct opu_operand {
  uint32_t constant, dtype, first;
  int32_t stride[OPU_RANK];
  uint32_t table[OPU_RANK];
};

struct opu_nest {
  uint32_t loops, inputs, results, instructions;
  uint32_t extent[OPU_RANK];
  uint32_t operands_at, body_at, yields_at; /* offsets in the section */
};

struct opu_nest opu_nest_of(const struct opu_file *file, uint32_t at);
struct opu_operand opu_operand_of(const struct opu_file *file, const struct opu_nest *nest,
                                  uint32_t number);

/* Run a nest on the values of an image. lanes: a register for every value of the payload. 0: an
 * index was outside its operand. */
int opu_nest_run(const struct opu_file *file, const struct opu_nest *nest, uint8_t *work,
                 union opu_lanes *lanes);

/* The k first elements of each of some rows in the work memory, by size and then by index. source,
 * values, indices: bytes from its start. values: OPU_NONE where only the indices (int64) are wanted. */
struct opu_topk {
  uint32_t rows, count, k, dtype, largest;
  uint32_t source, values, indices;
};
enum { OPU_TOPK_WORDS = 9 };

struct opu_topk opu_topk_of(const struct opu_file *file, uint32_t at);
int opu_topk_check(const struct opu_file *file, const struct opu_topk *t);
void opu_topk_run(const struct opu_topk *t, uint8_t *work);

#endif
