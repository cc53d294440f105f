// Registers that hold the same value, each a cycle behind the one before: few readers a register, no tool makes one of them.
//
// copies_o[c] shows value_i 1 + c cycles later: for what a pass is set to, which stands long before it is used.
module opu_copies #(
    parameter int unsigned WIDTH = 8,
    parameter int unsigned COPIES = 4
) (
    input  logic                         clk_i,
    input  logic [WIDTH-1:0]             value_i,
    output logic [COPIES-1:0][WIDTH-1:0] copies_o
);

  for (genvar c = 0; c < int'(COPIES); c++) begin : g_copy
    always_ff @(posedge clk_i) copies_o[c] <= (c == 0) ? value_i : copies_o[(c == 0) ? 0 : c - 1];
  end

endmodule
