// Post engine: partial sums through the chain of `order` into the output buffer, with `keep` into the feature buffer as
// well. Semantics: docs/machine.md.
//
//   start --> opu_post_walk --reads--> psum --> opu_requant --> +-----------------------+
//               |   (sequencer)                                 | multiplexer, register |
//               +--reads--> param --> unit parameters           | before each unit; its | --> exit --> output buffer
//                                     units <-----------------> | inputs: graph edges   |        +---> feature buffer
//   done <--------------------------------------- retire        +-----------------------+              (keep)
//
// start_*: valid/ready, op and parameters are latched at the handshake. Up to OPEN instructions may be open, so the
//          next one prepares while this one drains. illegal_o: see opu_post_walk; also for stages that the machine does
//          not have.
// done_*:  valid/ready, one handshake per instruction, in order, after its last output word is written.
// psum_*:  a read happens in a cycle with grant; without it the address is held. Table words arrive one cycle after
//          their read, the others two. res_*, table_*, norm_*: one read port of the memory for every unit that reads it.
// keep_*:  with out_we_o, the feature buffer gets the same word (out_wdata_o).
// Throughput: one window position in BEATS cycles, or RESIDUAL_PACE (see opu_post_walk). Units and edges are those of
//             the spec's graph (PLACE_* in opu_pkg); `order` sets the multiplexers. A block takes max(cycles of its
//             iterations, 9) with REQUANT, since the parameters of the next block are prefetched during it.
// Latency: from start to done an instruction alone takes the cycles of its iterations and 16 more; 7 more for the first
//          parameters of REQUANT; and for each stage the `cycles` of its record in opu_fuse/units/ (POOL: BEATS more
//          after opu_fold; RESIDUAL: 1 more if it is narrower, 3 with products).
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
    output logic                 unfit_o,         // see opu_requant
    output logic                 done_valid_o,
    input  logic                 done_ready_i,

    output logic                 psum_re_o,
    output psum_addr_t           psum_addr_o,
    input  logic                 psum_grant_i,
    input  logic [PSUM_BITS-1:0] psum_rdata_i,

    output logic                 param_re_o,
    output param_addr_t          param_addr_o,
    input  logic [WORD_BITS-1:0] param_rdata_i,

    output logic [RESIDUAL_UNITS-1:0]                res_re_o,
    output residual_addr_t [RESIDUAL_UNITS-1:0]      res_addr_o,
    input  logic [RESIDUAL_UNITS-1:0][WORD_BITS-1:0] res_rdata_i,

    output logic [TABLE_UNITS-1:0]                   table_re_o,
    output table_addr_t [TABLE_UNITS-1:0][WORD_CHANNELS-1:0] table_addr_o,
    input  logic [TABLE_UNITS-1:0][WORD_BITS-1:0]    table_rdata_i,

    output logic [NORM_UNITS-1:0]                    norm_re_o,
    output norm_addr_t [NORM_UNITS-1:0][LANES-1:0]   norm_addr_o,
    input  logic [NORM_UNITS-1:0][LANES-1:0][23:0]   norm_rdata_i,

    output logic                 out_we_o,
    output output_addr_t         out_addr_o,
    output logic [WORD_BITS-1:0] out_wdata_o,
    output logic                 keep_we_o,
    output feature_addr_t        keep_addr_o
);

  localparam logic [1:0] OPEN = 2'd3;

  `OPU_ASSERT_STATIC(WholeBeats, WORD_CHANNELS == BEATS * LANES)

  // ---- instructions: open ones, written ones, and whether one is inside the chain -----------------------------------

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
  chain_t launched_chain;
  item_t issued_item;
  logic [PLACES-1:0] read_we, load_we;
  logic read_bank, load_bank;
  logic [3:0] read_word, load_word;

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
      .launched_chain_o (launched_chain),
      .psum_re_o,
      .psum_addr_o,
      .psum_grant_i,
      .visit_item_o     (issued_item),
      .param_re_o,
      .param_addr_o,
      .load_we_o        (read_we),
      .load_bank_o      (read_bank),
      .load_word_o      (read_word)
  );

  // Parameters of the stages: those of the instruction inside the chain.
  /* verilator lint_off UNUSEDSIGNAL */  // the sequencer uses the other fields
  post_params_t p_q;
  chain_t chain_q;
  /* verilator lint_on UNUSEDSIGNAL */
  logic keeps_q, writes_q;  // passes of statistics write nothing
  item_t read_q, head_in_q;

  always_ff @(posedge clk_i) begin
    if (launch) begin
      p_q <= launched;
      keeps_q <= HAS_KEEP && launched.keep != '0;
      writes_q <= 1'b1;
      for (int unsigned u = 0; u < NORM_UNITS; u++) begin
        if (launched_chain.norm[u] && !norm_has_results(launched.norm_op[u])) writes_q <= 1'b0;
      end
      chain_q <= launched_chain;
    end
    read_q <= issued_item;
    head_in_q <= read_q;
    load_we <= read_we;
    load_bank <= read_bank;
    load_word <= read_word;
    if (!rst_ni) begin
      read_q.valid <= 1'b0;
      head_in_q.valid <= 1'b0;
      load_we <= '0;
    end
  end

  // ---- units --------------------------------------------------------------------------------------------------------

  // Output of every unit. Number 0, the exit, has none.
  item_t item [PLACES];
  lanes_t value [PLACES];
  assign item[AT_EXIT] = '0;
  assign value[AT_EXIT] = '0;

  // A partial sum arrives with its first beat; the channels of later beats wait in a register.
  logic [4*LANES_BITS-1:0] psum;
  if (BEATS > 1) begin : g_beats
    logic [PSUM_BITS-1:0] psum_word;
    logic [PSUM_BITS-4*LANES_BITS-1:0] rest_q;
    assign psum_word = (head_in_q.beat == '0) ? psum_rdata_i : PSUM_BITS'(rest_q);
    assign psum = psum_word[4*LANES_BITS-1:0];
    always_ff @(posedge clk_i) rest_q <= psum_word[PSUM_BITS-1:4*LANES_BITS];
  end else begin : g_word
    assign psum = psum_rdata_i;
  end

  opu_requant u_requant (
      .clk_i,
      .rst_ni,
      .load_we_i  (load_we[AT_HEAD]),
      .load_bank_i(load_bank),
      .load_word_i(load_word),
      .load_data_i(param_rdata_i),
      .unfit_o,
      .requant_i  (chain_q.requant),
      .zero_i     (p_q.requant_zero),
      .coming_i   (read_q),
      .item_i     (head_in_q),
      .psum_i     (psum),
      .item_o     (item[AT_HEAD]),
      .value_o    (value[AT_HEAD])
  );

  // Input of every unit: an edge of the graph is an input of its multiplexer, followed by a register. That of number 0
  // leaves the chain.
  item_t item_fed [PLACES], item_in [PLACES];
  lanes_t value_fed [PLACES], value_in [PLACES];
  for (genvar p = 0; p < int'(PLACES); p++) begin : g_feed
    always_comb begin
      item_fed[p] = '0;
      value_fed[p] = '0;
      for (int unsigned f = 1; f < PLACES; f++) begin
        if (PLACE_FEED[p][f] && chain_q.from[p] == unit_t'(f)) begin
          item_fed[p] = item[f];
          value_fed[p] = value[f];
        end
      end
    end
    always_ff @(posedge clk_i) begin
      item_in[p] <= item_fed[p];
      value_in[p] <= value_fed[p];
      if (!rst_ni) item_in[p].valid <= 1'b0;
    end
  end

  // With `spread`, a word holds MODE_PX_MAX parts or pixels of two parts: every pixel gets the second operand's slot.
  logic spreads_q;
  part_t low_q, slot_q;  // bits that number the parts of a pixel; first part of the slot
  logic [RESIDUAL_UNITS-1:0][WORD_BITS-1:0] res_word;
  localparam int unsigned PART_BITS = WORD_BITS / MODE_PX_MAX;
  if (MODE_PX_MAX > 1) begin : g_slots
    always_ff @(posedge clk_i) begin
      if (launch) begin
        spreads_q <= launched.spread != '0;
        low_q <= launched.spread[2] ? '0 : part_t'(MODE_PX_MAX / 2 - 1);
        slot_q <= launched.spread[2] ? part_t'(launched.spread) : launched.spread[0] ? part_t'(MODE_PX_MAX / 2) : '0;
      end
    end
    for (genvar k = 0; k < int'(MODE_PX_MAX); k++) begin : g_part
      part_t source;
      assign source = spreads_q ? slot_q | (part_t'(k) & low_q) : part_t'(k);
      for (genvar u = 0; u < int'(RESIDUAL_UNITS); u++) begin : g_side
        assign res_word[u][k*PART_BITS+:PART_BITS] = res_rdata_i[u][source*PART_BITS+:PART_BITS];
      end
    end
  end else begin : g_whole_words
    assign {spreads_q, low_q, slot_q} = '0;
    assign res_word = res_rdata_i;
  end

  `include "opu_units.svh"

  /* verilator lint_off UNUSEDSIGNAL */  // some fields end here; machines without such a unit read no such memory
  item_t exit_item;
  logic unused;
  assign unused = &{res_word, spreads_q, low_q, slot_q, table_rdata_i, norm_rdata_i, item_in[AT_HEAD], value_in[AT_HEAD],
      item_in[AT_EXIT], value_in[AT_EXIT]};
  /* verilator lint_on UNUSEDSIGNAL */
  assign exit_item = item_fed[AT_EXIT];

  // ---- exit ---------------------------------------------------------------------------------------------------------

  // With `spread`, the pixel of the iteration goes to every slot. Which part of the word that is, and whether the word is
  // complete, is known before it arrives.
  logic [WORD_BITS-1:0] word, spread;
  assign word = WORD_BITS'({value_fed[AT_EXIT], out_wdata_o} >> LANES_BITS);
  if (MODE_PX_MAX > 1) begin : g_spread
    logic last_q;
    part_t step_q, pixel_q;
    always_ff @(posedge clk_i) begin
      if (launch) step_q <= (launched.spread == '0) ? '0 : launched.spread[2] ? part_t'(1) : part_t'(MODE_PX_MAX / 2);
      if (!rst_ni) begin
        last_q <= BEATS == 1;
        pixel_q <= '0;
      end else if (exit_item.valid) begin
        last_q <= BEATS == 1 || exit_item.beat == LAST_BEAT - beat_t'(1);
        if (exit_item.beat == LAST_BEAT) pixel_q <= exit_item.row_last ? '0 : pixel_q + step_q;
      end
    end
    for (genvar k = 0; k < int'(MODE_PX_MAX); k++) begin : g_part
      part_t source;
      assign source = (spreads_q && last_q) ? pixel_q | (part_t'(k) & low_q) : part_t'(k);
      assign spread[k*PART_BITS+:PART_BITS] = word[source*PART_BITS+:PART_BITS];
    end
  end else begin : g_whole
    assign spread = word;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      out_we_o <= 1'b0;
      keep_we_o <= 1'b0;
      retire <= 1'b0;
    end else begin
      out_we_o <= writes_q && exit_item.valid && exit_item.beat == LAST_BEAT;
      keep_we_o <= keeps_q && writes_q && exit_item.valid && exit_item.beat == LAST_BEAT;
      retire <= exit_item.valid && exit_item.beat == LAST_BEAT && exit_item.final_one;
    end
  end

  always_ff @(posedge clk_i) begin
    if (exit_item.valid) begin
      out_addr_o <= exit_item.out_addr;
      out_wdata_o <= spread;
      keep_addr_o <= exit_item.keep_addr;
    end
  end

  `OPU_STABLE(DoneHeld, done_valid_o, done_ready_i, 1'b1)
  `OPU_ASSERT(RetiresOpen, retire |-> busy_q && open_q > written_q)
  `OPU_ASSERT(LaunchIntoEmpty, launch |-> !read_q.valid && !head_in_q.valid && !exit_item.valid && !out_we_o && !retire)

endmodule
