// The inner-product array: two weight row registers, the alignment of the feature word, the multipliers and adder trees.
//
// One step per cycle, latency 3 from a step with its feature word to its sums:
//   align    the segment's bytes move to lane 0, going on into the next word; lanes outside the tile are `pad`
//   multiply unit u sums its MULTIPLIERS products with the operands of segment part u mod k, k = ic / MULTIPLIERS
//   combine  k neighbouring units are summed: output channel o of the mode; the sums stand in the lanes of the group
// A copy step passes the aligned bytes, sign-extended, to all lanes.
// fill_* writes one word of a row register; a row that is filled must not be used by a step in `multiply`.
//
// The whole datapath is one clocked process, written from the last stage to the first with blocking assignments to
// variables that nothing else reads: each stage sees its predecessor's result of the cycle before, as registers do.
// Loops stand in functions and, where their bodies are alike, stay rolled: a simulator's compiler then sees vectors, which
// run an order of magnitude faster than an instance per multiplier.
`include "opu_assert.svh"

module opu_array
  import opu_pkg::*;
  import opu_compute_pkg::*;
(
    input  logic                     clk_i,

    input  logic                     fill_we_i,
    input  logic                     fill_select_i,
    input  logic [ROW_WORD_BITS-1:0] fill_word_i,
    input  logic [WEIGHT_BITS-1:0]   fill_data_i,

    /* verilator lint_off UNUSEDSIGNAL */  // each stage needs some fields of its step
    input  step_t                    align_i,
    input  step_t                    multiply_i,
    input  step_t                    combine_i,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic [WORD_BITS-1:0]     align_feature_i,  // belongs to align_i, as does the next word
    input  logic [WORD_BITS-1:0]     align_next_i,

    output logic [PSUM_BITS-1:0]     sums_o            // one cycle after `combine`; lanes outside the group: anything
);

  localparam int unsigned PARTS = WORD_CHANNELS / MULTIPLIERS;

  // A chunk of a row is part of one weight word and one unit's share.
  localparam int unsigned CHUNK = (WEIGHT_WIDTH < MULTIPLIERS) ? WEIGHT_WIDTH : MULTIPLIERS;
  localparam int unsigned UNIT_CHUNKS = MULTIPLIERS / CHUNK;
  localparam int unsigned WORD_CHUNKS = WEIGHT_WIDTH / CHUNK;
  `OPU_ASSERT_STATIC(WordsAndUnitsAlign, MULTIPLIERS % CHUNK == 0 && WEIGHT_WIDTH % CHUNK == 0)

  localparam int unsigned SHIFT_BITS = WORD_SHIFT + 1;

  element_t row [2][ROW_WORDS][WEIGHT_WIDTH];
  element_t filling [WEIGHT_WIDTH];
  element_t operand [PARTS][MULTIPLIERS];
  element_t copied [PARTS][MULTIPLIERS];
  sum_t unit_sum [UNITS];
  logic [WORD_BITS-1:0] word;

  function automatic void fill(logic select, logic [ROW_WORD_BITS-1:0] index);
    /* verilator unroll_full */
    for (int unsigned b = 0; b < WEIGHT_WIDTH; b++) filling[b] = ELEMENT_BITS'(signed'(fill_data_i[8*b+:8]));
    row[select][index] = filling;
  endfunction

  function automatic void align();
    word = align_feature_i >> {align_i.offset, 3'b0};
    if (align_i.crosses) begin
      word = word | WORD_BITS'(align_next_i << {SHIFT_BITS'(WORD_BYTES) - SHIFT_BITS'(align_i.offset), 3'b0});
    end
    if (!align_i.whole) begin
      /* verilator unroll_full */
      for (int unsigned l = 0; l < WORD_CHANNELS; l++) begin
        if (LANE_BITS'(l) < align_i.first || LANE_BITS'(l) >= align_i.end_) word[8*l+:8] = align_i.pad;
      end
    end
  endfunction

  function automatic void spread();
    /* verilator unroll_full */
    for (int unsigned p = 0; p < PARTS; p++) begin
      /* verilator unroll_full */
      for (int unsigned i = 0; i < MULTIPLIERS; i++) begin
        operand[p][i] = ELEMENT_BITS'(signed'(word[8*(p*MULTIPLIERS+i)+:8]));
      end
    end
  endfunction

  function automatic void multiply(logic select, logic [15:0] part_mask);
    /* verilator unroll_disable */
    for (int unsigned w = 0; w < ROW_WORDS; w++) begin
      /* verilator unroll_full */
      for (int unsigned c = 0; c < WORD_CHUNKS; c++) begin
        automatic int unsigned unit = (w * WORD_CHUNKS + c) / UNIT_CHUNKS;
        automatic int unsigned share = (w * WORD_CHUNKS + c) % UNIT_CHUNKS;
        automatic sum_t products = (share == 0) ? '0 : unit_sum[unit];
        /* verilator unroll_disable */
        for (int unsigned i = 0; i < CHUNK; i++) begin
          products = products + SUM_BITS'(select ? row[1][w][c*CHUNK+i] : row[0][w][c*CHUNK+i])
              * SUM_BITS'(operand[unit&32'(part_mask)][share*CHUNK+i]);
        end
        unit_sum[unit] = products;
      end
    end
  endfunction

  // Sum of `count` units from `first` on.
  function automatic logic [31:0] combined(int unsigned first, int unsigned count);
    combined = '0;
    /* verilator unroll_full */
    for (int unsigned j = 0; j < count; j++) combined = combined + 32'(unit_sum[first+j]);
  endfunction

  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    // combine
    if (combine_i.valid && combine_i.copy) begin
      /* verilator unroll_full */
      for (int unsigned l = 0; l < WORD_CHANNELS; l++) begin
        sums_o[32*l+:32] <= 32'(copied[l/MULTIPLIERS][l%MULTIPLIERS]);
      end
    end
    /* verilator unroll_full */
    for (int unsigned m = 0; m < MODE_COUNT; m++) begin
      if (combine_i.valid && !combine_i.copy && combine_i.mode == 4'(m)) begin
        /* verilator unroll_full */
        for (int unsigned g = 0; g < GROUPS; g++) begin
          if (combine_i.groups[g]) begin
            /* verilator unroll_full */
            for (int unsigned l = g * GROUP_LANES; l < (g + 1) * GROUP_LANES; l++) begin
              sums_o[32*l+:32] <= combined(
                  (l % 32'(MODE_OC[m])) * (32'(MODE_IC[m]) / MULTIPLIERS), 32'(MODE_IC[m]) / MULTIPLIERS);
            end
          end
        end
      end
    end

    // multiply
    if (multiply_i.valid && multiply_i.copy) copied = operand;
    if (multiply_i.valid && !multiply_i.copy) begin
      multiply(multiply_i.row_select, mode_part_mask(multiply_i.mode));
    end

    // align
    if (align_i.valid) begin
      if (!align_i.reads) word = {WORD_CHANNELS{align_i.pad}};
      else align();
      spread();
    end

    // fill
    if (fill_we_i) fill(fill_select_i, fill_word_i);
  end
  /* verilator lint_on BLKSEQ */

endmodule
