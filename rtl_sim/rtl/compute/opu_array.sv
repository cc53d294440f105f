// The inner-product array: two weight row registers, the alignment of the feature word, the multipliers and adder trees.
//
// One step per cycle, latency 3 from a step with its feature word to its sums:
//   align    the segment's bytes move to lane 0 (bytes past the end of the word are 0); outside the tile all are `pad`
//   multiply unit u sums its MULTIPLIERS products with the operands of segment part u mod k, k = ic / MULTIPLIERS
//   combine  k neighbouring units are summed: output channel o of the mode; the sums stand in the lanes of the group
// A copy step passes the aligned bytes, sign-extended, to all lanes.
// fill_* writes one word of a row register; a row that is filled must not be used by a step in `multiply`.
//
// The whole datapath is one clocked process, written from the last stage to the first with blocking assignments to
// variables that nothing else reads: each stage sees its predecessor's result of the cycle before, as registers do.
// A simulator runs these loops an order of magnitude faster than an instance per multiplier.
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
    input  logic [WORD_BITS-1:0]     align_feature_i, // belongs to align_i

    output logic [PSUM_BITS-1:0]     sums_o           // one cycle after `combine`; lanes outside the group: anything
);

  localparam int unsigned PARTS = WORD_CHANNELS / MULTIPLIERS;

  element_t row [2][UNITS][MULTIPLIERS];
  element_t operand [PARTS][MULTIPLIERS];
  element_t copied [PARTS][MULTIPLIERS];
  sum_t unit_sum [UNITS];

  // Loops in functions, so that a simulator keeps their variables in registers; not unrolled, so that its compiler
  // sees vectors.
  function automatic void multiply(logic row_select, logic [15:0] part_mask);
    /* verilator unroll_disable */
    for (int unsigned u = 0; u < UNITS; u++) begin
      automatic sum_t products = '0;
      /* verilator unroll_disable */
      for (int unsigned i = 0; i < MULTIPLIERS; i++) begin
        products = products
            + SUM_BITS'(row[row_select][u][i]) * SUM_BITS'(operand[u&32'(part_mask)][i]);
      end
      unit_sum[u] = products;
    end
  endfunction

  logic [WORD_BITS-1:0] word;
  logic signed [31:0] sum;
  int first;

  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    // combine
    if (combine_i.valid && combine_i.copy) begin
      for (int l = 0; l < int'(WORD_CHANNELS); l++) sums_o[32*l+:32] <= 32'(copied[l/MULTIPLIERS][l%MULTIPLIERS]);
    end
    if (combine_i.valid && !combine_i.copy) begin
      for (int m = 0; m < int'(MODE_COUNT); m++) begin
        if (combine_i.mode == 4'(m)) begin
          for (int g = 0; g < int'(GROUPS); g++) begin
            if (combine_i.groups[g]) begin
              for (int l = g * int'(GROUP_LANES); l < (g + 1) * int'(GROUP_LANES); l++) begin
                sum = '0;
                for (int j = 0; j < 32'(MODE_IC[m]) / MULTIPLIERS; j++) begin
                  sum = sum + 32'(unit_sum[(l % 32'(MODE_OC[m])) * (32'(MODE_IC[m]) / MULTIPLIERS) + j]);
                end
                sums_o[32*l+:32] <= sum;
              end
            end
          end
        end
      end
    end

    // multiply
    if (multiply_i.valid && multiply_i.copy) begin
      for (int l = 0; l < int'(WORD_CHANNELS); l++) copied[l/MULTIPLIERS][l%MULTIPLIERS] = operand[l/MULTIPLIERS][l%MULTIPLIERS];
    end
    if (multiply_i.valid && !multiply_i.copy) begin
      multiply(multiply_i.row_select, mode_part_mask(multiply_i.mode));
    end

    // align
    if (align_i.valid) begin
      word = align_i.in_tile ? align_feature_i >> {align_i.offset, 3'b0} : {WORD_CHANNELS{align_i.pad}};
      for (int l = 0; l < int'(WORD_CHANNELS); l++) operand[l/MULTIPLIERS][l%MULTIPLIERS] = ELEMENT_BITS'(signed'(word[8*l+:8]));
    end

    // fill
    if (fill_we_i) begin
      first = int'(fill_word_i) * int'(WEIGHT_WIDTH);
      for (int b = 0; b < int'(WEIGHT_WIDTH); b++) begin
        row[fill_select_i][(first+b)/MULTIPLIERS][(first+b)%MULTIPLIERS] = ELEMENT_BITS'(signed'(fill_data_i[8*b+:8]));
      end
    end
  end
  /* verilator lint_on BLKSEQ */

endmodule
