// What the beats of the open stores hold: word of the output buffer, part of it, strobes; in the order of docs/machine.md.
//
// start_*: valid/ready, one instruction, of which nothing is asked if it is not legal; up to IN_FLIGHT are open, the oldest one is told (valid_o, pc_o).
// step_i:  the beat told is sent, the next one is told in the next cycle; finish_i: it was the last one of its instruction.
// read_o:  the beat needs word address_o (first part of a word; the parts behind it and all of a gap do not read again).
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

  typedef struct packed {
    logic [VALUE_BITS-1:0] src;
    logic [15:0]           run;
    logic [15:0]           gap;
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
      .push_data_i ({params_i.src, params_i.run, params_i.word_gap, params_i.skip_low[SKIP_BITS-1:0],
                     params_i.skip_high[SKIP_BITS-1:0], pc_i}),
      .pop_valid_o (valid_o),
      .pop_ready_i (finish_i),
      .pop_data_o  (words)
  );
  assign pc_o = words.pc;

  // ---- one DRAM word after the other: word of the run, its copies, the gap behind it, repeats of the row; all begin at 0 --------
  logic word_end, copies_done, gap_done, run_done, rows_done;
  logic [15:0] in_run_q, gap_q;                      // in_run_q: from 1 on
  logic in_gap_q;                                    // gap_q is not 0
  logic [SUM_BITS-1:0] index_q, row_q;               // words behind src: this one, the first of the row
  assign run_done = in_run_q == words.run;
  assign gap_done = gap_q == words.gap || run_done;
  assign address_o = {1'b0, words.src} + index_q;

  logic word_left, word_advance, row_advance;        // behind the copies; on to another word; on to another row
  assign word_left = step_i && word_end && (in_gap_q || copies_done);
  assign word_advance = word_left && gap_done;
  assign row_advance = word_advance && run_done;

  if (HAS_UPSAMPLE) begin : g_repeat
    logic [7:0] rows, cols, copy_q, repeat_q;
    logic ready, valid;
    opu_queue #(
        .WIDTH(16),
        .DEPTH(IN_FLIGHT),
        .REGISTER(1'b1)
    ) u_repeats (
        .clk_i,
        .rst_ni,
        .push_valid_i(start_valid_i),
        .push_ready_o(ready),
        .push_data_i ({params_i.repeat_rows, params_i.repeat_cols}),
        .pop_valid_o (valid),
        .pop_ready_i (finish_i),
        .pop_data_o  ({rows, cols})
    );
    assign copies_done = copy_q == cols;
    assign rows_done = repeat_q == rows;
    always_ff @(posedge clk_i) begin
      if (!rst_ni) begin
        copy_q <= '0;
        repeat_q <= '0;
      end else begin
        if (word_advance) copy_q <= '0;
        else if (step_i && word_end && !word_left) copy_q <= copy_q + 8'd1;
        if (row_advance) repeat_q <= rows_done ? '0 : repeat_q + 8'd1;
      end
    end
    `OPU_ASSERT(RepeatsFollowWords, ready == start_ready_o && valid == valid_o)
  end else begin : g_once
    assign copies_done = 1'b1;
    assign rows_done = 1'b1;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      in_run_q <= 16'd1;
      gap_q <= '0;
      in_gap_q <= 1'b0;
      index_q <= '0;
      row_q <= '0;
    end else begin
      if (word_advance) begin
        in_run_q <= run_done ? 16'd1 : in_run_q + 16'd1;
        gap_q <= '0;
        in_gap_q <= 1'b0;
        index_q <= (row_advance && !rows_done) ? row_q : index_q + SUM_BITS'(1);
        if (row_advance && rows_done) row_q <= index_q + SUM_BITS'(1);
      end else if (word_left) begin
        gap_q <= gap_q + 16'd1;
        in_gap_q <= 1'b1;
      end
      if (finish_i) begin
        index_q <= '0;
        row_q <= '0;
      end
    end
  end

  // ---- beats of a word -----------------------------------------------------------------------------------------------------
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

  `OPU_ASSERT(GapIsTold, in_gap_q == (gap_q != '0))
  `OPU_ASSERT(StepsHaveWords, step_i |-> valid_o)
  `OPU_ASSERT(WordsEndWithBeats, finish_i |-> row_advance && rows_done)

endmodule
