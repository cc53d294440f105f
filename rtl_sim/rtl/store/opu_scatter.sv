// Sequencer of the store data: for every beat of the open stores, the word of the output buffer, the part of it and the
// strobes, in the order of docs/machine.md. One beat per cycle.
//
//   start --> FIFO --> loop nest over words: copies, gap, run, repeats of a row --> address_o, read_o
//                          ^ after the last beat of a word
//   step_i --> loop over the beats of a word ----------------------------------> part_o, strobe_o
//
// start_*: valid/ready, one instruction; an illegal one gets no beats. Up to IN_FLIGHT are open; the outputs describe
//          the oldest one (valid_o, pc_o).
// step_i:  the present beat is sent; the outputs describe the next one from the next cycle on. finish_i: it was the
//          last one of its instruction.
// read_o:  the beat needs word address_o (first part of a word; later parts and gaps do not read again).
`include "opu_assert.svh"

module opu_scatter
  import opu_pkg::*;
#(
    parameter int unsigned PC_BITS = 24,
    parameter int unsigned IN_FLIGHT = 4,
    localparam int unsigned WORD_BEATS = WORD_BYTES / BUS_BYTES,
    localparam int unsigned PART_BITS = (WORD_BEATS > 1) ? $clog2(WORD_BEATS) : 1
) (
    input  logic                 clk_i,
    input  logic                 rst_ni,

    input  logic                 start_valid_i,
    output logic                 start_ready_o,
    /* verilator lint_off UNUSEDSIGNAL */  // the addresses are cut elsewhere
    input  store_params_t        params_i,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic [PC_BITS-1:0]   pc_i,

    input  logic                 step_i,
    input  logic                 finish_i,
    output logic                 valid_o,
    output logic [PC_BITS-1:0]   pc_o,
    output logic                 read_o,
    output logic [VALUE_BITS:0]  address_o,
    output logic [PART_BITS-1:0] part_o,
    output logic [BUS_BYTES-1:0] strobe_o
);

  localparam int unsigned SUM_BITS = VALUE_BITS + 1;
  localparam int unsigned SKIP_BITS = $clog2(WORD_BYTES);

  // Counts run down to a sign and carry the flags of their first value: nothing is compared in the cycle in which a
  // beat is sent.
  typedef struct packed {
    logic [VALUE_BITS-1:0] src;
    logic [15:0]           run;
    logic                  one;       // word in the run
    logic [15:0]           gap;
    logic                  no_gap;
    logic [SKIP_BITS-1:0]  skip_low;
    logic [SKIP_BITS-1:0]  skip_high;
    logic [PC_BITS-1:0]    pc;
  } words_t;
  words_t words;
  opu_queue #(
      .WIDTH($bits(words_t)),
      .DEPTH(IN_FLIGHT),
      .REGISTER(1'b1)
  ) u_words (
      .clk_i,
      .rst_ni,
      .push_valid_i(start_valid_i),
      .push_ready_o(start_ready_o),
      .push_data_i ({params_i.src, params_i.run, params_i.run == 16'd1, params_i.word_gap, params_i.word_gap == '0,
                     params_i.skip_low[SKIP_BITS-1:0], params_i.skip_high[SKIP_BITS-1:0], pc_i}),
      .pop_valid_o (valid_o),
      .pop_ready_i (finish_i),
      .pop_data_o  (words)
  );
  assign pc_o = words.pc;

  // ---- one DRAM word after the other: word of the run, its copies, the gap after it, repeats of the row; all begin at 0
  logic word_end, word_sent, copies_done, gap_done, run_done, rows_done;
  logic begins_q, in_gap_q;                          // begins_q: first word of the run
  // Words of the run after this one, less one; of the gap. Negative in the last one; they hold where those begin.
  logic signed [16:0] run_left_q, gap_left_q;
  logic [SUM_BITS-1:0] index_q, row_q;               // words after src: this one, the first of the row
  assign run_done = begins_q ? words.one : run_left_q[16];
  assign gap_done = (in_gap_q ? gap_left_q[16] : words.no_gap) || run_done;
  assign address_o = {1'b0, words.src} + index_q;

  logic word_left, word_advance, row_advance;        // after the copies; on to another word; on to another row
  assign word_sent = step_i && word_end;
  assign word_left = word_sent && (in_gap_q || copies_done);
  assign word_advance = word_left && gap_done;
  assign row_advance = word_advance && run_done;

  if (HAS_UPSAMPLE) begin : g_repeat
    logic [7:0] rows, cols, repeat_q;
    logic signed [8:0] copies_left_q;
    logic ready, valid, no_copies, in_copy_q;
    opu_queue #(
        .WIDTH(17),
        .DEPTH(IN_FLIGHT),
        .REGISTER(1'b1)
    ) u_repeats (
        .clk_i,
        .rst_ni,
        .push_valid_i(start_valid_i),
        .push_ready_o(ready),
        .push_data_i ({params_i.repeat_rows, params_i.repeat_cols, params_i.repeat_cols == '0}),
        .pop_valid_o (valid),
        .pop_ready_i (finish_i),
        .pop_data_o  ({rows, cols, no_copies})
    );
    assign copies_done = in_copy_q ? copies_left_q[8] : no_copies;
    assign rows_done = repeat_q == rows;
    always_ff @(posedge clk_i) begin
      if (!rst_ni) begin
        in_copy_q <= 1'b0;
        repeat_q <= '0;
      end else begin
        if (word_sent) in_copy_q <= !in_gap_q && !copies_done;
        if (row_advance) repeat_q <= rows_done ? '0 : repeat_q + 8'd1;
      end
    end
    always_ff @(posedge clk_i) begin
      if (!in_copy_q || word_sent) begin
        copies_left_q <= (in_copy_q ? copies_left_q : signed'(9'(cols))) - (in_copy_q ? 9'sd1 : 9'sd2);
      end
    end
    logic unused;                                    // the assertion looks at them
    assign unused = &{ready, valid};
    `OPU_ASSERT(RepeatsFollowWords, ready == start_ready_o && valid == valid_o)
  end else begin : g_once
    assign copies_done = 1'b1;
    assign rows_done = 1'b1;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      begins_q <= 1'b1;
      in_gap_q <= 1'b0;
      index_q <= '0;
      row_q <= '0;
    end else begin
      if (word_left) in_gap_q <= !gap_done;
      if (word_advance) begin
        begins_q <= run_done;
        index_q <= (row_advance && !rows_done) ? row_q : index_q + SUM_BITS'(1);
        if (row_advance && rows_done) row_q <= index_q + SUM_BITS'(1);
      end
      if (finish_i) begin
        index_q <= '0;
        row_q <= '0;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (begins_q || word_advance) run_left_q <= (begins_q ? signed'(17'(words.run)) : run_left_q) - (begins_q ? 17'sd3 : 17'sd1);
    if (!in_gap_q || word_left) gap_left_q <= (in_gap_q ? gap_left_q : signed'(17'(words.gap))) - (in_gap_q ? 17'sd1 : 17'sd2);
  end

  // ---- beats of a word ----------------------------------------------------------------------------------------------
  logic [WORD_BYTES-1:0] strobes;
  assign strobes = in_gap_q ? '0
      : ({WORD_BYTES{1'b1}} << words.skip_low) & ({WORD_BYTES{1'b1}} >> words.skip_high);
  assign read_o = part_o == '0 && !in_gap_q;
  assign word_end = part_o == PART_BITS'(WORD_BEATS - 1);
  if (WORD_BEATS > 1) begin : g_split
    logic [PART_BITS-1:0] part_q;
    assign part_o = part_q;
    assign strobe_o = strobes[32'(part_q) * BUS_BYTES +: BUS_BYTES];
    always_ff @(posedge clk_i) begin
      if (!rst_ni) part_q <= '0;
      else if (step_i) part_q <= word_end ? '0 : part_q + PART_BITS'(1);
    end
  end else begin : g_direct
    assign part_o = '0;
    assign strobe_o = strobes;
  end

  `OPU_ASSERT(StepsHaveWords, step_i |-> valid_o)
  `OPU_ASSERT(WordsEndWithBeats, finish_i |-> row_advance && rows_done)

endmodule
