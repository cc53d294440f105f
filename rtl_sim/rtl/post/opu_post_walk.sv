// Accepts post instructions, walks blocks, output pixels and windows, reads partial sums and loads parameters.
//
// start_*: valid/ready, parameters are taken at the handshake; ready as soon as the last visit of the instruction before
//          is issued. Two cycles later accept_o pulses, or illegal_o rises behind it: an illegal instruction does nothing else;
//          and when a chain without POOL comes to a position outside the tile; then the engine stands until reset.
// launch_o pulses with launched_* in the cycle before the first visit of an instruction, and only while clear_i:
//          nothing of the instruction before is inside the chain.
// visit_*: one window position per cycle. A present one reads its partial sum (psum_*), and is
//          issued in the cycle of the grant; its data arrives two cycles later.
// param_*: parameter words of the next block, read while the visits of this one run; load_*, one cycle later, are
//          their place, bank and position. Passes with units behind the requantiser that take some wait POST_HOLD cycles
//          first: the block before has then left them.
`include "opu_assert.svh"

module opu_post_walk
  import opu_pkg::*;
  import opu_post_pkg::*;
(
    input  logic         clk_i,
    input  logic         rst_ni,

    input  logic         start_valid_i,
    output logic         start_ready_o,
    input  logic         room_i,       // one more instruction may be open
    input  logic [3:0]   op_i,
    input  post_params_t params_i,
    output logic         accept_o,     // a legal instruction starts
    output logic         illegal_o,

    input  logic         clear_i,
    output logic         launch_o,
    output post_params_t launched_params_o,
    output chain_t       launched_chain_o,

    output logic         psum_re_o,
    output psum_addr_t   psum_addr_o,
    input  logic         psum_grant_i,
    output item_t        visit_item_o,

    output logic         param_re_o,
    output param_addr_t  param_addr_o,
    output logic [PLACES-1:0] load_we_o,
    output logic         load_bank_o,
    output logic [3:0]   load_word_o
);

  // CHECK: legal? The products of addresses are made. PREPARE: the loops are set, an illegal instruction ends.
  typedef enum logic [2:0] {IDLE, CHECK, PREPARE, LAUNCH, VISIT} state_e;

  state_e state_q, state_d;
  post_params_t p_q;
  logic [3:0] op_q;
  /* verilator lint_off UNUSEDSIGNAL */  // the stages use the other fields
  chain_t chain_q;
  /* verilator lint_on UNUSEDSIGNAL */
  assign launched_params_o = p_q;
  assign launched_chain_o = chain_q;

  // ---- acceptance ----------------------------------------------------------------------------------------------------

  logic start, legal, legal_q;
  /* verilator lint_off UNUSEDSIGNAL */  // some fields are for later
  chain_t chain;
  /* verilator lint_on UNUSEDSIGNAL */
  assign start_ready_o = state_q == IDLE && room_i;
  assign start = start_valid_i && start_ready_o;
  assign accept_o = state_q == PREPARE && legal_q;

  // One half of the codes is followed while the parameters are taken, the other behind them.
  localparam int HALF = (LONGEST + 1) / 2;
  decoding_t half_q;
  always_ff @(posedge clk_i) half_q <= decode(decoding_of({params_i.order_3, params_i.order_2, params_i.order}), 0, HALF);
  assign chain = decoded(decode(half_q, HALF, LONGEST));

  function automatic logic is_power(logic [15:0] mult);  // of two, or 0
    is_power = (mult & (mult - 16'd1)) == '0;
  endfunction

  // What the units of the pass are set to.
  logic maximum, maximum_q, sides_legal;
  always_comb begin
    maximum = 1'b0;
    for (int unsigned u = 0; u < POOL_UNITS; u++) begin
      if (PLACE_BANK[chain.pool] == 4'(u)) maximum = p_q.pool_kind[u] == POOL_MAX;
    end
    sides_legal = 1'b1;
    for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) begin
      if (chain.residual[u]) begin
        if (chain.product[u] != (p_q.res_kind[u] == RESIDUAL_MULTIPLY)) sides_legal = 1'b0;
        if (MULT_BITS == 0 && !(is_power(p_q.res_a_mult[u])
            && (is_power(p_q.res_b_mult[u]) || chain.product[u]))) sides_legal = 1'b0;
      end
    end
  end

  always_comb begin
    legal = op_q == OP_POST_RUN && chain.legal && sides_legal
        && p_q.out_rows != '0 && p_q.out_cols != '0
        && p_q.win_rows != '0 && p_q.win_cols != '0
        && p_q.stride_y != '0 && p_q.stride_x != '0 && p_q.blocks != '0;
    if (chain.pool == AT_EXIT && (p_q.win_rows != 8'd1 || p_q.win_cols != 8'd1)) legal = 1'b0;
    if (p_q.pool_slots != '0 && !((p_q.pool_slots == 3'd2 || p_q.pool_slots == 3'd4)
        && 32'(p_q.pool_slots) <= MODE_PX_MAX && chain.pool != AT_EXIT && maximum
        && p_q.win_cols == 8'd2 && p_q.stride_x == 8'd2)) legal = 1'b0;
    if (!HAS_KEEP && p_q.keep != '0) legal = 1'b0;
  end

  // ---- loops: block, output row, output column, window column, window row ----------------------------------------------

  typedef struct packed {
    logic signed [16:0]       b_left, oy_left, ox_left;         // further iterations less one: negative in the last
    logic signed [8:0]        wy_left, wx_left;
    logic                     window_first;
    logic signed [Y_BITS-1:0] window_y, y, x;                   // window origin, visit
    psum_addr_t               psum_block, psum_window, psum_row;        // column 0 of: tile row 0 of the block, window
    residual_addr_t [RESIDUAL_UNITS-1:0] res_block, res_window, res_row; //   row 0, visited row
    residual_addr_t           res_x;                            // output column, for units that do not stand before POOL
    output_addr_t             out_block, out_row, out;          // pixel (0, 0), column 0 of the row, this pixel
    feature_addr_t            keep_block, keep_row, keep;       // the same
  } loop_t;

  loop_t loop_q, loop_d;

  // Address steps: origin (from row 0 to the first window), output row to output row, window row to window row.
  psum_addr_t psum_origin_q, psum_stride_q;
  residual_addr_t [RESIDUAL_UNITS-1:0] res_origin, res_origin_q, res_stride, res_stride_q, res_step;
  logic [RESIDUAL_UNITS-1:0] by_visit;  // the residual follows the visits, not the output pixels
  assign by_visit = chain_q.before_pool;

  psum_addr_t next_psum_block, next_psum_window;
  residual_addr_t [RESIDUAL_UNITS-1:0] next_res_block, next_res_window;
  output_addr_t next_out_block, next_out_row;
  feature_addr_t next_keep_block, next_keep_row;
  assign next_psum_block = loop_q.psum_block + psum_addr_t'(p_q.psum_block_pitch);
  assign next_psum_window = loop_q.psum_window + psum_stride_q;
  assign next_out_block = loop_q.out_block + output_addr_t'(p_q.out_block_pitch);
  assign next_out_row = loop_q.out_row + output_addr_t'(p_q.out_row_pitch);
  assign next_keep_block = loop_q.keep_block + feature_addr_t'(p_q.keep_block_pitch);
  assign next_keep_row = loop_q.keep_row + feature_addr_t'(p_q.keep_row_pitch);
  for (genvar u = 0; u < int'(RESIDUAL_UNITS); u++) begin : g_side
    residual_addr_t pitch;
    assign pitch = residual_addr_t'(p_q.res_row_pitch[u]);
    assign res_origin[u] = by_visit[u] ? res_origin_q[u] : '0;
    assign res_step[u] = by_visit[u] ? pitch : '0;
    assign res_stride[u] = by_visit[u] ? res_stride_q[u] : pitch;
    assign next_res_block[u] = loop_q.res_block[u] + residual_addr_t'(p_q.res_block_pitch[u]);
    assign next_res_window[u] = loop_q.res_window[u] + res_stride_q[u];
  end

  // Maximum pools keep up to 2 columns for the next windows of the row, which visit their new columns only.
  logic signed [8:0] common;                // columns that a window has in common with the next one
  logic [1:0] kept, kept_q;                 // of them, those that the next one does not visit: all or none
  logic signed [8:0] more_cols_q;           // columns less two that a window visits, unless it is the first of its row
  logic signed [Y_BITS-1:0] window_step_q;  // from the last column of a window to the first one visited of the next
  assign common = signed'({1'b0, p_q.win_cols}) - signed'({1'b0, p_q.stride_x});
  assign kept = (maximum_q && (common == 9'sd1 || common == 9'sd2)) ? common[1:0] : '0;

  logic window_last, row_last, block_last, all_last;
  assign window_last = loop_q.wy_left < 0 && loop_q.wx_left < 0;
  assign row_last = window_last && loop_q.ox_left < 0;
  assign block_last = row_last && loop_q.oy_left < 0;
  assign all_last = block_last && loop_q.b_left < 0;

  logic issue;

  always_comb begin
    loop_d = loop_q;
    if (state_q == PREPARE) begin
      loop_d.b_left = 17'(p_q.blocks) - 17'sd2;
      loop_d.oy_left = 17'(p_q.out_rows) - 17'sd2;
      loop_d.ox_left = 17'(p_q.out_cols) - 17'sd2;
      loop_d.wy_left = 9'(p_q.win_rows) - 9'sd2;
      loop_d.wx_left = 9'(p_q.win_cols) - 9'sd2;
      loop_d.window_first = 1'b1;
      loop_d.window_y = Y_BITS'(p_q.origin_y);
      loop_d.y = Y_BITS'(p_q.origin_y);
      loop_d.x = Y_BITS'(p_q.origin_x);
      loop_d.psum_block = psum_addr_t'(p_q.psum);
      loop_d.psum_window = psum_addr_t'(p_q.psum) + psum_origin_q;
      loop_d.psum_row = loop_d.psum_window;
      for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) begin
        loop_d.res_block[u] = residual_addr_t'(p_q.res[u]);
        loop_d.res_window[u] = residual_addr_t'(p_q.res[u]) + res_origin[u];
      end
      loop_d.res_row = loop_d.res_window;
      loop_d.res_x = '0;
      loop_d.out_block = output_addr_t'(p_q.out);
      loop_d.out_row = output_addr_t'(p_q.out);
      loop_d.out = output_addr_t'(p_q.out);
      loop_d.keep_block = feature_addr_t'(p_q.keep_at);
      loop_d.keep_row = feature_addr_t'(p_q.keep_at);
      loop_d.keep = feature_addr_t'(p_q.keep_at);
    end else if (issue) begin
      loop_d.window_first = window_last;
      loop_d.y = loop_q.y + Y_BITS'(1);
      loop_d.psum_row = loop_q.psum_row + psum_addr_t'(p_q.psum_row_pitch);
      for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) loop_d.res_row[u] = loop_q.res_row[u] + res_step[u];
      loop_d.wy_left = loop_q.wy_left - 9'sd1;
      if (loop_q.wy_left < 0) begin
        loop_d.y = loop_q.window_y;
        loop_d.psum_row = loop_q.psum_window;
        loop_d.res_row = loop_q.res_window;
        loop_d.wy_left = 9'(p_q.win_rows) - 9'sd2;
        loop_d.x = loop_q.x + Y_BITS'(1);
        loop_d.wx_left = loop_q.wx_left - 9'sd1;
      end
      if (window_last) begin
        loop_d.x = loop_q.x + window_step_q;
        loop_d.wx_left = more_cols_q;
        loop_d.res_x = loop_q.res_x + residual_addr_t'(1);
        loop_d.out = loop_q.out + output_addr_t'(1);
        loop_d.keep = loop_q.keep + feature_addr_t'(1);
        loop_d.ox_left = loop_q.ox_left - 17'sd1;
      end
      if (row_last) begin
        loop_d.x = Y_BITS'(p_q.origin_x);
        loop_d.wx_left = 9'(p_q.win_cols) - 9'sd2;
        loop_d.window_y = loop_q.window_y + Y_BITS'(p_q.stride_y);
        loop_d.y = loop_d.window_y;
        loop_d.psum_window = next_psum_window;
        loop_d.psum_row = next_psum_window;
        loop_d.res_window = next_res_window;
        loop_d.res_row = next_res_window;
        loop_d.res_x = '0;
        loop_d.out_row = next_out_row;
        loop_d.out = next_out_row;
        loop_d.keep_row = next_keep_row;
        loop_d.keep = next_keep_row;
        loop_d.ox_left = 17'(p_q.out_cols) - 17'sd2;
        loop_d.oy_left = loop_q.oy_left - 17'sd1;
      end
      if (block_last) begin
        loop_d.window_y = Y_BITS'(p_q.origin_y);
        loop_d.y = Y_BITS'(p_q.origin_y);
        loop_d.psum_block = next_psum_block;
        loop_d.psum_window = next_psum_block + psum_origin_q;
        loop_d.psum_row = loop_d.psum_window;
        loop_d.res_block = next_res_block;
        for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) loop_d.res_window[u] = next_res_block[u] + res_origin_q[u];
        loop_d.res_row = loop_d.res_window;
        loop_d.out_block = next_out_block;
        loop_d.out_row = next_out_block;
        loop_d.out = next_out_block;
        loop_d.keep_block = next_keep_block;
        loop_d.keep_row = next_keep_block;
        loop_d.keep = next_keep_block;
        loop_d.oy_left = 17'(p_q.out_rows) - 17'sd2;
        loop_d.b_left = loop_q.b_left - 17'sd1;
      end
    end
  end

  // ---- parameters: one bank serves the visits, the other takes the next block's ----------------------------------------

  localparam int unsigned HOLD_BITS = $clog2(POST_HOLD + 1);

  words_t load_left_q, load_left_d, load_count_q;
  logic load_start, load_bank_q;      // load_bank_q: bank of the load under way or done last
  logic load_wanted, load_due_q;      // a load that waits
  logic [HOLD_BITS-1:0] hold_q;       // cycles before the next load
  logic hold;
  logic visit_bank_q, block_first_q;  // the block has not begun
  logic block_begins;
  param_addr_t param_addr_q;

  assign block_begins = issue && block_first_q;
  assign hold = hold_q != '0 || (block_begins && chain_q.late);
  assign load_wanted = (load_due_q && legal_q) || (block_begins && chain_q.words != '0 && loop_q.b_left >= 0);
  assign load_start = load_wanted && !hold;
  assign param_re_o = load_left_q != '0;
  assign param_addr_o = param_addr_q;

  always_comb begin
    load_left_d = load_left_q;
    if (load_start) load_left_d = chain_q.words;
    else if (param_re_o) load_left_d = load_left_q - words_t'(1);
  end

  // Whom a word is for.
  logic [PLACES-1:0] load_we;
  words_t load_first;
  always_comb begin
    load_we = '0;
    load_first = '0;
    for (int unsigned p = 1; p < PLACES; p++) begin
      if (PLACE_WORDS[p] != '0 && chain_q.passes[p] && load_count_q >= chain_q.first[p]
          && load_count_q - chain_q.first[p] < words_t'(PLACE_WORDS[p])) begin
        load_we[p] = param_re_o;
        load_first = chain_q.first[p];
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (param_re_o) param_addr_q <= param_addr_q + param_addr_t'(1);
    if (state_q == CHECK) param_addr_q <= param_addr_t'(p_q.param);
    load_bank_o <= load_bank_q;
    load_word_o <= 4'(load_count_q - load_first);
    load_count_q <= load_start ? '0 : load_count_q + words_t'(param_re_o);
  end

  // ---- visits ----------------------------------------------------------------------------------------------------------

  logic in_tile, may_visit;
  assign in_tile = !loop_q.y[Y_BITS-1] && loop_q.y < signed'(Y_BITS'(p_q.in_rows))
      && !loop_q.x[Y_BITS-1] && loop_q.x < signed'(Y_BITS'(p_q.in_cols));
  assign may_visit = state_q == VISIT && !(block_first_q && (param_re_o || load_due_q));
  assign psum_re_o = may_visit && in_tile;
  assign psum_addr_o = loop_q.psum_row + psum_addr_t'(loop_q.x);
  assign issue = may_visit && (in_tile ? psum_grant_i : (chain_q.pool != AT_EXIT));

  always_comb begin
    visit_item_o.valid = issue;
    visit_item_o.present = in_tile;
    visit_item_o.first = loop_q.window_first;
    visit_item_o.last = window_last;
    visit_item_o.again[0] = loop_q.wx_left < signed'(9'(kept_q)) - 9'sd1 && loop_q.ox_left >= 0;
    visit_item_o.again[1] = kept_q == 2'd2 && more_cols_q < 0 && loop_q.wx_left < 0 && loop_q.ox_left > 0;
    visit_item_o.right = loop_q.wx_left < 0;
    visit_item_o.final_one = all_last;
    for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) begin
      visit_item_o.res_addr[u] = p_q.res_broadcast[u] ? loop_q.res_block[u]
          : loop_q.res_row[u] + (by_visit[u] ? residual_addr_t'(loop_q.x) : loop_q.res_x);
    end
    visit_item_o.out_addr = loop_q.out;
    visit_item_o.keep_addr = loop_q.keep;
    visit_item_o.bank = block_first_q ? load_bank_q : visit_bank_q;
  end

  assign launch_o = state_q == LAUNCH && clear_i;

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      IDLE: if (start) state_d = CHECK;
      CHECK: state_d = PREPARE;
      PREPARE: state_d = legal_q ? LAUNCH : IDLE;
      LAUNCH: if (launch_o) state_d = VISIT;
      VISIT: if (issue && all_last) state_d = IDLE;
      default: state_d = IDLE;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= IDLE;
      illegal_o <= 1'b0;
      load_left_q <= '0;
      load_we_o <= '0;
      load_due_q <= 1'b0;
      hold_q <= '0;
      load_bank_q <= 1'b0;
    end else begin
      state_q <= state_d;
      illegal_o <= (state_q == PREPARE && !legal_q) || (may_visit && !in_tile && !(chain_q.pool != AT_EXIT));
      load_left_q <= load_left_d;
      load_we_o <= load_we;
      load_due_q <= (load_wanted && hold) || (state_q == CHECK && chain.words != '0);
      if (block_begins && chain_q.late) hold_q <= HOLD_BITS'(POST_HOLD - 1);
      else if (hold_q != '0) hold_q <= hold_q - HOLD_BITS'(1);
      if (load_start) load_bank_q <= !load_bank_q;
    end
  end

  // Parameters, loops: loaded before they are used, so without reset.
  always_ff @(posedge clk_i) begin
    if (state_q == IDLE) begin  // until something starts
      p_q <= params_i;
      op_q <= op_i;
    end
    if (state_q == CHECK) begin
      legal_q <= legal;
      chain_q <= chain;
      maximum_q <= maximum;
      psum_origin_q <= psum_addr_t'(p_q.origin_y) * psum_addr_t'(p_q.psum_row_pitch);
      psum_stride_q <= psum_addr_t'(p_q.stride_y) * psum_addr_t'(p_q.psum_row_pitch);
      for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) begin
        res_origin_q[u] <= residual_addr_t'(p_q.origin_y) * residual_addr_t'(p_q.res_row_pitch[u]);
        res_stride_q[u] <= residual_addr_t'(p_q.stride_y) * residual_addr_t'(p_q.res_row_pitch[u]);
      end
    end
    if (state_q == PREPARE) begin
      res_origin_q <= res_origin;
      res_stride_q <= res_stride;
      kept_q <= kept;
      more_cols_q <= 9'((kept == '0) ? p_q.win_cols : p_q.stride_x) - 9'sd2;
      window_step_q <= Y_BITS'(1) - ((kept == '0) ? Y_BITS'(common) : '0);
    end
    if (state_q == PREPARE || issue) begin
      loop_q <= loop_d;
      block_first_q <= state_q == PREPARE || block_last;
    end
    if (block_begins) visit_bank_q <= load_bank_q;
  end

  `OPU_ASSERT(ReadHeld, psum_re_o && !psum_grant_i |=> psum_re_o && $stable(psum_addr_o))
  `OPU_ASSERT(LoadNotLost, load_start |-> load_left_q == '0)

endmodule
