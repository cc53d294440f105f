// opu_multiply_tables: what comes out is the sum of both products, less 1, with the weights that were loaded last before the operands.
// Step by step, so that no solver has to multiply two numbers that it does not know: what a step gives is the sum of what the
// bits so far are worth of each operand, and that is the operand times what these bits say.
module opu_multiply_tables_proof
  import opu_compute_pkg::*;
(
    input logic            clk_i,
    input logic            load_i,      // the weights, for operands that are told a cycle later and for later ones
    input logic            valid_i,     // there are such operands
    input logic [1:0][7:0] weights_i,
    input logic [1:0][7:0] operands_i
);

  localparam int unsigned STEPS = TABLE_STEPS;
  typedef logic [1:0][7:0] two_t;

  logic [STEPS-1:0] load, moves_q = '0;
  logic [STEPS-1:1] load_q = '0;
  two_t [STEPS:0] x_q;  // [s]: in step s; of the results of step s - 1
  table_operands_t operands;
  logic signed [15:0] sum;
  assign load = {load_q, load_i};
  always_ff @(posedge clk_i) begin
    load_q <= (STEPS - 1)'(load);
    moves_q <= STEPS'({moves_q, valid_i});
    x_q <= {x_q[STEPS-1:0], operands_i};
  end
  assign operands.x = x_q[0];
  for (genvar s = 0; s < int'(STEPS); s++) begin : g_operands
    assign operands.both[s] = 9'(signed'(x_q[s][0])) + 9'(signed'(x_q[s][1]));
    assign operands.apart[s] = 9'(signed'(x_q[s][0])) - 9'(signed'(x_q[s][1]));
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
    localparam int unsigned BIT = s + 1;
    logic known_q = 1'b0, good_q = 1'b0;
    two_t weights_q, told_q;  // at work in this step; of the operands that it has been given
    logic signed [1:0][15:0] worth_q;  // for each operand
    logic signed [15:0] given;
    logic [1:0][7:BIT] left;
    two_t told, so_far;
    logic signed [1:0][15:0] begun;
    logic begun_good;
    assign left = {dut.g_step[s].second_weight_q, dut.g_step[s].first_weight_q};

    if (s == 0) begin : g_first
      assign given = 16'(signed'(dut.g_step[s].rest_q));
      assign told = weights_q, begun_good = 1'b1;
      for (genvar k = 0; k < 2; k++) begin : g_bit
        assign begun[k] = weights_q[k][0] ? 16'sd0 : -16'(signed'(x_q[0][k]));
      end
      always_ff @(posedge clk_i) begin
        if (load[s]) begin
          known_q <= 1'b1;
          weights_q <= weights_i;
        end
      end
      always_comb if (known_q) assert (dut.g_step[0].g_begin.lowest_q == {weights_q[1][0], weights_q[0][0]});
    end else begin : g_later
      assign given = 16'(signed'({dut.g_step[s].rest_q, dut.g_step[s].g_on.settled_q}));
      assign told = g_step[s-1].told_q, begun_good = g_step[s-1].good_q;
      assign begun = g_step[s-1].worth_q;
      always_ff @(posedge clk_i) begin
        if (load[s]) begin
          known_q <= g_step[s-1].known_q;
          weights_q <= g_step[s-1].weights_q;
        end
      end
      always_comb begin
        // Loads go from step to step with the operands that are the first to need them.
        if (g_step[s-1].known_q && !load[s]) assert (known_q && weights_q == g_step[s-1].weights_q);
        if (g_step[s-1].good_q) assert (known_q && weights_q == g_step[s-1].told_q);
      end
    end

    // A bit is worth half of what it stands for, with this sign or the other.
    for (genvar k = 0; k < 2; k++) begin : g_two
      logic signed [15:0] part;
      logic signed [15:0] bits;
      assign part = 16'(signed'(x_q[s][k])) <<< s;
      always_ff @(posedge clk_i) worth_q[k] <= begun[k] + ((told[k][BIT] != (BIT == 7)) ? part : -part);
      assign bits = 16'(told_q[k][BIT-1:0]) + ((told_q[k][BIT] != (BIT == 7)) ? 16'sd0 : -(16'sd1 <<< BIT));
      always_comb begin
        if (known_q) assert (left[k] == weights_q[k][7:BIT]);
        if (good_q) assert (worth_q[k] == 16'(signed'(x_q[s+1][k])) * bits);
      end
    end
    always_ff @(posedge clk_i) begin
      told_q <= told;
      good_q <= begun_good && known_q && moves_q[s];
    end
    always_comb if (good_q) assert (given == worth_q[0] + worth_q[1] - 16'sd1);
  end

  // Of the last step, all bits: the weights.
  always_comb begin
    if (g_step[STEPS-1].good_q) begin
      assert (sum == 16'(signed'(x_q[STEPS][0])) * 16'(signed'(g_step[STEPS-1].told_q[0]))
          + 16'(signed'(x_q[STEPS][1])) * 16'(signed'(g_step[STEPS-1].told_q[1])) - 16'sd1);
    end
  end

endmodule
