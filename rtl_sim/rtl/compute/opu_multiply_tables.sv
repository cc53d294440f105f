// The sum of two products in look-up tables, less 1. One sum per cycle. Latency TABLE_STEPS from the operands in
// table_operands_t.
//
//   x0 + x1, x0 - x1 --> [weight bit 0] --> [bit 1] --> ... --> [bit 7] --> sum - 1
//
// Twice a weight is -1 plus all its bits, read as 1 or -1 times their value, the highest with the opposite sign. So
// twice the sum of two products is -(x0 + x1) and, for every bit, one of x0 + x1, x0 - x1 and their negatives, selected
// by that bit of both weights. All units with these operands share the two sums (opu_table_operands). Each bit costs
// one addition with one five-input table per bit, and settles one bit of the result. A negative is a complement and a
// carry. Starting from one less than -(x0 + x1), ten bits hold every intermediate: hence the 1, which opu_sum_tables
// adds again.
//
// The lowest bit needs no addition: it leaves half of (-(x0 + x1) - 1 +- x0 +- x1), which is -1, -x0 - 1, -x1 - 1 or
// both.
module opu_multiply_tables
  import opu_compute_pkg::*;
(
    input  logic                          clk_i,
    input  logic            [TABLE_STEPS-1:0] load_i,   // [s]: the weights, s cycles ago
    /* verilator lint_off UNUSEDSIGNAL */  // of step 0
    input  logic            [TABLE_STEPS-1:0] moves_i,  // [s]: something is in step s
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic            [1:0][7:0]    weights_i,    // enter a cycle before the operands they are for are in step 0
    input  table_operands_t               operands_i,
    output logic signed     [15:0]        sum_o
);

  typedef logic signed [9:0] rest_t;

  // Half the sum of the rest of the step before and the term that a bit of each weight selects. A negative term is
  // added as its complement, with a carry.
  function automatic rest_t added(
      logic signed [8:0] rest_in, logic [1:0] bits, logic signed [8:0] x_sum, logic signed [8:0] x_difference
  );
    automatic logic signed [8:0] chosen = ((bits[0] == bits[1]) ? x_sum : x_difference) ^ {9{!bits[0]}};
    /* verilator lint_off UNUSEDSIGNAL */  // the lowest bit of the sum, which only carries
    automatic logic signed [10:0] sum = 11'(signed'({rest_in, 1'b1})) + 11'(signed'({chosen, !bits[0]}));
    /* verilator lint_on UNUSEDSIGNAL */
    added = sum[10:1];
  endfunction

  for (genvar s = 0; s < int'(TABLE_STEPS); s++) begin : g_step
    logic [7:s+1] first_weight_q, second_weight_q;
    logic [1:0] bits;
    logic signed [8:0] rest_in;
    rest_t rest_q;
    assign bits = {second_weight_q[s+1], first_weight_q[s+1]} ^ {2{s + 1 == 7}};
    always_ff @(posedge clk_i) rest_q <= added(rest_in, bits, operands_i.sums[s], operands_i.differences[s]);

    if (s == 0) begin : g_begin
      logic [1:0] lowest_q;
      logic signed [7:0] selected_x;
      always_ff @(posedge clk_i) begin
        if (load_i[0]) begin
          first_weight_q <= weights_i[0][7:1];
          second_weight_q <= weights_i[1][7:1];
          lowest_q <= {weights_i[1][0], weights_i[0][0]};
        end
      end
      assign selected_x = lowest_q[0] ? operands_i.x[1] : operands_i.x[0];
      assign rest_in = (lowest_q == 2'b11) ? '1 : (lowest_q == 2'b00) ? ~operands_i.sums[0] : ~9'(selected_x);
    end else begin : g_on
      logic [s-1:0] settled_q;  // registers with an enable are not merged into a slow shift register
      always_ff @(posedge clk_i) begin
        if (load_i[s]) begin
          first_weight_q <= g_step[s-1].first_weight_q[7:s+1];
          second_weight_q <= g_step[s-1].second_weight_q[7:s+1];
        end
      end
      assign rest_in = g_step[s-1].rest_q[9:1];
      if (s == 1) begin : g_lowest
        always_ff @(posedge clk_i) if (moves_i[s]) settled_q <= g_step[s-1].rest_q[0];
      end else begin : g_more
        always_ff @(posedge clk_i) if (moves_i[s]) settled_q <= {g_step[s-1].rest_q[0], g_step[s-1].g_on.settled_q};
      end
    end
  end

  assign sum_o = {g_step[TABLE_STEPS-1].rest_q, g_step[TABLE_STEPS-1].g_on.settled_q};

endmodule
