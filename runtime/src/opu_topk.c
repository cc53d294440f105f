/* TopK: a heap of indices whose top is the last of those kept, in the memory of the result. */
#include <string.h>

#include "opu_bytes.h"
#include "opu_host.h"

struct opu_topk opu_topk_of(const struct opu_file *file, uint32_t at) {
  const uint8_t *words = file->section + at + 4;
  struct opu_topk t;
  t.rows = opu_u32(words);
  t.count = opu_u32(words + 4);
  t.k = opu_u32(words + 8);
  t.dtype = opu_u32(words + 12);
  t.largest = opu_u32(words + 16);
  t.source = opu_u32(words + 20);
  t.values = opu_u32(words + 24);
  t.indices = opu_u32(words + 28);
  return t;
}

int opu_topk_check(const struct opu_file *file, const struct opu_topk *t) {
  const uint64_t size = opu_dtype_bytes(t->dtype), most = (uint64_t)1 << 31;
  const uint64_t results = (uint64_t)t->rows * t->k, indices = results * sizeof(int64_t);
  if (!size || !t->rows || !t->k || t->k > t->count || t->rows > most / t->count) return 0;
  if (!opu_spans(t->source, (uint64_t)t->rows * t->count * size, file->image_bytes)) return 0;
  if (!opu_spans(t->indices, indices, file->image_bytes)) return 0;
  if (t->values == OPU_NONE) return 1;
  /* no overlap: a value that overwrites an index would be an index outside the row */
  return opu_spans(t->values, results * size, file->image_bytes) &&
         (t->values + results * size <= t->indices || t->indices + indices <= t->values);
}

/* A row and the indices that are kept of it. */
struct row {
  const uint8_t *data;
  uint8_t *kept;
  uint32_t dtype, largest;
};

static int64_t kept(const struct row *r, uint32_t place) {
  int64_t index;
  memcpy(&index, r->kept + (size_t)place * sizeof index, sizeof index);
  return index;
}

static void keep(const struct row *r, uint32_t place, int64_t index) {
  memcpy(r->kept + (size_t)place * sizeof index, &index, sizeof index);
}

#define COMPARE(type) {                                              \
    type x, y;                                                       \
    memcpy(&x, r->data + a * (int64_t)sizeof x, sizeof x);           \
    memcpy(&y, r->data + b * (int64_t)sizeof y, sizeof y);           \
    return x < y ? -1 : x > y;                                       \
  }

static int compared(const struct row *r, int64_t a, int64_t b) {
  switch (r->dtype) {
    case OPU_FLOAT32: COMPARE(float)
    case OPU_FLOAT64: COMPARE(double)
    case OPU_INT8: COMPARE(int8_t)
    case OPU_INT16: COMPARE(int16_t)
    case OPU_UINT16: case OPU_FLOAT16: COMPARE(uint16_t)
    case OPU_INT32: COMPARE(int32_t)
    case OPU_UINT32: COMPARE(uint32_t)
    case OPU_INT64: case OPU_UINT64: COMPARE(int64_t)
    default: COMPARE(uint8_t)
  }
}

/* Whether element a comes before element b: equal ones by their index. */
static int before(const struct row *r, int64_t a, int64_t b) {
  const int order = compared(r, a, b);
  if (!order) return a < b;
  return r->largest ? order > 0 : order < 0;
}

/* Put an index into a heap of `size` at `place`, or further down below those that come later. */
static void sift(const struct row *r, uint32_t place, uint32_t size, int64_t index) {
  uint32_t child;
  while ((child = 2 * place + 1) < size) {
    if (child + 1 < size && before(r, kept(r, child), kept(r, child + 1))) child++;
    if (!before(r, index, kept(r, child))) break;
    keep(r, place, kept(r, child));
    place = child;
  }
  keep(r, place, index);
}

static void run_row(const struct row *r, uint32_t count, uint32_t k) {
  uint32_t n;
  for (n = 0; n < k; n++) keep(r, n, n);
  for (n = k / 2; n--;) sift(r, n, k, kept(r, n));
  for (n = k; n < count; n++)
    if (before(r, n, kept(r, 0))) sift(r, 0, k, n);
  for (n = k; n-- > 1;) { /* the last one goes to the end */
    const int64_t last = kept(r, 0), other = kept(r, n);
    keep(r, n, last);
    sift(r, 0, n, other);
  }
}

void opu_topk_run(const struct opu_topk *t, uint8_t *work) {
  const size_t size = opu_dtype_bytes(t->dtype);
  uint32_t n, place;
  for (n = 0; n < t->rows; n++) {
    struct row r;
    r.data = work + t->source + (size_t)n * t->count * size;
    r.kept = work + t->indices + (size_t)n * t->k * sizeof(int64_t);
    r.dtype = t->dtype;
    r.largest = t->largest;
    run_row(&r, t->count, t->k);
    for (place = 0; place < t->k && t->values != OPU_NONE; place++)
      /* in a damaged file the offsets may overlap */
      memmove(work + t->values + ((size_t)n * t->k + place) * size,
              r.data + (size_t)kept(&r, place) * size, size);
  }
}
