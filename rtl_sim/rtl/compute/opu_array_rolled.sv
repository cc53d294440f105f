// Body of the array (opu_array) for fast simulation.
//
// The whole datapath is one clocked process. It is written from the last stage to the first, with blocking assignments
// to variables that nothing else reads (what other processes read is assigned non-blocking). So each stage sees the
// result of its predecessor from the cycle before, as registers do. Loops are in functions and remain rolled if
// their bodies are alike: the compiler of the simulator then sees vectors, which run an order of magnitude faster than
// an instance per multiplier. `align` and `multiply` compute in the first of their cycles; operands and sums are
// delayed for the others. Stages: see opu_array.
`include "opu_assert.svh"

module opu_array_rolled
  import opu_pkg::*;
  import opu_compute_pkg::*;
(
    input  logic                     clk_i,

    input  fill_t                    fill_i,
    input  logic [WEIGHT_BITS-1:0]   fill_data_i,

    /* verilator lint_off UNUSEDSIGNAL */  // each stage needs some fields of its step
    input  step_t                    align_i,
    input  step_t                    aligned_i,
    input  step_t                    multiply_i,
    input  step_t                    combine_i,
    /* verilator lint_on UNUSEDSIGNAL */
    input  enter_t                   enter_i,
    input  logic [WORD_BITS-1:0]     feature_i,        // belongs to align_i and enter_i, as does the next word
    input  logic [WORD_BITS-1:0]     next_i,

    output logic [PSUM_BITS-1:0]     sums_o            // one cycle after `combine`; lanes outside the group: anything
);

  // A chunk of a row is part of one weight word and one unit's share: as long as the largest power of two that divides
  // both.
  localparam int unsigned SHARE_CHUNK = MULTIPLIERS & (~MULTIPLIERS + 1);
  localparam int unsigned CHUNK = (WEIGHT_WIDTH < SHARE_CHUNK) ? WEIGHT_WIDTH : SHARE_CHUNK;
  localparam int unsigned UNIT_CHUNKS = MULTIPLIERS / CHUNK;
  localparam int unsigned WORD_CHUNKS = WEIGHT_WIDTH / CHUNK;
  `OPU_ASSERT_STATIC(WordsAndUnitsAlign, MULTIPLIERS % CHUNK == 0 && WEIGHT_WIDTH % CHUNK == 0)

  element_t row [ROWS][ROW_WORDS][WEIGHT_WIDTH];
  element_t filling [WEIGHT_WIDTH];
  element_t operands [ALIGN_STAGES-1][OPERANDS][MULTIPLIERS];  // by the cycles after the first of `align`
  element_t operand [OPERANDS][MULTIPLIERS];  // of conv: the parts of pixel 0, of pixel 1, …
  element_t copied [MULTIPLY_STAGES][PARTS][MULTIPLIERS];  // by the cycles after `multiply`, as the sums
  sum_t unit_sum [MULTIPLY_STAGES][UNITS];
  logic [16*WORD_BYTES-1:0] words;
  logic [WORD_BITS-1:0] word;
  logic [WORD_BITS-1:0] window [WINDOW_SIDE][COLUMNS];

  function automatic void fill(row_t select, int unsigned index, int unsigned pitch);
    /* verilator unroll_full */
    for (int unsigned b = 0; b < WEIGHT_WIDTH; b++) filling[b] = ELEMENT_BITS'(signed'(fill_data_i[8*b+:8]));
    /* verilator unroll_full */
    for (int unsigned p = 0; p < MODE_PX_MAX; p++) begin
      if (p * pitch + index < ROW_WORDS) row[select][ROW_WORD_BITS'(p*pitch+index)] <= filling;
    end
  endfunction

  function automatic void align();
    automatic logic simple = align_i.whole && !align_i.crosses;
    if (!simple) words = {(8 * WORD_BYTES)'(next_i), (8 * WORD_BYTES)'(feature_i)};
    if (!align_i.whole) begin
      /* verilator unroll_full */
      for (int unsigned b = 0; b < 2 * WORD_BYTES; b++) begin
        if ((b < WORD_BYTES && !align_i.first_inside) || WINDOW_BITS'(b) >= align_i.end_) words[8*b+:8] = align_i.pad;
      end
    end
    /* verilator unroll_full */
    for (int unsigned p = 0; p < MODE_PX_MAX; p++) begin
      if (p < 32'd1 << px_log2(align_i.layout)) begin
        automatic logic [WINDOW_BITS-1:0] at = align_i.at[p];
        word = simple ? feature_i >> {at, 3'b0} : WORD_BITS'(words >> {at, 3'b0});
        spread(p);
      end
    end
  endfunction

  // The lanes of `word` become the operands of a pixel.
  function automatic void spread(int unsigned pixel);
    /* verilator unroll_full */
    for (int unsigned p = 0; p < PARTS; p++) begin
      /* verilator unroll_full */
      for (int unsigned i = 0; i < MULTIPLIERS; i++) begin
        operand[pixel*PARTS+p][i] = ELEMENT_BITS'(signed'(word[8*(p*MULTIPLIERS+i)+:8]));
      end
    end
  endfunction

  // The taps of every lane of a part become the operands of its unit.
  function automatic void gather();
    /* verilator unroll_full */
    for (int unsigned t = 0; t < MULTIPLIERS; t++) begin
      automatic int unsigned ky = t / WINDOW_SIDE;
      automatic int unsigned kx = t % WINDOW_SIDE;
      word = '0;
      if (ky < 32'(align_i.kernel_rows) && kx < 32'(align_i.kernel_cols)) begin
        word = window[ky][align_i.column+COLUMN_BITS'(kx)];
        if (!HALVED) word = word >> (32'(align_i.part) * 8 * PART_LANES);
      end
      /* verilator unroll_full */
      for (int unsigned u = 0; u < PART_LANES; u++) operand[u][t] = ELEMENT_BITS'(signed'(word[8*u+:8]));
    end
  endfunction

  function automatic void enter();
    automatic logic [COLUMN_BITS-1:0] next_column = enter_i.column + COLUMN_BITS'(1);
    automatic logic [WORD_BITS-1:0] first = enter_i.first_inside ? feature_i : {WORD_CHANNELS{enter_i.pad}};
    automatic logic [WORD_BITS-1:0] next = enter_i.next_inside ? next_i : {WORD_CHANNELS{enter_i.pad}};
    window[enter_i.line][enter_i.column] = first;
    if (enter_i.two_words) window[enter_i.line][next_column] = next;
  endfunction

  function automatic void multiply(row_t select, int unsigned mask, int unsigned pitch);
    automatic int unsigned pixel_operand = 0;
    automatic int unsigned next_pixel = pitch;
    /* verilator unroll_disable */
    for (int unsigned w = 0; w < ROW_WORDS; w++) begin
      if (MODE_PX_MAX > 1 && w == next_pixel) begin
        pixel_operand = pixel_operand + PARTS;
        next_pixel = next_pixel + pitch;
      end
      /* verilator unroll_full */
      for (int unsigned c = 0; c < WORD_CHUNKS; c++) begin
        automatic int unsigned unit = (w * WORD_CHUNKS + c) / UNIT_CHUNKS;
        automatic int unsigned share = (w * WORD_CHUNKS + c) % UNIT_CHUNKS;
        automatic sum_t products = (share == 0) ? '0 : unit_sum[0][unit];
        /* verilator unroll_disable */
        for (int unsigned i = 0; i < CHUNK; i++) begin
          products = products + SUM_BITS'(row[select][w][c*CHUNK+i])
              * SUM_BITS'(operands[ALIGN_STAGES-2][pixel_operand+(unit&mask)][share*CHUNK+i]);
        end
        unit_sum[0][unit] = products;
      end
    end
  endfunction

  // Sum of `count` units from `first` on.
  function automatic logic [31:0] combined(int unsigned first, int unsigned count);
    combined = '0;
    /* verilator unroll_full */
    for (int unsigned j = 0; j < count; j++) combined = combined + unit_sum[MULTIPLY_STAGES-1][first+j];
  endfunction

  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    // combine
    if (combine_i.valid && combine_i.copy) begin
      /* verilator unroll_full */
      for (int unsigned l = 0; l < WORD_CHANNELS; l++) begin
        sums_o[32*l+:32] <= 32'(copied[MULTIPLY_STAGES-1][l/MULTIPLIERS][l%MULTIPLIERS]);
      end
    end
    /* verilator unroll_full */
    for (int unsigned m = 0; m < LAYOUTS; m++) begin
      if (combine_i.valid && !combine_i.copy && combine_i.layout == layout_t'(m)) begin
        /* verilator unroll_full */
        for (int unsigned g = 0; g < GROUPS; g++) begin
          if (combine_i.groups[g]) begin
            /* verilator unroll_full */
            for (int unsigned l = g * GROUP_LANES; l < (g + 1) * GROUP_LANES; l++) begin
              automatic int unsigned lanes = WORD_CHANNELS / 32'(LAYOUT_PX[m]);  // of a pixel
              automatic int unsigned channel = l / lanes * 32'(LAYOUT_OC[m]) + l % lanes % 32'(LAYOUT_OC[m]);
              automatic int unsigned count = 32'(LAYOUT_IC[m]) / MULTIPLIERS;
              sums_o[32*l+:32] <= combined(channel * count, count);
            end
          end
        end
      end
    end

    // multiply
    for (int unsigned s = MULTIPLY_STAGES - 1; s > 0; s--) begin
      copied[s] = copied[s-1];
      unit_sum[s] = unit_sum[s-1];
    end
    for (int unsigned p = 0; p < PARTS; p++) copied[0][p] = operands[ALIGN_STAGES-2][p];
    if (multiply_i.valid && !multiply_i.copy) begin
      multiply(multiply_i.row_select, 32'(part_mask(multiply_i.layout)), 32'(row_words(multiply_i.layout)));
    end

    // align
    for (int unsigned s = ALIGN_STAGES - 2; s > 0; s--) operands[s] = operands[s-1];
    operands[0] = operand;
    if (align_i.valid) begin
      if (HAS_DEPTHWISE && align_i.depthwise) begin
        gather();
      end else if (align_i.reads) begin
        align();
      end else begin
        word = {WORD_CHANNELS{align_i.pad}};
        for (int unsigned p = 0; p < MODE_PX_MAX; p++) spread(p);
      end
    end
    if (HAS_DEPTHWISE && enter_i.valid) enter();

    // fill
    if (fill_i.valid) fill(fill_i.row_select, 32'(fill_i.word), 32'(fill_i.row_words));
  end
  /* verilator lint_on BLKSEQ */

endmodule
