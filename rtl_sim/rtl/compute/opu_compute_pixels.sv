// Address generator of a sweep of conv or copy: the loop nest over output pixels. One step (the pixels of a mode), and
// one feature buffer read, per cycle.
//
//   cycle       0                              2
//   step_o      step
//   feature_*   word, and next word if needed  data
//
// sweep_*: valid/ready. Ready when idle or at the last pixel, so sweeps follow each other without a bubble.
// step_o:  the step of this cycle. feature_* reads its word, and the next one if the lanes continue into it; both
//          arrive two cycles later. Words without lanes inside the tile are not read. Addresses and enables come almost
//          directly out of registers: a sweep carries the address of its first step, and a step is compared with the
//          tile during the one before.
`include "opu_assert.svh"

module opu_compute_pixels
  import opu_pkg::*;
  import opu_compute_pkg::*;
(
    input  logic          clk_i,
    input  logic          rst_ni,

    input  logic          sweep_valid_i,
    output logic          sweep_ready_o,
    input  sweep_t        sweep_i,

    output step_t         step_o,
    output logic          feature_re_o,
    output logic          feature_next_re_o,
    output feature_addr_t feature_addr_o,
    output feature_addr_t feature_next_addr_o
);

  /* verilator lint_off UNUSEDSIGNAL */  // some fields go elsewhere
  sweep_t sweep_q;
  /* verilator lint_on UNUSEDSIGNAL */
  logic active_q, first_q;
  logic [16:0] rows_left_q, cols_left_q;  // further output rows, columns of this row, less one: negative on the last
  coord_t next_y_q;                               // of the next output row
  typedef struct packed {reach_t reach; logic [COLS_BITS-1:0] low;} at_t;
  logic [COLS_BITS-1:0] at_q, start_at_q;         // of this step, column 0
  at_t next_at_q, start_next_q;                   // of the next one of its row, column 1
  feature_addr_t row_addr_q, row_next_q;  // of tile column 0, and the next word
  psum_addr_t psum_q;

  logic last_col, last_pixel, take;
  assign last_col = cols_left_q[16];
  assign last_pixel = last_col && rows_left_q[16];
  assign sweep_ready_o = !active_q || last_pixel;
  assign take = sweep_valid_i && sweep_ready_o;

  // Lane l of pixel p is byte `at` + p * pixel_x + l of the tile row, in its word number `word`.
  columns_t columns_q, start_columns_q;
  logic row_inside_q, reads_first, reads_next;
  feature_addr_t word;
  assign word = feature_addr_t'(signed'({columns_q.left, at_q}) >>> WORD_SHIFT);
  assign reads_first = row_inside_q && columns_q.around && columns_q.low;
  assign reads_next = row_inside_q && columns_q.crosses && ((columns_q.left && columns_q.ones) || (columns_q.around && columns_q.below));

  assign feature_re_o = active_q && reads_first;
  assign feature_next_re_o = active_q && reads_next;
  assign feature_addr_o = row_addr_q + word;
  assign feature_next_addr_o = row_next_q + word;

  function automatic at_t at_after(at_t at, logic [STRIDE_BITS-1:0] step);
    automatic logic [COLS_BITS:0] sum = (COLS_BITS + 1)'(at.low) + (COLS_BITS + 1)'(step);
    at_after = '{reach: reach_after(at.reach, sum[COLS_BITS]), low: sum[COLS_BITS-1:0]};
  endfunction

  at_t first_at, second_at;  // of the sweep that comes
  assign first_at = '{reach: '{left: sweep_i.columns.left, around: sweep_i.columns.around}, low: sweep_i.at[COLS_BITS-1:0]};
  assign second_at = at_after(first_at, sweep_i.stride_x);

  always_comb begin
    step_o = '0;
    step_o.valid = active_q;
    step_o.first = first_q;
    step_o.last = sweep_q.last && last_pixel;
    step_o.copy = sweep_q.copy;
    step_o.layout = sweep_q.layout;
    step_o.reads = reads_first || reads_next;
    step_o.whole = columns_q.around && !columns_q.crosses && (columns_q.below || (columns_q.ends && sweep_q.edges.tail[WORD_SHIFT]));
    step_o.first_inside = reads_first;
    step_o.end_ = WINDOW_BITS'(2 * WORD_BYTES);
    if (columns_q.prior) step_o.end_ = WINDOW_BITS'(WORD_BYTES) + WINDOW_BITS'(sweep_q.edges.tail);
    if (columns_q.ends) step_o.end_ = WINDOW_BITS'(sweep_q.edges.tail);
    step_o.overwrite = sweep_q.overwrite;
    step_o.row_select = sweep_q.row_select;
    step_o.pad = sweep_q.pad;
    step_o.offset = at_q[WORD_SHIFT-1:0];
    step_o.crosses = reads_next;
    step_o.pixel_x = (WORD_SHIFT + 1)'(sweep_q.pixel_x);
    step_o.groups = sweep_q.groups;
    step_o.psum = psum_q;
    step_o.pre = sweep_q.pre;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) active_q <= 1'b0;
    else active_q <= take || (active_q && !last_pixel);
  end

  always_ff @(posedge clk_i) begin
    first_q <= take;
    if (take) begin
      sweep_q <= sweep_i;
      rows_left_q <= 17'(sweep_i.out_rows) - 17'd2;
      cols_left_q <= 17'(sweep_i.out_cols) - 17'd2;
      next_y_q <= coord_after(coord_of(sweep_i.y), 16'(sweep_i.stride_y));
      row_inside_q <= sweep_i.row_inside;
      at_q <= first_at.low;
      start_at_q <= first_at.low;
      next_at_q <= second_at;
      start_next_q <= second_at;
      columns_q <= sweep_i.columns;
      start_columns_q <= sweep_i.columns;
      row_addr_q <= sweep_i.row_addr;
      row_next_q <= sweep_i.row_addr + feature_addr_t'(1);
      psum_q <= sweep_i.psum;
    end else if (active_q) begin
      psum_q <= psum_q + psum_addr_t'(1);
      if (!last_col) begin
        cols_left_q <= cols_left_q - 17'd1;
        at_q <= next_at_q.low;
        next_at_q <= at_after(next_at_q, sweep_q.stride_x);
        columns_q <= columns_of(next_at_q.reach, next_at_q.low, sweep_q.edges);
      end else begin
        cols_left_q <= 17'(sweep_q.out_cols) - 17'd2;
        rows_left_q <= rows_left_q - 17'd1;
        at_q <= start_at_q;
        next_at_q <= start_next_q;
        columns_q <= start_columns_q;
        next_y_q <= coord_after(next_y_q, 16'(sweep_q.stride_y));
        row_inside_q <= inside_of(next_y_q, sweep_q.in_rows);
        row_addr_q <= row_addr_q + sweep_q.stride_pitch;
        row_next_q <= row_next_q + sweep_q.stride_pitch;
      end
    end
  end

endmodule
