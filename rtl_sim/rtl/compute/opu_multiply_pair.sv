// Two units of the array that multiply the same operands: sums of `shared_i` times `low_i` and times `high_i`, the weights of
// the last cycle with load_i. Factors and products are registered, sums as in opu_sum_tree: latency 2 + SUM_STAGES.
//
// One multiplication of 25 by 8 bits, a DSP slice of most FPGAs, makes two products: both weights lie in
// its long factor, 16 bits apart. The low product fits into these 16 bits; where it is negative it borrows 1 from the
// high one. What was borrowed is counted and given back to the sum.
module opu_multiply_pair #(
    parameter int unsigned TERMS = 16,
    parameter int unsigned SUM_STAGES = 2,
    localparam int unsigned SUM_BITS = 16 + $clog2(TERMS)
) (
    input  logic                       clk_i,
    input  logic                       load_i,     // the weights, for the operands of this cycle and of later ones
    input  logic        [8*TERMS-1:0]  shared_i,   // int8, as the weights
    input  logic        [8*TERMS-1:0]  low_i,
    input  logic        [8*TERMS-1:0]  high_i,
    output logic signed [SUM_BITS-1:0] low_sum_o,
    output logic signed [SUM_BITS-1:0] high_sum_o
);

  logic [16*TERMS-1:0] lows;
  logic [17*TERMS-1:0] highs;
  logic [2*TERMS-1:0] borrows;

  for (genvar t = 0; t < int'(TERMS); t++) begin : g_term
    logic signed [24:0] weights_q;
    logic signed [7:0] shared_q;
    logic signed [32:0] product_q;
    always_ff @(posedge clk_i) begin
      if (load_i) weights_q <= 25'(signed'({high_i[8*t+:8], 16'd0})) + 25'(signed'(low_i[8*t+:8]));
      shared_q <= shared_i[8*t+:8];
      product_q <= 33'(weights_q) * 33'(shared_q);
    end
    assign lows[16*t+:16] = product_q[15:0];
    assign highs[17*t+:17] = product_q[32:16];
    assign borrows[2*t+:2] = {1'b0, product_q[15]};
  end

  logic signed [SUM_BITS:0] high_sum;
  logic signed [SUM_BITS-15:0] borrowed;

  opu_sum_tree #(.TERMS(TERMS), .WIDTH(16), .STAGES(SUM_STAGES)) u_low (.clk_i, .terms_i(lows), .sum_o(low_sum_o));
  opu_sum_tree #(.TERMS(TERMS), .WIDTH(17), .STAGES(SUM_STAGES)) u_high (.clk_i, .terms_i(highs), .sum_o(high_sum));
  opu_sum_tree #(.TERMS(TERMS), .WIDTH(2), .STAGES(SUM_STAGES)) u_borrowed (.clk_i, .terms_i(borrows), .sum_o(borrowed));
  assign high_sum_o = SUM_BITS'(high_sum + (SUM_BITS + 1)'(borrowed));

endmodule
