// Reads weight rows into their registers, word by word.
//
// open_i:  parameters of an instruction are taken if it starts: its first weight word, the words of its rows, the register.
// start_i: its first rows are to be read, so many and one more; next_i: those of its next sweep. Either may come in the cycle of
//          the last read.
// few_o:   at most one word is left to be read.
// weight_*: read port of the weight buffer; the word arrives one cycle later and belongs to the row register and position
//          that fill_o names then.
`include "opu_assert.svh"

module opu_compute_fill
  import opu_pkg::*;
  import opu_compute_pkg::*;
(
    input  logic         clk_i,
    input  logic         rst_ni,

    input  logic         open_i,
    input  logic         start_i,
    input  logic [15:0]  start_rows_i,
    input  weight_addr_t weight_i,
    input  logic [15:0]  words_i,
    input  row_t         row_i,
    input  logic         next_i,
    input  logic [15:0]  next_rows_i,
    output logic         few_o,

    output logic         weight_re_o,
    output weight_addr_t weight_addr_o,
    output fill_t        fill_o
);

  localparam int unsigned FILL_BITS = $clog2(SWEEP_ROWS * ROW_WORDS + 1);

  typedef struct packed {logic [FILL_BITS-1:0] left; logic few;} reads_t;  // few: one at most
  reads_t reads_q, reads_d;
  logic row_ends;
  row_t row_q;  // register, word and words of the row that fills
  logic [ROW_WORD_BITS-1:0] word_q, last_q;
  logic [15:0] words_q;

  assign few_o = reads_q.few;
  assign weight_re_o = reads_q.left != '0;
  assign row_ends = word_q == last_q;

  /* verilator lint_off UNUSEDSIGNAL */  // without depthwise a sweep has one row
  function automatic reads_t reads_of(logic [15:0] further, logic [15:0] words);  // further rows, words of each
    /* verilator lint_on UNUSEDSIGNAL */
    reads_of = '{left: HAS_DEPTHWISE ? FILL_BITS'((further + 16'd1) * words) : FILL_BITS'(words), few: further == '0 && words == 16'd1};
  endfunction

  always_comb begin
    if (start_i) reads_d = reads_of(start_rows_i, words_i);
    else if (next_i) reads_d = reads_of(next_rows_i, words_q);
    else reads_d = '{left: reads_q.left - FILL_BITS'(weight_re_o), few: reads_q.left <= FILL_BITS'(2)};
  end

  always_ff @(posedge clk_i) begin
    reads_q <= rst_ni ? reads_d : '{left: '0, few: 1'b1};
    if (weight_re_o) begin
      weight_addr_o <= weight_addr_o + weight_addr_t'(1);
      word_q <= row_ends ? '0 : word_q + ROW_WORD_BITS'(1);
      if (row_ends) row_q <= row_after(row_q, 1);
    end
    if (open_i) begin
      weight_addr_o <= weight_i;
      row_q <= row_i;
      word_q <= '0;
      words_q <= words_i;
      last_q <= ROW_WORD_BITS'(words_i - 16'd1);
    end
    fill_o <= '{valid: weight_re_o && rst_ni, row_select: row_q, word: word_q, row_words: words_q};
  end

  `OPU_ASSERT(FillNotLost, start_i || next_i |-> few_o)
  `OPU_ASSERT(FewAreLeft, few_o |-> reads_q.left <= FILL_BITS'(1))
  `OPU_ASSERT(FewIsTold, !(start_i || next_i) && reads_q.left <= FILL_BITS'(2) |=> few_o)

endmodule
