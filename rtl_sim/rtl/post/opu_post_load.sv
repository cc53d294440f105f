// Address generator of the parameter words: prefetches those of the next block. Double-buffered: one bank serves the
// current block, the other takes the next one. One word per cycle.
//
//   cycle     0             1                                        2
//   param_*   re, address                                            data
//   load_*                  unit, bank and position of the word (opu_post delays them to the data)
//
// take_i:   the parameters of an instruction have arrived, its first word is at param_i; some_i: its chain takes words;
//           late_i: units after the requantiser take some. From the next cycle on chain_i and legal_i belong to it;
//           only a legal one loads.
// begins_i: the first iteration of a block is issued; more_i: another block follows.
// waiting_o: the words of the block that begins next are not all read; bank_o: their bank, until the next load starts.
// param_*:  the read port. With late_i a load first waits POST_HOLD cycles: the block before has then left these units.
`include "opu_assert.svh"

module opu_post_load
  import opu_pkg::*;
  import opu_post_pkg::*;
(
    input  logic              clk_i,
    input  logic              rst_ni,

    input  logic              take_i,
    input  logic              some_i,
    input  logic              late_i,
    input  param_addr_t       param_i,
    /* verilator lint_off UNUSEDSIGNAL */  // the sequencer and the stages use the other fields
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

  words_t left_q, count_q;       // words to read and read; what the next load begins with while none runs
  logic reads_q, waiting_q;      // a load runs; or is due
  logic start, due, due_q;       // due_q: a load that waits
  logic at_once_q, later_q;      // the pass takes words: when a block begins, or after its hold; none starts without
  logic [HOLD_BITS-1:0] hold_q;  // cycles before the next load
  logic held_q, bank_q;          // held_q: hold_q is not 0; bank_q: of the load under way or done last
  param_addr_t addr_q;

  // begins_i arrives late; no load is due or held then.
  assign due = due_q && legal_i;
  assign start = (due && !held_q) || (begins_i && at_once_q && more_i);
  assign param_re_o = reads_q;
  assign param_addr_o = addr_q;
  assign waiting_o = waiting_q;
  assign bank_o = bank_q;

  // The unit that a word is for: the one whose first word it is, else that of the word before.
  logic [PLACES-1:0] first, unit, unit_q;
  always_comb begin
    first = '0;
    for (int unsigned p = 1; p < PLACES; p++) begin
      first[p] = PLACE_WORDS[p] != '0 && chain_i.passes[p] && count_q == chain_i.first[p];
    end
    unit = (first != '0) ? first : unit_q;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      left_q <= '0;
      reads_q <= 1'b0;
      load_we_o <= '0;
      due_q <= 1'b0;
      hold_q <= '0;
      held_q <= 1'b0;
      bank_q <= 1'b0;
    end else begin
      left_q <= reads_q ? left_q - words_t'(1) : chain_i.words;
      reads_q <= start || (reads_q && left_q != words_t'(1));
      load_we_o <= reads_q ? unit : '0;
      due_q <= (due && held_q) || (take_i && some_i) || (begins_i && later_q && more_i);
      if (begins_i && later_q) hold_q <= HOLD_BITS'(POST_HOLD - 1);
      else if (held_q) hold_q <= hold_q - HOLD_BITS'(1);
      held_q <= (begins_i && later_q) || (held_q && hold_q != HOLD_BITS'(1));
      if (start) bank_q <= !bank_q;
    end
  end

  // Loaded before they are used, so without reset. Nothing begins in the two cycles after take_i, in which waiting_q
  // lags.
  always_ff @(posedge clk_i) begin
    if (take_i) at_once_q <= some_i && !late_i;
    if (take_i) later_q <= late_i;
    waiting_q <= due || (reads_q && left_q != words_t'(1)) || (begins_i && (at_once_q || later_q) && more_i);
    if (reads_q) addr_q <= addr_q + param_addr_t'(1);
    if (take_i) addr_q <= param_i;
    load_bank_o <= bank_q;
    unit_q <= unit;
    load_word_o <= (first != '0) ? '0 : load_word_o + 4'd1;
    count_q <= reads_q ? count_q + words_t'(1) : '0;
  end

  `OPU_ASSERT(LoadNotLost, start |-> !reads_q && chain_i.words != '0)
  `OPU_ASSERT(SomeAreLeft, reads_q |-> left_q != '0)
  `OPU_ASSERT(HeldIsTheCount, held_q == (hold_q != '0))
  `OPU_ASSERT(WaitsForLoads, begins_i |-> !reads_q && !due_q && !(held_q && (at_once_q || later_q)))

endmodule
