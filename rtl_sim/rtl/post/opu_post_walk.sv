// Sequencer of the post engine: accepts instructions, runs the loop nest over blocks, output pixels and windows, reads
// partial sums and loads parameters.
//
//   start --> IDLE --> CHECK --> PREPARE --> LAUNCH --> ITERATE .. --> IDLE
//             latch    legal?    loop setup  waits for  one window position
//                      products              clear_i    after the other
//
// start_*: valid/ready, parameters are latched at the handshake; ready as soon as the last iteration of the instruction
//          before is issued. Two cycles later accept_o pulses, or illegal_o rises a cycle after that and remains high.
//          illegal_o also rises if a chain without POOL reaches a position outside the tile; then the engine stops
//          until reset. An illegal instruction does nothing else.
// launch_o: pulses with launched_* in the cycle before the first iteration of an instruction, and only while clear_i:
//           the pipeline is drained of its predecessor.
// visit_*: one window position in BEATS beats, one per cycle; in RESIDUAL_PACE cycles for a pass whose second operand
//          has a unit narrower than the chain. A present position reads its partial sum (psum_*) in its first cycle,
//          that of the grant; the data arrives two cycles later.
// param_*, load_*: parameter words of the next block, read during the iterations of this one; see opu_post_load.
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

  // CHECK: legal? The products of addresses are computed. PREPARE: the loops are set, an illegal instruction ends. One
  // bit distinguishes ITERATE from the others.
  typedef enum logic [2:0] {IDLE = 3'b000, CHECK = 3'b001, PREPARE = 3'b010, LAUNCH = 3'b011, ITERATE = 3'b100} state_e;

  state_e state_q, state_d;
  post_params_t p_q;
  logic [3:0] op_q;
  /* verilator lint_off UNUSEDSIGNAL */  // the stages use the other fields
  chain_t chain_q;
  /* verilator lint_on UNUSEDSIGNAL */
  assign launched_params_o = p_q;
  assign launched_chain_o = chain_q;

  // ---- acceptance ---------------------------------------------------------------------------------------------------

  logic start, legal;  // legal: from PREPARE on
  /* verilator lint_off UNUSEDSIGNAL */  // some fields are for later
  chain_t chain;
  /* verilator lint_on UNUSEDSIGNAL */
  assign start_ready_o = state_q == IDLE && room_i;
  assign start = start_valid_i && start_ready_o;
  assign accept_o = state_q == PREPARE && legal;

  // The codes are decoded while the parameters are latched, and combined afterwards.
  decoding_t decoding_q;
  always_ff @(posedge clk_i) decoding_q <= decoding_of({params_i.order_3, params_i.order_2, params_i.order});
  assign chain = decoded(decoding_q);

  function automatic logic is_power(logic [15:0] mult);  // of two, or 0
    is_power = (mult & (mult - 16'd1)) == '0;
  endfunction

  function automatic logic packs(logic [2:0] pixels);  // the array, into a word
    packs = (pixels == 3'd2 || pixels == 3'd4) && 32'(pixels) <= MODE_PX_MAX;
  endfunction

  // What the units of the pass are set to.
  logic maximum, maximum_q, sides_legal;
  always_comb begin
    maximum = 1'b0;
    for (int unsigned u = 0; u < POOL_UNITS; u++) begin
      if (PLACE_BANK[chain.pool] == 4'(u)) maximum = p_q.pool_kind[u] == POOL_MAX;
    end
  end

  // Checks of the parameters alone are computed a cycle before those that depend on the chain.
  logic counts_q, one_iteration_q, packed_q, slots_q, spread_q, spreads_q;
  part_t pixels_q;  // of a word that is spread, less one: bits of x that count them
  logic [NORM_UNITS-1:0] norm_fits_q;
  // An exponent of 1 / scale, or the shift of an epsilon.
  function automatic logic shift_fits(logic [3:0] op, logic [6:0] shift);
    unique case (op)
      NORM_EXPSUM, NORM_QUARTER_EXPSUM, NORM_QUARTER_EXPSUM_ODD: shift_fits = shift[6] == shift[5];
      NORM_MOMENTS, NORM_SQUARES, NORM_MAP_MOMENTS: shift_fits = 32'(shift) <= NORM_EPSILON_SHIFT;
      default: shift_fits = 1'b1;
    endcase
  endfunction
  function automatic logic op_fits(logic [3:0] op, logic one_whole_word);
    op_fits = op <= NORM_QUARTER_EXPSUM_ODD && (!norm_of_quarters(op) || (NORM_QUARTERS && one_whole_word));
  endfunction
  localparam int unsigned NORM_WORDS_SUMMED = NORM_VALUES / WORD_CHANNELS;  // of a map, at most
  typedef logic [$clog2(NORM_WORDS_SUMMED):0] summed_t;  // a count up to it
  logic [NORM_UNITS-1:0] sums_map_q;
  logic sums_fit_q, pixels_fit_q;
  logic [2*$bits(summed_t)-1:0] words_q;
  logic [31:0] pixels_of_block_q;  // 0 where the machine has no norm
  logic [RESIDUAL_UNITS-1:0] multiplies_q, sums_q, a_power_q, b_power_q;  // a maximum has no factors
  always_ff @(posedge clk_i) begin
    counts_q <= op_q == OP_POST_RUN && p_q.out_rows != '0 && p_q.out_cols != '0 && p_q.win_rows != '0 && p_q.win_cols != '0
        && p_q.stride_y != '0 && p_q.stride_x != '0 && p_q.blocks != '0 && (HAS_KEEP || p_q.keep == '0);
    one_iteration_q <= p_q.win_rows == 8'd1 && p_q.win_cols == 8'd1;
    packed_q <= p_q.pool_slots != '0;
    slots_q <= packs(p_q.pool_slots) && p_q.win_cols == 8'd2 && p_q.stride_x == 8'd2;
    spread_q <= p_q.spread != '0;
    spreads_q <= packs(spread_pixels(p_q.spread)) && p_q.origin_x == '0 && p_q.stride_x == 8'd1;
    pixels_q <= (MODE_PX_MAX > 1 && p_q.spread != '0) ? part_t'(spread_pixels(p_q.spread) - 3'd1) : '0;
    for (int unsigned u = 0; u < NORM_UNITS; u++) begin
      norm_fits_q[u] <= 32'(p_q.norm_idle[u]) < WORD_CHANNELS && shift_fits(p_q.norm_op[u], p_q.norm_shift[u])
          && op_fits(p_q.norm_op[u], 32'(p_q.blocks) == 1 && p_q.norm_idle[u] == '0)
          && (pixels_of_block_q <= PSUM_WORDS / 2 || p_q.norm_op[u] inside {NORM_MAP_MOMENTS, NORM_MAP_NORMALISE});
      sums_map_q[u] <= p_q.norm_op[u] == NORM_MAP_MOMENTS;
    end
    sums_fit_q <= 32'(p_q.blocks) <= NORM_CHANNELS / WORD_CHANNELS;
    pixels_fit_q <= pixels_of_block_q <= NORM_WORDS_SUMMED;
    words_q <= ($bits(words_q))'(summed_t'(pixels_of_block_q)) * ($bits(words_q))'(summed_t'(p_q.blocks));
    for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) begin
      multiplies_q[u] <= p_q.res_kind[u] == RESIDUAL_MULTIPLY;
      sums_q[u] <= p_q.res_kind[u] == RESIDUAL_ADD || p_q.res_kind[u] == RESIDUAL_MAXIMUM;
      a_power_q[u] <= MULT_BITS != 0 || p_q.res_kind[u] == RESIDUAL_MAXIMUM || is_power(p_q.res_a_mult[u]);
      b_power_q[u] <= MULT_BITS != 0 || p_q.res_kind[u] == RESIDUAL_MAXIMUM || is_power(p_q.res_b_mult[u]);
    end
  end

  always_comb begin
    sides_legal = 1'b1;
    for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) begin
      if (chain_q.residual[u]) begin
        if (!(chain_q.product[u] ? multiplies_q[u] : sums_q[u])) sides_legal = 1'b0;
        if (!(a_power_q[u] && (b_power_q[u] || chain_q.product[u]))) sides_legal = 1'b0;
      end
    end
    legal = counts_q && chain_q.legal && sides_legal;
    for (int unsigned u = 0; u < NORM_UNITS; u++) begin
      if (chain_q.norm[u] && !(norm_fits_q[u] && sums_fit_q && chain_q.pool == AT_EXIT && !spread_q)) legal = 1'b0;
      if (chain_q.norm[u] && sums_map_q[u] && !(pixels_fit_q && words_q <= ($bits(words_q))'(NORM_WORDS_SUMMED))) legal = 1'b0;
    end
    if (chain_q.pool == AT_EXIT && !one_iteration_q) legal = 1'b0;
    if (spread_q && !(spreads_q && chain_q.pool == AT_EXIT)) legal = 1'b0;
    if (packed_q && !(slots_q && chain_q.pool != AT_EXIT && maximum_q)) legal = 1'b0;
  end

  // ---- loops: block, output row, output column, window column, window row -------------------------------------------

  typedef struct packed {
    logic [15:0]              b_left, oy_left, ox_left;         // further iterations less one, unless it is the last one
    logic [7:0]               wy_left, wx_left;
    logic                     b_last, oy_last, ox_last, wy_last, wx_last;   // the last iteration
    logic                     window_first;
    logic                     window_last, row_last, block_last;            // what this iteration is the last one of
    logic signed [9:0]        y_step, x_step;                   // to the next iteration, unless that begins a block, a row
    logic                     moves;                            // with x_step to the next word: of several pixels, this is the last one
    logic signed [Y_BITS-1:0] y, x;                             // of this iteration
    logic signed [Y_BITS-1:0] below, beyond;                    // the same less the rows, the columns of the tile: negative inside
    psum_addr_t               psum_column, psum;                // first iteration of the window column; this one
    residual_addr_t [RESIDUAL_UNITS-1:0] res_window, res_row;   // column 0 of: window row 0, current row
    residual_addr_t           res_x;                            // output column, for units that are not before POOL
    output_addr_t             out;                              // this pixel
    feature_addr_t            keep;
    // Where the next block, the next output row begin: summed up while this one runs.
    psum_addr_t               psum_block, psum_line;
    residual_addr_t [RESIDUAL_UNITS-1:0] res_block, res_line;
    output_addr_t             out_block, out_line;
    feature_addr_t            keep_block, keep_line;
  } loop_t;

  loop_t loop_q, loop_d;  // loop_d: after this iteration once it is issued; PREPARE leaves the state after a block's last one

  // Address steps: origin (from row 0 to the first window), output row to output row, window row to window row.
  psum_addr_t psum_origin_q, psum_stride_q, psum_first_q;
  psum_addr_t psum_origin_product_q, psum_stride_product_q;  // of the parameters, a cycle before
  logic signed [Y_BITS-1:0] below_q, beyond_q;  // those of the first iteration
  residual_addr_t [RESIDUAL_UNITS-1:0] res_origin, res_stride, res_stride_q, res_step;
  residual_addr_t [RESIDUAL_UNITS-1:0] res_origin_product_q, res_stride_product_q, res_origin_whole_q, res_stride_whole_q;
  logic [RESIDUAL_UNITS-1:0] per_iteration;   // the residual follows the iterations, not the output pixels
  logic [RESIDUAL_UNITS-1:0] broadcast;  // neither of them
  assign per_iteration = chain_q.before_pool & ~broadcast;
  for (genvar u = 0; u < int'(RESIDUAL_UNITS); u++) begin : g_side
    residual_addr_t pitch;
    assign broadcast[u] = p_q.res_broadcast[u] != '0;
    assign pitch = residual_addr_t'(p_q.res_row_pitch[u]);
    assign res_origin[u] = per_iteration[u] ? res_origin_whole_q[u] : '0;
    assign res_step[u] = per_iteration[u] ? pitch : '0;
    assign res_stride[u] = broadcast[u] ? '0 : per_iteration[u] ? res_stride_whole_q[u] : pitch;
  end

  // Maximum pools keep up to 2 columns for the next windows of the row, which iterate over their new columns only.
  logic signed [8:0] common_q;              // columns that a window has in common with the next one
  logic [1:0] skipped, skipped_q;                 // of them, those that the next one skips: all or none
  logic signed [8:0] more_cols_q;           // columns less two that a window iterates over, unless it is the first of its row
  logic signed [9:0] window_step_q;         // from the last column of a window to the first that the next one reads
  logic signed [9:0] window_step;
  assign window_step = 10'sd1 - ((skipped == '0) ? 10'(common_q) : 10'sd0);
  assign skipped = (maximum_q && (common_q == 9'sd1 || common_q == 9'sd2)) ? common_q[1:0] : '0;

  logic one_row_q, one_col_q, one_out_row_q, one_out_col_q;  // loops of one iteration: windows, output
  logic signed [9:0] column_step_q, row_step_q;              // rows from the last iteration of a window column, of an output row to the next

  // The cycles of an iteration follow without a bubble; the loops advance with the last one.
  beat_t beat_q, last_beat_q;
  logic go, issue, step, all_last;
  assign all_last = loop_q.block_last && loop_q.b_last;

  psum_addr_t psum_start;  // of the output row that begins
  residual_addr_t [RESIDUAL_UNITS-1:0] res_start;
  output_addr_t out_start;
  feature_addr_t keep_start;
  assign psum_start = loop_q.block_last ? loop_q.psum_block : loop_q.psum_line;
  assign res_start = loop_q.block_last ? loop_q.res_block : loop_q.res_line;
  assign out_start = loop_q.block_last ? loop_q.out_block : loop_q.out_line;
  assign keep_start = loop_q.block_last ? loop_q.keep_block : loop_q.keep_line;

  psum_addr_t word_step;
  always_comb begin
    word_step = psum_addr_t'(loop_q.x_step);
    if (!loop_q.moves) word_step[0] = 1'b0;
    loop_d = loop_q;
    loop_d.window_first = loop_q.window_last;
    loop_d.y = loop_q.block_last ? Y_BITS'(p_q.origin_y) : loop_q.y + Y_BITS'(loop_q.y_step);
    loop_d.below = loop_q.block_last ? below_q : loop_q.below + Y_BITS'(loop_q.y_step);
    loop_d.x = loop_q.row_last ? Y_BITS'(p_q.origin_x) : loop_q.x + Y_BITS'(loop_q.x_step);
    loop_d.beyond = loop_q.row_last ? beyond_q : loop_q.beyond + Y_BITS'(loop_q.x_step);
    loop_d.psum_column = loop_q.row_last ? psum_start : loop_q.psum_column + word_step;
    loop_d.psum = loop_q.wy_last ? loop_d.psum_column : loop_q.psum + psum_addr_t'(p_q.psum_row_pitch);
    loop_d.res_window = loop_q.row_last ? res_start : loop_q.res_window;
    for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) begin
      loop_d.res_row[u] = loop_q.wy_last ? loop_d.res_window[u] : loop_q.res_row[u] + res_step[u];
    end
    // No reset of a register for which `step` arrives late.
    loop_d.res_x = (loop_q.res_x + residual_addr_t'(loop_q.window_last)) & ~{RESIDUAL_ADDR_BITS{loop_q.row_last}};
    loop_d.out = loop_q.row_last ? out_start : loop_q.out + output_addr_t'(loop_q.window_last);
    loop_d.keep = loop_q.row_last ? keep_start : loop_q.keep + feature_addr_t'(loop_q.window_last);
    if (loop_q.row_last) begin
      loop_d.psum_line = psum_start + psum_stride_q;
      for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) loop_d.res_line[u] = res_start[u] + res_stride_q[u];
      loop_d.out_line = out_start + output_addr_t'(p_q.out_row_pitch);
      loop_d.keep_line = keep_start + feature_addr_t'(p_q.keep_row_pitch);
    end
    if (loop_q.block_last) begin
      loop_d.psum_block = loop_q.psum_block + psum_addr_t'(p_q.psum_block_pitch);
      for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) begin
        loop_d.res_block[u] = loop_q.res_block[u] + residual_addr_t'(p_q.res_block_pitch[u]);
      end
      loop_d.out_block = loop_q.out_block + output_addr_t'(p_q.out_block_pitch);
      loop_d.keep_block = loop_q.keep_block + feature_addr_t'(p_q.keep_block_pitch);
    end

    loop_d.wy_last = loop_q.wy_last ? one_row_q : loop_q.wy_left == '0;
    loop_d.wy_left = loop_q.wy_last ? p_q.win_rows - 8'd2 : loop_q.wy_left - 8'd1;
    if (loop_q.wy_last) begin
      loop_d.wx_last = loop_q.row_last ? one_col_q : loop_q.window_last ? more_cols_q[8] : loop_q.wx_left == '0;
      loop_d.wx_left = loop_q.row_last ? p_q.win_cols - 8'd2 : loop_q.window_last ? more_cols_q[7:0] : loop_q.wx_left - 8'd1;
    end
    if (loop_q.window_last) begin
      loop_d.ox_last = loop_q.row_last ? one_out_col_q : loop_q.ox_left == '0;
      loop_d.ox_left = loop_q.row_last ? p_q.out_cols - 16'd2 : loop_q.ox_left - 16'd1;
    end
    if (loop_q.row_last) begin
      loop_d.oy_last = loop_q.block_last ? one_out_row_q : loop_q.oy_left == '0;
      loop_d.oy_left = loop_q.block_last ? p_q.out_rows - 16'd2 : loop_q.oy_left - 16'd1;
    end
    if (loop_q.block_last) begin
      loop_d.b_last = loop_q.b_left == '0;
      loop_d.b_left = loop_q.b_left - 16'd1;
    end
    loop_d.window_last = loop_d.wy_last && loop_d.wx_last;
    loop_d.row_last = loop_d.window_last && loop_d.ox_last;
    loop_d.block_last = loop_d.row_last && loop_d.oy_last;
    loop_d.y_step = loop_d.row_last ? row_step_q : loop_d.wy_last ? column_step_q : 10'sd1;
    loop_d.x_step = loop_d.window_last ? window_step_q : loop_d.wy_last ? 10'sd1 : '0;
    loop_d.moves = &(part_t'(loop_d.x) | ~pixels_q);
  end

  // ---- parameters: one bank serves the current block, the other takes the next one's --------------------------------

  logic waiting, load_bank;           // the block that begins next has not all of its words; where they are
  logic visit_bank_q, block_first_q;  // the block has not begun
  logic block_begins;
  assign block_begins = go && block_first_q;

  opu_post_load u_load (
      .clk_i,
      .rst_ni,
      .take_i   (state_q == CHECK),
      .some_i   (chain.late || (chain.requant && PLACE_WORDS[AT_HEAD] != '0)),
      .late_i   (chain.late),
      .param_i  (param_addr_t'(p_q.param)),
      .chain_i  (chain_q),
      .legal_i  (legal),
      .begins_i (block_begins),
      .more_i   (!loop_q.b_last),
      .waiting_o(waiting),
      .bank_o   (load_bank),
      .param_re_o,
      .param_addr_o,
      .load_we_o,
      .load_bank_o,
      .load_word_o
  );

  // ---- iterations: a read of partial sums waits for signs and registers only ----------------------------------------

  logic in_tile, may_visit, pools_q;  // pools_q: the pass has a window
  assign in_tile = !loop_q.y[Y_BITS-1] && loop_q.below[Y_BITS-1] && !loop_q.x[Y_BITS-1] && loop_q.beyond[Y_BITS-1];
  assign may_visit = state_q[2] && !(block_first_q && waiting);
  assign psum_re_o = may_visit && in_tile && beat_q == '0;
  assign psum_addr_o = loop_q.psum;
  assign go = may_visit && (beat_q != '0 || (in_tile ? psum_grant_i : pools_q));
  assign issue = go && beat_q == last_beat_q;
  assign step = issue || launch_o;

  always_comb begin
    visit_item_o.valid = go && (BEATS > 1 || beat_q == '0);
    visit_item_o.present = in_tile;
    visit_item_o.first = loop_q.window_first;
    visit_item_o.last = loop_q.window_last;
    visit_item_o.again[0] = (loop_q.wx_last ? skipped_q != '0 : skipped_q[1] && loop_q.wx_left == '0) && !loop_q.ox_last;
    visit_item_o.again[1] = skipped_q[1] && more_cols_q[8] && loop_q.wx_last && !loop_q.ox_last && loop_q.ox_left != '0;
    visit_item_o.right = loop_q.wx_last;
    visit_item_o.final_one = all_last;
    for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) begin
      visit_item_o.res_addr[u] = loop_q.res_row[u] + (broadcast[u] ? '0 : per_iteration[u] ? residual_addr_t'(loop_q.x) : loop_q.res_x);
    end
    visit_item_o.out_addr = loop_q.out;
    visit_item_o.keep_addr = loop_q.keep;
    visit_item_o.bank = block_first_q ? load_bank : visit_bank_q;
    visit_item_o.beat = beat_q;
    visit_item_o.row_last = loop_q.row_last;
    visit_item_o.block_last = loop_q.block_last;
    visit_item_o.last_block = loop_q.b_last;
  end

  assign launch_o = state_q[1:0] == LAUNCH[1:0] && clear_i;

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      IDLE: if (start) state_d = CHECK;
      CHECK: state_d = PREPARE;
      PREPARE: state_d = legal ? LAUNCH : IDLE;
      LAUNCH: if (launch_o) state_d = ITERATE;
      ITERATE: state_d = state_e'({!(issue && all_last), 2'b00});  // or IDLE: the other bits wait for nothing
      default: state_d = IDLE;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= IDLE;
      beat_q <= '0;
      illegal_o <= 1'b0;
    end else begin
      state_q <= state_d;
      if (go) beat_q <= issue ? '0 : beat_q + beat_t'(1);
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
      pixels_of_block_q <= HAS_NORM ? 32'(params_i.out_rows) * 32'(params_i.out_cols) : '0;
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
      one_row_q <= p_q.win_rows == 8'd1;
      one_col_q <= p_q.win_cols == 8'd1;
      one_out_row_q <= p_q.out_rows == 16'd1;
      one_out_col_q <= p_q.out_cols == 16'd1;
      column_step_q <= 10'sd1 - signed'(10'(p_q.win_rows));
      row_step_q <= 10'sd1 + signed'(10'(p_q.stride_y)) - signed'(10'(p_q.win_rows));
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
      last_beat_q <= (chain_q.residual != '0) ? beat_t'(BEATS * RESIDUAL_PACE - 1) : LAST_BEAT;
      skipped_q <= skipped;
      more_cols_q <= 9'((skipped == '0) ? p_q.win_cols : p_q.stride_x) - 9'sd2;
      window_step_q <= window_step;
    end
    if (step) loop_q <= loop_d;
    if (state_q == PREPARE) begin  // all loops begin with the launch
      loop_q.wy_last <= 1'b1;
      loop_q.window_last <= 1'b1;
      loop_q.row_last <= 1'b1;
      loop_q.block_last <= 1'b1;
      loop_q.b_left <= p_q.blocks - 16'd1;
      loop_q.psum_block <= psum_first_q + psum_origin_q;
      for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) begin
        loop_q.res_block[u] <= residual_addr_t'(p_q.res[u]) + res_origin[u];
      end
      loop_q.out_block <= output_addr_t'(p_q.out);
      loop_q.keep_block <= feature_addr_t'(p_q.keep_at);
    end
    if (state_q == PREPARE || go) block_first_q <= state_q == PREPARE || (issue && loop_q.block_last);
    if (block_begins) visit_bank_q <= load_bank;
  end

  `OPU_ASSERT(ReadHeld, psum_re_o && !psum_grant_i |=> psum_re_o && $stable(psum_addr_o))
  `OPU_ASSERT(BelowFollowsRow, state_q == ITERATE |-> loop_q.below == loop_q.y - signed'(Y_BITS'(p_q.in_rows)))
  `OPU_ASSERT(BeyondFollowsColumn, state_q == ITERATE |-> loop_q.beyond == loop_q.x - signed'(Y_BITS'(p_q.in_cols)))

endmodule
