// Two units of the array with equal operands: sums of `shared_i` times `low_i` and times `high_i`, the weights of the
// last cycle with load_i. One step per cycle. Latency 4 + SUM_STAGES: two chained products, then their sums as in
// opu_sum_tree.
//
//   {high, low} (25 bits) x shared (8 bits) --> slice 1 --PCIN--> slice 2 (next two weights) --> opu_sum_tree x 2
//
// One multiplication of 25 by 8 bits, a DSP slice of most FPGAs, computes two products: both weights are in its long
// factor, high_i 16 bits above low_i. high_i comes less the borrow of a negative low_i, so that the factor is a plain
// concatenation.
// A second slice adds its own two products to those of the first. The low sum of two is at least 2 * 128 * -127; the
// first slice adds an offset that makes it positive, so that it borrows nothing from the high one.
`include "opu_assert.svh"

module opu_multiply_pair #(
    parameter int unsigned TERMS = 16,     // even
    parameter int unsigned SUM_STAGES = 3,
    parameter int unsigned SUM_BITS = 16 + $clog2(TERMS)
) (
    input  logic                       clk_i,
    input  logic                       load_i,     // the weights, for the operands of this cycle and of later ones
    input  logic        [8*TERMS-1:0]  shared_i,   // int8, as the weights
    input  logic        [8*TERMS-1:0]  low_i,
    input  logic        [9*TERMS-1:0]  high_i,     // a weight each, less 1 where low_i is negative
    output logic signed [SUM_BITS-1:0] low_sum_o,
    output logic signed [SUM_BITS-1:0] high_sum_o
);

  `OPU_ASSERT_STATIC(TermsEven, TERMS > 1 && TERMS % 2 == 0)

  localparam int unsigned CHAINS = TERMS / 2;
  localparam int unsigned OFFSET = 127 * 256;
  // All low sums together are too large by OFFSET * CHAINS. Reading each as a signed number subtracts 128 * 256 of
  // that. The excess of this subtraction, 256 * CHAINS, is added to some of them: the first one gets its highest bit,
  // the second one the next bit that is 1.
  localparam int unsigned NONE = 17;

  function automatic int unsigned missed(int unsigned chain);  // the bit that it gets back
    automatic int unsigned left = chain;
    missed = NONE;
    for (int b = $clog2(CHAINS); b >= 0; b--) begin
      if (missed == NONE && CHAINS[b]) begin
        if (left == 0) missed = 8 + 32'(b);
        else left--;
      end
    end
  endfunction

  function automatic logic signed [24:0] factor(logic [7:0] low, logic [8:0] high);
    factor = signed'({high, {8{low[7]}}, low});
  endfunction

  logic [17*CHAINS-1:0] lows, highs;

  for (genvar c = 0; c < int'(CHAINS); c++) begin : g_chain
    // The registers are those of the slices, but for second_early_q; the second slice computes one cycle later.
    logic signed [24:0] first_q, second_q, second_early_q;
    logic signed [7:0] first_shared_q, second_shared_q, second_shared_early_q;
    logic signed [32:0] first_product_q, first_sum_q, second_product_q, sum_q;
    always_ff @(posedge clk_i) begin
      if (load_i) begin
        first_q <= factor(low_i[16*c+:8], high_i[18*c+:9]);
        second_early_q <= factor(low_i[16*c+8+:8], high_i[18*c+9+:9]);
      end
      first_shared_q <= shared_i[16*c+:8];
      first_product_q <= 33'(first_q) * 33'(first_shared_q);
      first_sum_q <= first_product_q + 33'(OFFSET);

      second_q <= second_early_q;
      second_shared_early_q <= shared_i[16*c+8+:8];
      second_shared_q <= second_shared_early_q;
      second_product_q <= 33'(second_q) * 33'(second_shared_q);
      sum_q <= first_sum_q + second_product_q;
    end
    assign highs[17*c+:17] = sum_q[32:16];

    localparam int unsigned MISSED = missed(c);
    logic [16:0] low;
    assign low = {{2{!sum_q[15]}}, sum_q[14:0]};
    for (genvar b = 0; b < 17; b++) begin : g_bit
      if (b > int'(MISSED)) begin : g_carry
        assign lows[17*c+b] = low[b] ^ (&low[b-1:MISSED]);
      end else begin : g_plain
        assign lows[17*c+b] = low[b] ^ (b == int'(MISSED));
      end
    end
  end

  logic signed [17+$clog2(CHAINS)-1:0] low_sum, high_sum;

  opu_sum_tree #(.TERMS(CHAINS), .WIDTH(17), .STAGES(SUM_STAGES)) u_low (.clk_i, .terms_i(lows), .sum_o(low_sum));
  opu_sum_tree #(.TERMS(CHAINS), .WIDTH(17), .STAGES(SUM_STAGES)) u_high (.clk_i, .terms_i(highs), .sum_o(high_sum));
  assign low_sum_o = SUM_BITS'(low_sum);
  assign high_sum_o = SUM_BITS'(high_sum);

endmodule
