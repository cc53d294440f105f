// A unit of the array alone: the sum of TERMS products, a DSP slice each. Factors and products are registered, sums as in
// opu_sum_tree: latency 2 + SUM_STAGES.
module opu_multiply_unit #(
    parameter int unsigned TERMS = 16,
    parameter int unsigned SUM_STAGES = 2,
    localparam int unsigned SUM_BITS = 16 + $clog2(TERMS)
) (
    input  logic                       clk_i,
    input  logic        [8*TERMS-1:0]  operand_i,  // int8, as the weights
    input  logic        [8*TERMS-1:0]  weight_i,
    output logic signed [SUM_BITS-1:0] sum_o
);

  logic [16*TERMS-1:0] products;

  for (genvar t = 0; t < int'(TERMS); t++) begin : g_term
    logic signed [7:0] operand_q, weight_q;
    logic signed [15:0] product_q;
    always_ff @(posedge clk_i) begin
      operand_q <= operand_i[8*t+:8];
      weight_q <= weight_i[8*t+:8];
      product_q <= 16'(operand_q) * 16'(weight_q);
    end
    assign products[16*t+:16] = product_q;
  end

  opu_sum_tree #(
      .TERMS (TERMS),
      .WIDTH (16),
      .STAGES(SUM_STAGES)
  ) u_sum (
      .clk_i,
      .terms_i(products),
      .sum_o
  );

endmodule
