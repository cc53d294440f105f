// Sum of TERMS signed numbers: a tree of adders with a register after every level. One sum per cycle. Latency STAGES;
// if that is more than the number of levels, the sum is delayed.
//
//   term 0, term 1 --> [+] --+
//   term 2, term 3 --> [+] --+--> [+] --> ... --> sum_o    ([ ]: registered; an odd term is delayed)
`include "opu_assert.svh"

module opu_sum_tree #(
    parameter int unsigned TERMS = 16,
    parameter int unsigned WIDTH = 16,
    parameter int unsigned STAGES = 4,
    localparam int unsigned LEVELS = $clog2(TERMS),
    localparam int unsigned SUM_BITS = WIDTH + LEVELS
) (
    input  logic                          clk_i,
    input  logic        [WIDTH*TERMS-1:0] terms_i,
    output logic signed [SUM_BITS-1:0]    sum_o
);

  `OPU_ASSERT_STATIC(StagesFit, STAGES >= LEVELS)

  // After level l: terms left.
  for (genvar l = 0; l <= int'(LEVELS); l++) begin : g_level
    localparam int unsigned LEFT = (TERMS + (1 << l) - 1) >> l;
    localparam int unsigned BITS = WIDTH + l;
    for (genvar t = 0; t < int'(LEFT); t++) begin : g_term
      logic signed [BITS-1:0] sum;
      if (l == 0) begin : g_term_in
        assign sum = terms_i[WIDTH*t+:WIDTH];
      end else if (2 * t + 1 < int'((TERMS + (1 << (l - 1)) - 1) >> (l - 1))) begin : g_two
        always_ff @(posedge clk_i) sum <= BITS'(g_level[l-1].g_term[2*t].sum) + BITS'(g_level[l-1].g_term[2*t+1].sum);
      end else begin : g_one
        always_ff @(posedge clk_i) sum <= BITS'(g_level[l-1].g_term[2*t].sum);
      end
    end
  end

  if (STAGES == LEVELS) begin : g_at_once
    assign sum_o = g_level[LEVELS].g_term[0].sum;
  end else begin : g_delayed
    logic [SUM_BITS*(STAGES-LEVELS)-1:0] delay_q;
    always_ff @(posedge clk_i) delay_q <= (SUM_BITS * (STAGES - LEVELS))'({delay_q, g_level[LEVELS].g_term[0].sum});
    assign sum_o = delay_q[SUM_BITS*(STAGES-LEVELS-1)+:SUM_BITS];
  end

endmodule
