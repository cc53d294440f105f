// POOL: the items of a window, from `first` to `last`, become one. Maximum over the present ones (-128 where there is
// none), or clamp(rne(sum of (v - x_zero) over the present ones * mult / 2**shift) + y_zero). With slots_i (2 or 4, else 0)
// a word holds that many pixels; before the maximum neighbours become one, in the half of the lanes that item_i.right names.
// Windows of a maximum may have positions in common with the next two (item_i.again), which do not come again.
// Every turn of a window has its own state: those of the turns that are not here wait in a ring.
// Latency 5 from the last item of the window (TURNS more where words are gathered to be folded), one item per cycle. Parameters
// are constant while items are inside.
`include "opu_assert.svh"

module opu_pool
  import opu_pkg::*;
  import opu_post_pkg::*;
(
    input  logic                 clk_i,
    input  logic                 rst_ni,

    input  logic                 kind_i,
    input  logic [2:0]           slots_i,
    input  logic [15:0]          mult_i,
    input  logic [5:0]           shift_i,
    input  logic signed [7:0]    x_zero_i,
    input  logic signed [7:0]    y_zero_i,

    input  item_t                item_i,
    input  lanes_t               value_i,
    output item_t                item_o,
    output lanes_t               value_o
);

  localparam int unsigned REST = (TURNS > 1) ? TURNS - 1 : 1;
  localparam bit GATHERS = TURNS > 1 && MODE_PX_MAX > 1;

  logic is_average;
  assign is_average = kind_i == POOL_AVERAGE;

  logic [7:0] x [LANES];                        // folded
  logic signed [CENTRED_BITS-1:0] centred [LANES];  // the same, less the zero of an average
  logic [7:0] y [LANES];
  pool_t window [LANES];
  logic [7:0] later [2][LANES];  // maxima of the next two windows so far; -128 when a row begins
  average_t product [LANES];
  /* verilator lint_off UNUSEDSIGNAL */  // read where widths are exact
  average_t product_q [LANES];
  /* verilator lint_on UNUSEDSIGNAL */
  pool_t waiting [REST][LANES];      // `window` of the next turns, `later` of them
  logic [7:0] waiting_later [REST][2][LANES];
  item_t item, fold_item_q;
  lanes_t value;
  item_t window_item_q, product_item_q, round_item_q;  // valid: the window is complete

  // What the pass is set to stands long before its first value comes.
  logic [15:0] factor_q;
  logic [5:0] shift_q;
  logic signed [7:0] x_zero_q, zero_q;
  /* verilator lint_off UNUSEDSIGNAL */  // read where widths are exact
  logic signed [8:0] floor_q, ceiling_q;  // from the lowest value, to the highest one
  /* verilator lint_on UNUSEDSIGNAL */
  always_ff @(posedge clk_i) begin
    factor_q <= is_average ? mult_i : 16'd1;
    shift_q <= is_average ? shift_i : '0;
    x_zero_q <= is_average ? x_zero_i : '0;
    zero_q <= is_average ? y_zero_i : '0;
    floor_q <= (is_average ? 9'(y_zero_i) : '0) + 9'sd128;
    ceiling_q <= 9'sd127 - (is_average ? 9'(y_zero_i) : '0);
  end

  // Loops in functions, rolled, parameters as arguments: a simulator's compiler sees vectors (see opu_array).
  function automatic void forget(logic n);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) later[n][l] = 8'h80;
  endfunction

  // To the next turn.
  function automatic void rotate();
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) begin
      automatic pool_t left = window[l];
      window[l] = waiting[0][l];
      for (int unsigned t = 0; t + 1 < REST; t++) waiting[t][l] = waiting[t+1][l];
      waiting[REST-1][l] = left;
      for (int unsigned n = 0; n < 2; n++) begin
        automatic logic [7:0] left_later = later[n][l];
        later[n][l] = waiting_later[0][n][l];
        for (int unsigned t = 0; t + 1 < REST; t++) waiting_later[t][n][l] = waiting_later[t+1][n][l];
        waiting_later[REST-1][n][l] = left_later;
      end
    end
  endfunction

  function automatic void start(logic average);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) window[l] = average ? '0 : POOL_BITS'(signed'(later[0][l]));
    later[0] = later[1];
    forget(1'b1);
  endfunction

  function automatic void keep(logic n);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) begin
      later[n][l] = (centred[l] > CENTRED_BITS'(signed'(later[n][l]))) ? centred[l][7:0] : later[n][l];
    end
  endfunction

  function automatic void centre(logic signed [CENTRED_BITS-1:0] zero);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) centred[l] = CENTRED_BITS'(signed'(x[l])) - zero;
  endfunction

  function automatic void visit(logic average);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) begin
      automatic pool_t v = POOL_BITS'(centred[l]);
      automatic logic larger = centred[l] > CENTRED_BITS'(window[l]);  // a maximum is an int8
      window[l] = average ? window[l] + v : larger ? v : window[l];
    end
  endfunction

  function automatic void multiply(average_t factor);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) product[l] = AVERAGE_PRODUCT_BITS'(window[l]) * factor;
  endfunction

  // Products stay below 2**40: from shift 42 on everything rounds to 0.
  function automatic void scale(logic [5:0] amount, average_t y_zero);
    automatic average_t half = (amount == '0) ? '0 : (average_t'(1) << (amount - 6'd1)) - average_t'(1);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) begin
      automatic average_t odd = (amount == '0) ? '0 : (product[l] >>> amount) & average_t'(1);
      automatic average_t wide = ((product[l] + half + odd) >>> amount) + y_zero;
      y[l] = (wide < -average_t'(128)) ? 8'h80 : (wide > average_t'(127)) ? 8'h7f : wide[7:0];
    end
  endfunction

  function automatic void narrow();
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) y[l] = product[l][7:0];
  endfunction

  // Where widths are exact (synthesis).
  logic [7:0] rounded [LANES];
  /* verilator lint_off UNUSEDSIGNAL */  // read where widths are exact
  logic [SHIFT_COPIES-1:0][5:0] shifts;
  /* verilator lint_on UNUSEDSIGNAL */
  opu_copies #(
      .WIDTH (6),
      .COPIES(SHIFT_COPIES)
  ) u_shifts (
      .clk_i,
      .value_i (shift_q),
      .copies_o(shifts)
  );
  for (genvar l = 0; l < int'(LANES); l++) begin : g_lane
    if (EXACT) begin : g_round
      opu_round #(
          .WIDTH(AVERAGE_PRODUCT_BITS)
      ) u_round (
          .clk_i,
          .value_i (product_q[l]),
          .shift_i (shifts[copy_of(l, LANES)]),
          .zero_i  (zero_q),
          .lo_i    (-8'sd128),
          .hi_i    (8'sd127),
          .floor_i (floor_q),
          .ceiling_i(ceiling_q),
          .result_o(rounded[l])
      );
    end else begin : g_none
      assign rounded[l] = '0;
    end
  end

  if (GATHERS) begin : g_gather
    opu_fold u_fold (
        .clk_i,
        .rst_ni,
        .slots_i,
        .item_i,
        .value_i,
        .item_o (item),
        .value_o(value)
    );
  end else begin : g_word
    assign item = item_i;
    always_comb begin
      value = value_i;
      if (MODE_PX_MAX > 1 && slots_i != '0) begin
        value = lanes_t'(fold_word(WORD_BITS'(value_i), MODE_PX_MAX > 2 && slots_i == 3'd4, item_i.right));
      end
    end
  end

  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    /* verilator unroll_full */
    for (int unsigned l = 0; l < LANES; l++) value_o[8*l+:8] <= EXACT ? rounded[l] : y[l];
    if (!EXACT && product_item_q.valid) begin
      if (is_average) scale((shift_q > 6'd42) ? 6'd42 : shift_q, AVERAGE_PRODUCT_BITS'(zero_q));
      else narrow();
    end
    if (EXACT || window_item_q.valid) multiply(AVERAGE_PRODUCT_BITS'({1'b0, factor_q}));
    if (EXACT) product_q <= product;
    if (TURNS > 1 && fold_item_q.valid) rotate();
    if (fold_item_q.valid && fold_item_q.first) start(is_average);
    if (fold_item_q.valid && fold_item_q.present) begin
      visit(is_average);
      if (fold_item_q.again[0]) keep(1'b0);
      if (fold_item_q.again[1]) keep(1'b1);
    end
    if (item.valid && item.present) begin
      /* verilator unroll_full */
      for (int unsigned l = 0; l < LANES; l++) x[l] = value[8*l+:8];
      centre(CENTRED_BITS'(x_zero_q));
    end
    if (!rst_ni) begin
      forget(1'b0);
      forget(1'b1);
      waiting_later = '{default: 8'h80};
    end
  end
  /* verilator lint_on BLKSEQ */

  always_ff @(posedge clk_i) begin
    fold_item_q <= item;
    window_item_q <= fold_item_q;
    window_item_q.valid <= fold_item_q.valid && fold_item_q.last;
    window_item_q.present <= 1'b1;
    product_item_q <= window_item_q;
    round_item_q <= product_item_q;
    item_o <= round_item_q;
    if (!rst_ni) begin
      round_item_q.valid <= 1'b0;
      fold_item_q.valid <= 1'b0;
      window_item_q.valid <= 1'b0;
      product_item_q.valid <= 1'b0;
      item_o.valid <= 1'b0;
    end
  end

endmodule
