/* load and store: copies between the window and on-chip memories, and im2row. */
#include "opu_native.h"

static void copy_in(struct opu_native *e, uint32_t space) {
  const size_t word = e->word_bytes[space], run = LOAD(RUN) * word;
  const uint8_t *dram = e->window.data + (LOAD(DRAM_LO) | (size_t)LOAD(DRAM_HI) << OPU_VALUE_BITS);
  uint8_t *start = e->memory[space] + LOAD(DST) * word, *target = start;
  uint32_t b, r;
  for (b = 0; b < LOAD(BLOCKS); b++)
    for (r = 0; r < LOAD(ROWS); r++) {
      const size_t from = (size_t)b * LOAD(BLOCK_PITCH) + (size_t)r * LOAD(ROW_PITCH);
      memcpy(target, dram + from * word, run);
      target += run;
    }
  if (space != OPU_SPACE_WEIGHT) return;
  e->packed.taps = 0;
  if (LOAD(ZERO_LOW) || LOAD(ZERO_HIGH))
    for (; start < target; start += word) {
      memset(start, 0, LOAD(ZERO_LOW));
      memset(start + word - LOAD(ZERO_HIGH), 0, LOAD(ZERO_HIGH));
    }
}

/* A row of the image to every row of the kernel, byte by byte: pixels have IMAGE_SLOT bytes. */
static void unfold(struct opu_native *e) {
  const uint32_t word = e->machine.word_bytes, kernel = LOAD(KERNEL_ROWS), run = LOAD(RUN);
  const uint32_t step = opu_column_bytes[kernel], columns = run * word / OPU_IMAGE_SLOT;
  const size_t row_words = ((size_t)run * step + OPU_IMAGE_SLOT - 1u) / OPU_IMAGE_SLOT;
  const int64_t image = SIGNED(LOAD, IMAGE), origin = SIGNED(LOAD, ORIGIN_Y);
  uint32_t r, k, x, c;
  for (r = 0; r < LOAD(ROWS); r++) {
    uint8_t *row = e->memory[OPU_SPACE_FEATURE] + (LOAD(DST) + r * row_words) * word;
    for (k = 0; k < kernel; k++) {
      const int64_t y = origin + (int64_t)r * LOAD(STRIDE_Y) + k;
      const int is_inside = y >= 0 && y < (int64_t)LOAD(IN_ROWS);
      const int64_t first = image + (int64_t)r * LOAD(ROW_PITCH) + (int64_t)k * run;
      const uint8_t *pixels = e->memory[OPU_SPACE_IMAGE] + (is_inside ? first * (int64_t)word : 0);
      const uint8_t pad = (uint8_t)SIGNED(LOAD, PAD_VALUE);
      uint8_t *target = row + (size_t)OPU_IMAGE_CHANNELS * k;
      for (x = 0; x < columns; x++)
        for (c = 0; c < OPU_IMAGE_CHANNELS; c++)
          target[(size_t)x * step + c] = is_inside ? pixels[(size_t)x * OPU_IMAGE_SLOT + c] : pad;
    }
  }
}

void opu_execute_load(struct opu_native *e, uint32_t opcode) {
  if (opcode == OPU_OP_LOAD_UNFOLD)
    unfold(e);
  else
    copy_in(e, opu_loaded[opcode]);
}

void opu_execute_store(struct opu_native *e) {
  const size_t word = e->machine.word_bytes, low = STORE(SKIP_LOW);
  const size_t bytes = word - low - STORE(SKIP_HIGH);
  const size_t down = STORE(REPEAT_ROWS) + 1u, across = STORE(REPEAT_COLS) + 1u;
  const size_t step = (across + STORE(WORD_GAP)) * word, run = STORE(RUN);
  const uint8_t *source = e->memory[OPU_SPACE_OUTPUT] + STORE(SRC) * word;
  uint8_t *dram = e->window.data + (STORE(DRAM_LO) | (size_t)STORE(DRAM_HI) << OPU_VALUE_BITS);
  const int plain = across == 1u && step == word && bytes == word;
  size_t b, r, ry, i, rx;
  for (b = 0; b < STORE(BLOCKS); b++)
    for (r = 0; r < STORE(ROWS); r++) {
      for (ry = 0; ry < down; ry++) {
        uint8_t *target =
            dram + (b * STORE(BLOCK_PITCH) + (r * down + ry) * STORE(ROW_PITCH)) * word;
        if (plain) {
          memcpy(target, source, run * word);
          continue;
        }
        for (i = 0; i < run; i++)
          for (rx = 0; rx < across; rx++)
            memcpy(target + i * step + rx * word + low, source + i * word + low, bytes);
      }
      source += run * word;
    }
}
