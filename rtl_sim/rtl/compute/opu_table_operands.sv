// Operands of two products in tables (opu_multiply_tables), for all units that have them: their sum and their difference, for each
// step a cycle later. Latency 1.
module opu_table_operands
  import opu_compute_pkg::*;
(
    input  logic                    clk_i,
    input  logic signed [1:0][7:0]  operands_i,  // int8
    output table_operands_t         operands_o
);

  logic signed [7:0] first, second;
  assign first = operands_i[0];
  assign second = operands_i[1];

  always_ff @(posedge clk_i) begin
    operands_o.x <= operands_i;
    operands_o.both <= {operands_o.both[TABLE_STEPS-2:0], 9'(first) + 9'(second)};
    operands_o.apart <= {operands_o.apart[TABLE_STEPS-2:0], 9'(first) - 9'(second)};
  end

endmodule
