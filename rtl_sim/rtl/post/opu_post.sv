// Post engine: partial sums through the chain of `order` into the output buffer. Semantics: docs/machine.md.
//
// start_*: valid/ready, op and parameters taken at the handshake; up to OPEN instructions may be open, so the next one
//          prepares while this one drains. illegal_o: see opu_post_walk.
// done_*:  valid/ready, one handshake per instruction, in order, after its last output word is written.
// psum_*:  a read happens in a cycle with grant; without it the address is held. Other memories answer every read one
//          cycle later.
// Throughput: one window position per cycle. One instance of every stage; `order` sets the multiplexers between them.
// From start to done an instruction alone takes its visits, 8 cycles, 6 more for the first parameters of REQUANT, and 2 for
// ACT, 3 for POOL, 3 for RESIDUAL. The parameters of further blocks are loaded meanwhile: a block takes max(visits, 9)
// cycles with REQUANT.
`include "opu_assert.svh"

module opu_post
  import opu_pkg::*;
  import opu_post_pkg::*;
(
    input  logic                 clk_i,
    input  logic                 rst_ni,

    input  logic                 start_valid_i,
    output logic                 start_ready_o,
    input  logic [3:0]           op_i,
    input  post_params_t         params_i,
    output logic                 illegal_o,
    output logic                 done_valid_o,
    input  logic                 done_ready_i,

    output logic                 psum_re_o,
    output psum_addr_t           psum_addr_o,
    input  logic                 psum_grant_i,
    input  logic [PSUM_BITS-1:0] psum_rdata_i,

    output logic                 param_re_o,
    output param_addr_t          param_addr_o,
    input  logic [WORD_BITS-1:0] param_rdata_i,

    output logic                 res_re_o,
    output residual_addr_t       res_addr_o,
    input  logic [WORD_BITS-1:0] res_rdata_i,

    output logic                 out_we_o,
    output output_addr_t         out_addr_o,
    output logic [WORD_BITS-1:0] out_wdata_o
);

  localparam logic [1:0] OPEN = 2'd3;

  `OPU_ASSERT_STATIC(AllLanes, POST_LANES == WORD_CHANNELS)

  // ---- instructions: open ones, written ones, and whether one is inside the chain ---------------------------------------

  logic [1:0] open_q, written_q;
  logic accept, launch, retire, done, busy_q;
  assign done_valid_o = written_q != '0;
  assign done = done_valid_o && done_ready_i;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      open_q <= '0;
      written_q <= '0;
      busy_q <= 1'b0;
    end else begin
      open_q <= open_q + 2'(accept) - 2'(done);
      written_q <= written_q + 2'(retire) - 2'(done);
      busy_q <= launch || (busy_q && !retire);
    end
  end

  post_params_t launched;
  item_t visit;
  logic visit_bank;
  logic load_we, load_bank;
  logic [2:0] load_word;

  opu_post_walk u_walk (
      .clk_i,
      .rst_ni,
      .start_valid_i,
      .start_ready_o,
      .room_i           (open_q != OPEN),
      .op_i,
      .params_i,
      .accept_o         (accept),
      .illegal_o,
      .clear_i          (!busy_q),
      .launch_o         (launch),
      .launched_params_o(launched),
      .psum_re_o,
      .psum_addr_o,
      .psum_grant_i,
      .visit_item_o     (visit),
      .visit_bank_o     (visit_bank),
      .param_re_o,
      .param_addr_o,
      .load_we_o        (load_we),
      .load_bank_o      (load_bank),
      .load_word_o      (load_word)
  );

  // Parameters of the stages: those of the instruction inside the chain.
  /* verilator lint_off UNUSEDSIGNAL */  // the walk uses the other fields
  post_params_t p_q;
  chain_t chain_q;
  /* verilator lint_on UNUSEDSIGNAL */
  item_t head_in_q;
  logic head_bank_q;

  always_ff @(posedge clk_i) begin
    if (launch) begin
      p_q <= launched;
      chain_q <= decode_chain(launched.order);
    end
    head_in_q <= visit;
    head_bank_q <= visit_bank;
    if (!rst_ni) head_in_q.valid <= 1'b0;
  end

  // ---- stages ------------------------------------------------------------------------------------------------------------

  item_t head_item, act_item, pool_item, res_item;
  logic [WORD_BITS-1:0] head_value, act_value, pool_value, res_value;

  function automatic item_t item_from(stage_e from, item_t head, item_t act, item_t pool, item_t res);
    case (from)
      STAGE_REQUANT: item_from = head;
      STAGE_ACT: item_from = act;
      STAGE_POOL: item_from = pool;
      STAGE_RESIDUAL: item_from = res;
      default: item_from = '0;
    endcase
  endfunction

  function automatic logic [WORD_BITS-1:0] value_from(
      stage_e from, logic [WORD_BITS-1:0] head, logic [WORD_BITS-1:0] act, logic [WORD_BITS-1:0] pool,
      logic [WORD_BITS-1:0] res);
    case (from)
      STAGE_ACT: value_from = act;
      STAGE_POOL: value_from = pool;
      STAGE_RESIDUAL: value_from = res;
      default: value_from = head;
    endcase
  endfunction

  item_t act_in, pool_in, res_in;
  /* verilator lint_off UNUSEDSIGNAL */  // some fields end here
  item_t exit_item;
  /* verilator lint_on UNUSEDSIGNAL */
  logic [WORD_BITS-1:0] act_in_value, pool_in_value, res_in_value;
  assign act_in = item_from(chain_q.act_from, head_item, '0, pool_item, res_item);
  assign pool_in = item_from(chain_q.pool_from, head_item, act_item, '0, res_item);
  assign res_in = item_from(chain_q.residual_from, head_item, act_item, pool_item, '0);
  assign exit_item = item_from(chain_q.exit_from, head_item, act_item, pool_item, res_item);
  assign act_in_value = value_from(chain_q.act_from, head_value, '0, pool_value, res_value);
  assign pool_in_value = value_from(chain_q.pool_from, head_value, act_value, '0, res_value);
  assign res_in_value = value_from(chain_q.residual_from, head_value, act_value, pool_value, '0);

  opu_requant u_requant (
      .clk_i,
      .rst_ni,
      .load_we_i  (load_we),
      .load_bank_i(load_bank),
      .load_word_i(load_word),
      .load_data_i(param_rdata_i),
      .requant_i  (chain_q.requant),
      .zero_i     (p_q.requant_zero),
      .item_i     (head_in_q),
      .bank_i     (head_bank_q),
      .psum_i     (psum_rdata_i),
      .item_o     (head_item),
      .value_o    (head_value)
  );

  opu_activate u_activate (
      .clk_i,
      .rst_ni,
      .pos_i   (p_q.act_pos),
      .neg_i   (p_q.act_neg),
      .shift_i (p_q.act_shift),
      .x_zero_i(p_q.act_x_zero),
      .y_zero_i(p_q.act_y_zero),
      .lo_i    (p_q.act_lo),
      .hi_i    (p_q.act_hi),
      .item_i  (act_in),
      .value_i (act_in_value),
      .item_o  (act_item),
      .value_o (act_value)
  );

  opu_pool u_pool (
      .clk_i,
      .rst_ni,
      .average_i(p_q.pool_kind == POOL_AVERAGE),
      .mult_i   (p_q.pool_mult),
      .shift_i  (p_q.pool_shift),
      .x_zero_i (p_q.pool_x_zero),
      .y_zero_i (p_q.pool_y_zero),
      .item_i   (pool_in),
      .value_i  (pool_in_value),
      .item_o   (pool_item),
      .value_o  (pool_value)
  );

  opu_residual u_residual (
      .clk_i,
      .rst_ni,
      .a_mult_i(p_q.res_a_mult),
      .b_mult_i(p_q.res_b_mult),
      .shift_i (p_q.res_shift),
      .a_zero_i(p_q.res_a_zero),
      .b_zero_i(p_q.res_b_zero),
      .y_zero_i(p_q.res_y_zero),
      .res_re_o,
      .res_addr_o,
      .res_rdata_i,
      .item_i  (res_in),
      .value_i (res_in_value),
      .item_o  (res_item),
      .value_o (res_value)
  );

  // ---- exit --------------------------------------------------------------------------------------------------------------

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      out_we_o <= 1'b0;
      retire <= 1'b0;
    end else begin
      out_we_o <= exit_item.valid;
      retire <= exit_item.valid && exit_item.final_one;
    end
  end

  always_ff @(posedge clk_i) begin
    if (exit_item.valid) begin
      out_addr_o <= exit_item.out_addr;
      out_wdata_o <= value_from(chain_q.exit_from, head_value, act_value, pool_value, res_value);
    end
  end

  `OPU_STABLE(DoneHeld, done_valid_o, done_ready_i, 1'b1)
  `OPU_ASSERT(RetiresOpen, retire |-> busy_q && open_q > written_q)
  `OPU_ASSERT(ResidualInRange, res_re_o |-> 32'(res_addr_o) < RESIDUAL_WORDS)
  `OPU_ASSERT(OutputInRange, out_we_o |-> 32'(out_addr_o) < OUTPUT_WORDS)
  `OPU_ASSERT(LaunchIntoEmpty, launch |-> !head_in_q.valid && !exit_item.valid && !out_we_o)

endmodule
