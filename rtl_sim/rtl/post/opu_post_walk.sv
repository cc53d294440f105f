// Accepts post instructions, walks blocks, output pixels and windows, reads partial sums and loads parameters.
//
// start_*: valid/ready, parameters are taken at the handshake; ready as soon as the last visit of the instruction before
//          is issued. Two cycles later accept_o pulses, or illegal_o rises behind it: an illegal instruction does nothing else;
//          and when a chain without POOL comes to a position outside the tile; then the engine stands until reset.
// launch_o pulses with launched_* in the cycle before the first visit of an instruction, and only while clear_i:
//          nothing of the instruction before is inside the chain.
// visit_*: one window position in TURNS turns, one a cycle; where a unit with a second operand is narrower than the chain, in
//          RESIDUAL_PACE cycles of such a pass. A present one reads its partial sum (psum_*) in its first cycle, that of the
//          grant; its data arrives two cycles later.
// param_*, load_*: parameter words of the next block, read while the visits of this one run; see opu_post_load.
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

  logic start, legal;  // legal: from PREPARE on
  /* verilator lint_off UNUSEDSIGNAL */  // some fields are for later
  chain_t chain;
  /* verilator lint_on UNUSEDSIGNAL */
  assign start_ready_o = state_q == IDLE && room_i;
  assign start = start_valid_i && start_ready_o;
  assign accept_o = state_q == PREPARE && legal;

  // Most of the codes are followed while the parameters are taken, the others behind them.
  localparam int HALF = (2 * LONGEST + 2) / 3;
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
  end

  // What the parameters say alone is known a cycle before what they say of the chain.
  logic counts_q, one_visit_q, packed_q, slots_q;
  logic [RESIDUAL_UNITS-1:0] multiplies_q, a_power_q, b_power_q;
  always_ff @(posedge clk_i) begin
    counts_q <= op_q == OP_POST_RUN && p_q.out_rows != '0 && p_q.out_cols != '0 && p_q.win_rows != '0 && p_q.win_cols != '0
        && p_q.stride_y != '0 && p_q.stride_x != '0 && p_q.blocks != '0 && (HAS_KEEP || p_q.keep == '0);
    one_visit_q <= p_q.win_rows == 8'd1 && p_q.win_cols == 8'd1;
    packed_q <= p_q.pool_slots != '0;
    slots_q <= (p_q.pool_slots == 3'd2 || p_q.pool_slots == 3'd4) && 32'(p_q.pool_slots) <= MODE_PX_MAX
        && p_q.win_cols == 8'd2 && p_q.stride_x == 8'd2;
    for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) begin
      multiplies_q[u] <= p_q.res_kind[u] == RESIDUAL_MULTIPLY;
      a_power_q[u] <= MULT_BITS != 0 || is_power(p_q.res_a_mult[u]);
      b_power_q[u] <= MULT_BITS != 0 || is_power(p_q.res_b_mult[u]);
    end
  end

  always_comb begin
    sides_legal = 1'b1;
    for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) begin
      if (chain_q.residual[u]) begin
        if (chain_q.product[u] != multiplies_q[u]) sides_legal = 1'b0;
        if (!(a_power_q[u] && (b_power_q[u] || chain_q.product[u]))) sides_legal = 1'b0;
      end
    end
    legal = counts_q && chain_q.legal && sides_legal;
    if (chain_q.pool == AT_EXIT && !one_visit_q) legal = 1'b0;
    if (packed_q && !(slots_q && chain_q.pool != AT_EXIT && maximum_q)) legal = 1'b0;
  end

  // ---- loops: block, output row, output column, window column, window row ----------------------------------------------

  typedef struct packed {
    logic signed [16:0]       b_left, oy_left, ox_left;         // further iterations less one: negative in the last
    logic signed [8:0]        wy_left, wx_left;
    logic                     window_first;
    logic                     window_last, row_last, block_last, all_last;  // what this visit is the last one of
    logic signed [Y_BITS-1:0] window_y, y, x;                   // window origin, visit
    logic signed [Y_BITS-1:0] window_below, below, beyond;      // the same less the rows, the columns of the tile: negative inside
    psum_addr_t               psum_block, psum_row, psum_column, psum;  // first visit of: block, output row, window column; this one
    residual_addr_t [RESIDUAL_UNITS-1:0] res_block, res_first, res_window, res_row; // column 0 of: tile row 0 of the block, its first window row, window row 0, visited row
    residual_addr_t           res_x;                            // output column, for units that do not stand before POOL
    output_addr_t             out_block, out_row, out;          // pixel (0, 0), column 0 of the row, this pixel
    feature_addr_t            keep_block, keep_row, keep;       // the same
  } loop_t;

  loop_t loop_q, loop_d;  // loop_d: behind PREPARE, or behind this visit once it is issued

  // Address steps: origin (from row 0 to the first window), output row to output row, window row to window row.
  psum_addr_t psum_origin_q, psum_stride_q, psum_first_q;
  psum_addr_t psum_origin_product_q, psum_stride_product_q;  // of the parameters, a cycle before
  logic signed [Y_BITS-1:0] below_q, beyond_q;  // those of the first visit
  residual_addr_t [RESIDUAL_UNITS-1:0] res_origin, res_stride, res_stride_q, res_step;
  residual_addr_t [RESIDUAL_UNITS-1:0] res_origin_product_q, res_stride_product_q, res_origin_whole_q, res_stride_whole_q;
  logic [RESIDUAL_UNITS-1:0] by_visit;  // the residual follows the visits, not the output pixels
  assign by_visit = chain_q.before_pool;

  psum_addr_t next_psum_block, next_psum_row;
  residual_addr_t [RESIDUAL_UNITS-1:0] next_res_block, next_res_first, next_res_window;
  output_addr_t next_out_block, next_out_row;
  feature_addr_t next_keep_block, next_keep_row;
  assign next_psum_block = loop_q.psum_block + psum_addr_t'(p_q.psum_block_pitch);
  assign next_psum_row = loop_q.psum_row + psum_stride_q;
  assign next_out_block = loop_q.out_block + output_addr_t'(p_q.out_block_pitch);
  assign next_out_row = loop_q.out_row + output_addr_t'(p_q.out_row_pitch);
  assign next_keep_block = loop_q.keep_block + feature_addr_t'(p_q.keep_block_pitch);
  assign next_keep_row = loop_q.keep_row + feature_addr_t'(p_q.keep_row_pitch);
  for (genvar u = 0; u < int'(RESIDUAL_UNITS); u++) begin : g_side
    residual_addr_t pitch;
    assign pitch = residual_addr_t'(p_q.res_row_pitch[u]);
    assign res_origin[u] = by_visit[u] ? res_origin_whole_q[u] : '0;
    assign res_step[u] = by_visit[u] ? pitch : '0;
    assign res_stride[u] = by_visit[u] ? res_stride_whole_q[u] : pitch;
    assign next_res_block[u] = loop_q.res_block[u] + residual_addr_t'(p_q.res_block_pitch[u]);
    assign next_res_first[u] = loop_q.res_first[u] + residual_addr_t'(p_q.res_block_pitch[u]);
    assign next_res_window[u] = loop_q.res_window[u] + res_stride_q[u];
  end

  // Maximum pools keep up to 2 columns for the next windows of the row, which visit their new columns only.
  logic signed [8:0] common_q;              // columns that a window has in common with the next one
  logic [1:0] kept, kept_q;                 // of them, those that the next one does not visit: all or none
  logic signed [8:0] more_cols_q;           // columns less two that a window visits, unless it is the first of its row
  logic signed [Y_BITS-1:0] window_step_q;  // from the last column of a window to the first one visited of the next
  logic signed [9:0] window_step;
  assign window_step = 10'sd1 - ((kept == '0) ? 10'(common_q) : 10'sd0);
  assign kept = (maximum_q && (common_q == 9'sd1 || common_q == 9'sd2)) ? common_q[1:0] : '0;

  // The cycles of a visit follow without a pause; with the last one the loops go on.
  turn_t turn_q, last_turn_q;
  logic go, issue;

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
      loop_d.window_below = below_q;
      loop_d.below = below_q;
      loop_d.beyond = beyond_q;
      loop_d.psum_block = psum_first_q + psum_origin_q;
      loop_d.psum_row = loop_d.psum_block;
      loop_d.psum_column = loop_d.psum_block;
      loop_d.psum = loop_d.psum_block;
      for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) begin
        loop_d.res_block[u] = residual_addr_t'(p_q.res[u]);
        loop_d.res_window[u] = residual_addr_t'(p_q.res[u]) + res_origin[u];
      end
      loop_d.res_first = loop_d.res_window;
      loop_d.res_row = loop_d.res_window;
      loop_d.res_x = '0;
      loop_d.out_block = output_addr_t'(p_q.out);
      loop_d.out_row = output_addr_t'(p_q.out);
      loop_d.out = output_addr_t'(p_q.out);
      loop_d.keep_block = feature_addr_t'(p_q.keep_at);
      loop_d.keep_row = feature_addr_t'(p_q.keep_at);
      loop_d.keep = feature_addr_t'(p_q.keep_at);
    end else begin
      loop_d.window_first = loop_q.window_last;
      loop_d.y = loop_q.y + Y_BITS'(1);
      loop_d.below = loop_q.below + Y_BITS'(1);
      loop_d.psum = loop_q.psum + psum_addr_t'(p_q.psum_row_pitch);
      for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) loop_d.res_row[u] = loop_q.res_row[u] + res_step[u];
      loop_d.wy_left = loop_q.wy_left - 9'sd1;
      if (loop_q.wy_left[8]) begin
        loop_d.y = loop_q.window_y;
        loop_d.below = loop_q.window_below;
        loop_d.res_row = loop_q.res_window;
        loop_d.wy_left = 9'(p_q.win_rows) - 9'sd2;
        loop_d.x = loop_q.x + Y_BITS'(1);
        loop_d.beyond = loop_q.beyond + Y_BITS'(1);
        loop_d.psum_column = loop_q.psum_column + psum_addr_t'(1);
        loop_d.psum = loop_d.psum_column;
        loop_d.wx_left = loop_q.wx_left - 9'sd1;
      end
      if (loop_q.window_last) begin
        loop_d.x = loop_q.x + window_step_q;
        loop_d.beyond = loop_q.beyond + window_step_q;
        loop_d.psum_column = loop_q.psum_column + psum_addr_t'(window_step_q);
        loop_d.psum = loop_d.psum_column;
        loop_d.wx_left = more_cols_q;
        loop_d.res_x = loop_q.res_x + residual_addr_t'(1);
        loop_d.out = loop_q.out + output_addr_t'(1);
        loop_d.keep = loop_q.keep + feature_addr_t'(1);
        loop_d.ox_left = loop_q.ox_left - 17'sd1;
      end
      if (loop_q.row_last) begin
        loop_d.x = Y_BITS'(p_q.origin_x);
        loop_d.wx_left = 9'(p_q.win_cols) - 9'sd2;
        loop_d.window_y = loop_q.window_y + Y_BITS'(p_q.stride_y);
        loop_d.y = loop_d.window_y;
        loop_d.window_below = loop_q.window_below + Y_BITS'(p_q.stride_y);
        loop_d.below = loop_d.window_below;
        loop_d.beyond = beyond_q;
        loop_d.psum_row = next_psum_row;
        loop_d.psum_column = next_psum_row;
        loop_d.psum = next_psum_row;
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
      if (loop_q.block_last) begin
        loop_d.window_y = Y_BITS'(p_q.origin_y);
        loop_d.y = Y_BITS'(p_q.origin_y);
        loop_d.window_below = below_q;
        loop_d.below = below_q;
        loop_d.psum_block = next_psum_block;
        loop_d.psum_row = next_psum_block;
        loop_d.psum_column = next_psum_block;
        loop_d.psum = next_psum_block;
        loop_d.res_block = next_res_block;
        loop_d.res_first = next_res_first;
        loop_d.res_window = next_res_first;
        loop_d.res_row = next_res_first;
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
    loop_d.window_last = loop_d.wy_left[8] && loop_d.wx_left[8];
    loop_d.row_last = loop_d.window_last && loop_d.ox_left[16];
    loop_d.block_last = loop_d.row_last && loop_d.oy_left[16];
    loop_d.all_last = loop_d.block_last && loop_d.b_left[16];
  end

  // ---- parameters: one bank serves the visits, the other takes the next block's ----------------------------------------

  logic waiting, load_bank;           // the block that begins next has not all of its words; where they are
  logic visit_bank_q, block_first_q;  // the block has not begun
  logic block_begins;
  assign block_begins = go && block_first_q;

  opu_post_load u_load (
      .clk_i,
      .rst_ni,
      .take_i   (state_q == CHECK),
      .some_i   (chain.words != '0),
      .param_i  (param_addr_t'(p_q.param)),
      .chain_i  (chain_q),
      .legal_i  (legal),
      .begins_i (block_begins),
      .more_i   (!loop_q.b_left[16]),
      .waiting_o(waiting),
      .bank_o   (load_bank),
      .param_re_o,
      .param_addr_o,
      .load_we_o,
      .load_bank_o,
      .load_word_o
  );

  // ---- visits: what a read of partial sums waits for are signs and registers ---------------------------------------------

  logic in_tile, may_visit, pools_q;  // pools_q: the pass has a window
  assign in_tile = !loop_q.y[Y_BITS-1] && loop_q.below[Y_BITS-1] && !loop_q.x[Y_BITS-1] && loop_q.beyond[Y_BITS-1];
  assign may_visit = state_q == VISIT && !(block_first_q && waiting);
  assign psum_re_o = may_visit && in_tile && turn_q == '0;
  assign psum_addr_o = loop_q.psum;
  assign go = may_visit && (turn_q != '0 || (in_tile ? psum_grant_i : pools_q));
  assign issue = go && turn_q == last_turn_q;

  always_comb begin
    visit_item_o.valid = go && (TURNS > 1 || turn_q == '0);
    visit_item_o.present = in_tile;
    visit_item_o.first = loop_q.window_first;
    visit_item_o.last = loop_q.window_last;
    visit_item_o.again[0] = loop_q.wx_left < signed'(9'(kept_q)) - 9'sd1 && !loop_q.ox_left[16];
    visit_item_o.again[1] = kept_q == 2'd2 && more_cols_q[8] && loop_q.wx_left[8] && !loop_q.ox_left[16] && loop_q.ox_left != '0;
    visit_item_o.right = loop_q.wx_left[8];
    visit_item_o.final_one = loop_q.all_last;
    for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) begin
      visit_item_o.res_addr[u] = p_q.res_broadcast[u] ? loop_q.res_block[u]
          : loop_q.res_row[u] + (by_visit[u] ? residual_addr_t'(loop_q.x) : loop_q.res_x);
    end
    visit_item_o.out_addr = loop_q.out;
    visit_item_o.keep_addr = loop_q.keep;
    visit_item_o.bank = block_first_q ? load_bank : visit_bank_q;
    visit_item_o.turn = turn_q;
  end

  assign launch_o = state_q == LAUNCH && clear_i;

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      IDLE: if (start) state_d = CHECK;
      CHECK: state_d = PREPARE;
      PREPARE: state_d = legal ? LAUNCH : IDLE;
      LAUNCH: if (launch_o) state_d = VISIT;
      VISIT: if (issue && loop_q.all_last) state_d = IDLE;
      default: state_d = IDLE;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= IDLE;
      turn_q <= '0;
      illegal_o <= 1'b0;
    end else begin
      state_q <= state_d;
      if (go) turn_q <= issue ? '0 : turn_q + turn_t'(1);
      illegal_o <= (state_q == PREPARE && !legal) || (may_visit && !in_tile && !pools_q);
    end
  end

  // Parameters, loops: loaded before they are used, so without reset.
  always_ff @(posedge clk_i) begin
    if (state_q == IDLE) begin  // until something starts
      p_q <= params_i;
      op_q <= op_i;
      psum_origin_product_q <= psum_addr_t'(params_i.origin_y) * psum_addr_t'(params_i.psum_row_pitch);
      psum_stride_product_q <= psum_addr_t'(params_i.stride_y) * psum_addr_t'(params_i.psum_row_pitch);
      for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) begin
        res_origin_product_q[u] <= residual_addr_t'(params_i.origin_y) * residual_addr_t'(params_i.res_row_pitch[u]);
        res_stride_product_q[u] <= residual_addr_t'(params_i.stride_y) * residual_addr_t'(params_i.res_row_pitch[u]);
      end
    end
    if (state_q == CHECK) begin
      below_q <= Y_BITS'(p_q.origin_y) - Y_BITS'(p_q.in_rows);
      beyond_q <= Y_BITS'(p_q.origin_x) - Y_BITS'(p_q.in_cols);
      chain_q <= chain;
      maximum_q <= maximum;
      common_q <= signed'({1'b0, p_q.win_cols}) - signed'({1'b0, p_q.stride_x});
      psum_first_q <= psum_addr_t'(p_q.psum) + psum_addr_t'(p_q.origin_x);
    end
    psum_origin_q <= psum_origin_product_q;
    psum_stride_q <= psum_stride_product_q;
    res_origin_whole_q <= res_origin_product_q;
    res_stride_whole_q <= res_stride_product_q;
    if (state_q == PREPARE) begin
      res_stride_q <= res_stride;
      pools_q <= chain_q.pool != AT_EXIT;
      last_turn_q <= (chain_q.residual != '0) ? turn_t'(TURNS * RESIDUAL_PACE - 1) : LAST_TURN;
      kept_q <= kept;
      more_cols_q <= 9'((kept == '0) ? p_q.win_cols : p_q.stride_x) - 9'sd2;
      window_step_q <= Y_BITS'(window_step);
    end
    if (state_q == PREPARE || issue) loop_q <= loop_d;
    if (state_q == PREPARE || go) block_first_q <= state_q == PREPARE || (issue && loop_q.block_last);
    if (block_begins) visit_bank_q <= load_bank;
  end

  `OPU_ASSERT(ReadHeld, psum_re_o && !psum_grant_i |=> psum_re_o && $stable(psum_addr_o))
  `OPU_ASSERT(BelowFollowsRow, state_q == VISIT |-> loop_q.below == loop_q.y - signed'(Y_BITS'(p_q.in_rows)))
  `OPU_ASSERT(BeyondFollowsColumn, state_q == VISIT |-> loop_q.beyond == loop_q.x - signed'(Y_BITS'(p_q.in_cols)))

endmodule
