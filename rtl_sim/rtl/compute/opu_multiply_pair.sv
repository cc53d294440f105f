// Two units of the array that multiply the same operands: sums of `shared_i` times `low_i` and times `high_i`.
//
// Combinational. One multiplication of 25 by 8 bits, a DSP slice of most FPGAs, makes two products: both weights lie in
// its long factor, 16 bits apart. The low product fits into these 16 bits; where it is negative it borrows 1 from the
// high one, which is given back.
module opu_multiply_pair #(
    parameter int unsigned TERMS = 16,
    localparam int unsigned SUM_BITS = 16 + $clog2(TERMS)
) (
    input  logic        [8*TERMS-1:0]  shared_i,   // int8, as the weights
    input  logic        [8*TERMS-1:0]  low_i,
    input  logic        [8*TERMS-1:0]  high_i,
    output logic signed [SUM_BITS-1:0] low_sum_o,
    output logic signed [SUM_BITS-1:0] high_sum_o
);

  logic signed [24:0] weights [TERMS];
  logic signed [32:0] products [TERMS];

  for (genvar t = 0; t < int'(TERMS); t++) begin : g_term
    assign weights[t] = 25'(signed'({high_i[8*t+:8], 16'd0})) + 25'(signed'(low_i[8*t+:8]));
    assign products[t] = 33'(weights[t]) * 33'(signed'(shared_i[8*t+:8]));
  end

  always_comb begin
    low_sum_o = '0;
    high_sum_o = '0;
    for (int unsigned t = 0; t < TERMS; t++) begin
      low_sum_o = low_sum_o + SUM_BITS'(signed'(products[t][15:0]));
      high_sum_o = high_sum_o + SUM_BITS'(signed'(products[t][32:16])) + SUM_BITS'({1'b0, products[t][15]});
    end
  end

endmodule
