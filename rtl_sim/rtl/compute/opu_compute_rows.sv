// Accepts compute instructions, walks their weight rows (conv) or channel blocks (copy, depthwise), fills the weight row
// registers and loads the parameters of the pre chain.
//
// start_*: valid/ready; parameters are taken at the handshake. Ready as soon as the last sweep of the instruction before
//          has begun, so its pixels hide the first fill of the next one. Two cycles after the handshake either accept_o
//          pulses or illegal_o; an illegal instruction does nothing else.
// sweep_*: valid/ready, one per weight row or block; sweep_o is stable while it waits. Sweeps of conv start at least 4 cycles
//          apart: the partial sum written by one is read by the next. An instruction that accumulates from the start waits
//          until the steps of the one before have left the datapath (drained_i). begun_i: the steps of the sweep of
//          depthwise that was taken last begin.
// weight_*: read port of the weight buffer; the word arrives one cycle later and belongs to the row register and position
//          that fill_o names then. The row named by a sweep is complete when its first step reaches the multipliers.
// pre_*:   read port of the pre chain's parameters; the word arrives one cycle later, when pre_load_o names its place. One
//          bank serves the block at work, the other takes the next one's.
`include "opu_assert.svh"

module opu_compute_rows
  import opu_pkg::*;
  import opu_compute_pkg::*;
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
    output pre_load_t       pre_load_o
);

  localparam int unsigned FILL_BITS = $clog2(SWEEP_ROWS * ROW_WORDS + 1);
  localparam logic [1:0] MIN_GAP = 2'd3;  // sweeps of conv: this many cycles between their starts

  // PREPARE: products. PLACE: legal? The loops are set.
  typedef enum logic [1:0] {IDLE, PREPARE, PLACE, SWEEP} state_e;

  state_e state_q, state_d;
  /* verilator lint_off UNUSEDSIGNAL */  // some fields go elsewhere
  compute_params_t p_q;
  /* verilator lint_on UNUSEDSIGNAL */
  logic copy_q, conv_q, depthwise_q;
  layout_t layout_q;
  shape_t shape_q;

  // ---- acceptance ----------------------------------------------------------------------------------------------------

  typedef struct packed {logic [FILL_BITS-1:0] left; logic few;} reads_t;  // few: one at most
  reads_t reads_q, reads_d;  // until the weight row registers are full
  logic [5:0] pre_left_q;                          // reads until the parameters are there
  logic pre_bank;                                  // bank of those that were loaded last
  logic held_q;                                    // a sweep of depthwise was taken, its steps have not begun
  logic start, legal_q, refused, is_copy, is_conv, is_depthwise;
  layout_t layout;
  assign is_copy = op_i == OP_COMPUTE_COPY;
  assign is_conv = op_i == OP_COMPUTE_CONV;
  assign is_depthwise = HAS_DEPTHWISE && op_i == OP_COMPUTE_DEPTHWISE;
  assign layout = is_depthwise ? DEPTHWISE : layout_t'(params_i.mode);
  // Only an illegal instruction leaves a fill behind.
  assign start_ready_o = state_q == IDLE && room_i && reads_q.few && pre_left_q <= 6'd1 && !held_q;
  assign start = start_valid_i && start_ready_o;
  assign accept_o = state_q == PLACE && legal_q && !refused;
  assign illegal_o = state_q == PLACE && !(legal_q && !refused);

  // From pixel to pixel, from step to step, what a step reads, a row of the tile: bytes.
  logic [X_BITS-1:0] pixel_x, step_x, pixel_x_q, step_x_q, span_q, in_cols_q;
  assign pixel_x = X_BITS'(p_q.stride_x) << p_q.slot_log2;
  assign step_x = pixel_x << shape_q.px_log2;

  // Several blocks of partial sums need room for a tile each. Pixels of one step share a word, and lie in two.
  // The places are found with the parameters, so that the products begin at registers.
  place_t first_in, first_in_q, first_out_q;
  logic [31:0] tile_q;
  logic several_q;
  assign first_in = is_copy ? '0 : input_place(layout, params_i.ic_first);

  always_comb begin
    refused = 1'b0;
    if (state_q == PLACE) begin
      refused = several_q && 32'(p_q.psum_block_pitch) < tile_q;
      if (conv_q && shape_q.px_log2 != '0) begin
        refused = several_q || first_out_q.word != '0 || p_q.pre != '0
            || ((16'd1 << shape_q.px_log2) - 16'd1 & p_q.out_cols) != '0
            || span_q > X_BITS'(WORD_BYTES) + (X_BITS'(1) << p_q.slot_log2);
      end
    end
  end

  // ---- loops: segment (or block), kernel row, kernel column, output group ----------------------------------------------

  loop_t loop_q;
  feature_addr_t origin_pitch_q, dilation_pitch_q, stride_pitch_q;
  groups_t groups_q;    // where the loop over output groups begins
  psum_addr_t psum_q;

  // Where the loops begin, relative to the addresses of the instruction.
  logic [15:0] group_shift_q, segment_q;
  psum_addr_t psum_offset_q;
  feature_addr_t block_offset_q;
  groups_t first_groups;
  psum_addr_t first_psum;
  assign first_groups = shape_q.groups << group_shift_q;
  assign first_psum = psum_addr_t'(p_q.psum) + psum_offset_q;

  logic [15:0] parts;  // further input steps in the sweep
  logic new_block, new_word;
  assign parts = !depthwise_q ? '0 : (loop_q.block_left < loop_q.s_left) ? loop_q.block_left : loop_q.s_left;
  assign new_block = !conv_q || loop_q.block_left == '0;
  assign new_word = loop_q.groups[GROUPS-1];  // the group ends the partial sum word

  logic signed [X_BITS-1:0] origin_x_bytes, dilation_x_bytes;
  assign origin_x_bytes = X_BITS'(p_q.origin_x) <<< p_q.slot_log2;
  assign dilation_x_bytes = X_BITS'(p_q.dilation_x) << p_q.slot_log2;

  logic take, last_sweep;
  assign take = sweep_valid_o && sweep_ready_i;
  assign last_sweep = loop_q.s_left == parts && loop_q.ky_left == '0 && loop_q.kx_left == '0 && loop_q.g_left == '0;

  function automatic loop_t next_loop();
    next_loop = loop_q;
    if (state_q == PLACE) begin
      next_loop.s_left = p_q.ic_steps - 16'd1;
      next_loop.ky_left = conv_q ? p_q.kernel_rows - 16'd1 : '0;
      next_loop.kx_left = conv_q ? p_q.kernel_cols - 16'd1 : '0;
      next_loop.g_left = conv_q ? p_q.oc_steps - 16'd1 : '0;
      next_loop.fresh = 1'b1;
      next_loop.first = 1'b1;
      next_loop.enters = 1'b1;
      next_loop.block_addr = feature_addr_t'(p_q.feature) + block_offset_q;
      next_loop.row_addr = next_loop.block_addr + origin_pitch_q;
      next_loop.y = Y_BITS'(p_q.origin_y);
      next_loop.x = origin_x_bytes;
      next_loop.index = first_in_q.index;
      next_loop.block_left = shape_q.steps - 16'd1 - first_in_q.index;
      next_loop.segment = segment_q;
      next_loop.groups = first_groups;
      next_loop.psum = first_psum;
      next_loop.pre_bank = pre_bank;
    end else if (take) begin
      next_loop.fresh = 1'b0;
      next_loop.enters = 1'b0;
      if (loop_q.g_left != '0) begin
        next_loop.g_left = loop_q.g_left - 16'd1;
        next_loop.groups = new_word ? shape_q.groups : loop_q.groups << shape_q.oc_groups;
        if (new_word) next_loop.psum = loop_q.psum + psum_addr_t'(p_q.psum_block_pitch);
      end else begin
        next_loop.g_left = conv_q ? p_q.oc_steps - 16'd1 : '0;
        next_loop.groups = conv_q ? groups_q : shape_q.groups;
        next_loop.psum = conv_q ? psum_q : loop_q.psum + psum_addr_t'(p_q.psum_block_pitch);
        next_loop.first = !conv_q;
        if (loop_q.kx_left != '0) begin
          next_loop.kx_left = loop_q.kx_left - 16'd1;
          next_loop.x = loop_q.x + dilation_x_bytes;
        end else begin
          next_loop.kx_left = conv_q ? p_q.kernel_cols - 16'd1 : '0;
          next_loop.x = origin_x_bytes;
          if (loop_q.ky_left != '0) begin
            next_loop.ky_left = loop_q.ky_left - 16'd1;
            next_loop.y = loop_q.y + Y_BITS'(p_q.dilation_y);
            next_loop.row_addr = loop_q.row_addr + dilation_pitch_q;
          end else begin
            next_loop.ky_left = conv_q ? p_q.kernel_rows - 16'd1 : '0;
            next_loop.y = Y_BITS'(p_q.origin_y);
            next_loop.s_left = loop_q.s_left - parts - 16'd1;
            next_loop.enters = new_block;
            next_loop.pre_bank = loop_q.pre_bank ^ new_block;
            next_loop.index = new_block ? '0 : loop_q.index + 16'd1;
            next_loop.block_left = new_block ? shape_q.steps - 16'd1 : loop_q.block_left - 16'd1;
            next_loop.segment = new_block ? '0 : loop_q.segment + shape_q.step;
            next_loop.block_addr = loop_q.block_addr + (new_block ? feature_addr_t'(p_q.block_pitch) : '0);
            next_loop.row_addr = next_loop.block_addr + origin_pitch_q;
          end
        end
      end
    end
  endfunction

  // ---- weight rows: those of a sweep are active, the next ones enter word by word ----------------------------------------

  logic fill_start, row_ends;
  row_t row_q;       // first register of the next sweep
  row_t fill_row_q;  // register, word and words of the row that fills
  logic [ROW_WORD_BITS-1:0] fill_word_q;
  logic [15:0] fill_words_q;
  logic [1:0] gap_q, gap_d;
  weight_addr_t weight_addr_q;

  // Further parts in the first sweep of the instruction that starts.
  function automatic logic [15:0] start_parts();
    start_parts = '0;
    if (is_depthwise) begin
      start_parts = 16'(WORD_PARTS) - 16'd1 - input_place(DEPTHWISE, params_i.ic_first).index;
      if (start_parts >= params_i.ic_steps) start_parts = params_i.ic_steps - 16'd1;
    end
  endfunction

  // A fill may restart in the cycle of its last read.
  assign fill_start = (start && !is_copy) || (take && conv_q && !last_sweep) || (begun_i && state_q == SWEEP);
  assign weight_re_o = reads_q.left != '0;
  assign weight_addr_o = weight_addr_q;
  assign row_ends = 16'(fill_word_q) == fill_words_q - 16'd1;

  function automatic reads_t reads_of(logic [15:0] further, logic [15:0] words);  // further rows, words of each
    reads_of = '{left: FILL_BITS'((further + 16'd1) * words), few: further == '0 && words == 16'd1};
  endfunction

  always_comb begin
    if (fill_start && start) reads_d = reads_of(start_parts(), row_words(layout));
    else if (fill_start) reads_d = reads_of(parts, fill_words_q);
    else reads_d = '{left: reads_q.left - FILL_BITS'(weight_re_o), few: reads_q.left <= FILL_BITS'(2)};
    gap_d = (gap_q == '0) ? '0 : gap_q - 2'd1;
    if (take && conv_q) gap_d = MIN_GAP;
  end

  always_ff @(posedge clk_i) begin
    if (weight_re_o) begin
      weight_addr_q <= weight_addr_q + weight_addr_t'(1);
      fill_word_q <= row_ends ? '0 : fill_word_q + ROW_WORD_BITS'(1);
      if (row_ends) fill_row_q <= row_after(fill_row_q, 1);
    end
    if (start_ready_o) begin
      weight_addr_q <= weight_addr_t'(params_i.weight);
      fill_row_q <= row_q;
      fill_word_q <= '0;
      fill_words_q <= row_words(layout);
    end
    fill_o <= '{valid: weight_re_o && rst_ni, row_select: fill_row_q, word: fill_word_q, row_words: fill_words_q};
  end

  // ---- parameters of the pre chain ---------------------------------------------------------------------------------------

  if (HAS_PRE) begin : g_pre
    logic load_start, bank_q;
    pre_addr_t addr_q;
    assign load_start = (start && is_conv && params_i.pre != '0)
        || (take && p_q.pre != '0 && loop_q.enters && loop_q.s_left > loop_q.block_left);
    assign pre_re_o = pre_left_q != '0;
    assign pre_addr_o = addr_q;
    assign pre_bank = bank_q;

    always_ff @(posedge clk_i) begin
      pre_load_o <= {pre_re_o && rst_ni, bank_q, {p_q.pre, 3'd0} - pre_left_q};  // unit and word are its place
      if (!rst_ni) begin
        pre_left_q <= '0;
        bank_q <= 1'b0;
      end else begin
        if (load_start) pre_left_q <= {start ? params_i.pre : p_q.pre, 3'd0};
        else if (pre_re_o) pre_left_q <= pre_left_q - 6'd1;
        if (load_start) bank_q <= !bank_q;
      end
      if (pre_re_o) addr_q <= addr_q + pre_addr_t'(1);
      if (start_ready_o) begin
        addr_q <= pre_addr_t'(params_i.pre_param)
            + pre_addr_t'(input_place(layout, params_i.ic_first).word) * pre_addr_t'({params_i.pre, 3'd0});
      end
    end
  end else begin : g_no_pre
    assign {pre_left_q, pre_bank, pre_re_o, pre_addr_o, pre_load_o} = '0;
  end

  // ---- sweeps ----------------------------------------------------------------------------------------------------------

  logic rows_here, sums_here, pre_here;
  assign rows_here = reads_q.few && gap_q == '0 && !held_q;
  assign sums_here = !loop_q.fresh || p_q.accumulate == '0 || drained_i;
  assign pre_here = p_q.pre == '0 || !loop_q.enters || pre_left_q <= 6'd1;
  assign sweep_valid_o = state_q == SWEEP && (copy_q || (rows_here && sums_here && pre_here));

  always_comb begin
    sweep_o.copy = copy_q;
    sweep_o.depthwise = depthwise_q;
    sweep_o.layout = layout_q;
    sweep_o.pad = p_q.pad_value;
    sweep_o.last = last_sweep;
    sweep_o.overwrite = copy_q || (loop_q.first && p_q.accumulate == '0);
    sweep_o.row_select = row_q;
    sweep_o.segment = LANE_BITS'(loop_q.segment);
    sweep_o.span = span_q;
    sweep_o.groups = loop_q.groups;
    sweep_o.psum = loop_q.psum;
    sweep_o.row_addr = loop_q.row_addr;
    sweep_o.stride_pitch = stride_pitch_q;
    sweep_o.y = loop_q.y;
    sweep_o.x = loop_q.x;
    sweep_o.stride_y = p_q.stride_y;
    sweep_o.stride_x = step_x_q;
    sweep_o.pixel_x = pixel_x_q;
    sweep_o.in_rows = p_q.in_rows;
    sweep_o.in_cols = in_cols_q;
    sweep_o.out_rows = p_q.out_rows;
    sweep_o.out_cols = p_q.out_cols >> shape_q.px_log2;
    sweep_o.parts = PART_BITS'(parts);
    sweep_o.first_part = PART_BITS'(loop_q.index);
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
      PREPARE: state_d = PLACE;
      PLACE: state_d = accept_o ? SWEEP : IDLE;
      SWEEP: if (take && last_sweep) state_d = IDLE;
      default: state_d = IDLE;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= IDLE;
      reads_q <= '{left: '0, few: 1'b1};
      row_q <= '0;
      gap_q <= '0;
      held_q <= 1'b0;
    end else begin
      state_q <= state_d;
      reads_q <= reads_d;
      if (take && !copy_q) row_q <= row_after(row_q, 32'(parts) + 1);
      gap_q <= gap_d;
      held_q <= (held_q && !begun_i) || (take && depthwise_q);
    end
  end

  // Parameters, loops: loaded before they are used, so without reset.
  always_ff @(posedge clk_i) begin
    if (state_q == IDLE) begin  // until something starts
      p_q <= params_i;
      copy_q <= is_copy;
      conv_q <= is_conv;
      depthwise_q <= is_depthwise;
      layout_q <= layout;
      shape_q <= shape_of(layout);
      if (is_copy) shape_q <= '{step: 16'(WORD_CHANNELS), steps: 16'd1, groups: '1, default: '0};
      legal_q <= legal(params_i, is_copy, is_conv, is_depthwise);
      first_in_q <= first_in;
      first_out_q <= is_conv ? output_place(layout, params_i.oc_first) : first_in;
    end
    if (state_q == PREPARE) begin
      several_q <= conv_q ? 17'(first_out_q.index) + 17'(p_q.oc_steps) > 17'(shape_q.px_groups)
                          : 17'(first_in_q.index) + 17'(p_q.ic_steps) > 17'(shape_q.steps);
      pixel_x_q <= pixel_x;
      step_x_q <= step_x;
      span_q <= step_x - pixel_x + X_BITS'(shape_q.step);
      in_cols_q <= X_BITS'(p_q.in_cols) << p_q.slot_log2;
      tile_q <= 32'(p_q.out_rows) * 32'(p_q.out_cols);
      block_offset_q <= feature_addr_t'(first_in_q.word) * feature_addr_t'(p_q.block_pitch);
      segment_q <= first_in_q.index * shape_q.step;
      group_shift_q <= first_out_q.index * shape_q.oc_groups;
      psum_offset_q <= psum_addr_t'(first_out_q.word) * psum_addr_t'(p_q.psum_block_pitch);
      origin_pitch_q <= feature_addr_t'(p_q.origin_y) * feature_addr_t'(p_q.row_pitch);
      dilation_pitch_q <= feature_addr_t'(p_q.dilation_y) * feature_addr_t'(p_q.row_pitch);
      stride_pitch_q <= feature_addr_t'(p_q.stride_y) * feature_addr_t'(p_q.row_pitch);
    end
    if (state_q == PLACE) begin
      groups_q <= first_groups;
      psum_q <= first_psum;
    end
    if (state_q == PLACE || take) loop_q <= next_loop();
  end

  `OPU_STABLE(SweepStable, sweep_valid_o, sweep_ready_i, sweep_o)
  `OPU_ASSERT(FillNotLost, fill_start |-> reads_q.few)
  `OPU_ASSERT(FewAreLeft, reads_q.few |-> reads_q.left <= FILL_BITS'(1))
  `OPU_ASSERT(FewIsTold, !fill_start && reads_q.left <= FILL_BITS'(2) |=> reads_q.few)

endmodule
