// One unit of the array: the sum of TERMS products, one DSP slice each. One step per cycle. Latency 4 + SUM_STAGES, as
// of opu_multiply_pair: where slices can add, every second one adds its product to that of its neighbour, a cycle
// later.
//
//   cycle            1            2            3           4
//   term 2t      [inputs] --> [product] --> [copy] ----+
//   term 2t + 1  [inputs] --> [inputs] --> [product] --+--> [sum] --> opu_sum_tree --> sum_o
module opu_multiply_unit
  import opu_compute_pkg::SHORT_SLICES;
#(
    parameter int unsigned TERMS = 16,
    parameter int unsigned SUM_STAGES = 3,
    parameter int unsigned SUM_BITS = 16 + $clog2(TERMS)
) (
    input  logic                       clk_i,
    input  logic        [8*TERMS-1:0]  operand_i,  // int8, as the weights
    input  logic        [8*TERMS-1:0]  weight_i,
    output logic signed [SUM_BITS-1:0] sum_o
);

  localparam bit CHAINED = !SHORT_SLICES && TERMS % 2 == 0;
  localparam int unsigned SUMS = CHAINED ? TERMS / 2 : TERMS;
  localparam int unsigned WIDTH = CHAINED ? 17 : 16;

  logic [WIDTH*SUMS-1:0] sums;
  logic signed [WIDTH+$clog2(SUMS)-1:0] sum;

  for (genvar t = 0; t < int'(TERMS); t++) begin : g_term
    localparam bit SECOND = CHAINED && t % 2 == 1;
    logic signed [7:0] operand, weight, operand_q, weight_q;
    logic signed [15:0] product_q;  // as wide as a product is: with one bit more tools would add outside the slice
    always_ff @(posedge clk_i) begin
      operand_q <= operand;
      weight_q <= weight;
      product_q <= 16'(operand_q) * 16'(weight_q);
    end
    if (SECOND) begin : g_second
      logic signed [7:0] operand_early_q, weight_early_q;
      logic signed [15:0] first_q;
      logic signed [16:0] sum_q;
      assign operand = operand_early_q;
      assign weight = weight_early_q;
      always_ff @(posedge clk_i) begin
        operand_early_q <= operand_i[8*t+:8];
        weight_early_q <= weight_i[8*t+:8];
        first_q <= g_term[t-1].product_q;
        sum_q <= 17'(first_q) + 17'(product_q);
      end
      assign sums[WIDTH*(t/2)+:WIDTH] = sum_q;
    end else begin : g_first
      assign operand = operand_i[8*t+:8];
      assign weight = weight_i[8*t+:8];
      if (!CHAINED) begin : g_alone
        assign sums[WIDTH*t+:WIDTH] = WIDTH'(product_q);
      end
    end
  end

  opu_sum_tree #(
      .TERMS (SUMS),
      .WIDTH (WIDTH),
      .STAGES(CHAINED ? SUM_STAGES : SUM_STAGES + 2)
  ) u_sum (
      .clk_i,
      .terms_i(sums),
      .sum_o  (sum)
  );
  assign sum_o = SUM_BITS'(sum);

endmodule
