// Sum of TERMS signed numbers: a tree of adders with a register behind every second level and behind the last one. STAGES says
// how many those are: cycles from the terms to their sum.
`include "opu_assert.svh"

module opu_sum_tree #(
    parameter int unsigned TERMS = 16,
    parameter int unsigned WIDTH = 16,
    parameter int unsigned STAGES = 2,
    localparam int unsigned LEVELS = $clog2(TERMS),
    localparam int unsigned SUM_BITS = WIDTH + LEVELS
) (
    input  logic                          clk_i,
    input  logic        [WIDTH*TERMS-1:0] terms_i,
    output logic signed [SUM_BITS-1:0]    sum_o
);

  `OPU_ASSERT_STATIC(StagesFit, STAGES == ((LEVELS > 2) ? (LEVELS + 1) / 2 : 1))

  // Behind level l: terms left.
  for (genvar l = 0; l <= int'(LEVELS); l++) begin : g_level
    localparam int unsigned LEFT = (TERMS + (1 << l) - 1) >> l;
    localparam int unsigned BITS = WIDTH + l;
    logic signed [BITS-1:0] sum [LEFT];
    logic signed [BITS-1:0] kept [LEFT];

    for (genvar t = 0; t < int'(LEFT); t++) begin : g_term
      if (l == 0) begin : g_given
        assign sum[t] = terms_i[WIDTH*t+:WIDTH];
      end else if (2 * t + 1 < int'((TERMS + (1 << (l - 1)) - 1) >> (l - 1))) begin : g_two
        assign sum[t] = BITS'(g_level[l-1].kept[2*t]) + BITS'(g_level[l-1].kept[2*t+1]);
      end else begin : g_one
        assign sum[t] = BITS'(g_level[l-1].kept[2*t]);
      end
    end

    if (l == int'(LEVELS) || (l > 0 && l % 2 == 0)) begin : g_register
      always_ff @(posedge clk_i) kept <= sum;
    end else begin : g_wire
      assign kept = sum;
    end
  end

  assign sum_o = g_level[LEVELS].kept[0];

endmodule
