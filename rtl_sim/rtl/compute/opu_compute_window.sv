// Walks a sweep of depthwise: reads the columns of the kernel window into a ring, and issues the steps of all parts.
//
// sweep_*: valid/ready, one block each. Reading runs ahead of the steps, also into the next sweep; begun_o pulses when the
//          steps of a sweep begin. idle_o: no sweep inside.
// feature_*: one kernel row of one or two neighbouring columns per cycle; the words arrive one cycle later, and enter_o,
//          one cycle after its read, tells where they go. Words outside the tile are not read.
// step_o:  one (pixel, part) step, while enough columns are in the ring. Steps see what was read at least a cycle before.
//
// Two columns a read when dilation_x is 1 and stride_x no larger than the window (kernel_rows * stride_x / 2 reads a
// pixel); else single columns, those of every pixel anew (kernel_rows * kernel_cols reads a pixel).
`include "opu_assert.svh"

module opu_compute_window
  import opu_pkg::*;
  import opu_compute_pkg::*;
(
    input  logic          clk_i,
    input  logic          rst_ni,

    input  logic          sweep_valid_i,
    output logic          sweep_ready_o,
    /* verilator lint_off UNUSEDSIGNAL */  // some fields go elsewhere
    input  sweep_t        sweep_i,
    /* verilator lint_on UNUSEDSIGNAL */
    output logic          begun_o,
    output logic          idle_o,

    output step_t         step_o,
    output enter_t        enter_o,
    output logic          feature_re_o,
    output logic          feature_next_re_o,
    output feature_addr_t feature_addr_o
);

  localparam int unsigned PART_GROUPS = PART_LANES / GROUP_LANES;
  typedef logic [COLUMN_BITS:0] columns_t;  // a number of columns in the ring
  typedef logic signed [Y_BITS-1:0] column_t;

  /* verilator lint_off UNUSEDSIGNAL */  // reading and steps use their fields
  sweep_t read_q, walk_q;
  /* verilator lint_on UNUSEDSIGNAL */
  logic reads_q;  // read_q has columns to read
  logic waits_q;  // the steps of read_q have not begun
  logic walks_q;  // walk_q has steps to issue
  logic take, walk_ends;
  assign sweep_ready_o = !reads_q && !waits_q;
  assign take = sweep_valid_i && sweep_ready_o;
  assign begun_o = waits_q && (!walks_q || walk_ends);
  assign idle_o = !reads_q && !waits_q && !walks_q;

  columns_t ready_q, pushed, dropped;

  // ---- reading ---------------------------------------------------------------------------------------------------------

  // Columns are read in runs: of a whole output row, or of one pixel.
  logic paired_q;
  column_t run_q;                      // columns of a run
  column_t run_left_q;                 // columns of this run to come, this one included
  logic run_ends_q, both_q;            // they are read now; two are
  logic [15:0] runs_left_q, rows_left_q;
  logic [SIDE_BITS-1:0] line_q;        // kernel row
  column_t y_q, line_y_q, x_q, run_x_q;
  feature_addr_t row_addr_q, line_addr_q;

  logic fire, both, last_line, run_ends, row_ends, y_inside, first_inside, next_inside;
  column_t next_run_x, next_y;
  feature_addr_t next_row_addr;
  assign fire = reads_q && (line_q != '0 || 32'(ready_q) <= COLUMNS - 2);
  assign both = both_q;
  assign last_line = line_q == read_q.kernel_rows - SIDE_BITS'(1);
  assign run_ends = run_ends_q;
  assign row_ends = run_ends && runs_left_q == '0;
  assign pushed = (fire && last_line) ? (both ? columns_t'(2) : columns_t'(1)) : '0;

  // x and the column behind it, as the tile has them.
  logic x_within;
  logic [15:0] cols;
  assign x_within = x_q[Y_BITS-1:16] == '0;
  assign cols = read_q.edges.in_cols[WORD_SHIFT+:16];
  assign y_inside = row_inside(line_y_q, read_q.in_rows);
  assign first_inside = y_inside && x_within && x_q[15:0] < cols;
  assign next_inside = y_inside && ((x_within && x_q[15:0] < read_q.edges.last_word) || (x_q == '1 && !read_q.edges.empty));
  assign feature_re_o = fire && first_inside;
  assign feature_next_re_o = fire && both && next_inside;
  assign feature_addr_o = line_addr_q + feature_addr_t'(x_q);

  assign next_run_x = row_ends ? column_t'(read_q.at >>> WORD_SHIFT) : run_x_q + (column_t'(read_q.stride_x) >> WORD_SHIFT);
  assign next_y = row_ends ? y_q + column_t'(read_q.stride_y) : y_q;
  assign next_row_addr = row_ends ? row_addr_q + read_q.stride_pitch : row_addr_q;

  logic [COLUMN_BITS-1:0] tail_q, head_q;

  always_ff @(posedge clk_i) begin
    enter_o.valid <= fire && rst_ni;
    enter_o.line <= LINE_BITS'(line_q);
    enter_o.column <= tail_q;
    enter_o.both <= both;
    enter_o.first_inside <= first_inside;
    enter_o.next_inside <= next_inside;
    enter_o.pad <= read_q.pad;
    if (take) begin
      read_q <= sweep_i;
      paired_q <= sweep_i.paired;
      run_q <= column_t'(sweep_i.run);
      run_left_q <= column_t'(sweep_i.run);
      run_ends_q <= sweep_i.run <= Y_BITS'(sweep_i.paired ? 2 : 1);
      both_q <= sweep_i.paired && sweep_i.run > Y_BITS'(1);
      runs_left_q <= sweep_i.paired ? '0 : sweep_i.out_cols - 16'd1;
      rows_left_q <= sweep_i.out_rows - 16'd1;
      line_q <= '0;
      y_q <= sweep_i.y;
      line_y_q <= sweep_i.y;
      row_addr_q <= sweep_i.row_addr;
      line_addr_q <= sweep_i.row_addr;
      x_q <= column_t'(sweep_i.at >>> WORD_SHIFT);
      run_x_q <= column_t'(sweep_i.at >>> WORD_SHIFT);
    end else if (fire && !last_line) begin
      line_q <= line_q + SIDE_BITS'(1);
      line_y_q <= line_y_q + column_t'(read_q.dilation_y);
      line_addr_q <= line_addr_q + read_q.dilation_pitch;
    end else if (fire) begin
      line_q <= '0;
      y_q <= next_y;
      line_y_q <= next_y;
      row_addr_q <= next_row_addr;
      line_addr_q <= next_row_addr;
      if (!run_ends) begin
        run_left_q <= run_left_q - column_t'(paired_q ? 2 : 1);
        run_ends_q <= run_left_q <= column_t'(paired_q ? 4 : 2);
        both_q <= paired_q && run_left_q > column_t'(3);
        x_q <= x_q + (paired_q ? column_t'(2) : column_t'(read_q.dilation_x));
      end else begin
        run_left_q <= run_q;
        run_ends_q <= run_q <= column_t'(paired_q ? 2 : 1);
        both_q <= paired_q && run_q > column_t'(1);
        run_x_q <= next_run_x;
        x_q <= next_run_x;
        runs_left_q <= row_ends ? (paired_q ? '0 : read_q.out_cols - 16'd1) : runs_left_q - 16'd1;
        if (row_ends) rows_left_q <= rows_left_q - 16'd1;
      end
    end
  end

  // ---- steps -----------------------------------------------------------------------------------------------------------

  logic walk_paired_q;
  logic [PART_BITS-1:0] part_q;  // of the sweep
  logic [16:0] out_rows_left_q, cols_left_q;  // further ones less one: negative on the last
  groups_t groups_q;
  row_t row_select_q;
  psum_addr_t psum_q;

  logic issue, last_part, last_col;
  assign issue = walks_q && ready_q >= columns_t'(walk_q.kernel_cols);
  assign last_part = part_q == walk_q.parts;
  assign last_col = cols_left_q[16];
  assign walk_ends = issue && last_part && last_col && out_rows_left_q[16];

  always_comb begin
    dropped = '0;
    if (issue && last_part) begin
      dropped = (walk_paired_q && !last_col) ? columns_t'(walk_q.stride_x >> WORD_SHIFT) : columns_t'(walk_q.kernel_cols);
    end
    step_o = '0;
    step_o.valid = issue;
    step_o.last = walk_q.last && walk_ends;
    step_o.depthwise = 1'b1;
    step_o.layout = DEPTHWISE;
    step_o.overwrite = walk_q.overwrite;
    step_o.row_select = row_select_q;
    step_o.groups = groups_q;
    step_o.psum = psum_q;
    step_o.column = head_q;
    step_o.part = walk_q.first_part + part_q;
    step_o.kernel_rows = walk_q.kernel_rows;
    step_o.kernel_cols = walk_q.kernel_cols;
  end

  always_ff @(posedge clk_i) begin
    if (begun_o) begin
      walk_q <= read_q;
      walk_paired_q <= paired_q;
      part_q <= '0;
      out_rows_left_q <= 17'(read_q.out_rows) - 17'd2;
      cols_left_q <= 17'(read_q.out_cols) - 17'd2;
      groups_q <= read_q.groups;
      row_select_q <= read_q.row_select;
      psum_q <= read_q.psum;
    end else if (issue && !last_part) begin
      part_q <= part_q + PART_BITS'(1);
      groups_q <= groups_q << PART_GROUPS;
      row_select_q <= row_after(row_select_q, 1);
    end else if (issue) begin
      part_q <= '0;
      groups_q <= walk_q.groups;
      row_select_q <= walk_q.row_select;
      psum_q <= psum_q + psum_addr_t'(1);
      cols_left_q <= last_col ? 17'(walk_q.out_cols) - 17'd2 : cols_left_q - 17'd1;
      if (last_col) out_rows_left_q <= out_rows_left_q - 17'd1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      reads_q <= 1'b0;
      waits_q <= 1'b0;
      walks_q <= 1'b0;
      ready_q <= '0;
      head_q <= '0;
      tail_q <= '0;
    end else begin
      reads_q <= take || (reads_q && !(fire && last_line && row_ends && rows_left_q == '0));
      waits_q <= take || (waits_q && !begun_o);
      walks_q <= begun_o || (walks_q && !walk_ends);
      ready_q <= ready_q + pushed - dropped;
      head_q <= head_q + COLUMN_BITS'(dropped);
      tail_q <= tail_q + COLUMN_BITS'(pushed);
    end
  end

  `OPU_ASSERT(RingFits, 32'(ready_q) <= COLUMNS)
  `OPU_ASSERT(EmptyWhenIdle, idle_o |-> ready_q == '0)

endmodule
