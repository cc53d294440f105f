// Address generator of a depthwise sweep: reads the columns of the kernel window into a line buffer of columns, and
// issues the steps of all parts.
//
//   sweep --> read loop nest --addresses--> feature buffer --words--> line buffer of columns (in the array)
//                  |  enter_o: where the words go ------------------------^        |
//                  +---- columns available ----> step loop nest -----step_o-------+
//
// sweep_*: valid/ready, one block each. Fields that are equal in a whole instruction are valid a cycle before. Reads
//          are prefetched, also for the next sweep. begun_o pulses when the steps of a sweep begin. idle_o: no sweep
//          inside.
// feature_*: one kernel row of one or two neighbouring columns per cycle. The words arrive as in opu_feature; enter_o,
//          one cycle after its read, says where they go. Words outside the tile are not read.
// step_o:  one (pixel, part) step per cycle while the line buffer holds enough columns. Steps see what was read at
//          least a cycle before. A part that is alone may compute several output rows (tall): one step for each, with a
//          weight row of its own. A window of two cycles (HALVED) is two steps; the sums are complete after the second
//          one, so the first one has no lane groups. The first cycle of a sweep is marked with or without a step.
//
// Rate: two columns a read if dilation_x is 1 and stride_x is at most the window (kernel_rows * stride_x / 2 reads per
// pixel). Else single columns, all of them again for every pixel (kernel_rows * kernel_cols reads per pixel).
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
  typedef logic [LINE_BITS-1:0] side_t;     // 1 to WINDOW_SIDE, modulo a power of two that keeps them distinct
  typedef logic signed [Y_BITS-1:0] column_t;

  /* verilator lint_off UNUSEDSIGNAL */  // reading and steps use their fields
  sweep_t read_q, walk_q;
  /* verilator lint_on UNUSEDSIGNAL */
  logic reads_q;  // read_q has columns to read
  logic waits_q;  // the steps of read_q have not begun
  logic vacant_q;  // neither: ready for the next one
  logic walks_q;  // walk_q has steps to issue
  logic take, walk_ends;
  assign sweep_ready_o = vacant_q;
  assign take = sweep_valid_i && sweep_ready_o;
  assign begun_o = waits_q && (!walks_q || walk_ends);

  // Columns in the line buffer, counted in unary, so that one table says whether they are enough: bit k if there are
  // more than k.
  logic [COLUMNS-1:0] ready_q;
  logic push, drop;

  // ---- reading ------------------------------------------------------------------------------------------------------

  // Columns are read in runs: of a whole output row, or of one pixel. The possible next reads - next line, next column,
  // next run, next row - are in registers and are compared with the tile during this read. Fields that are equal in a
  // whole instruction are sampled before a sweep comes, which then begins like a row.
  coord_t start_x_q;
  logic [15:0] stride_x_q;
  logic paired_q;
  column_t run_q;                      // columns of a run
  logic run_short_q, run_both_q;       // one read has them all; two columns begin it
  logic [16:0] runs_q;
  logic [15:0] in_rows_q;
  logic [7:0] dilation_x_q, dilation_y_q, stride_y_q;

  column_t run_left_q;                 // columns of this run to come, this one included
  logic run_ends_q, both_q;            // they are read now; two are
  logic row_turns_q;                   // the next column begins a row, or a sweep
  logic [16:0] runs_left_q, rows_left_q;  // further ones less one: negative on the last
  logic [SIDE_BITS-1:0] line_q;        // kernel row
  logic first_line_q, last_line_q;
  coord_t y_q, next_y_q, next_line_y_q;  // kernel row 0 of this output row, of the next one; the next kernel row
  /* verilator lint_off UNUSEDSIGNAL */  // the position of x is known
  coord_t x_q;
  /* verilator lint_on UNUSEDSIGNAL */
  coord_t next_x_q, next_run_x_q;
  logic first_row_inside_q, row_inside_q;                      // kernel row 0, this one
  logic start_at_q, start_next_q, first_inside_q, next_inside_q;  // first column of a row and the next one, the present ones
  feature_addr_t row_addr_q, line_addr_q;

  logic fire, ends_line, last_read, loads, next_row, next_line, run_turns, next_run_ends, next_run_last, vacates, start_at, start_next;
  logic x_inside, run_inside, line_inside, next_row_inside;
  logic [15:0] cols;
  coord_t column_x, then_x, then_y;
  feature_addr_t next_row_addr;
  assign fire = reads_q && (!first_line_q || !ready_q[COLUMNS-2]);
  assign ends_line = fire && last_line_q;
  assign last_read = ends_line && row_turns_q && rows_left_q[16];
  assign loads = !take && (!reads_q || last_read);
  assign next_row = vacant_q || (ends_line && row_turns_q);
  assign next_line = !sweep_ready_o && !last_line_q;
  assign run_turns = row_turns_q || run_ends_q;
  assign next_run_ends = run_turns ? run_short_q : run_left_q <= column_t'(paired_q ? 4 : 2);
  assign next_run_last = row_turns_q ? runs_q[16] : run_turns ? runs_left_q == '0 : runs_left_q[16];
  assign vacates = loads && (!waits_q || begun_o);
  assign push = ends_line;

  assign feature_re_o = fire && row_inside_q && first_inside_q;
  assign feature_next_re_o = fire && both_q && row_inside_q && next_inside_q;
  assign feature_addr_o = line_addr_q + feature_addr_t'(signed'({x_q.reach.left && !x_q.carry, x_q.low}));

  // The column after x is inside the tile: it is used only if a run is a whole row.
  function automatic logic next_inside(coord_t x, logic [15:0] last_word);
    automatic reach_t reach = reach_after(x.reach, x.carry);
    next_inside = (reach.around && x.low < last_word) || (reach.left && signed'({1'b1, x.low}) > -17'sd2);  // all ones
  endfunction

  assign cols = read_q.edges.in_cols[WORD_SHIFT+:16];
  assign x_inside = inside_of(next_x_q, cols);
  assign run_inside = inside_of(next_run_x_q, cols);
  assign column_x = run_ends_q ? next_run_x_q : next_x_q;
  assign then_x = row_turns_q ? start_x_q : column_x;
  assign then_y = next_line ? next_line_y_q : row_turns_q ? next_y_q : y_q;
  assign line_inside = inside_of(next_line_y_q, in_rows_q);
  assign next_row_inside = inside_of(next_y_q, in_rows_q);
  assign start_at = vacant_q ? sweep_i.columns.around && sweep_i.columns.low : start_at_q;
  assign start_next = vacant_q ? (sweep_i.columns.left && sweep_i.columns.ones) || (sweep_i.columns.around && sweep_i.columns.below)
                               : start_next_q;
  assign next_row_addr = row_turns_q ? row_addr_q + read_q.stride_pitch : row_addr_q;

  logic [COLUMN_BITS-1:0] tail_q, head_q;

  always_ff @(posedge clk_i) begin
    if (loads) begin
      start_x_q <= coord_of(column_t'(sweep_i.at >>> WORD_SHIFT));
      stride_x_q <= 16'(sweep_i.stride_x >> WORD_SHIFT);
      dilation_x_q <= sweep_i.paired ? 8'd2 : sweep_i.dilation_x;
      dilation_y_q <= sweep_i.dilation_y;
      stride_y_q <= sweep_i.stride_y;
      paired_q <= sweep_i.paired;
      in_rows_q <= sweep_i.edges.empty ? '0 : sweep_i.in_rows;  // without columns no row has anything inside
      run_q <= column_t'(sweep_i.run);
      run_short_q <= sweep_i.run <= Y_BITS'(sweep_i.paired ? 2 : 1);
      run_both_q <= sweep_i.paired && sweep_i.run > Y_BITS'(1);
      runs_q <= sweep_i.paired ? '1 : 17'(sweep_i.out_cols) - 17'd2;
    end
    if (loads) next_y_q <= coord_of(sweep_i.y);
    else if (next_row) next_y_q <= coord_after(next_y_q, 16'(stride_y_q));
  end

  always_ff @(posedge clk_i) begin
    enter_o.valid <= fire && rst_ni;
    enter_o.line <= LINE_BITS'(line_q);
    enter_o.column <= tail_q;
    enter_o.two_words <= both_q;
    enter_o.first_inside <= row_inside_q && first_inside_q;
    enter_o.next_inside <= row_inside_q && next_inside_q;
    enter_o.pad <= read_q.pad;
    if (sweep_ready_o || fire) begin
      next_line_y_q <= coord_after(then_y, 16'(dilation_y_q));
      row_inside_q <= next_line ? line_inside : row_turns_q ? next_row_inside : first_row_inside_q;
      first_line_q <= !next_line;
      line_q <= next_line ? line_q + SIDE_BITS'(1) : '0;
    end
    if (sweep_ready_o || ends_line) begin
      x_q <= then_x;
      next_x_q <= coord_after(then_x, 16'(dilation_x_q));
      run_left_q <= run_turns ? run_q : run_left_q - column_t'(paired_q ? 2 : 1);
      run_ends_q <= next_run_ends;
      both_q <= run_turns ? run_both_q : paired_q && run_left_q > column_t'(3);
      if (run_turns) begin
        next_run_x_q <= coord_after(row_turns_q ? start_x_q : next_run_x_q, stride_x_q);
        runs_left_q <= row_turns_q ? runs_q : runs_left_q - 17'd1;
      end
      first_inside_q <= row_turns_q ? start_at : run_ends_q ? run_inside : x_inside;
      next_inside_q <= row_turns_q ? start_next : next_inside(next_x_q, read_q.edges.last_word);
      start_at_q <= start_at;
      start_next_q <= start_next;
    end
    if (next_row) begin
      y_q <= next_y_q;
      first_row_inside_q <= next_row_inside;
    end
    if (sweep_ready_o) begin
      read_q <= sweep_i;
      rows_left_q <= 17'(sweep_i.out_rows) - 17'd2;
      last_line_q <= sweep_i.kernel_rows == SIDE_BITS'(1);
      row_addr_q <= sweep_i.row_addr;
      line_addr_q <= sweep_i.row_addr;
    end else if (fire) begin
      if (!last_line_q) begin
        last_line_q <= line_q + SIDE_BITS'(2) == read_q.kernel_rows;
        line_addr_q <= line_addr_q + read_q.dilation_pitch;
      end else begin
        last_line_q <= read_q.kernel_rows == SIDE_BITS'(1);
        row_addr_q <= next_row_addr;
        line_addr_q <= next_row_addr;
        if (row_turns_q) rows_left_q <= rows_left_q - 17'd1;
      end
    end
  end

  // ---- steps --------------------------------------------------------------------------------------------------------

  logic walk_paired_q;
  logic [PART_BITS-1:0] part_q;  // of the sweep
  logic [16:0] out_rows_left_q, cols_left_q;  // further ones less one: negative on the last
  groups_t groups_q;
  row_t row_select_q;
  psum_addr_t psum_q, first_psum_q, next_pixel;  // of this step, of the first one of the pixel

  logic begins_q;
  logic issue, last_part_q, last_col, last_step, renews;
  // Columns that the last part of a pixel releases, and the fill level of the line buffer without them and with those
  // of a read.
  logic enough;
  logic [SIDE_BITS-1:0] drops;
  logic [COLUMNS-1:0] fewer, more, fewer_more;
  assign drops = (walk_paired_q && !last_col) ? SIDE_BITS'(walk_q.stride_x >> WORD_SHIFT) : walk_q.kernel_cols;
  always_comb begin
    enough = 1'b0;
    fewer = '0;
    for (int unsigned k = 1; k <= WINDOW_SIDE; k++) begin
      if (side_t'(walk_q.kernel_cols) == side_t'(k)) enough = ready_q[k-1];
      if (side_t'(drops) == side_t'(k)) fewer = ready_q >> k;
    end
  end
  assign more = both_q ? {ready_q[COLUMNS-3:0], 2'b11} : {ready_q[COLUMNS-2:0], 1'b1};
  assign fewer_more = both_q ? {fewer[COLUMNS-3:0], 2'b11} : {fewer[COLUMNS-2:0], 1'b1};
  assign issue = walks_q && enough;
  assign drop = issue && last_part_q;
  assign last_col = cols_left_q[16];
  assign next_pixel = ((walk_q.tall && !last_col) ? first_psum_q : psum_q) + psum_addr_t'(1);
  assign last_step = last_part_q && last_col && out_rows_left_q[16];
  assign renews = !walks_q || last_step;
  assign walk_ends = issue && last_step;

  always_comb begin
    step_o = '0;
    step_o.valid = issue;
    step_o.first = begins_q;
    step_o.last = walk_q.last && walk_ends;
    step_o.depthwise = 1'b1;
    step_o.layout = DEPTHWISE;
    step_o.overwrite = walk_q.overwrite;
    step_o.row_select = row_select_q;
    step_o.groups = (HALVED && !last_part_q) ? '0 : groups_q;
    step_o.psum = psum_q;
    step_o.column = head_q;
    step_o.part = walk_q.tall ? walk_q.first_part : walk_q.first_part + part_q;
    step_o.kernel_rows = walk_q.kernel_rows;
    step_o.kernel_cols = walk_q.kernel_cols;
  end

  // Without steps to issue, fields are sampled in every cycle.
  always_ff @(posedge clk_i) begin
    begins_q <= begun_o;
    if (!walks_q || enough) begin
      if (renews) begin
        walk_q <= read_q;
        walk_paired_q <= read_q.paired;
        part_q <= '0;
        last_part_q <= !HALVED && read_q.parts == '0;
        out_rows_left_q <= 17'(read_q.out_rows) - 17'd2;
        cols_left_q <= 17'(read_q.out_cols) - 17'd2;
        groups_q <= read_q.groups;
        row_select_q <= read_q.row_select;
        psum_q <= read_q.psum;
        first_psum_q <= read_q.psum;
      end else if (!last_part_q) begin
        part_q <= part_q + PART_BITS'(1);
        last_part_q <= HALVED || part_q + PART_BITS'(1) == walk_q.parts;
        if (walk_q.tall) psum_q <= psum_q + psum_addr_t'(walk_q.out_cols);
        else if (!HALVED) groups_q <= groups_q << PART_GROUPS;
        if (!HALVED) row_select_q <= row_after(row_select_q, 1);
      end else begin
        part_q <= '0;
        last_part_q <= !HALVED && walk_q.parts == '0;
        groups_q <= walk_q.groups;
        row_select_q <= walk_q.row_select;
        psum_q <= next_pixel;
        first_psum_q <= next_pixel;
        cols_left_q <= last_col ? 17'(walk_q.out_cols) - 17'd2 : cols_left_q - 17'd1;
        if (last_col) out_rows_left_q <= out_rows_left_q - 17'd1;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      reads_q <= 1'b0;
      waits_q <= 1'b0;
      vacant_q <= 1'b1;
      idle_o <= 1'b1;
      row_turns_q <= 1'b1;
      walks_q <= 1'b0;
      ready_q <= '0;
      head_q <= '0;
      tail_q <= '0;
    end else begin
      reads_q <= take || (reads_q && !last_read);
      waits_q <= take || (waits_q && !begun_o);
      vacant_q <= vacates;
      idle_o <= loads && !waits_q && (!walks_q || walk_ends);
      if (vacant_q || ends_line || vacates) row_turns_q <= vacates || (next_run_ends && next_run_last);
      walks_q <= begun_o || (walks_q && !walk_ends);
      ready_q <= drop ? (push ? fewer_more : fewer) : (push ? more : ready_q);
      if (drop) head_q <= head_q + COLUMN_BITS'(drops);
      if (push) tail_q <= tail_q + (both_q ? COLUMN_BITS'(2) : COLUMN_BITS'(1));
    end
  end

  `OPU_ASSERT(RingFits, !(push && !drop && ready_q[COLUMNS-1-32'(both_q)]))
  `OPU_ASSERT(ReadyIsUnary, (ready_q & (ready_q + COLUMNS'(1))) == '0)
  `OPU_ASSERT(DropsSome, drop |-> drops != '0 && 32'(drops) <= WINDOW_SIDE)
  `OPU_ASSERT(ColumnCompared, reads_q |-> first_inside_q == inside_of(x_q, cols))
  `OPU_ASSERT(NextCompared, reads_q && both_q && in_rows_q != '0
      |-> next_inside_q == next_inside(x_q, read_q.edges.last_word))
  `OPU_ASSERT(RowTurns, row_turns_q == (vacant_q || (run_ends_q && runs_left_q[16])) || !(vacant_q || reads_q))
  `OPU_ASSERT(TakenBefore, take |-> start_x_q == coord_of(column_t'(sweep_i.at >>> WORD_SHIFT))
      && next_y_q == coord_of(sweep_i.y))
  `OPU_ASSERT(IdleIsNone, idle_o == (!reads_q && !waits_q && !walks_q))
  `OPU_ASSERT(EmptyWhenIdle, idle_o |-> ready_q == '0)

endmodule
