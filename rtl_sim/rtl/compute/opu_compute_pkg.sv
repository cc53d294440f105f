// Types and derived sizes of the compute engine.
`ifdef SYNTHESIS
`define OPU_EXACT_WIDTHS
`endif

package opu_compute_pkg;

  import opu_pkg::*;

  localparam int unsigned WORD_SHIFT = $clog2(WORD_BYTES);
  localparam int unsigned WORD_BITS = 8 * WORD_CHANNELS;
  localparam int unsigned WEIGHT_BITS = 8 * WEIGHT_WIDTH;
  localparam int unsigned PSUM_BITS = 32 * WORD_CHANNELS;
  localparam int unsigned ROW_WORD_BITS = (ROW_WORDS > 1) ? $clog2(ROW_WORDS) : 1;

  // Coordinates never wrap: 17 bit origin + 16 bit count times 8 bit stride + 16 bit count times 8 bit dilation.
  localparam int unsigned Y_BITS = 26;
  localparam int unsigned X_BITS = Y_BITS + WORD_SHIFT;  // column times bytes per pixel
  localparam int unsigned LANE_BITS = $clog2(WORD_CHANNELS + 1);  // a number of lanes
  localparam int unsigned WINDOW_BITS = WORD_SHIFT + 2;  // a number of bytes of two neighbouring words
  localparam int unsigned STRIDE_BITS = 8 + WORD_SHIFT + 2;  // bytes from step to step
  localparam int unsigned COLS_BITS = 16 + WORD_SHIFT;  // bytes of a tile row

  // Depthwise: a part of a word has as many lanes as there are units; its window is a line buffer of columns of whole
  // words.
  localparam int unsigned PART_LANES = (UNITS < WORD_CHANNELS) ? UNITS : WORD_CHANNELS;
  localparam int unsigned WORD_PARTS = WORD_CHANNELS / PART_LANES;
  localparam int unsigned PART_BITS = $clog2(WORD_PARTS + 1);
  localparam int unsigned COLUMN_BITS = $clog2(WINDOW_SIDE + 4);
  localparam int unsigned COLUMNS = 1 << COLUMN_BITS;
  localparam int unsigned SIDE_BITS = $clog2(WINDOW_SIDE + 1);
  localparam int unsigned LINE_BITS = (WINDOW_SIDE > 1) ? $clog2(WINDOW_SIDE) : 1;

  // Where a window takes two cycles, units u and u + PARTS have equal operands, as in every mode: the window of lane u in
  // the first cycle and that of lane u + PARTS in the second one. Each result is that of the unit of the lane.
  localparam bit HALVED = HAS_DEPTHWISE && WINDOW_CYCLES == 2;

  // Parts of a word, each the operands of a unit. Operands of the array: the parts of pixel 0, of pixel 1, ...; of
  // depthwise a unit's own.
  localparam int unsigned PARTS = WORD_CHANNELS / MULTIPLIERS;
  localparam int unsigned OPERANDS = (HAS_DEPTHWISE && UNITS > MODE_PX_MAX * PARTS) ? UNITS : MODE_PX_MAX * PARTS;

  // Weight row registers: those of a sweep and as many that fill.
  localparam int unsigned SWEEP_ROWS = HAS_DEPTHWISE ? WORD_PARTS : 1;
  localparam int unsigned ROWS = 2 * SWEEP_ROWS;
  localparam int unsigned ROW_BITS = $clog2(ROWS);

  // How products become sums: the modes, then depthwise.
  localparam int unsigned LAYOUTS = MODE_COUNT + 32'(HAS_DEPTHWISE);
  localparam logic [LAYOUTS-1:0][15:0] LAYOUT_IC = (16 * LAYOUTS)'({16'(MULTIPLIERS), MODE_IC});
  localparam logic [LAYOUTS-1:0][15:0] LAYOUT_OC = (16 * LAYOUTS)'({16'(PART_LANES), MODE_OC});
  localparam logic [LAYOUTS-1:0][15:0] LAYOUT_PX = (16 * LAYOUTS)'({16'd1, MODE_PX});
  localparam logic [LAYOUTS-1:0][15:0] LAYOUT_STEP = (16 * LAYOUTS)'({16'(PART_LANES), MODE_IC});  // lanes an input step
  typedef logic [4:0] layout_t;
  localparam layout_t DEPTHWISE = layout_t'(MODE_COUNT);

  // A partial sum word is written in groups of as many lanes as the narrowest mode has output channels.
  function automatic int unsigned narrowest_oc();
    narrowest_oc = 32'(MODE_OC[0]);
    for (int m = 1; m < int'(MODE_COUNT); m++) begin
      if (32'(MODE_OC[m]) < narrowest_oc) narrowest_oc = 32'(MODE_OC[m]);
    end
  endfunction

  localparam int unsigned GROUP_LANES = narrowest_oc();
  localparam int unsigned GROUPS = WORD_CHANNELS / GROUP_LANES;

  typedef logic [FEATURE_ADDR_BITS-1:0] feature_addr_t;
  typedef logic [WEIGHT_ADDR_BITS-1:0] weight_addr_t;
  typedef logic [PSUM_ADDR_BITS-1:0] psum_addr_t;
  typedef logic [PRE_ADDR_BITS-1:0] pre_addr_t;
  typedef logic [GROUPS-1:0] groups_t;
  typedef logic [ROW_BITS-1:0] row_t;  // a weight row register

  // The pre chain of an instruction, and the bank with the parameters of its block.
  typedef struct packed {
    logic [2:0]                units;  // that the features pass
    logic                      bank;
    logic [PRE_UNITS-1:0][7:0] zero;
    logic [PRE_UNITS-1:0][7:0] lo;
    logic [PRE_UNITS-1:0][7:0] hi;
  } pre_t;

  // What the loops need to know about a layout.
  typedef struct packed {
    logic [15:0] step;       // lanes of an input step
    logic [15:0] steps;      // input steps of a word
    logic [15:0] oc_groups;  // lane groups of an output group
    logic [15:0] px_groups;  // output groups in a pixel's lanes of a partial sum word
    logic [WORD_SHIFT:0] spare;  // bytes of a word less the lanes of an input step
    logic [1:0]  px_log2;
    groups_t     groups;     // lanes of output group 0, of all pixels
  } shape_t;

  function automatic shape_t shape_of(layout_t layout);
    shape_of = '0;
    for (int m = 0; m < int'(LAYOUTS); m++) begin
      if (layout == layout_t'(m)) begin
        shape_of.step = LAYOUT_STEP[m];
        shape_of.steps = 16'(WORD_CHANNELS / 32'(LAYOUT_STEP[m]));
        shape_of.spare = (WORD_SHIFT + 1)'(WORD_BYTES - 32'(LAYOUT_STEP[m]));
        shape_of.oc_groups = 16'(32'(LAYOUT_OC[m]) / GROUP_LANES);
        shape_of.px_groups = 16'(WORD_CHANNELS / (32'(LAYOUT_PX[m]) * 32'(LAYOUT_OC[m])));
        for (int g = 0; g < int'(GROUPS); g++) begin
          shape_of.groups[g] = g * GROUP_LANES % (WORD_CHANNELS / 32'(LAYOUT_PX[m])) < 32'(LAYOUT_OC[m]);
        end
      end
    end
    shape_of.px_log2 = px_log2(layout);
  endfunction

  // An input step or an output group: its word (channel block), and its index in that word.
  typedef struct packed {
    logic [15:0] word;
    logic [15:0] index;
  } step_position_t;

  function automatic step_position_t input_position(layout_t layout, logic [15:0] step);
    input_position = '0;
    for (int m = 0; m < int'(LAYOUTS); m++) begin
      if (layout == layout_t'(m)) begin
        input_position.word = step / 16'(WORD_CHANNELS / 32'(LAYOUT_STEP[m]));
        input_position.index = step % 16'(WORD_CHANNELS / 32'(LAYOUT_STEP[m]));
      end
    end
  endfunction

  function automatic step_position_t output_position(layout_t layout, logic [15:0] group);
    output_position = '0;
    for (int m = 0; m < int'(LAYOUTS); m++) begin
      if (layout == layout_t'(m)) begin
        output_position.word = group / 16'(WORD_CHANNELS / 32'(LAYOUT_OC[m]));
        output_position.index = group % 16'(WORD_CHANNELS / 32'(LAYOUT_OC[m]));
      end
    end
  endfunction

  // Output pixels of a step: 1, 2 or 4.
  function automatic logic [1:0] px_log2(layout_t layout);
    px_log2 = '0;
    /* verilator lint_off UNUSEDLOOP */  // machines without modes of several pixels
    for (int m = 0; m < int'(LAYOUTS); m++) if (layout == layout_t'(m)) px_log2 = LAYOUT_PX[m][2:1];
    /* verilator lint_on UNUSEDLOOP */
  endfunction

  // Weight buffer words of a row.
  function automatic logic [15:0] row_words(layout_t layout);
    row_words = 16'(ROW_WORDS) >> px_log2(layout);
  endfunction

  // Row register number `count` after `row`, wrapping at the end.
  function automatic row_t row_after(row_t row, int unsigned count);
    row_after = (32'(row) + count >= ROWS) ? row_t'(32'(row) + count - ROWS) : row_t'(32'(row) + count);
  endfunction

  // Neighbouring units that share no operand, minus one (the number is a power of two): those summed, all in depthwise.
  function automatic logic [15:0] part_mask(layout_t layout);
    part_mask = '1;
    for (int m = 0; m < int'(MODE_COUNT); m++) begin
      if (layout == layout_t'(m)) part_mask = 16'(32'(MODE_IC[m]) / MULTIPLIERS - 1);
    end
  endfunction

  // A row of the tile, in bytes: what a step is compared with, the same for a whole instruction.
  typedef struct packed {
    logic [COLS_BITS-1:0]          in_cols;
    logic                          empty;        // it has no columns
    logic [15:0]                   last_word;    // 0 without one
    logic [15:0]                   prior_word;   // the one before, modulo 2^16
    logic [WORD_SHIFT:0]           tail;         // bytes of the tile in the last word
    logic signed [STRIDE_BITS+1:0] room;         // the largest offset in a word whose lanes end in that word
  } edges_t;

  // Position of the lanes from byte `at` on, with one comparison per flag: short paths only.
  typedef struct packed {
    logic around;   // neither left of the tile nor farther than any tile reaches; what `low`, `below` and `ends` say holds with it
    logic left;     // left of the tile, near enough for its word if `ones`
    logic ones;     // and there is a tile
    logic low;      // before its end
    logic below;    // in a word before the last one
    logic ends;     // in the last word
    logic prior;    // in the word before the last one, also left of it
    logic crosses;  // continues into the next word
  } columns_t;

  // Upper bits of a coordinate that only increases: left of the tile (never farther than 2^16), or where a tile may
  // reach. If neither, it is farther, and so are all later ones. Steps are below 2^16, so one carry updates the flags.
  typedef struct packed {
    logic left;
    logic around;
  } reach_t;

  typedef struct packed {
    reach_t      reach;   // before the last step
    logic        carry;   // of the last step
    logic [15:0] low;
  } coord_t;

  function automatic reach_t reach_of(logic signed [Y_BITS-17:0] upper);
    reach_of = '{left: upper[Y_BITS-17], around: upper == '0};
  endfunction

  function automatic reach_t reach_after(reach_t reach, logic carry);
    reach_after = '{left: reach.left && !carry, around: carry ? reach.left : reach.around};
  endfunction

  function automatic coord_t coord_of(logic signed [Y_BITS-1:0] value);
    coord_of = '{reach: reach_of(value[Y_BITS-1:16]), carry: 1'b0, low: value[15:0]};
  endfunction

  function automatic coord_t coord_after(coord_t coord, logic [15:0] step);
    automatic logic [16:0] sum = 17'(coord.low) + 17'(step);
    coord_after = '{reach: reach_after(coord.reach, coord.carry), carry: sum[16], low: sum[15:0]};
  endfunction

  function automatic logic inside_of(coord_t coord, logic [15:0] count);
    inside_of = (coord.carry ? coord.reach.left : coord.reach.around) && coord.low < count;
  endfunction

  /* verilator lint_off UNUSEDSIGNAL */  // the tail is for those who read
  function automatic columns_t columns_of(reach_t reach, logic [COLS_BITS-1:0] at, edges_t edges);
  /* verilator lint_on UNUSEDSIGNAL */
    columns_of.around = reach.around;
    columns_of.left = reach.left;
    columns_of.ones = at[COLS_BITS-1:WORD_SHIFT] == '1 && !edges.empty;
    columns_of.low = at < edges.in_cols;
    columns_of.below = at[WORD_SHIFT+:16] < edges.last_word;
    columns_of.ends = at[WORD_SHIFT+:16] == edges.last_word;
    columns_of.prior = at[WORD_SHIFT+:16] == edges.prior_word;
    columns_of.crosses = signed'((STRIDE_BITS + 2)'(at[WORD_SHIFT-1:0])) > edges.room;
  endfunction

  // What a sweep over the output pixels of a tile needs: one weight row (conv), one channel block (copy), or the weight
  // rows of a block's parts (depthwise).
  typedef struct packed {
    logic                     copy;
    logic                     depthwise;
    layout_t                  layout;
    logic [7:0]               pad;
    logic                     last;            // last sweep of the instruction
    logic                     overwrite;       // first iteration of these lanes, nothing to accumulate on
    row_t                     row_select;      // weight row register (of the first part)
    groups_t                  groups;          // lanes of the output group (of the first part)
    psum_addr_t               psum;            // word of output pixel 0
    feature_addr_t            row_addr;        // word of column 0 in tile row y
    feature_addr_t            stride_pitch;    // feature words between output rows
    logic signed [Y_BITS-1:0] y;
    logic signed [X_BITS-1:0] at;              // byte of the tile row at which the segment of output column 0 begins
    logic                     row_inside;      // y is inside the tile
    columns_t                 columns;         // of `at`, not for depthwise
    logic [7:0]               stride_y;
    logic [STRIDE_BITS-1:0]   stride_x;        // in bytes, from step to step
    logic [WORD_SHIFT+7:0]    pixel_x;         // in bytes, from pixel to pixel
    logic [15:0]              in_rows;
    edges_t                   edges;
    logic [15:0]              out_rows;
    logic [15:0]              out_cols;        // steps per output row
    // depthwise
    logic                     paired;          // columns are read two at a time, of whole output rows
    logic [Y_BITS-1:0]        run;             // columns that are read in a row
    logic [PART_BITS-1:0]     parts;           // further parts, or output rows of one
    logic                     tall;            // output rows
    logic [PART_BITS-1:0]     first_part;
    logic [7:0]               dilation_y;
    logic [7:0]               dilation_x;
    feature_addr_t            dilation_pitch;  // feature words between kernel rows
    logic [SIDE_BITS-1:0]     kernel_rows;
    logic [SIDE_BITS-1:0]     kernel_cols;
    // pre chain
    pre_t                     pre;
  } sweep_t;

  // State of the loop nest over the sweeps of an instruction. Counters of further iterations hold one less: negative in
  // the last.
  typedef struct packed {
    logic signed [16:0]       ky_left, kx_left, g_left;
    logic signed [LANE_BITS:0] block_left;                       // input steps of this block (after the first one, of depthwise)
    logic signed [16:0]       s_left;                            // input steps after this block
    logic                     waits;                             // until the array is empty: first sweep of an instruction that accumulates
    logic                     first;                             // first iteration of every group
    logic                     enters;                            // first sweep of a block that the pre chain needs parameters for
    feature_addr_t            block_addr, row_addr;              // column 0 of: kernel row 0, this row
    logic [PART_BITS-1:0]     index;                             // of the first part in its block (depthwise)
    groups_t                  groups;
    psum_addr_t               psum;
    logic                     pre_bank;
  } loop_t;

  // One (sweep, pixels) step on its way through the array.
  typedef struct packed {
    logic                   valid;
    logic                   first;         // first step of the sweep; of depthwise, also without one: the sweep begins
    logic                   last;          // last step of the instruction
    logic                   copy;
    logic                   depthwise;
    layout_t                layout;
    logic                   reads;         // some lanes are inside the tile; else all are `pad`
    logic                   whole;         // all lanes are inside the tile: the word is, and they do not continue into the next
    logic                   first_inside;  // the first word is inside the tile
    logic [WINDOW_BITS-1:0] end_;          // first byte of the two words after those inside, if one has lanes inside
    logic                   overwrite;
    row_t                   row_select;
    logic [7:0]             pad;
    logic [WORD_SHIFT-1:0]  offset;        // byte of lane 0 in the feature word
    logic                   crosses;       // lanes continue into the next word
    logic [WORD_SHIFT:0]    pixel_x;       // bytes from pixel to pixel
    logic [MODE_PX_MAX-1:0][WINDOW_BITS-1:0] at;  // byte of lane 0 of each pixel; derived in opu_compute
    groups_t                groups;
    psum_addr_t             psum;
    // depthwise
    logic [COLUMN_BITS-1:0] column;        // first column of the window
    logic [PART_BITS-1:0]   part;          // or which cycle of a window
    logic [SIDE_BITS-1:0]   kernel_rows;
    logic [SIDE_BITS-1:0]   kernel_cols;
    // pre chain
    pre_t                   pre;
  } step_t;

  // Two neighbouring words of the feature buffer on their way into the window of depthwise.
  typedef struct packed {
    logic                   valid;
    logic [LINE_BITS-1:0]   line;          // kernel row
    logic [COLUMN_BITS-1:0] column;        // of the first word
    logic                   two_words;     // the next word enters the next column
    logic                   first_inside;  // else the first word is `pad`
    logic                   next_inside;
    logic [7:0]             pad;
  } enter_t;

  // A word on its way into a weight row register.
  typedef struct packed {
    logic                     valid;
    row_t                     row_select;
    logic [ROW_WORD_BITS-1:0] word;
    logic [ROW_WORD_BITS:0]   row_words;   // the row is repeated at this distance, for every pixel
  } fill_t;

  // May an instruction run, as far as its own parameters say? First, that nothing is 0.
  /* verilator lint_off UNUSEDSIGNAL */  // some say where
  function automatic logic counts(compute_params_t p, logic is_copy, logic is_conv);
    counts = p.out_rows != '0 && p.out_cols != '0 && p.stride_y != '0 && p.stride_x != '0 && p.ic_steps != '0;
    if (!is_copy) begin
      counts = counts && p.dilation_y != '0 && p.dilation_x != '0 && p.kernel_rows != '0 && p.kernel_cols != '0 && p.oc_steps != '0;
    end
  endfunction

  // A slotted tile is one segment.
  function automatic logic one_segment(compute_params_t p, logic is_copy);
    one_segment = WORD_BYTES == WORD_CHANNELS && p.ic_steps == 16'd1 && (is_copy || p.ic_first == '0);
  endfunction

  function automatic logic legal(compute_params_t p, logic is_one_segment, logic is_copy, logic is_conv, logic is_depthwise);
  /* verilator lint_on UNUSEDSIGNAL */
    automatic logic whole = 32'(p.slot_log2) == WORD_SHIFT;  // one pixel a word
    legal = 32'(p.slot_log2) <= WORD_SHIFT && (is_copy || is_conv || is_depthwise)
        && (p.pre == '0 || (HAS_PRE && is_conv && whole && 32'(p.pre) <= PRE_UNITS
        && (p.gate == '0 || (HAS_GATES && p.gate_shift < 6'd48))))
        && (whole || (!is_depthwise && is_one_segment));
    if (is_conv) legal = legal && 32'(p.mode) < MODE_COUNT;
    if (is_depthwise) begin
      legal = legal && 32'(p.kernel_rows) <= WINDOW_SIDE && 32'(p.kernel_cols) <= WINDOW_SIDE
          && (p.oc_steps == 16'd1 || (p.ic_steps == 16'd1 && 32'(p.oc_steps) <= WORD_PARTS));
    end
  endfunction

  // Simulators compute fastest on whole machine words: in that body, int8 elements and sums are sign-extended to
  // 32 bits. The values are the same; a bench compares both widths.
`ifdef OPU_EXACT_WIDTHS
  localparam bit EXACT = 1'b1;
  localparam int unsigned ELEMENT_BITS = 8;
  localparam int unsigned SUM_BITS = 16 + $clog2(MULTIPLIERS);
  localparam int unsigned AFFINE_BITS = 34;  // int8 * (int16, or a gate's 25 bits) + int32, before the shift
