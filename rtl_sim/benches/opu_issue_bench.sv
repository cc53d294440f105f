// The four queues, front ends and the dependency counters as they stand in opu_top, without datapaths: the bench plays those.
// Element e of every vector or array belongs to engine e; element 0 is not used. Register indices below 8 are legal.
module opu_issue_bench #(
    parameter int unsigned ENGINES = 5,
    parameter int unsigned PC_BITS = 24,
    parameter int unsigned DEPTH = 4,
    parameter int unsigned COUNTER_BITS = 2,
    parameter int unsigned IN_FLIGHT = 3
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

  logic [ENGINES-1:1] take_valid, give_valid;
  logic [ENGINES-1:0] take_mask [ENGINES];
  logic [ENGINES-1:0] give_mask [ENGINES];
  logic [ENGINES-1:0] tokens [ENGINES];
  logic [ENGINES-1:0] space [ENGINES];
  assign take_mask[0] = '0;
  assign give_mask[0] = '0;

  opu_counters #(
      .ENGINES     (ENGINES),
      .COUNTER_BITS(COUNTER_BITS)
  ) u_counters (
      .clk_i,
      .rst_ni,
      .take_valid_i(take_valid),
      .take_mask_i (take_mask),
      .tokens_o    (tokens),
      .give_valid_i(give_valid),
      .give_mask_i (give_mask),
      .space_o     (space)
  );

  assign push_ready_o[0] = 1'b0;
  assign set_valid_o[0] = 1'b0;
  assign start_valid_o[0] = 1'b0;
  assign done_ready_o[0] = 1'b0;
  assign idle_o[0] = 1'b1;
  assign busy_o[0] = 1'b0;
  assign stall_o[0] = 1'b0;
  assign retire_o[0] = 1'b0;
  assign fault_o[0] = 1'b0;
  assign set_index_o[0] = '0;
  assign set_value_o[0] = '0;
  assign start_op_o[0] = '0;
  assign start_pc_o[0] = '0;
  assign latest_pc_o[0] = '0;
  assign fault_pc_o[0] = '0;

  for (genvar e = 1; e < int'(ENGINES); e++) begin : g_engine
    logic word_valid, word_ready;
    logic [31:0] word;
    logic [PC_BITS-1:0] word_pc;

    opu_queue #(
        .WIDTH(32 + PC_BITS),
        .DEPTH(DEPTH)
    ) u_queue (
        .clk_i,
        .rst_ni,
        .push_valid_i(push_valid_i[e]),
        .push_ready_o(push_ready_o[e]),
        .push_data_i ({push_pc_i, push_word_i}),
        .pop_valid_o (word_valid),
        .pop_ready_i (word_ready),
        .pop_data_o  ({word_pc, word})
    );

    opu_frontend #(
        .ENGINE   (e),
        .ENGINES  (ENGINES),
        .OPCODES  (4),
        .PC_BITS  (PC_BITS),
        .IN_FLIGHT(IN_FLIGHT)
    ) u_frontend (
        .clk_i,
        .rst_ni,
        .halt_i,
        .word_valid_i (word_valid),
        .word_ready_o (word_ready),
        .word_i       (word),
        .word_pc_i    (word_pc),
        .set_valid_o  (set_valid_o[e]),
        .set_index_o  (set_index_o[e]),
        .set_value_o  (set_value_o[e]),
        .set_legal_i  (set_index_o[e] < 6'd8),
        .take_valid_o (take_valid[e]),
        .take_mask_o  (take_mask[e]),
        .tokens_i     (tokens[e]),
        .give_valid_o (give_valid[e]),
        .give_mask_o  (give_mask[e]),
        .space_i      (space[e]),
        .start_valid_o(start_valid_o[e]),
        .start_ready_i(start_ready_i[e]),
        .start_op_o   (start_op_o[e]),
        .start_pc_o   (start_pc_o[e]),
        .done_valid_i (done_valid_i[e]),
        .done_ready_o (done_ready_o[e]),
        .idle_o       (idle_o[e]),
        .busy_o       (busy_o[e]),
        .stall_o      (stall_o[e]),
        .retire_o     (retire_o[e]),
        .latest_pc_o  (latest_pc_o[e]),
        .fault_o      (fault_o[e]),
        .fault_pc_o   (fault_pc_o[e])
    );
  end

endmodule
