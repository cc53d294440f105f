// Walks the output pixels of a sweep of conv or copy: one step of a mode's pixels, one feature buffer read per cycle.
//
// sweep_*: valid/ready; ready when idle or at the last pixel, so sweeps follow each other without a gap.
// step_o:  the step of this cycle; feature_* reads its word, and the next one when the lanes go on into it; they arrive two
//          cycles later. Words without lanes inside the tile are not read. Addresses and enables are a short way behind registers:
//          what is the same for a whole sweep is computed when it is taken, and a step is compared with the tile while the one
//          before it runs.
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
  logic signed [Y_BITS-1:0] next_y_q;             // of the next output row
  logic signed [X_BITS-1:0] at_q, next_at_q, start_at_q;  // of this step, the next one of its row, column 0
  feature_addr_t row_addr_q, row_next_q;  // of tile column 0, and the word behind it
  psum_addr_t psum_q;

  logic last_col, last_pixel, take;
  assign last_col = cols_left_q[16];
  assign last_pixel = last_col && rows_left_q[16];
  assign sweep_ready_o = !active_q || last_pixel;
  assign take = sweep_valid_i && sweep_ready_o;

  // Lane l of pixel p is byte `at` + p * pixel_x + l of the tile row, which lies in its word number `word`.
  typedef logic signed [X_BITS-WORD_SHIFT-1:0] word_t;
  logic signed [X_BITS-1:0] end_at, end_word;
  word_t word;
  assign word = at_q[X_BITS-1:WORD_SHIFT];
  assign end_at = at_q + signed'(sweep_q.span);
  assign end_word = signed'(sweep_q.in_cols) - {word, {WORD_SHIFT{1'b0}}};

  function automatic logic row_inside(logic signed [Y_BITS-1:0] y, logic [15:0] in_rows);
    row_inside = !y[Y_BITS-1] && y < signed'(Y_BITS'(in_rows));
  endfunction

  // Which words of a step lie inside the tile's columns, and have lanes of it.
  typedef struct packed {
    logic first;
    logic next;
  } inside_t;
  function automatic inside_t columns_inside(logic signed [X_BITS-1:0] at, logic signed [X_BITS-1:0] in_cols,
                                             logic signed [X_BITS-1:0] room, word_t last_word);
    automatic word_t first = at[X_BITS-1:WORD_SHIFT];
    columns_inside.first = !at[X_BITS-1] && at < in_cols;
    columns_inside.next = signed'(X_BITS'(at[WORD_SHIFT-1:0])) > room && (!at[X_BITS-1] || first == '1) && first < last_word;
  endfunction

  // Of a sweep that is taken: column 0, the room of an offset whose lanes end with the word, the last word of a tile row.
  logic signed [X_BITS-1:0] start_at, room, room_q;
  word_t last_word, last_word_q;
  inside_t start_inside, start_inside_q, inside_q;
  logic row_inside_q, reads_first, reads_next;
  assign start_at = sweep_i.x + signed'(X_BITS'(sweep_i.segment));
  assign room = signed'(X_BITS'(WORD_BYTES) - sweep_i.span);
  assign last_word = word_t'((sweep_i.in_cols - X_BITS'(1)) >> WORD_SHIFT);
  assign start_inside = columns_inside(start_at, signed'(sweep_i.in_cols), room, last_word);
  assign reads_first = row_inside_q && inside_q.first;
  assign reads_next = row_inside_q && inside_q.next;

  assign feature_re_o = active_q && reads_first;
  assign feature_next_re_o = active_q && reads_next;
  assign feature_addr_o = row_addr_q + feature_addr_t'(word);
  assign feature_next_addr_o = row_next_q + feature_addr_t'(word);

  always_comb begin
    step_o = '0;
    step_o.valid = active_q;
    step_o.first = first_q;
    step_o.last = sweep_q.last && last_pixel;
    step_o.copy = sweep_q.copy;
    step_o.layout = sweep_q.layout;
    step_o.reads = reads_first || reads_next;
    step_o.whole = !at_q[X_BITS-1] && end_at <= signed'(sweep_q.in_cols);
    step_o.first_inside = reads_first;
    step_o.end_ = (end_word < X_BITS'(2 * WORD_BYTES)) ? WINDOW_BITS'(end_word) : WINDOW_BITS'(2 * WORD_BYTES);
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
      next_y_q <= sweep_i.y + Y_BITS'(sweep_i.stride_y);
      row_inside_q <= row_inside(sweep_i.y, sweep_i.in_rows);
      at_q <= start_at;
      start_at_q <= start_at;
      next_at_q <= start_at + signed'(sweep_i.stride_x);
      inside_q <= start_inside;
      start_inside_q <= start_inside;
      row_addr_q <= sweep_i.row_addr;
      row_next_q <= sweep_i.row_addr + feature_addr_t'(1);
      last_word_q <= last_word;
      room_q <= room;
      psum_q <= sweep_i.psum;
    end else if (active_q) begin
      psum_q <= psum_q + psum_addr_t'(1);
      if (!last_col) begin
        cols_left_q <= cols_left_q - 17'd1;
        at_q <= next_at_q;
        next_at_q <= next_at_q + signed'(sweep_q.stride_x);
        inside_q <= columns_inside(next_at_q, signed'(sweep_q.in_cols), room_q, last_word_q);
      end else begin
        cols_left_q <= 17'(sweep_q.out_cols) - 17'd2;
        rows_left_q <= rows_left_q - 17'd1;
        at_q <= start_at_q;
        next_at_q <= start_at_q + signed'(sweep_q.stride_x);
        inside_q <= start_inside_q;
        next_y_q <= next_y_q + Y_BITS'(sweep_q.stride_y);
        row_inside_q <= row_inside(next_y_q, sweep_q.in_rows);
        row_addr_q <= row_addr_q + sweep_q.stride_pitch;
        row_next_q <= row_next_q + sweep_q.stride_pitch;
      end
    end
  end

endmodule
