/* Inner products of a few rows of features and a few of weights: the hot loop of the engine. */
#ifndef OPU_DOT_H
#define OPU_DOT_H

#include "opu_native.h"

/* sums[i][j] = features[i] . weights[j], rows of `terms` operands, a multiple of OPU_TERMS. At most
 * OPU_CHUNK_TERMS + OPU_TERMS of them, so that no sum exceeds 32 bits. */
static void opu_multiply(const opu_feature *features, const opu_weight *weights, uint32_t terms,
                         int32_t sums[OPU_TILE][OPU_TILE]) {
  const uint32_t n = terms / OPU_TERMS * OPU_TERMS;
  const opu_feature *a0 = features, *a1 = a0 + terms, *a2 = a1 + terms, *a3 = a2 + terms;
  const opu_weight *b0 = weights, *b1 = b0 + terms, *b2 = b1 + terms, *b3 = b2 + terms;
  int32_t s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
  int32_t s20 = 0, s21 = 0, s22 = 0, s23 = 0, s30 = 0, s31 = 0, s32 = 0, s33 = 0;
  uint32_t k;
  for (k = 0; k < n; k++) {
    s00 += a0[k] * b0[k];
    s01 += a0[k] * b1[k];
    s02 += a0[k] * b2[k];
    s03 += a0[k] * b3[k];
    s10 += a1[k] * b0[k];
    s11 += a1[k] * b1[k];
    s12 += a1[k] * b2[k];
    s13 += a1[k] * b3[k];
    s20 += a2[k] * b0[k];
    s21 += a2[k] * b1[k];
    s22 += a2[k] * b2[k];
    s23 += a2[k] * b3[k];
    s30 += a3[k] * b0[k];
    s31 += a3[k] * b1[k];
    s32 += a3[k] * b2[k];
    s33 += a3[k] * b3[k];
  }
  sums[0][0] = s00, sums[0][1] = s01, sums[0][2] = s02, sums[0][3] = s03;
  sums[1][0] = s10, sums[1][1] = s11, sums[1][2] = s12, sums[1][3] = s13;
  sums[2][0] = s20, sums[2][1] = s21, sums[2][2] = s22, sums[2][3] = s23;
  sums[3][0] = s30, sums[3][1] = s31, sums[3][2] = s32, sums[3][3] = s33;
}

#endif
