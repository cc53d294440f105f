// Dependency counters: one for every ordered pair of synchronising engines.
//
//   engine s --give--> [counter (s, d)] --take--> engine d
//
// Counter (s, d) holds the tokens that engine s has pushed and engine d has not yet popped. Masks are the fields of the
// instruction: bit e names engine e.
//
// take_*: engine d pops one token from counter (s, d) for every bit s of its mask in a cycle with take_valid_i[d]; only
//         bits that are set in tokens_o[d] may be popped.
// give_*: engine s pushes one token to counter (s, d) for every bit d of its mask in a cycle with give_valid_i[s]; only
//         bits that are set in space_o[s] may be pushed.
// Latency 1: a token pushed in one cycle can be popped in the next. Every engine may pop and push once per cycle. Reset
//            empties all counters.
`include "opu_assert.svh"

module opu_counters #(
    parameter int unsigned ENGINES = 5,       // numbers 0 .. ENGINES-1; engine 0 (fetch) has no counters
    parameter int unsigned COUNTER_BITS = 8
) (
    input  logic               clk_i,
    input  logic               rst_ni,

    input  logic [ENGINES-1:1] take_valid_i,
    input  logic [ENGINES-1:0] take_mask_i [ENGINES],
    output logic [ENGINES-1:0] tokens_o [ENGINES],

    input  logic [ENGINES-1:1] give_valid_i,
    input  logic [ENGINES-1:0] give_mask_i [ENGINES],
    output logic [ENGINES-1:0] space_o [ENGINES]
);

  localparam logic [COUNTER_BITS-1:0] FULL = '1;

  for (genvar s = 0; s < int'(ENGINES); s++) begin : g_source
    for (genvar d = 0; d < int'(ENGINES); d++) begin : g_drain
      if (s == 0 || d == 0 || s == d) begin : g_absent
        assign tokens_o[d][s] = 1'b0;
        assign space_o[s][d] = 1'b0;
      end else begin : g_counter
        logic [COUNTER_BITS-1:0] count_q;
        logic some_q, room_q;  // what it says of 0 and FULL, for those who wait for it
        logic give, take;
        assign give = give_valid_i[s] && give_mask_i[s][d];
        assign take = take_valid_i[d] && take_mask_i[d][s];
        assign tokens_o[d][s] = some_q;
        assign space_o[s][d] = room_q;

        always_ff @(posedge clk_i) begin
          if (!rst_ni) begin
            count_q <= '0;
            some_q <= 1'b0;
            room_q <= 1'b1;
          end else if (give != take) begin
            count_q <= give ? count_q + COUNTER_BITS'(1) : count_q - COUNTER_BITS'(1);
            some_q <= give || count_q != COUNTER_BITS'(1);
            room_q <= take || count_q != FULL - COUNTER_BITS'(1);
          end
        end

        `OPU_ASSERT(NoUnderflow, take |-> count_q != '0)
        `OPU_ASSERT(NoOverflow, give |-> count_q != FULL)
        `OPU_ASSERT(FlagsAreTheCount, some_q == (count_q != '0) && room_q == (count_q != FULL))
      end
    end
  end

endmodule
