// Compute engine: inner products of a feature tile and weight rows into partial sums (conv), or features into partial
// sums (copy). Semantics: docs/machine.md.
//
// start_*: valid/ready, op and parameters taken at the handshake; up to OPEN instructions may be open, so the next one
//          prepares while the last sweep of this one runs. illegal_o: see opu_compute_rows.
// done_*:  valid/ready, one handshake per instruction, in order, after its last partial sum is written.
// Memories: feature and weight words arrive one cycle after their address; partial sums see opu_psum.
// Throughput: one (weight row, pixel) step per cycle. A row takes max(pixels, ROW_WORDS, 4) cycles, a copied block its
// pixels. From start to done an instruction alone takes its steps (the last row: its pixels only) and 6 cycles, conv
// max(ROW_WORDS, 4) more for its first row, copy 2. Behind another instruction all of that hides under the other's last
// sweep, except that an instruction with accumulate waits up to 5 cycles for the other's last steps.
`include "opu_assert.svh"

module opu_compute
  import opu_pkg::*;
  import opu_compute_pkg::*;
(
    input  logic                   clk_i,
    input  logic                   rst_ni,

    input  logic                   start_valid_i,
    output logic                   start_ready_o,
    input  logic [3:0]             op_i,
    input  compute_params_t        params_i,
    output logic                   illegal_o,
    output logic                   done_valid_o,
    input  logic                   done_ready_i,

    output logic                   feature_re_o,
    output logic                   feature_next_re_o,
    output feature_addr_t          feature_addr_o,
    input  logic [WORD_BITS-1:0]   feature_rdata_i,
    input  logic [WORD_BITS-1:0]   feature_next_rdata_i,

    output logic                   weight_re_o,
    output weight_addr_t           weight_addr_o,
    input  logic [WEIGHT_BITS-1:0] weight_rdata_i,

    output logic [GROUPS-1:0]      psum_re_o,
    output psum_addr_t             psum_raddr_o,
    input  logic [PSUM_BITS-1:0]   psum_rdata_i,
    output logic [GROUPS-1:0]      psum_we_o,
    output psum_addr_t             psum_waddr_o,
    output logic [PSUM_BITS-1:0]   psum_wdata_o
);

  localparam logic [1:0] OPEN = 2'd3;

  `OPU_ASSERT_STATIC(ArrayFilled, 32'(MODE_IC[0]) * 32'(MODE_OC[0]) == UNITS * MULTIPLIERS)
  `OPU_ASSERT_STATIC(RowIsArray, ROW_BYTES == UNITS * MULTIPLIERS && ROW_WORDS * WEIGHT_WIDTH == ROW_BYTES)
  for (genvar m = 0; m < int'(MODE_COUNT); m++) begin : g_mode
    `OPU_ASSERT_STATIC(OnePixel, MODE_PX[m] == 16'd1)
    `OPU_ASSERT_STATIC(PartsPowerOfTwo, $onehot(32'(MODE_IC[m]) / MULTIPLIERS) && 32'(MODE_IC[m]) % MULTIPLIERS == 0)
    `OPU_ASSERT_STATIC(SegmentsFit, WORD_CHANNELS % 32'(MODE_IC[m]) == 0)
    `OPU_ASSERT_STATIC(GroupsFit, WORD_CHANNELS % 32'(MODE_OC[m]) == 0 && 32'(MODE_OC[m]) % GROUP_LANES == 0)
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

  logic sweep_valid, sweep_ready, drained;
  sweep_t sweep;
  logic fill_we, fill_select;
  logic [ROW_WORD_BITS-1:0] fill_word;

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
      .drained_i    (drained),
      .weight_re_o,
      .weight_addr_o,
      .fill_we_o    (fill_we),
      .fill_select_o(fill_select),
      .fill_word_o  (fill_word)
  );

  step_t issue, align_q, multiply_q, combine_q, add_q;

  opu_compute_pixels u_pixels (
      .clk_i,
      .rst_ni,
      .sweep_valid_i(sweep_valid),
      .sweep_ready_o(sweep_ready),
      .sweep_i      (sweep),
      .step_o       (issue),
      .feature_re_o,
      .feature_next_re_o,
      .feature_addr_o
  );

  always_ff @(posedge clk_i) begin
    align_q <= issue;
    multiply_q <= align_q;
    combine_q <= multiply_q;
    add_q <= combine_q;
    if (!rst_ni) begin
      align_q.valid <= 1'b0;
      multiply_q.valid <= 1'b0;
      combine_q.valid <= 1'b0;
      add_q.valid <= 1'b0;
    end
  end

  assign drained = !(issue.valid || align_q.valid || multiply_q.valid || combine_q.valid || add_q.valid);

  logic [PSUM_BITS-1:0] sums;

  opu_array u_array (
      .clk_i,
      .fill_we_i      (fill_we),
      .fill_select_i  (fill_select),
      .fill_word_i    (fill_word),
      .fill_data_i    (weight_rdata_i),
      .align_i        (align_q),
      .align_feature_i(feature_rdata_i),
      .align_next_i   (feature_next_rdata_i),
      .multiply_i     (multiply_q),
      .combine_i      (combine_q),
      .sums_o         (sums)
  );

  opu_accumulate u_accumulate (
      .clk_i,
      .rst_ni,
      .combine_i   (combine_q),
      .psum_re_o,
      .psum_raddr_o,
      .step_i      (add_q),
      .sums_i      (sums),
      .psum_rdata_i,
      .psum_we_o,
      .psum_waddr_o,
      .psum_wdata_o,
      .retire_o    (retire)
  );

  `OPU_STABLE(DoneHeld, done_valid_o, done_ready_i, 1'b1)
  `OPU_ASSERT(RetiresOpen, retire |-> open_q > written_q)
  `OPU_ASSERT(FillAway, fill_we && multiply_q.valid && !multiply_q.copy
      |-> fill_select != multiply_q.row_select || fill_word == '0)

endmodule
