// Accepts compute instructions, walks their weight rows (conv) or channel blocks (copy) and fills the weight row registers.
//
// start_*: valid/ready; parameters are taken at the handshake. Ready as soon as the last sweep of the instruction before
//          has begun, so its pixels hide the first fill of the next one. One cycle after the handshake either accept_o
//          pulses or illegal_o; an illegal instruction does nothing else.
// sweep_*: valid/ready, one per weight row or copied block; sweep_o is stable while it waits. Sweeps of conv start at
//          least 4 cycles apart: the partial sum written by one is read by the next. An instruction that accumulates from
//          the start waits until the steps of the one before have left the datapath (drained_i).
// weight_*: read port of the weight buffer; the word arrives one cycle later and belongs to the row register and position
//          that fill_* names then. The row named by a sweep is complete when its first pixel reaches the multipliers.
`include "opu_assert.svh"

module opu_compute_rows
  import opu_pkg::*;
  import opu_compute_pkg::*;
(
    input  logic                     clk_i,
    input  logic                     rst_ni,

    input  logic                     start_valid_i,
    output logic                     start_ready_o,
    input  logic                     room_i,       // one more instruction may be open
    input  logic [3:0]               op_i,
    input  compute_params_t          params_i,
    output logic                     accept_o,     // the instruction is legal and will retire
    output logic                     illegal_o,

    output logic                     sweep_valid_o,
    input  logic                     sweep_ready_i,
    output sweep_t                   sweep_o,
    input  logic                     drained_i,

    output logic                     weight_re_o,
    output weight_addr_t             weight_addr_o,
    output logic                     fill_we_o,
    output logic                     fill_select_o,
    output logic [ROW_WORD_BITS-1:0] fill_word_o
);

  localparam int unsigned FILL_BITS = $clog2(ROW_WORDS + 1);
  localparam logic [1:0] MIN_GAP = 2'd3;  // sweeps of conv: this many cycles between their starts

  typedef enum logic [1:0] {IDLE, PREPARE, SWEEP} state_e;

  state_e state_q, state_d;
  /* verilator lint_off UNUSEDSIGNAL */  // some fields go elsewhere
  compute_params_t p_q;
  /* verilator lint_on UNUSEDSIGNAL */
  logic copy_q;

  // ---- acceptance ----------------------------------------------------------------------------------------------------

  logic [FILL_BITS-1:0] fill_left_q, fill_left_d;  // reads until the weight row register is full
  logic start, legal, legal_q, overlap, is_copy;
  assign is_copy = op_i == OP_COMPUTE_COPY;
  // Only an illegal instruction leaves a fill behind.
  assign start_ready_o = state_q == IDLE && room_i && fill_left_q <= FILL_BITS'(1);
  assign start = start_valid_i && start_ready_o;
  assign accept_o = state_q == PREPARE && legal_q && !overlap;
  assign illegal_o = state_q == PREPARE && !(legal_q && !overlap);

  always_comb begin
    legal = params_i.out_rows != '0 && params_i.out_cols != '0
        && params_i.stride_y != '0 && params_i.stride_x != '0
        && params_i.ic_steps != '0 && 32'(params_i.slot_log2) <= WORD_SHIFT;
    if (!is_copy) begin
      legal = legal && op_i == OP_COMPUTE_CONV
          && params_i.dilation_y != '0 && params_i.dilation_x != '0
          && params_i.kernel_rows != '0 && params_i.kernel_cols != '0
          && params_i.oc_steps != '0 && 32'(params_i.mode) < MODE_COUNT;
    end
  end

  // Several blocks of partial sums need room for a tile each.
  logic [31:0] pixels;
  assign pixels = 32'(p_q.out_rows) * 32'(p_q.out_cols);
  assign overlap = 32'(p_q.psum_block_pitch) < pixels
      && (copy_q ? p_q.ic_steps > 16'd1 : p_q.oc_steps > mode_word_groups(p_q.mode));

  // ---- loops: segment (or block), kernel row, kernel column, output group ----------------------------------------------

  typedef struct packed {
    logic [15:0]              s_left, ky_left, kx_left, g_left;  // further iterations
    logic                     fresh;                             // first sweep of the instruction
    logic                     first;                             // first visit of every group
    feature_addr_t            block_addr, row_addr;
    logic signed [Y_BITS-1:0] y;
    logic signed [X_BITS-1:0] x;
    logic [15:0]              segment;                           // first lane of the segment
    groups_t                  groups;
    psum_addr_t               psum;
  } loop_t;

  loop_t loop_q, loop_d;
  feature_addr_t origin_pitch_q, dilation_pitch_q, stride_pitch_q;

  logic [15:0] next_segment;
  groups_t groups_first;
  logic new_block, new_word;
  assign groups_first = copy_q ? '1 : mode_groups(p_q.mode);
  assign next_segment = loop_q.segment + mode_ic(p_q.mode);
  assign new_block = copy_q || 32'(next_segment) >= WORD_CHANNELS;
  assign new_word = loop_q.groups[GROUPS-1];  // the group ends the partial sum word

  logic signed [X_BITS-1:0] origin_x_bytes, dilation_x_bytes;
  assign origin_x_bytes = X_BITS'(p_q.origin_x) <<< p_q.slot_log2;
  assign dilation_x_bytes = X_BITS'(p_q.dilation_x) << p_q.slot_log2;

  feature_addr_t origin_pitch, next_block_addr;
  assign origin_pitch = feature_addr_t'(p_q.origin_y) * feature_addr_t'(p_q.row_pitch);
  assign next_block_addr = loop_q.block_addr + feature_addr_t'(p_q.block_pitch);

  logic take, last_sweep;
  assign take = sweep_valid_o && sweep_ready_i;
  assign last_sweep = loop_q.s_left == '0 && loop_q.ky_left == '0 && loop_q.kx_left == '0 && loop_q.g_left == '0;

  always_comb begin
    loop_d = loop_q;
    if (state_q == PREPARE) begin
      loop_d.s_left = p_q.ic_steps - 16'd1;
      loop_d.ky_left = copy_q ? '0 : p_q.kernel_rows - 16'd1;
      loop_d.kx_left = copy_q ? '0 : p_q.kernel_cols - 16'd1;
      loop_d.g_left = copy_q ? '0 : p_q.oc_steps - 16'd1;
      loop_d.fresh = 1'b1;
      loop_d.first = 1'b1;
      loop_d.block_addr = feature_addr_t'(p_q.feature);
      loop_d.row_addr = feature_addr_t'(p_q.feature) + origin_pitch;
      loop_d.y = Y_BITS'(p_q.origin_y);
      loop_d.x = origin_x_bytes;
      loop_d.segment = '0;
      loop_d.groups = groups_first;
      loop_d.psum = psum_addr_t'(p_q.psum);
    end else if (take) begin
      loop_d.fresh = 1'b0;
      if (loop_q.g_left != '0) begin
        loop_d.g_left = loop_q.g_left - 16'd1;
        loop_d.groups = new_word ? groups_first : loop_q.groups << $countones(groups_first);
        if (new_word) loop_d.psum = loop_q.psum + psum_addr_t'(p_q.psum_block_pitch);
      end else begin
        loop_d.g_left = copy_q ? '0 : p_q.oc_steps - 16'd1;
        loop_d.groups = groups_first;
        loop_d.psum = copy_q ? loop_q.psum + psum_addr_t'(p_q.psum_block_pitch) : psum_addr_t'(p_q.psum);
        loop_d.first = 1'b0;
        if (loop_q.kx_left != '0) begin
          loop_d.kx_left = loop_q.kx_left - 16'd1;
          loop_d.x = loop_q.x + dilation_x_bytes;
        end else begin
          loop_d.kx_left = copy_q ? '0 : p_q.kernel_cols - 16'd1;
          loop_d.x = origin_x_bytes;
          if (loop_q.ky_left != '0) begin
            loop_d.ky_left = loop_q.ky_left - 16'd1;
            loop_d.y = loop_q.y + Y_BITS'(p_q.dilation_y);
            loop_d.row_addr = loop_q.row_addr + dilation_pitch_q;
          end else begin
            loop_d.ky_left = copy_q ? '0 : p_q.kernel_rows - 16'd1;
            loop_d.y = Y_BITS'(p_q.origin_y);
            loop_d.s_left = loop_q.s_left - 16'd1;
            loop_d.segment = new_block ? '0 : next_segment;
            loop_d.block_addr = new_block ? next_block_addr : loop_q.block_addr;
            loop_d.row_addr = loop_d.block_addr + origin_pitch_q;
          end
        end
      end
    end
  end

  // ---- weight rows: one is active, the next enters word by word --------------------------------------------------------

  logic fill_start, fill_select_q;  // fill_select_q: register of the fill under way or done last
  logic [1:0] gap_q, gap_d;
  weight_addr_t weight_addr_q;

  // A fill may restart in the cycle of its last read.
  assign fill_start = (start && !is_copy) || (take && !copy_q && !last_sweep);
  assign weight_re_o = fill_left_q != '0;
  assign weight_addr_o = weight_addr_q;

  always_comb begin
    fill_left_d = fill_left_q;
    if (fill_start) fill_left_d = FILL_BITS'(ROW_WORDS);
    else if (weight_re_o) fill_left_d = fill_left_q - FILL_BITS'(1);
    gap_d = (gap_q == '0) ? '0 : gap_q - 2'd1;
    if (take && !copy_q) gap_d = MIN_GAP;
  end

  always_ff @(posedge clk_i) begin
    if (weight_re_o) weight_addr_q <= weight_addr_q + weight_addr_t'(1);
    if (start && !is_copy) weight_addr_q <= weight_addr_t'(params_i.weight);
    fill_word_o <= ROW_WORD_BITS'(FILL_BITS'(ROW_WORDS) - fill_left_q);
    fill_select_o <= fill_select_q;
  end

  // ---- sweeps ----------------------------------------------------------------------------------------------------------

  logic row_here, sums_here;
  assign row_here = fill_left_q <= FILL_BITS'(1) && gap_q == '0;
  assign sums_here = !loop_q.fresh || p_q.accumulate == '0 || drained_i;
  assign sweep_valid_o = state_q == SWEEP && (copy_q || (row_here && sums_here));

  always_comb begin
    sweep_o.copy = copy_q;
    sweep_o.mode = p_q.mode;
    sweep_o.pad = p_q.pad_value;
    sweep_o.last = last_sweep;
    sweep_o.overwrite = copy_q || (loop_q.first && p_q.accumulate == '0);
    sweep_o.row_select = fill_select_q;
    sweep_o.segment = LANE_BITS'(loop_q.segment);
    sweep_o.lanes = copy_q ? LANE_BITS'(WORD_CHANNELS) : LANE_BITS'(mode_ic(p_q.mode));
    sweep_o.groups = loop_q.groups;
    sweep_o.psum = loop_q.psum;
    sweep_o.row_addr = loop_q.row_addr;
    sweep_o.stride_pitch = stride_pitch_q;
    sweep_o.y = loop_q.y;
    sweep_o.x = loop_q.x;
    sweep_o.stride_y = p_q.stride_y;
    sweep_o.stride_x = X_BITS'(p_q.stride_x) << p_q.slot_log2;
    sweep_o.in_rows = p_q.in_rows;
    sweep_o.in_cols = X_BITS'(p_q.in_cols) << p_q.slot_log2;
    sweep_o.out_rows = p_q.out_rows;
    sweep_o.out_cols = p_q.out_cols;
  end

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      IDLE: if (start) state_d = PREPARE;
      PREPARE: state_d = accept_o ? SWEEP : IDLE;
      SWEEP: if (take && last_sweep) state_d = IDLE;
      default: state_d = IDLE;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= IDLE;
      fill_left_q <= '0;
      fill_we_o <= 1'b0;
      fill_select_q <= 1'b0;
      gap_q <= '0;
    end else begin
      state_q <= state_d;
      fill_left_q <= fill_left_d;
      fill_we_o <= weight_re_o;
      if (fill_start) fill_select_q <= !fill_select_q;
      gap_q <= gap_d;
    end
  end

  // Parameters, loops: loaded before they are used, so without reset.
  always_ff @(posedge clk_i) begin
    if (start) begin
      p_q <= params_i;
      copy_q <= is_copy;
      legal_q <= legal;
    end
    if (state_q == PREPARE) begin
      origin_pitch_q <= origin_pitch;
      dilation_pitch_q <= feature_addr_t'(p_q.dilation_y) * feature_addr_t'(p_q.row_pitch);
      stride_pitch_q <= feature_addr_t'(p_q.stride_y) * feature_addr_t'(p_q.row_pitch);
    end
    if (state_q == PREPARE || take) loop_q <= loop_d;
  end

  `OPU_STABLE(SweepStable, sweep_valid_o, sweep_ready_i, sweep_o)
  `OPU_ASSERT(FillNotLost, fill_start |-> fill_left_q <= FILL_BITS'(1))

endmodule
