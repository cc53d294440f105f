// opu_multiply_tables: what comes out is the sum of both products, less 1, with the weights that were loaded last
// before the operands. Adders in another order are hard for a solver, so it is said in parts, for every step and the
// bits so far. PART 0: what is added up by shifts is the product. 1: It is what is worth of the operand, and the
// operand for the next bit, of which there is none in the end. 2: A total is the sum of what is worth of both operands,
// less 1. 3: The step has this total, and the last one's comes out.
module opu_multiply_tables_proof
  import opu_compute_pkg::*;
#(
    parameter int unsigned PART = 0
) (
    input logic            clk_i,
    input logic            load_i,      // the weights, for operands that come with them and for later ones
    input logic            valid_i,     // there are operands
    input logic [1:0][7:0] weights_i,
    input logic [1:0][7:0] operands_i
);

  localparam int unsigned STEPS = TABLE_STEPS;
  typedef logic [1:0][7:0] two_t;
  typedef logic signed [15:0] sum_t;

  logic [STEPS-1:0] load, moves_q = '0;
  logic [STEPS-1:1] load_q = '0;
  two_t [STEPS:0] x_q;  // [s]: in step s, so after step s - 1
  table_operands_t operands;
  sum_t sum;
  assign load = {load_q, load_i};
  always_ff @(posedge clk_i) begin
    load_q <= (STEPS - 1)'(load);
    moves_q <= STEPS'({moves_q, valid_i});
    x_q <= {x_q[STEPS-1:0], operands_i};
  end
  assign operands.x = x_q[0];
  for (genvar s = 0; s < int'(STEPS); s++) begin : g_operands
    assign operands.sums[s] = 9'(signed'(x_q[s][0])) + 9'(signed'(x_q[s][1]));
    assign operands.differences[s] = 9'(signed'(x_q[s][0])) - 9'(signed'(x_q[s][1]));
  end
  opu_multiply_tables dut (
      .clk_i,
      .load_i    (load),
      .moves_i   (moves_q),
      .weights_i,
      .operands_i(operands),
      .sum_o     (sum)
  );

  for (genvar s = 0; s < int'(STEPS); s++) begin : g_step
    localparam int unsigned BIT = s + 1;  // of the weights, added in this step; the highest one is negative
    localparam bit LAST = BIT == 7;
    logic known_q = 1'b0, good_q = 1'b0;
    two_t weights_q, used_q, used;  // loaded in this step; used by the operands that leave it
    sum_t step_sum, total_q = -16'sd1, total;
    sum_t [1:0] worth_q = '0, worth, product_q = '0, product, part;
    logic [1:0][7:BIT] left;
    logic good;

    if (s == 0) begin : g_first
      assign good = 1'b1, used = weights_q;
      assign step_sum = sum_t'(signed'(dut.g_step[s].rest_q));
      assign total = worth[0] + worth[1] - 16'sd1;
      for (genvar k = 0; k < 2; k++) begin : g_lowest
        assign worth[k] = weights_q[k][0] ? 16'sd0 : -part[k];
        assign product[k] = weights_q[k][0] ? part[k] : 16'sd0;
        always_comb if (known_q) assert (dut.g_step[s].g_begin.lowest_q[k] == weights_q[k][0]);
      end
      always_ff @(posedge clk_i) begin
        if (load[s]) {known_q, weights_q} <= {1'b1, weights_i};
      end
    end else begin : g_later
      assign good = g_step[s-1].good_q, used = g_step[s-1].used_q;
      assign step_sum = sum_t'(signed'({dut.g_step[s].rest_q, dut.g_step[s].g_on.settled_q}));
      assign total = g_step[s-1].total_q, worth = g_step[s-1].worth_q, product = g_step[s-1].product_q;
      always_ff @(posedge clk_i) begin
        if (load[s]) {known_q, weights_q} <= {g_step[s-1].known_q, g_step[s-1].weights_q};
      end
      always_comb begin  // a load goes from step to step with the operands that are the first to need it
        if (g_step[s-1].known_q && !load[s]) assert (known_q && weights_q == g_step[s-1].weights_q);
        if (g_step[s-1].good_q) assert (known_q && weights_q == g_step[s-1].used_q);
      end
    end

    assign left = {dut.g_step[s].second_weight_q, dut.g_step[s].first_weight_q};
    for (genvar k = 0; k < 2; k++) begin : g_two
      sum_t bit_worth, more, operand;
      assign part[k] = sum_t'(signed'(x_q[s][k])) <<< s;
      assign bit_worth = (used[k][BIT] ^ LAST) ? part[k] : -part[k];
      assign more = used[k][BIT] ? part[k] <<< 1 : 16'sd0;
      assign operand = sum_t'(signed'(x_q[s+1][k]));
      always_ff @(posedge clk_i) begin
        worth_q[k] <= worth[k] + bit_worth;
        product_q[k] <= LAST ? product[k] - more : product[k] + more;
      end
      always_comb begin
        if (known_q) assert (left[k] == weights_q[k][7:BIT]);
        if (good_q) begin
          if (PART == 1) assert (worth_q[k] == product_q[k] - (LAST ? 16'sd0 : operand <<< BIT));
          if (PART == 0) assert (product_q[k] == operand * (LAST ? sum_t'(signed'(used_q[k])) : sum_t'(used_q[k][BIT:0])));
        end
      end
    end

    always_ff @(posedge clk_i) begin
      good_q <= good && known_q && moves_q[s];
      used_q <= used;
      total_q <= total + g_two[0].bit_worth + g_two[1].bit_worth;
    end
    always_comb begin
      if (PART == 2) assert (total_q == worth_q[0] + worth_q[1] - 16'sd1);
      if (PART == 3 && good_q) assert (step_sum == total_q);
    end
  end

  always_comb if (PART == 3 && g_step[STEPS-1].good_q) assert (sum == g_step[STEPS-1].total_q);

endmodule
