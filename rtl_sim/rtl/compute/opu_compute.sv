// Compute engine: inner products of a feature tile and weight rows into partial sums (conv), windows of single lanes
// (depthwise), or features into partial sums (copy). Semantics: docs/machine.md.
//
//   start --> opu_compute_rows --sweeps--> opu_compute_pixels (conv, copy)  --steps--+
//               |  (sequencer)        +--> opu_compute_window (depthwise)   --steps--+
//               |                                                                    v
//               |                         feature buffer --words--> pre chain (opu_pre x units) --> opu_array
//               +--weight reads--> weight buffer ----------------------^                               | sums
//               +--pre reads-----> pre buffer --> opu_pre_gate --------^                               v
//   done <-------------------------------------------------------- psum <----------------> opu_accumulate
//
// start_*: valid/ready, op and parameters are latched at the handshake. Up to OPEN instructions may be open, so the
//          next one prepares during the last sweep of the present one. illegal_o: see opu_compute_rows.
// done_*:  valid/ready, one handshake per instruction, in order, after its last partial sum is written.
// Memories: feature, weight and pre words arrive two cycles after their address; partial sums see opu_psum.
//          Machines without a pre chain do not read pre words.
//
// Throughput: one step (weight row, pixels of the mode) per cycle.
//   conv       a row takes max(pixels / px, ROW_WORDS / px, 4) cycles; a block with pre at least 8 for each unit, with
//              a gate 8 + GATE_CYCLES
//   copy       a block takes its pixels
//   depthwise  a block takes at most one cycle more than the largest of its steps (pixels * parts * WINDOW_CYCLES),
//              its reads (see opu_compute_window) and the words of the weight rows of the next block
// Latency: an instruction alone takes, from start to done, its steps (of the last row: its pixels only) and 5 +
// ALIGN_STAGES + MULTIPLY_STAGES cycles, 10 more for each unit of the pre chain in the machine. Before its first step
//   conv       takes max(ROW_WORDS / px, 4, 8 for each unit it passes, plus GATE_CYCLES with a gate)
//   copy       takes 4
//   depthwise  takes max(parts of the first block * ROW_WORDS, 4) and the reads of its first window
// After another instruction all of that is hidden by the last sweep of that one. Exceptions: an instruction that
// accumulates into other sums waits for the last steps of its predecessor, and so does depthwise after conv or copy,
// and vice versa.
`include "opu_assert.svh"

module opu_compute
  import opu_pkg::*;
  import opu_compute_pkg::*;
  import opu_pre_pkg::*;
(
    input  logic                   clk_i,
    input  logic                   rst_ni,

    input  logic                   start_valid_i,
    output logic                   start_ready_o,
    input  logic [3:0]             op_i,
    input  compute_params_t        params_i,
    output logic                   illegal_o,
    output logic                   unfit_o,           // see opu_pre
    output logic                   done_valid_o,
    input  logic                   done_ready_i,
    output logic                   multiplies_o,      // in this cycle

    output logic                   feature_re_o,
    output logic                   feature_next_re_o,
    output feature_addr_t          feature_addr_o,
    output feature_addr_t          feature_next_addr_o,
    input  logic [WORD_BITS-1:0]   feature_rdata_i,
    input  logic [WORD_BITS-1:0]   feature_next_rdata_i,

    output logic                   weight_re_o,
    output weight_addr_t           weight_addr_o,
    input  logic [WEIGHT_BITS-1:0] weight_rdata_i,

    output logic [GROUPS-1:0]      psum_re_o,
    output psum_addr_t             psum_raddr_o,
    input  logic [1:0]             psum_from_i,
    input  logic [2*PSUM_BITS-1:0] psum_rdata_i,
    output logic [GROUPS-1:0]      psum_we_o,
    output psum_addr_t             psum_waddr_o,
    output logic [PSUM_BITS-1:0]   psum_wdata_o,

    output logic                   pre_re_o,
    output pre_addr_t              pre_addr_o,
    input  logic [WORD_BITS-1:0]   pre_rdata_i
);

  localparam logic [1:0] OPEN = 2'd3;

  `OPU_ASSERT_STATIC(RowIsArray, ROW_BYTES == UNITS * MULTIPLIERS && ROW_WORDS * WEIGHT_WIDTH == ROW_BYTES)
  for (genvar m = 0; m < int'(MODE_COUNT); m++) begin : g_mode
    localparam int unsigned IC = 32'(MODE_IC[m]);
    localparam int unsigned OC = 32'(MODE_OC[m]);
    localparam int unsigned PX = 32'(MODE_PX[m]);
    `OPU_ASSERT_STATIC(ArrayFilled, IC * OC * PX == UNITS * MULTIPLIERS)
    `OPU_ASSERT_STATIC(PixelsPowerOfTwo, $onehot(PX) && PX <= 4)
    `OPU_ASSERT_STATIC(PixelsFit, ROW_WORDS % PX == 0 && WORD_CHANNELS % PX == 0 && OC * PX <= WORD_CHANNELS)
    `OPU_ASSERT_STATIC(PartsPowerOfTwo, $onehot(IC / MULTIPLIERS) && IC % MULTIPLIERS == 0)
    `OPU_ASSERT_STATIC(SegmentsFit, WORD_CHANNELS % IC == 0)
    `OPU_ASSERT_STATIC(GroupsFit, WORD_CHANNELS / PX % OC == 0 && OC % GROUP_LANES == 0)
  end
  if (HAS_DEPTHWISE) begin : g_parts
    `OPU_ASSERT_STATIC(PartsFit, WORD_CHANNELS % PART_LANES == 0 && PART_LANES % GROUP_LANES == 0)
  end
  if (HALVED) begin : g_halves
    `OPU_ASSERT_STATIC(HalvesFit, WORD_PARTS == 1 && WORD_CHANNELS % (2 * PARTS) == 0 && UNITS % (2 * PARTS) == 0)
  end
  if (HAS_PRE) begin : g_pre_lanes
    `OPU_ASSERT_STATIC(LanesInEights, WORD_CHANNELS % 8 == 0)
  end

  // Open instructions, and those of them whose last partial sum is written.
  logic [1:0] open_q, written_q;
  logic accept, retire, done;
  assign done_valid_o = written_q != '0;
  assign done = done_valid_o && done_ready_i;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      open_q <= '0;
      written_q <= '0;
    end else begin
      open_q <= open_q + 2'(accept) - 2'(done);
      written_q <= written_q + 2'(retire) - 2'(done);
    end
  end

  // Weights come as much later as operands are later through all cycles of `align` than through one.
  logic weight_re;
  weight_addr_t weight_addr;
  logic [ALIGN_STAGES-2:0] weight_re_q;
  weight_addr_t weight_addr_q [ALIGN_STAGES-1];
  fill_t fill;
  fill_t fills_q [ALIGN_STAGES-1];
  assign weight_re_o = weight_re_q[ALIGN_STAGES-2];
  assign weight_addr_o = weight_addr_q[ALIGN_STAGES-2];

  always_ff @(posedge clk_i) begin
    weight_re_q <= (ALIGN_STAGES - 1)'({weight_re_q, weight_re});
    weight_addr_q[0] <= weight_addr;
    fills_q[0] <= fill;
    for (int unsigned s = 1; s < ALIGN_STAGES - 1; s++) begin
      weight_addr_q[s] <= weight_addr_q[s-1];
      fills_q[s] <= fills_q[s-1];
    end
    if (!rst_ni) begin
      weight_re_q <= '0;
      for (int unsigned s = 0; s < ALIGN_STAGES - 1; s++) fills_q[s].valid <= 1'b0;
    end
  end

  logic sweep_valid, sweep_ready, begun, drained;
  sweep_t sweep;
  pre_load_t pre_load;
  gate_t gate;

  opu_compute_rows u_rows (
      .clk_i,
      .rst_ni,
      .start_valid_i,
      .start_ready_o,
      .room_i       (open_q != OPEN),
      .op_i,
      .params_i,
      .accept_o     (accept),
      .illegal_o,
      .sweep_valid_o(sweep_valid),
      .sweep_ready_i(sweep_ready),
      .sweep_o      (sweep),
      .begun_i      (begun),
      .drained_i    (drained),
      .weight_re_o  (weight_re),
      .weight_addr_o(weight_addr),
      .fill_o       (fill),
      .pre_re_o,
      .pre_addr_o,
      .pre_load_o   (pre_load),
      .gate_o       (gate)
  );

  // Sweeps of conv and copy, and those of depthwise, wait for each other.
  logic pixels_ready, window_ready, window_idle, pixels_re, pixels_next_re, window_re, window_next_re;
  feature_addr_t pixels_addr, pixels_next_addr, window_addr;
  step_t pixels_step, window_step, issue;
  enter_t enter;
  assign sweep_ready = sweep.depthwise ? window_ready && !pixels_step.valid : pixels_ready && window_idle;

  opu_compute_pixels u_pixels (
      .clk_i,
      .rst_ni,
      .sweep_valid_i    (sweep_valid && !sweep.depthwise && window_idle),
      .sweep_ready_o    (pixels_ready),
      .sweep_i          (sweep),
      .step_o           (pixels_step),
      .feature_re_o     (pixels_re),
      .feature_next_re_o(pixels_next_re),
      .feature_addr_o   (pixels_addr),
      .feature_next_addr_o(pixels_next_addr)
  );

  if (HAS_DEPTHWISE) begin : g_window
    opu_compute_window u_window (
        .clk_i,
        .rst_ni,
        .sweep_valid_i    (sweep_valid && sweep.depthwise && !pixels_step.valid),
        .sweep_ready_o    (window_ready),
        .sweep_i          (sweep),
        .begun_o          (begun),
        .idle_o           (window_idle),
        .step_o           (window_step),
        .enter_o          (enter),
        .feature_re_o     (window_re),
        .feature_next_re_o(window_next_re),
        .feature_addr_o   (window_addr)
    );
  end else begin : g_no_window
    assign {window_ready, begun, window_step, enter, window_re, window_next_re, window_addr} = '0;
    assign window_idle = 1'b1;
  end

  assign issue = window_idle ? pixels_step : window_step;
  assign feature_re_o = window_idle ? pixels_re : window_re;
  assign feature_next_re_o = window_idle ? pixels_next_re : window_next_re;
  assign feature_addr_o = window_idle ? pixels_addr : window_addr;
  assign feature_next_addr_o = window_idle ? pixels_next_addr : window_addr + feature_addr_t'(1);

  // Feature words arrive; every unit of the pre chain delays them and all that belongs to them. Element u enters unit
  // u. Their memories answer in the second cycle after the read.
  step_t fetched_q, arrived_q, align_step, multiply_q, add_q;
  step_t aligned_q [ALIGN_STAGES-1];  // by the cycles after the first of `align`
  step_t multiplied_q [MULTIPLY_STAGES];  // by the cycles after `multiply`
  enter_t enter_q;
  fill_t fill_q;
  pre_load_t pre_load_q, unit_load;
  affine_record_t [LOAD_LANES-1:0] unit_records;
  localparam int unsigned DELAYS = HAS_PRE ? PRE_UNITS : 0;
  step_t pre_step [DELAYS+1];
  enter_t pre_enter [DELAYS+1];
  fill_t pre_fill [DELAYS+1];
  logic [WEIGHT_BITS-1:0] pre_fill_data [DELAYS+1];
  logic [WORD_BITS-1:0] pre_feature [DELAYS+1], pre_next [DELAYS+1];
  logic [DELAYS:0] pre_drained;  // unit u and all before it
  logic [DELAYS:0] pre_unfit;

  assign pre_step[0] = arrived_q;
  assign pre_enter[0] = enter_q;
  assign pre_fill[0] = fill_q;
  assign pre_fill_data[0] = weight_rdata_i;
  assign pre_feature[0] = feature_rdata_i;
  assign pre_next[0] = feature_next_rdata_i;
  assign pre_drained[0] = 1'b1;
  assign pre_unfit[0] = 1'b0;
  assign unfit_o = pre_unfit != '0;

  for (genvar u = 0; u < int'(DELAYS); u++) begin : g_pre
    logic unit_drained;
    opu_pre #(
        .UNIT(u)
    ) u_pre (
        .clk_i,
        .rst_ni,
        .load_i     (unit_load),
        .load_data_i(unit_records),
        .unfit_o    (pre_unfit[u+1]),
        .step_i     (pre_step[u]),
        .enter_i    (pre_enter[u]),
        .feature_i  (pre_feature[u]),
        .next_i     (pre_next[u]),
        .fill_i     (pre_fill[u]),
        .fill_data_i(pre_fill_data[u]),
        .drained_o  (unit_drained),
        .step_o     (pre_step[u+1]),
        .enter_o    (pre_enter[u+1]),
        .feature_o  (pre_feature[u+1]),
        .next_o     (pre_next[u+1]),
        .fill_o     (pre_fill[u+1]),
        .fill_data_o(pre_fill_data[u+1])
    );
    assign pre_drained[u+1] = pre_drained[u] && unit_drained;
  end
  assign align_step = pre_step[DELAYS];
  if (HAS_PRE) begin : g_pre_gate
    opu_pre_gate u_pre_gate (
        .clk_i,
        .rst_ni,
        .gate_i   (gate),
        .load_i   (pre_load_q),
        .data_i   (pre_rdata_i),
        .load_o   (unit_load),
        .records_o(unit_records)
    );
  end else begin : g_no_pre
    logic unused;
    assign {unit_load, unit_records} = '0;
    assign unused = &{pre_rdata_i, pre_load_q, gate, unit_load, unit_records};
  end

  always_ff @(posedge clk_i) begin
    fetched_q <= issue;
    arrived_q <= fetched_q;
    for (int unsigned p = 0; p < MODE_PX_MAX; p++) begin
      arrived_q.at[p] <= WINDOW_BITS'(fetched_q.offset) + WINDOW_BITS'(p) * WINDOW_BITS'(fetched_q.pixel_x);
    end
    enter_q <= enter;
    fill_q <= fills_q[ALIGN_STAGES-2];
    pre_load_q <= pre_load;
    aligned_q[0] <= align_step;
    for (int unsigned s = 1; s < ALIGN_STAGES - 1; s++) aligned_q[s] <= aligned_q[s-1];
    multiply_q <= aligned_q[ALIGN_STAGES-2];
    multiplied_q[0] <= multiply_q;
    for (int unsigned s = 1; s < MULTIPLY_STAGES; s++) multiplied_q[s] <= multiplied_q[s-1];
    add_q <= multiplied_q[MULTIPLY_STAGES-1];
    if (!rst_ni) begin
      fetched_q.valid <= 1'b0;
      arrived_q.valid <= 1'b0;
      enter_q.valid <= 1'b0;
      fill_q.valid <= 1'b0;
      pre_load_q.valid <= 1'b0;
      for (int unsigned s = 0; s < ALIGN_STAGES - 1; s++) aligned_q[s].valid <= 1'b0;
      multiply_q.valid <= 1'b0;
      for (int unsigned s = 0; s < MULTIPLY_STAGES; s++) multiplied_q[s].valid <= 1'b0;
      // What the end of the array reads is not the end of a slow shift register.
      multiplied_q[MULTIPLY_STAGES-2] <= '0;
      multiplied_q[MULTIPLY_STAGES-1] <= '0;
      add_q <= '0;
    end
  end

  // What is in a stage now is in the next one then: busy_q has all stages but the first one and the pre chain.
  logic [MULTIPLY_STAGES-1:0] multiplied;
  logic [ALIGN_STAGES-2:0] aligned;
  logic busy_q;
  always_comb begin
    for (int unsigned s = 0; s < ALIGN_STAGES - 1; s++) aligned[s] = aligned_q[s].valid;
    for (int unsigned s = 0; s < MULTIPLY_STAGES; s++) multiplied[s] = multiplied_q[s].valid;
  end
  always_ff @(posedge clk_i) begin
    busy_q <= rst_ni && (issue.valid || fetched_q.valid || align_step.valid || aligned != '0 || multiply_q.valid
        || multiplied != '0);
  end
  assign drained = window_idle && pre_drained[DELAYS] && !(issue.valid || busy_q);

  logic [PSUM_BITS-1:0] sums;

  assign multiplies_o = multiply_q.valid && !multiply_q.copy;

  opu_array u_array (
      .clk_i,
      .fill_i     (pre_fill[DELAYS]),
      .fill_data_i(pre_fill_data[DELAYS]),
      .align_i    (align_step),
      .aligned_i  (aligned_q[ALIGN_STAGES-2]),
      .multiply_i (multiply_q),
      .combining_i(multiplied_q[MULTIPLY_STAGES-2]),
      .combine_i  (multiplied_q[MULTIPLY_STAGES-1]),
      .enter_i    (pre_enter[DELAYS]),
      .feature_i  (pre_feature[DELAYS]),
      .next_i     (pre_next[DELAYS]),
      .sums_o     (sums)
  );

  opu_accumulate u_accumulate (
      .clk_i,
      .rst_ni,
      .read_i      (multiplied_q[MULTIPLY_STAGES-2]),
      .psum_re_o,
      .psum_raddr_o,
      .step_i      (add_q),
      .sums_i      (sums),
      .psum_from_i,
      .psum_rdata_i,
      .psum_we_o,
      .psum_waddr_o,
      .psum_wdata_o,
      .retire_o    (retire)
  );

  `OPU_STABLE(DoneHeld, done_valid_o, done_ready_i, 1'b1)
  `OPU_ASSERT(RetiresOpen, retire |-> open_q > written_q)
  `OPU_ASSERT(FillAway, pre_fill[DELAYS].valid && multiply_q.valid && !multiply_q.copy
      |-> pre_fill[DELAYS].row_select != multiply_q.row_select || pre_fill[DELAYS].word == '0)

  `OPU_ASSERT(NextIsBehind, feature_re_o || feature_next_re_o
      |-> feature_next_addr_o == feature_addr_o + feature_addr_t'(1))

endmodule
