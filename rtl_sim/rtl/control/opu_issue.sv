// Instruction issue: queue and front end of every engine, and the dependency counters between them.
//
//   push_* --> opu_queue --> opu_frontend --> start_*, set_*     (for each engine)
//                                |  ^
//                         tokens v  |
//                            opu_counters
//
// Element e of a vector or array belongs to engine e; fetch (0) has none. push_*: words from fetch, valid/ready, one
// per cycle. The other ports are those of opu_frontend.
module opu_issue
  import opu_pkg::*;
#(
    parameter int unsigned ENGINES = 5,
    parameter int unsigned PC_BITS = 24,
    parameter int unsigned IN_FLIGHT = 4,
    parameter int unsigned TOKEN_BITS = COUNTER_BITS,
    parameter int unsigned QUEUE_DEPTH [ENGINES] = '{1, QUEUE_LOAD, QUEUE_COMPUTE, QUEUE_POST, QUEUE_STORE},
    parameter int unsigned OPCODES [ENGINES] =
        '{OPCODES_FETCH, OPCODES_LOAD, OPCODES_COMPUTE, OPCODES_POST, OPCODES_STORE}
) (
    input  logic               clk_i,
    input  logic               rst_ni,
    input  logic               halt_i,

    input  logic [ENGINES-1:1] push_valid_i,
    output logic [ENGINES-1:1] push_ready_o,
    input  logic [31:0]        push_word_i,
    input  logic [PC_BITS-1:0] push_pc_i,

    output logic [ENGINES-1:1] set_valid_o,
    output logic [5:0]         set_index_o [ENGINES],
    output logic [21:0]        set_value_o [ENGINES],
    input  logic [ENGINES-1:1] set_legal_i,
    output logic [ENGINES-1:1] start_valid_o,
    input  logic [ENGINES-1:1] start_ready_i,
    output logic [3:0]         start_op_o [ENGINES],
    output logic [PC_BITS-1:0] start_pc_o [ENGINES],
    input  logic [ENGINES-1:1] done_valid_i,
    output logic [ENGINES-1:1] done_ready_o,

    output logic [ENGINES-1:1] idle_o,
    output logic [ENGINES-1:1] busy_o,
    output logic [ENGINES-1:1] stall_o,
    output logic [ENGINES-1:1] retire_o,
    output logic [PC_BITS-1:0] latest_pc_o [ENGINES],
    output logic [ENGINES-1:1] fault_o,
    output logic [PC_BITS-1:0] fault_pc_o [ENGINES]
);

  logic [ENGINES-1:1] take_valid, give_valid;
  logic [ENGINES-1:0] take_mask [ENGINES];
  logic [ENGINES-1:0] give_mask [ENGINES];
  logic [ENGINES-1:0] tokens [ENGINES];
  logic [ENGINES-1:0] space [ENGINES];

  // Fetch has no queue and no counters.
  assign take_mask[0] = '0;
  assign give_mask[0] = '0;
  assign set_index_o[0] = '0;
  assign set_value_o[0] = '0;
  assign start_op_o[0] = '0;
  assign start_pc_o[0] = '0;
  assign latest_pc_o[0] = '0;
  assign fault_pc_o[0] = '0;

  opu_counters #(
      .ENGINES     (ENGINES),
      .COUNTER_BITS(TOKEN_BITS)
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

  for (genvar e = 1; e < int'(ENGINES); e++) begin : g_engine
    logic word_valid, word_ready, word_starts, push_starts;
    logic [31:0] word;
    logic [PC_BITS-1:0] word_pc;

    // A legal start of this engine: its opcode, and masks of the others.
    localparam logic [ENGINES-1:0] PARTNERS = ~(ENGINES'(1) | (ENGINES'(1) << e));
    assign push_starts = push_word_i[31:28] == {1'b1, 3'(e)} && 32'(push_word_i[27:24]) < OPCODES[e]
        && (push_word_i[23:16] & ~8'(PARTNERS)) == '0 && (push_word_i[15:8] & ~8'(PARTNERS)) == '0 && push_word_i[7:0] == '0;

    opu_queue #(
        .WIDTH(33 + PC_BITS),
        .DEPTH(QUEUE_DEPTH[e])
    ) u_queue (
        .clk_i,
        .rst_ni,
        .push_valid_i(push_valid_i[e]),
        .push_ready_o(push_ready_o[e]),
        .push_data_i ({push_starts, push_pc_i, push_word_i}),
        .pop_valid_o (word_valid),
        .pop_ready_i (word_ready),
        .pop_data_o  ({word_starts, word_pc, word})
    );

    opu_frontend #(
        .ENGINE   (e),
        .ENGINES  (ENGINES),
        .PC_BITS  (PC_BITS),
        .IN_FLIGHT(IN_FLIGHT)
    ) u_frontend (
        .clk_i,
        .rst_ni,
        .halt_i,
        .word_valid_i (word_valid),
        .word_ready_o (word_ready),
        .word_i       (word),
        .word_starts_i(word_starts),
        .word_pc_i    (word_pc),
        .set_valid_o  (set_valid_o[e]),
        .set_index_o  (set_index_o[e]),
        .set_value_o  (set_value_o[e]),
        .set_legal_i  (set_legal_i[e]),
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
