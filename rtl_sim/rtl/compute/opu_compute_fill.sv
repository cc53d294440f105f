// Address generator of the weight rows: reads them word by word into their row registers. One word per cycle.
//
//   cycle     0               1                                    2
//   weight_*  re, address                                          data
//   fill_o                    row register, position (opu_compute delays it to the data)
//
// open_i:  the parameters of an instruction, latched if it starts: first weight word, words of its rows, the register.
// start_i: read its first rows, that many and one more. next_i: read those of its next sweep. Either may come in the
//          cycle of the last read.
// few_o:   at most one word is left to be read.
// weight_*: read port of the weight buffer.
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

  localparam int unsigned COUNT_BITS = $clog2(SWEEP_ROWS + 1);

  logic few_q, row_ends, row_few;  // one word of this row is left; two at most are
  logic [COUNT_BITS-1:0] rows_q;   // further rows
  row_t row_q;  // register, word and words of the row that fills
  logic [ROW_WORD_BITS-1:0] word_q, last_q;
  logic [ROW_WORD_BITS:0] words_q;

  assign few_o = few_q;
  assign row_ends = word_q == last_q;
  assign row_few = row_ends || word_q + ROW_WORD_BITS'(1) == last_q;

  // Rows are read without a pause: until the last word of the last one.
  always_ff @(posedge clk_i) begin
    if (start_i || next_i) begin
      weight_re_o <= 1'b1;
      rows_q <= HAS_DEPTHWISE ? COUNT_BITS'(start_i ? start_rows_i : next_rows_i) : '0;
      few_q <= start_i ? start_rows_i == '0 && words_i == 16'd1 : next_rows_i == '0 && last_q == '0;
    end else if (weight_re_o) begin
      if (row_ends) begin
        weight_re_o <= rows_q != '0;
        rows_q <= rows_q - COUNT_BITS'(1);
      end
      few_q <= (rows_q == '0 && row_few) || ((rows_q >> 1) == '0 && last_q == '0);
    end
    if (!rst_ni) begin
      weight_re_o <= 1'b0;
      few_q <= 1'b1;
    end
    if (weight_re_o) begin
      weight_addr_o <= weight_addr_o + weight_addr_t'(1);
      word_q <= row_ends ? '0 : word_q + ROW_WORD_BITS'(1);
      if (row_ends) row_q <= row_after(row_q, 1);
    end
    if (open_i) begin
      weight_addr_o <= weight_i;
      row_q <= row_i;
      word_q <= '0;
      words_q <= (ROW_WORD_BITS + 1)'(words_i);
      last_q <= ROW_WORD_BITS'(words_i - 16'd1);
    end
    fill_o <= '{valid: weight_re_o && rst_ni, row_select: row_q, word: word_q, row_words: words_q};
  end

  `OPU_ASSERT(FewIsLast, few_o == (!weight_re_o || (rows_q == '0 && row_ends)))
  `OPU_ASSERT(FillNotLost, start_i || next_i |-> few_o)

endmodule
