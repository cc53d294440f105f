/* Functions of real numbers for host segments: in double, from sums and products alone. So every
 * processor has the same bits, and no mathematical library is needed. Errors before the result
 * is rounded to float, relative to it: 2e-15; tanh near 0 6e-11; erf beyond 4 2e-8; pow 2e-15 and
 * 1e-16 for each unit of |y log x|. A half step of float is 3e-8. */
#ifndef OPU_MATH_H
#define OPU_MATH_H

#include <stdint.h>
#include <string.h>

static inline double opu_bits(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint64_t opu_bits_of(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline double opu_infinity(void) { return opu_bits((uint64_t)0x7ff << 52); }
static inline double opu_nan(void) { return opu_bits((uint64_t)0xfff << 51); }
static inline double opu_abs(double x) { return opu_bits(opu_bits_of(x) & ~((uint64_t)1 << 63)); }

/* x with the sign of s, which may be that of a zero. */
static inline double opu_signed(double x, double s) {
  return opu_bits((opu_bits_of(x) & ~((uint64_t)1 << 63)) | (opu_bits_of(s) & (uint64_t)1 << 63));
}

static inline double opu_floor(double x) {
  double result;
  if (!(opu_abs(x) < 4503599627370496.0)) return x; /* whole already, or NaN */
  result = (double)(int64_t)x;
  return opu_signed(result > x ? result - 1 : result, x);
}

static inline double opu_ceil(double x) { return -opu_floor(-x); }

/* Halves to even. */
static inline double opu_round(double x) {
  const double below = opu_floor(x), rest = x - below;
  double result = below;
  if (!(opu_abs(x) < 4503599627370496.0)) return x;
  if (rest > 0.5 || (rest == 0.5 && (int64_t)below % 2)) result = below + 1;
  return opu_signed(result, x);
}

/* Newton's method: its result, rounded to float, is the root rounded to float. */
static inline double opu_sqrt(double x) {
  double root;
  int n;
  if (x == 0 || x == opu_infinity()) return x;
  if (!(x > 0)) return opu_nan();
  root = opu_bits((opu_bits_of(x) >> 1) + ((uint64_t)1023 << 51));
  for (n = 0; n < 6; n++) root = 0.5 * (root + x / root);
  return root;
}

static inline double opu_exp(double x) {
  double rest, power = 1;
  int64_t twos;
  int n;
  if (x != x) return x;
  if (x > 709.782712893384) return opu_infinity();
  if (x < -708.0) return 0; /* smaller than the smallest float */
  twos = (int64_t)opu_round(x * 1.4426950408889634);
  rest = (x - (double)twos * 6.93147180369123816490e-01) - (double)twos * 1.90821492927058770002e-10;
  for (n = 14; n > 0; n--) power = 1 + power * rest / n;
  return 2 * power * opu_bits((uint64_t)(twos + 1022) << 52); /* 2^1024 is no number */
}

static inline double opu_log(double x) {
  uint64_t bits = opu_bits_of(x);
  int64_t twos;
  double part, square, sum = 0;
  int n;
  if (x == 0) return -opu_infinity();
  if (!(x > 0)) return opu_nan();
  if (x == opu_infinity()) return x;
  if (bits >> 52 == 0) return opu_log(x * 18014398509481984.0) - 37.42994775023704670; /* 54 bits */
  twos = (int64_t)(bits >> 52) - 1023;
  part = opu_bits((bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1023 << 52);
  if (part > 1.4142135623730951) part /= 2, twos++;
  part = (part - 1) / (part + 1); /* log = 2 artanh */
  square = part * part;
  for (n = 23; n > 0; n -= 2) sum = sum * square + 1.0 / n;
  return 2 * part * sum + (double)twos * 0.69314718055994530942;
}

static inline double opu_tanh(double x) {
  double power;
  if (opu_abs(x) < 9.5e-7) return x;
  if (opu_abs(x) > 20) return opu_signed(1, x);
  power = opu_exp(2 * x);
  return (power - 1) / (power + 1);
}

static inline double opu_sigmoid(double x) { return 1 / (1 + opu_exp(-x)); }

/* A series of positive terms. */
static inline double opu_erf(double x) {
  double term = x, sum = x;
  int n;
  if (opu_abs(x) > 4) return opu_signed(1, x);
  for (n = 1; n < 100; n++) sum += term *= 2 * x * x / (2 * n + 1);
  return x != x ? x : 1.1283791670955126 * opu_exp(-x * x) * sum;
}

static inline double opu_pow(double x, double y) {
  const int integer = opu_floor(y) == y, odd = integer && opu_abs(y) < 9e15 && (int64_t)y % 2;
  double size;
  if (y == 0 || x == 1) return 1;
  if (x != x || y != y) return opu_nan();
  if (x < 0 && !integer) return opu_nan();
  size = opu_abs(x) == 1 ? 1 : opu_exp(y * opu_log(opu_abs(x)));
  return odd ? opu_signed(size, x) : size;
}

/* The sine of x and some quarters of a turn: by Taylor's series within an eighth of a turn. */
static inline double opu_wave(double x, int quarters) {
  const double turns = opu_round(x * 0.63661977236758134308);
  double rest, square, term, sum;
  int n;
  if (!(opu_abs(x) < 1e9)) return opu_nan(); /* a float has lost the angle long before */
  rest = (x - turns * 1.57079632673412561417e+00) - turns * 6.07710050650619224932e-11;
  quarters = (int)(((int64_t)turns + quarters) & 3);
  square = rest * rest;
  sum = term = quarters & 1 ? 1 : rest;
  for (n = quarters & 1 ? 2 : 3; n < 20; n += 2) sum += term *= -square / (n * (n - 1));
  return quarters & 2 ? -sum : sum;
}

/* The remainder of x / y towards zero: exact. */
static inline double opu_rest(double x, double y) {
  double rest = opu_abs(x), part;
  const double size = opu_abs(y);
  if (x != x || !(size > 0) || rest == opu_infinity()) return opu_nan();
  if (size == opu_infinity()) return x;
  for (part = size; part <= rest / 2; part *= 2) {}
  for (; part >= size; part /= 2)
    if (rest >= part) rest -= part;
  return opu_signed(rest, x);
}

#endif
