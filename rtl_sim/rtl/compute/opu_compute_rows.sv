// Sequencer of the compute engine: accepts instructions, runs the loop nest over weight rows (conv) or channel blocks
// (copy, depthwise), fills the weight row registers and loads the parameters of the pre chain.
//
//   start --> IDLE --> PREPARE --> ARRANGE --> CHECK --> SWEEP ... --> IDLE
//             latch    products    sums,       legal?    one per row or block
//                                  compares    accept_o or illegal_o
//
// start_*: valid/ready, parameters are latched at the handshake. Ready as soon as the last sweep of the instruction
//          before has begun, so its pixels hide the first fill of the next one. Three cycles after the handshake either
//          accept_o pulses or illegal_o; an illegal instruction does nothing else.
// sweep_*: valid/ready, one per weight row or block; sweep_o is stable while it waits. Sweeps of conv start every 4
//          cycles at most: the partial sum written by one is read by the next. An instruction that accumulates from its
//          start waits until the pipeline is drained of its predecessor (drained_i). If it continues the accumulation
//          in the same sums and mode, its sweeps follow like those of one instruction. begun_i: the steps of the
//          depthwise sweep that was accepted last begin.
// weight_*: read port of the weight buffer. fill_o, one cycle after the read, names row register and position of the
//          word; opu_compute delays it to the data. The row named by a sweep is complete when its first step reaches
//          the multipliers.
// pre_*:   read port of the parameters of the pre chain; pre_load_o, one cycle after the read, names the unit and the
//          position of the word. Double-buffered: one bank serves the current block, the other takes the next one.
`include "opu_assert.svh"

module opu_compute_rows
  import opu_pkg::*;
  import opu_compute_pkg::*;
  import opu_pre_pkg::*;
(
    input  logic            clk_i,
    input  logic            rst_ni,

    input  logic            start_valid_i,
    output logic            start_ready_o,
    input  logic            room_i,       // one more instruction may be open
    input  logic [3:0]      op_i,
    input  compute_params_t params_i,
    output logic            accept_o,     // the instruction is legal and will retire
    output logic            illegal_o,

    output logic            sweep_valid_o,
    input  logic            sweep_ready_i,
    output sweep_t          sweep_o,
    input  logic            begun_i,
    input  logic            drained_i,

    output logic            weight_re_o,
    output weight_addr_t    weight_addr_o,
    output fill_t           fill_o,

    output logic            pre_re_o,
    output pre_addr_t       pre_addr_o,
    output pre_load_t       pre_load_o,
    output gate_t           gate_o        // of the parameters that are being read
);

  localparam int unsigned GROUP_BITS = $clog2(GROUPS + 1);
  localparam logic [1:0] MIN_GAP = 2'd3;  // sweeps of conv: this many cycles between their starts

  // PREPARE: products. ARRANGE: sums and comparisons of them. CHECK: legal? The loops are set.
  typedef enum logic [2:0] {IDLE, PREPARE, ARRANGE, CHECK, SWEEP} state_e;

  state_e state_q, state_d;
  /* verilator lint_off UNUSEDSIGNAL */  // some fields go elsewhere
  compute_params_t p_q;
  /* verilator lint_on UNUSEDSIGNAL */
  logic copy_q, conv_q, depthwise_q;
  logic tall_q;  // depthwise: several output rows of one part
  layout_t layout_q;
  shape_t shape_q;

  // ---- acceptance ---------------------------------------------------------------------------------------------------

  logic reads_few;                                 // weight rows: one word at most is left to be read
  logic pre_few;                                   // the parameters are loaded, or read in this cycle
  logic pre_bank;                                  // bank of those that were loaded last
  logic held_q, held_d;                            // a sweep of depthwise was accepted, its steps have not begun
  logic goes_q;                                    // sweeps, and neither gap nor held is in the way
  logic start, counts_q, one_segment_q, legal_q, refused, is_copy, is_conv, is_depthwise;
  layout_t layout;
  assign is_copy = op_i == OP_COMPUTE_COPY;
  assign is_conv = op_i == OP_COMPUTE_CONV;
  assign is_depthwise = HAS_DEPTHWISE && op_i == OP_COMPUTE_DEPTHWISE;
  assign layout = is_depthwise ? DEPTHWISE : layout_t'(params_i.mode);
  // Only an illegal instruction leaves a fill unfinished.
  assign start_ready_o = state_q == IDLE && room_i && reads_few && pre_few && !held_q;
  assign start = start_valid_i && start_ready_o;
  assign accept_o = state_q == CHECK && legal_q && !refused;
  assign illegal_o = state_q == CHECK && !(legal_q && !refused);

  // Several blocks of partial sums need room for a tile each. Pixels of one step share a word and are read from two.
  // The first ones are computed with the parameters, so that the products begin at registers.
  step_position_t first_in, first_in_q, first_out_q;
  logic [31:0] tile_product_q, tile_q;
  logic [16:0] last_place_q;           // of the words' steps or groups, from the first word on
  logic several_q, tight_q, odd_q, far_q;
  assign first_in = is_copy ? '0 : input_position(layout, params_i.ic_first);
  assign refused = (several_q && tight_q) || (conv_q && shape_q.px_log2 != '0 && (several_q || odd_q || far_q));

  // From pixel to pixel, from step to step: bytes. From the first pixel of a step to its last one: pixels, the same
  // less one, bytes.
  logic [WORD_SHIFT+7:0] pixel_x_q;
  logic [STRIDE_BITS-1:0] step_x_q, across_bytes_q;
  logic [9:0] across, across_q, across_less_q;
  logic [WORD_SHIFT:0] spare_q;        // bytes of a word less the lanes of an input step (shape_t)
  edges_t edges_q;
  logic [15:0] out_cols_q;
  logic empty_q;
  always_comb begin
    across = '0;
    if (px_log2(layout) == 2'd1) across = 10'(params_i.stride_x);
    if (px_log2(layout) == 2'd2) across = 10'(params_i.stride_x) + {1'b0, params_i.stride_x, 1'b0};
  end

  // ---- loops: segment (or block), kernel row, kernel column, output group -------------------------------------------

  loop_t loop_q;
  feature_addr_t first_addr_q, block_offset_q, origin_pitch_q, dilation_pitch_q, stride_pitch_q;
  feature_addr_t block_product_q, dilation_product_q, stride_product_q;  // the second registers of slices hold them a cycle later
  groups_t groups_q;    // where the loop over output groups begins
  psum_addr_t psum_q, psum_offset_q;
  logic [GROUP_BITS-1:0] group_shift_q;
  logic has_pre_q;      // the instruction has parameters of the pre chain

  // Input steps: those of the first block; those after it, less one.
  logic [LANE_BITS:0] first_steps_q, few_steps_q;  // of a whole word, of a part of it; or output rows
  logic signed [16:0] later_steps_q;

  // What ends with the sweep.
  logic g_ends, kx_ends, ky_ends, new_block, new_word, take, steps_on, last_sweep;
  assign g_ends = loop_q.g_left[16];
  assign kx_ends = loop_q.kx_left[16];
  assign ky_ends = loop_q.ky_left[16];
  assign new_block = !conv_q || loop_q.block_left[LANE_BITS];
  assign new_word = loop_q.groups[GROUPS-1];        // the group ends the partial sum word
  assign steps_on = g_ends && kx_ends && ky_ends;   // the next sweep has another input step
  assign take = sweep_valid_o && sweep_ready_i;
  assign last_sweep = steps_on && new_block && loop_q.s_left[16];

  // Coordinates of the sweep, and those of its possible successors, valid a cycle after the sweep begins; the next one
  // of conv is valid later. Copies and depthwise do not move.
  logic signed [X_BITS-1:0] at_q, next_at_q, segment_at_q, next_segment_at_q, origin_x_q, segment_at_d;
  logic [WORD_SHIFT+7:0] dilation_x_q;
  logic [LANE_BITS-1:0] segment_q;
  logic signed [Y_BITS-1:0] y_q, next_y_q;
  columns_t columns_q;
  logic row_inside_q;
  assign segment_at_d = new_block ? origin_x_q : next_segment_at_q;
  always_ff @(posedge clk_i) begin
    next_at_q <= at_q + signed'(X_BITS'(dilation_x_q));
    next_segment_at_q <= segment_at_q + signed'(X_BITS'(shape_q.step));
    next_y_q <= y_q + Y_BITS'(p_q.dilation_y);
    columns_q <= columns_of(reach_of(at_q[X_BITS-1:COLS_BITS]), at_q[COLS_BITS-1:0], edges_q);
    row_inside_q <= inside_of(coord_of(y_q), p_q.in_rows);
    if (state_q == ARRANGE) begin
      at_q <= origin_x_q + signed'(X_BITS'(segment_q));
      segment_at_q <= origin_x_q + signed'(X_BITS'(segment_q));
      y_q <= Y_BITS'(p_q.origin_y);
    end else if (take && g_ends) begin
      at_q <= !kx_ends ? next_at_q : !ky_ends ? segment_at_q : segment_at_d;
      if (kx_ends) y_q <= !ky_ends ? next_y_q : Y_BITS'(p_q.origin_y);
      if (kx_ends && ky_ends) segment_at_q <= segment_at_d;
    end
  end

  // Columns that depthwise reads in a run; of a whole row where it reads two at a time: out_cols * stride + (kernel -
  // stride).
  logic paired_q;
  logic [Y_BITS-1:0] run_product_q, run_less_q, run_q;
  always_ff @(posedge clk_i) begin
    if (state_q == PREPARE) begin
      paired_q <= p_q.dilation_x == 8'd1 && 16'(p_q.stride_x) <= p_q.kernel_cols;
      run_product_q <= Y_BITS'(p_q.out_cols) * Y_BITS'(p_q.stride_x);
      run_less_q <= Y_BITS'(p_q.kernel_cols) - Y_BITS'(p_q.stride_x);
    end
    if (state_q == ARRANGE) run_q <= paired_q ? run_product_q + run_less_q : Y_BITS'(p_q.kernel_cols);
  end

  // The sums of the instruction before: what it accumulated in, and how it passed the datapath.
  typedef struct packed {
    logic [VALUE_BITS-1:0] psum;
    logic [VALUE_BITS-1:0] block_pitch;
    logic [3:0]            mode;
    logic [2:0]            pre;
    logic                  gate;
  } sums_t;
  sums_t sums, last_sums_q;
  logic last_conv_q, continues_q;
  assign sums = '{psum: p_q.psum, block_pitch: p_q.psum_block_pitch, mode: p_q.mode, pre: p_q.pre, gate: p_q.gate};
  always_ff @(posedge clk_i) begin
    if (!rst_ni) last_conv_q <= 1'b0;
    else if (accept_o) last_conv_q <= conv_q;
    if (accept_o) last_sums_q <= sums;
    continues_q <= last_conv_q && conv_q && sums == last_sums_q;  // in time for CHECK
  end

  // Steps after the next block. It has as many as a word if that is not negative, else the rest.
  logic signed [16:0] s_next;
  logic [PART_BITS-1:0] parts;  // of depthwise, after the first one; output rows of the only one
  assign parts = depthwise_q ? PART_BITS'(loop_q.block_left + (LANE_BITS + 1)'(1)) : '0;
  assign s_next = loop_q.s_left - signed'(17'(shape_q.steps));

  function automatic loop_t next_loop();
    next_loop = loop_q;
    if (state_q == CHECK) begin
      next_loop.s_left = later_steps_q;
      next_loop.block_left = (later_steps_q[16] ? few_steps_q : first_steps_q) - (LANE_BITS + 1)'(2);
      next_loop.ky_left = conv_q ? 17'(p_q.kernel_rows) - 17'sd2 : -17'sd1;
      next_loop.kx_left = conv_q ? 17'(p_q.kernel_cols) - 17'sd2 : -17'sd1;
      next_loop.g_left = conv_q ? 17'(p_q.oc_steps) - 17'sd2 : -17'sd1;
      next_loop.waits = !copy_q && p_q.accumulate != '0 && !continues_q;
      next_loop.first = 1'b1;
      next_loop.enters = has_pre_q;
      next_loop.block_addr = first_addr_q + block_offset_q;
      next_loop.row_addr = next_loop.block_addr;
      next_loop.index = PART_BITS'(first_in_q.index);
      next_loop.groups = groups_q;
      next_loop.psum = psum_q;
      next_loop.pre_bank = pre_bank;
    end else begin  // a sweep is accepted
      next_loop.waits = 1'b0;
      next_loop.enters = 1'b0;
      if (!g_ends) begin
        next_loop.g_left = loop_q.g_left - 17'sd1;
        next_loop.groups = new_word ? shape_q.groups : loop_q.groups << shape_q.oc_groups;
        if (new_word) next_loop.psum = loop_q.psum + psum_addr_t'(p_q.psum_block_pitch);
      end else begin
        next_loop.g_left = conv_q ? 17'(p_q.oc_steps) - 17'sd2 : -17'sd1;
        next_loop.groups = conv_q ? groups_q : shape_q.groups;
        next_loop.psum = conv_q ? psum_q : loop_q.psum + psum_addr_t'(p_q.psum_block_pitch);
        next_loop.first = !conv_q;
        if (!kx_ends) begin
          next_loop.kx_left = loop_q.kx_left - 17'sd1;
        end else begin
          next_loop.kx_left = conv_q ? 17'(p_q.kernel_cols) - 17'sd2 : -17'sd1;
          if (!ky_ends) begin
            next_loop.ky_left = loop_q.ky_left - 17'sd1;
            next_loop.row_addr = loop_q.row_addr + dilation_pitch_q;
          end else begin
            next_loop.ky_left = conv_q ? 17'(p_q.kernel_rows) - 17'sd2 : -17'sd1;
            next_loop.block_left = loop_q.block_left - (LANE_BITS + 1)'(1);
            if (new_block) begin
              next_loop.s_left = s_next;
              next_loop.block_left = s_next[16] ? (LANE_BITS + 1)'(loop_q.s_left - 17'sd1)
                                                : (LANE_BITS + 1)'(shape_q.steps) - (LANE_BITS + 1)'(2);
            end
            next_loop.index = '0;
            next_loop.enters = new_block && has_pre_q;
            next_loop.pre_bank = loop_q.pre_bank ^ new_block;
            next_loop.block_addr = loop_q.block_addr + (new_block ? feature_addr_t'(p_q.block_pitch) : '0);
            next_loop.row_addr = next_loop.block_addr;
          end
        end
      end
    end
  endfunction

  // ---- weight rows: those of a sweep are active, the next ones enter word by word -----------------------------------

  row_t row_q;       // first register of the next sweep
  logic [1:0] gap_q, gap_d;

  // Further parts, or output rows, in the first sweep of the instruction that starts.
  function automatic logic [15:0] start_parts();
    start_parts = '0;
    if (is_depthwise) begin
      start_parts = 16'(WORD_PARTS) - 16'd1 - input_position(DEPTHWISE, params_i.ic_first).index;
      if (start_parts >= params_i.ic_steps) start_parts = params_i.ic_steps - 16'd1;
      if (WORD_PARTS > 1 && params_i.oc_steps > 16'd1) begin
        start_parts = (params_i.oc_steps < 16'(WORD_PARTS)) ? params_i.oc_steps - 16'd1 : 16'(WORD_PARTS) - 16'd1;
      end
    end
  endfunction

  opu_compute_fill u_fill (
      .clk_i,
      .rst_ni,
      .open_i       (start_ready_o),
      .start_i      (start && !is_copy),
      .start_rows_i (start_parts()),
      .weight_i     (weight_addr_t'(params_i.weight)),
      .words_i      (row_words(layout)),
      .row_i        (row_q),
      .next_i       ((take && conv_q && !last_sweep) || (begun_i && state_q == SWEEP)),
      .next_rows_i  (16'(parts)),
      .few_o        (reads_few),
      .weight_re_o,
      .weight_addr_o,
      .fill_o
  );

  assign held_d = (held_q && !begun_i) || (take && depthwise_q);

  always_comb begin
    gap_d = (gap_q == '0) ? '0 : gap_q - 2'd1;
    if (take && conv_q) gap_d = MIN_GAP;
  end

  // ---- parameters of the pre chain ----------------------------------------------------------------------------------

  if (HAS_PRE) begin : g_pre
    opu_pre_load u_load (
        .clk_i,
        .rst_ni,
        .open_i       (start_ready_o),
        .start_i      (start && is_conv),
        .start_units_i(params_i.pre),
        .start_gate_i (params_i.gate),
        .param_i      (pre_addr_t'(params_i.pre_param)),
        .first_block_i(first_in.word),
        .next_i       (take && loop_q.enters && !loop_q.s_left[16]),
        .next_units_i (p_q.pre),
        .few_o        (pre_few),
        .bank_o       (pre_bank),
        .re_o         (pre_re_o),
        .addr_o       (pre_addr_o),
        .load_o       (pre_load_o)
    );
  end else begin : g_no_pre
    assign {pre_bank, pre_re_o, pre_addr_o, pre_load_o} = '0;
    assign pre_few = 1'b1;
  end

  assign gate_o = '{x_zero: p_q.gate_x_zero, zero: p_q.gate_zero, mult: p_q.gate_mult, shift: p_q.gate_shift};

  // ---- sweeps -------------------------------------------------------------------------------------------------------

  // Copies have no rows to fill, no gap and nothing to wait for.
  logic sums_here, pre_here;
  assign sums_here = !loop_q.waits || drained_i;
  assign pre_here = !loop_q.enters || pre_few;
  assign sweep_valid_o = goes_q && reads_few && sums_here && pre_here;

  always_comb begin
    sweep_o.copy = copy_q;
    sweep_o.depthwise = depthwise_q;
    sweep_o.layout = layout_q;
    sweep_o.pad = p_q.pad_value;
    sweep_o.last = last_sweep;
    sweep_o.overwrite = copy_q || (loop_q.first && p_q.accumulate == '0);
    sweep_o.row_select = row_q;
    sweep_o.groups = loop_q.groups;
    sweep_o.psum = loop_q.psum;
    sweep_o.row_addr = loop_q.row_addr;
    sweep_o.stride_pitch = stride_pitch_q;
    sweep_o.y = y_q;
    sweep_o.at = at_q;
    sweep_o.row_inside = row_inside_q;
    sweep_o.columns = columns_q;
    sweep_o.stride_y = p_q.stride_y;
    sweep_o.stride_x = step_x_q;
    sweep_o.pixel_x = pixel_x_q;
    sweep_o.in_rows = p_q.in_rows;
    sweep_o.edges = edges_q;
    sweep_o.out_rows = p_q.out_rows;
    sweep_o.out_cols = out_cols_q;
    sweep_o.paired = HAS_DEPTHWISE && paired_q;
    sweep_o.run = HAS_DEPTHWISE ? run_q : '0;
    sweep_o.parts = parts;
    sweep_o.tall = tall_q;
    sweep_o.first_part = loop_q.index;
    sweep_o.dilation_y = p_q.dilation_y;
    sweep_o.dilation_x = p_q.dilation_x;
    sweep_o.dilation_pitch = dilation_pitch_q;
    sweep_o.kernel_rows = SIDE_BITS'(p_q.kernel_rows);
    sweep_o.kernel_cols = SIDE_BITS'(p_q.kernel_cols);
    sweep_o.pre = '{units: p_q.pre, bank: loop_q.pre_bank, zero: p_q.pre_zero, lo: p_q.pre_lo, hi: p_q.pre_hi};
  end

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      IDLE: if (start) state_d = PREPARE;
      PREPARE: state_d = ARRANGE;
      ARRANGE: state_d = CHECK;
      CHECK: state_d = accept_o ? SWEEP : IDLE;
      SWEEP: if (take && last_sweep) state_d = IDLE;
      default: state_d = IDLE;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= IDLE;
      row_q <= '0;
      gap_q <= '0;
      held_q <= 1'b0;
      goes_q <= 1'b0;
    end else begin
      state_q <= state_d;
      goes_q <= state_d == SWEEP && gap_d == '0 && !held_d;
      if (take && !copy_q) row_q <= row_after(row_q, 32'(parts) + 1);
      gap_q <= gap_d;
      held_q <= held_d;
    end
  end

  // Parameters, loops: loaded before they are used, so without reset.
  always_ff @(posedge clk_i) begin
    if (state_q == IDLE) begin  // until something starts
      p_q <= params_i;
      copy_q <= is_copy;
      conv_q <= is_conv;
      depthwise_q <= is_depthwise;
      tall_q <= WORD_PARTS > 1 && is_depthwise && params_i.oc_steps > 16'd1;
      layout_q <= layout;
      shape_q <= shape_of(layout);
      if (is_copy) shape_q <= '{step: 16'(WORD_CHANNELS), steps: 16'd1, spare: (WORD_SHIFT + 1)'(WORD_BYTES - WORD_CHANNELS),
                                groups: '1, default: '0};
      first_in_q <= first_in;
      first_out_q <= is_conv ? output_position(layout, params_i.oc_first) : first_in;
      across_q <= is_copy ? '0 : across;
      tile_product_q <= 32'(params_i.out_rows) * 32'(params_i.out_cols);
    end
    counts_q <= counts(p_q, copy_q, conv_q);
    one_segment_q <= one_segment(p_q, copy_q);
    legal_q <= counts_q && legal(p_q, one_segment_q, copy_q, conv_q, depthwise_q);
    tile_q <= tile_product_q;
    block_offset_q <= block_product_q;
    dilation_pitch_q <= dilation_product_q;
    stride_pitch_q <= stride_product_q;
    if (state_q == PREPARE) begin
      last_place_q <= conv_q ? 17'(first_out_q.index) + 17'(p_q.oc_steps) : 17'(first_in_q.index) + 17'(p_q.ic_steps);
      pixel_x_q <= (WORD_SHIFT + 8)'(p_q.stride_x) << p_q.slot_log2;
      across_bytes_q <= STRIDE_BITS'(across_q) << p_q.slot_log2;
      across_less_q <= across_q - 10'd1;
      spare_q <= shape_q.spare >> p_q.slot_log2;
      edges_q.in_cols <= COLS_BITS'(p_q.in_cols) << p_q.slot_log2;
      empty_q <= p_q.in_cols == '0;
      out_cols_q <= p_q.out_cols >> shape_q.px_log2;
      odd_q <= first_out_q.word != '0 || p_q.pre != '0 || p_q.out_cols[0] || (shape_q.px_log2[1] && p_q.out_cols[1]);
      has_pre_q <= p_q.pre != '0;
      origin_x_q <= X_BITS'(p_q.origin_x) <<< p_q.slot_log2;
      dilation_x_q <= (WORD_SHIFT + 8)'(p_q.dilation_x) << p_q.slot_log2;
      segment_q <= LANE_BITS'(first_in_q.index) * LANE_BITS'(shape_q.step);
      first_steps_q <= (LANE_BITS + 1)'(shape_q.steps) - (LANE_BITS + 1)'(first_in_q.index);
      block_product_q <= feature_addr_t'(first_in_q.word) * feature_addr_t'(p_q.block_pitch);
      group_shift_q <= GROUP_BITS'(first_out_q.index) * GROUP_BITS'(shape_q.oc_groups);
      psum_offset_q <= psum_addr_t'(first_out_q.word) * psum_addr_t'(p_q.psum_block_pitch);
      origin_pitch_q <= feature_addr_t'(p_q.origin_y) * feature_addr_t'(p_q.row_pitch);
      dilation_product_q <= feature_addr_t'(p_q.dilation_y) * feature_addr_t'(p_q.row_pitch);
      stride_product_q <= feature_addr_t'(p_q.stride_y) * feature_addr_t'(p_q.row_pitch);
    end
    if (state_q == ARRANGE) begin
      several_q <= last_place_q > (conv_q ? 17'(shape_q.px_groups) : 17'(shape_q.steps));
      tight_q <= 32'(p_q.psum_block_pitch) < tile_q;
      far_q <= across_less_q > 10'(spare_q);
      step_x_q <= STRIDE_BITS'(pixel_x_q) << shape_q.px_log2;
      edges_q.empty <= empty_q;
      edges_q.last_word <= empty_q ? '0 : 16'((edges_q.in_cols - COLS_BITS'(1)) >> WORD_SHIFT);
      edges_q.prior_word <= 16'((edges_q.in_cols - COLS_BITS'(WORD_BYTES + 1)) >> WORD_SHIFT);
      edges_q.tail <= {edges_q.in_cols[WORD_SHIFT-1:0] == '0, edges_q.in_cols[WORD_SHIFT-1:0]};
      edges_q.room <= signed'((STRIDE_BITS + 2)'(shape_q.spare)) - signed'((STRIDE_BITS + 2)'(across_bytes_q));
      few_steps_q <= (LANE_BITS + 1)'(tall_q ? p_q.oc_steps : p_q.ic_steps);
      later_steps_q <= 17'(p_q.ic_steps) + ~17'(first_steps_q);  // less one more
      first_addr_q <= feature_addr_t'(p_q.feature) + origin_pitch_q;
      groups_q <= shape_q.groups << group_shift_q;
      psum_q <= psum_addr_t'(p_q.psum) + psum_offset_q;
    end
    if (state_q == CHECK || take) loop_q <= next_loop();
  end

  `OPU_ASSERT(CopyIsFree, state_q == SWEEP && copy_q |-> sweep_valid_o)
  `OPU_STABLE(SweepStable, sweep_valid_o, sweep_ready_i, sweep_o)

endmodule
