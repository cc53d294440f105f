// Reads the parameter words of the blocks ahead: one bank serves the visits, the other takes the next block's.
//
// take_i:   an instruction's parameters are there, its first word lies at param_i; some_i: its chain takes words. From the next
//           cycle on chain_i and legal_i hold for it; only a legal one loads.
// begins_i: the first visit of a block is issued; more_i: another block follows.
// waiting_o: the words of the block that begins next are not all read; bank_o: where they go, until the next load starts.
// param_*:  the read port. load_*, one cycle later, are place, bank and position of the word. Passes with units behind the
//           requantiser that take some wait POST_HOLD cycles first: the block before has then left them.
`include "opu_assert.svh"

module opu_post_load
  import opu_pkg::*;
  import opu_post_pkg::*;
(
    input  logic              clk_i,
    input  logic              rst_ni,

    input  logic              take_i,
    input  logic              some_i,
    input  param_addr_t       param_i,
    /* verilator lint_off UNUSEDSIGNAL */  // the walk and the stages use the other fields
    input  chain_t            chain_i,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic              legal_i,
    input  logic              begins_i,
    input  logic              more_i,
    output logic              waiting_o,
    output logic              bank_o,

    output logic              param_re_o,
    output param_addr_t       param_addr_o,
    output logic [PLACES-1:0] load_we_o,
    output logic              load_bank_o,
    output logic [3:0]        load_word_o
);

  localparam int unsigned HOLD_BITS = $clog2(POST_HOLD + 1);

  words_t left_q, count_q;
  logic reads_q, waiting_q;      // left_q is not 0; or a load is due
  logic start, wanted, due_q;    // due_q: a load that waits
  logic some_q;                  // the pass takes words: none starts without
  logic [HOLD_BITS-1:0] hold_q;  // cycles before the next load
  logic hold, bank_q;            // bank_q: of the load under way or done last
  param_addr_t addr_q;

  assign hold = hold_q != '0 || (begins_i && chain_i.late);
  assign wanted = (due_q && legal_i) || (begins_i && some_q && more_i);
  // Of wanted && !hold, begins_i comes late.
  assign start = hold_q == '0 && (begins_i ? !chain_i.late && ((some_q && more_i) || (due_q && legal_i)) : due_q && legal_i);
  assign param_re_o = reads_q;
  assign param_addr_o = addr_q;
  assign waiting_o = waiting_q;
  assign bank_o = bank_q;

  // Whom a word is for.
  logic [PLACES-1:0] load_we;
  words_t first;
  always_comb begin
    load_we = '0;
    first = '0;
    for (int unsigned p = 1; p < PLACES; p++) begin
      if (PLACE_WORDS[p] != '0 && chain_i.passes[p] && count_q >= chain_i.first[p]
          && count_q - chain_i.first[p] < words_t'(PLACE_WORDS[p])) begin
        load_we[p] = reads_q;
        first = chain_i.first[p];
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      left_q <= '0;
      reads_q <= 1'b0;
      load_we_o <= '0;
      due_q <= 1'b0;
      hold_q <= '0;
      bank_q <= 1'b0;
    end else begin
      if (start) left_q <= chain_i.words;
      else if (reads_q) left_q <= left_q - words_t'(1);
      reads_q <= start || left_q > words_t'(1);
      load_we_o <= load_we;
      due_q <= (wanted && hold) || (take_i && some_i);
      if (begins_i && chain_i.late) hold_q <= HOLD_BITS'(POST_HOLD - 1);
      else if (hold_q != '0) hold_q <= hold_q - HOLD_BITS'(1);
      if (start) bank_q <= !bank_q;
    end
  end

  // Loaded before they are used, so without reset. Nothing begins in the two cycles behind take_i, in which waiting_q lags.
  always_ff @(posedge clk_i) begin
    some_q <= take_i ? some_i : chain_i.words != '0;
    waiting_q <= wanted || left_q > words_t'(1);
    if (reads_q) addr_q <= addr_q + param_addr_t'(1);
    if (take_i) addr_q <= param_i;
    load_bank_o <= bank_q;
    load_word_o <= 4'(count_q - first);
    count_q <= start ? '0 : count_q + words_t'(reads_q);
  end

  `OPU_ASSERT(LoadNotLost, start |-> left_q == '0)
  `OPU_ASSERT(ReadsAreTheCount, reads_q == (left_q != '0))
  `OPU_ASSERT(WaitsForLoads, begins_i |-> !reads_q && !due_q)

endmodule
