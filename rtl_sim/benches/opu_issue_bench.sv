// opu_issue with short queues and narrow counters, so that they fill; the bench plays the engines.
// Vectors reach down to bit 0 (fetch, idle) so that bit e is engine e for the bench too. Register indices below 8 are legal.
module opu_issue_bench #(
    parameter int unsigned ENGINES = 5,
    parameter int unsigned PC_BITS = 24
) (
    input  logic               clk_i,
    input  logic               rst_ni,
    input  logic               halt_i,

    input  logic [ENGINES-1:0] push_valid_i,
    output logic [ENGINES-1:0] push_ready_o,
    input  logic [31:0]        push_word_i,
    input  logic [PC_BITS-1:0] push_pc_i,

    output logic [ENGINES-1:0] set_valid_o,
    output logic [5:0]         set_index_o [ENGINES],
    output logic [21:0]        set_value_o [ENGINES],
    output logic [ENGINES-1:0] start_valid_o,
    input  logic [ENGINES-1:0] start_ready_i,
    output logic [3:0]         start_op_o [ENGINES],
    output logic [PC_BITS-1:0] start_pc_o [ENGINES],
    input  logic [ENGINES-1:0] done_valid_i,
    output logic [ENGINES-1:0] done_ready_o,
    output logic [ENGINES-1:0] idle_o,
    output logic [ENGINES-1:0] busy_o,
    output logic [ENGINES-1:0] stall_o,
    output logic [ENGINES-1:0] retire_o,
    output logic [PC_BITS-1:0] latest_pc_o [ENGINES],
    output logic [ENGINES-1:0] fault_o,
    output logic [PC_BITS-1:0] fault_pc_o [ENGINES]
);

  logic [ENGINES-1:1] set_legal;
  for (genvar e = 1; e < int'(ENGINES); e++) begin : g_legal
    assign set_legal[e] = set_index_o[e] < 6'd8;
  end
  assign push_ready_o[0] = 1'b0;
  assign set_valid_o[0] = 1'b0;
  assign start_valid_o[0] = 1'b0;
  assign done_ready_o[0] = 1'b0;
  assign idle_o[0] = 1'b1;
  assign busy_o[0] = 1'b0;
  assign stall_o[0] = 1'b0;
  assign retire_o[0] = 1'b0;
  assign fault_o[0] = 1'b0;

  opu_issue #(
      .ENGINES    (ENGINES),
      .PC_BITS    (PC_BITS),
      .IN_FLIGHT  (3),
      .TOKEN_BITS (2),
      .QUEUE_DEPTH('{1, 4, 4, 4, 4})
  ) dut (
      .clk_i,
      .rst_ni,
      .halt_i,
      .push_valid_i (push_valid_i[ENGINES-1:1]),
      .push_ready_o (push_ready_o[ENGINES-1:1]),
      .push_word_i,
      .push_pc_i,
      .set_valid_o  (set_valid_o[ENGINES-1:1]),
      .set_index_o,
      .set_value_o,
      .set_legal_i  (set_legal),
      .start_valid_o(start_valid_o[ENGINES-1:1]),
      .start_ready_i(start_ready_i[ENGINES-1:1]),
      .start_op_o,
      .start_pc_o,
      .done_valid_i (done_valid_i[ENGINES-1:1]),
      .done_ready_o (done_ready_o[ENGINES-1:1]),
      .idle_o       (idle_o[ENGINES-1:1]),
      .busy_o       (busy_o[ENGINES-1:1]),
      .stall_o      (stall_o[ENGINES-1:1]),
      .retire_o     (retire_o[ENGINES-1:1]),
      .latest_pc_o,
      .fault_o      (fault_o[ENGINES-1:1]),
      .fault_pc_o
  );

endmodule
