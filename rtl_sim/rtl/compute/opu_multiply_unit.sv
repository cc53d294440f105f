// A unit of the array alone: the sum of TERMS products, a DSP slice each. Combinational.
module opu_multiply_unit #(
    parameter int unsigned TERMS = 16,
    localparam int unsigned SUM_BITS = 16 + $clog2(TERMS)
) (
    input  logic        [8*TERMS-1:0]  operand_i,  // int8, as the weights
    input  logic        [8*TERMS-1:0]  weight_i,
    output logic signed [SUM_BITS-1:0] sum_o
);

  always_comb begin
    sum_o = '0;
    for (int unsigned t = 0; t < TERMS; t++) begin
      sum_o = sum_o + SUM_BITS'(signed'(operand_i[8*t+:8])) * SUM_BITS'(signed'(weight_i[8*t+:8]));
    end
  end

endmodule
