// Copies of a value for many readers: COPIES registers in series, so that each has few readers and no tool merges them.
//
//   value_i --> [0] --> [1] --> ... --> [COPIES-1]
//
// copies_o[c] shows value_i 1 + c cycles later. It is meant for settings of a pass, which are stable long before their
// use.
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
