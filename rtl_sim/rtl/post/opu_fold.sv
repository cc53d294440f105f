// Folds words of several pixels before a pool, where a word takes several beats: gathers the beats of a word, folds
// neighbouring pixels, and emits one beat per cycle. With slots_i 0 words pass unchanged. Latency BEATS + 1.
//
//   value_i --> gather BEATS parts --> [pairs, larger one] --> [folded word] --> shift out, one beat per cycle
`include "opu_assert.svh"

module opu_fold
  import opu_pkg::*;
  import opu_post_pkg::*;
(
    input  logic                  clk_i,
    input  logic                  rst_ni,

    input  logic [2:0]            slots_i,

    input  item_t                 item_i,
    input  lanes_t                value_i,
    output item_t                 item_o,
    output lanes_t                value_o
);

  // Machines with one beat do not instantiate this module; tools that elaborate it anyway need a width.
  localparam int unsigned REST_BITS = (BEATS > 1) ? WORD_BITS - LANES_BITS : 1;

  logic [REST_BITS-1:0] gathered_q;  // earlier beats, the last one highest
  logic [WORD_BITS-1:0] word, pairs, pairs_q, folded_q;
  logic [WORD_CHANNELS/2-1:0] larger_q;
  item_t item_q [BEATS+1];
  assign word = WORD_BITS'({value_i, gathered_q});
  assign pairs = pairs_of(word, MODE_PX_MAX > 2 && slots_i == 3'd4);
  assign item_o = item_q[BEATS];
  assign value_o = folded_q[LANES_BITS-1:0];

  always_ff @(posedge clk_i) begin
    if (item_i.valid) gathered_q <= REST_BITS'(word >> LANES_BITS);
    pairs_q <= pairs;
    larger_q <= lower_larger(pairs);
    folded_q <= folded_q >> LANES_BITS;
    if (item_q[0].beat == LAST_BEAT) folded_q <= (slots_i == '0) ? pairs_q : folded(pairs_q, larger_q, item_q[0].right);
    item_q[0] <= item_i;
    for (int unsigned t = 1; t <= BEATS; t++) item_q[t] <= item_q[t-1];
    if (!rst_ni) begin
      for (int unsigned t = 0; t <= BEATS; t++) item_q[t].valid <= 1'b0;
    end
  end

  `OPU_ASSERT(BeatsFollow, item_i.valid && item_i.beat != LAST_BEAT |=> item_i.valid && item_i.beat == $past(item_i.beat) + 1'b1)

endmodule
