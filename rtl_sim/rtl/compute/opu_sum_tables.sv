// Adds a unit's products in tables (opu_multiply_tables) to the sum of its slices. One sum per cycle. Latency
// TABLE_STEPS + TABLE_STAGES from the operands; the slices' sum arrives together with the products.
//
//   operands --> opu_multiply_tables (TABLE_STEPS) --+--> adder tree (TABLE_STAGES) --> sum
//   sum of the slices -------------------------------+
//
// Terms of the tree: the slices' sum, then sums of two products, each of which is 1 too small. An adder whose second
// operand begins with such a term adds the 1 as a carry. An adder has one such operand, and every term but the lowest
// one of the tree is first in one.
module opu_sum_tables
  import opu_pkg::*;
  import opu_compute_pkg::*;
(
    input  logic                                clk_i,
    input  logic                                load_i,      // the weights, with operands that arrive a cycle later, and for later ones
    input  logic                                valid_i,     // there are such operands
    input  logic            [8*TABLE_TERMS-1:0] weights_i,
    input  table_operands_t [TABLE_TERMS/2-1:0] operands_i,
    input  logic signed     [SUM_BITS-1:0]      slices_i,
    output logic signed     [SUM_BITS-1:0]      sum_o
);

  localparam int unsigned PAIRS = TABLE_TERMS / 2;

  logic [TABLE_STEPS-1:1] load_q;
  logic [TABLE_STEPS-1:0] moves_q;
  always_ff @(posedge clk_i) begin
    load_q <= (TABLE_STEPS - 1)'({load_q, load_i});
    moves_q <= TABLE_STEPS'({moves_q, valid_i});
  end

  for (genvar l = 0; l <= int'(TABLE_STAGES); l++) begin : g_level
    localparam int unsigned LEFT = (PAIRS + (1 << l)) >> l;
    for (genvar t = 0; t < int'(LEFT); t++) begin : g_term
      localparam int unsigned BITS = (t == 0) ? SUM_BITS : 16 + l;
      logic signed [BITS-1:0] sum;
      if (l == 0) begin : g_given
        if (t == 0) begin : g_slices
          assign sum = slices_i;
        end else begin : g_tables
          opu_multiply_tables u_multiply (
              .clk_i,
              .load_i    ({load_q, load_i}),
              .moves_i   (moves_q),
              .weights_i (weights_i[16*(t-1)+:16]),
              .operands_i(operands_i[t-1]),
              .sum_o     (sum)
          );
        end
      end else if (2 * t + 1 < int'((PAIRS + (1 << (l - 1))) >> (l - 1))) begin : g_two
        logic signed [BITS-1:0] second;
        assign second = ~BITS'(g_level[l-1].g_term[2*t+1].sum);
        always_ff @(posedge clk_i) sum <= BITS'(g_level[l-1].g_term[2*t].sum) - second;
      end else begin : g_one
        always_ff @(posedge clk_i) sum <= BITS'(g_level[l-1].g_term[2*t].sum);
      end
    end
  end

  assign sum_o = g_level[TABLE_STAGES].g_term[0].sum;

endmodule
