// Operands of products in tables, two products each (opu_multiply_tables), shared by all units that have them: their
// sum and their difference. Latency 1, one step per cycle.
module opu_table_operands
  import opu_pkg::*;
  import opu_compute_pkg::*;
(
    input  logic                                clk_i,
    input  logic            [8*TABLE_TERMS-1:0] operands_i,  // int8
    output table_operands_t [TABLE_TERMS/2-1:0] operands_o
);

  for (genvar k = 0; k < int'(TABLE_TERMS / 2); k++) begin : g_two
    logic signed [7:0] first, second;
    table_operands_t operands_q;
    assign {second, first} = operands_i[16*k+:16];
    assign operands_o[k] = operands_q;
    always_ff @(posedge clk_i) begin
      operands_q.x <= {second, first};
      operands_q.sums <= {operands_q.sums[TABLE_STEPS-2:0], 9'(first) + 9'(second)};
      operands_q.differences <= {operands_q.differences[TABLE_STEPS-2:0], 9'(first) - 9'(second)};
    end
  end

endmodule