`else
  localparam bit EXACT = 1'b0;
  localparam int unsigned ELEMENT_BITS = 32;
  localparam int unsigned SUM_BITS = 32;
  localparam int unsigned AFFINE_BITS = 64;
`endif
  // Has the device multipliers of 18 by 18 bits, none of 25 by 18? A pair of units shares nothing then (opu_array).
`ifdef OPU_SHORT_SLICES
  localparam bit SHORT_SLICES = 1'b1;
`else
  localparam bit SHORT_SLICES = 1'b0;
`endif

  // Products in tables, two at a time: what all units with the same two operands share, for each step of
  // opu_multiply_tables.
  localparam int unsigned SLICE_TERMS = MULTIPLIERS - TABLE_TERMS;
  localparam int unsigned TABLE_STEPS = 7;
  typedef struct packed {
    logic [1:0][7:0]             x;            // of the first step
    logic [TABLE_STEPS-1:0][8:0] sums;         // x[0] + x[1]
    logic [TABLE_STEPS-1:0][8:0] differences;  // x[0] - x[1]
  } table_operands_t;

  typedef logic signed [ELEMENT_BITS-1:0] element_t;
  typedef logic signed [SUM_BITS-1:0] sum_t;
  typedef logic signed [AFFINE_BITS-1:0] affine_t;

endpackage
