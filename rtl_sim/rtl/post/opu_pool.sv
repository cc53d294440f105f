// POOL: reduces the items of a window, from `first` to `last`, to one. Maximum over the present ones (-128 if there is
// none), or clamp(rne(sum of (v - x_zero) over the present ones * mult / 2**shift) + y_zero).
//
//   value_i --> [fold] --> [v - zero] --+--> [maximum of this window and next 2]    --+--> [x mult] --> [sum] --> round
//                                       +--> average ---------------------------------+
//
// With slots_i (2 or 4, else 0) a word holds that many pixels. Before the maximum, neighbours are folded into the half
// of the lanes that item_i.right names. Windows of a maximum may share positions with the next two (item_i.again), for
// which these items do not come again. Every beat of a window has its own state; the states of the other beats wait in
// a circular shift register.
//
// Latency 9 from the last item of the window (BEATS more if words are gathered to be folded), one item per cycle.
// Parameters are constant while items are inside.
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

  localparam int unsigned REST = (BEATS > 1) ? BEATS - 1 : 1;
  localparam bit GATHERS = BEATS > 1 && MODE_PX_MAX > 1;

  logic is_average;
  assign is_average = kind_i == POOL_AVERAGE;

  item_t item;
  lanes_t value;
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
    always_ff @(posedge clk_i) begin
      item <= item_i;
      if (!rst_ni) item.valid <= 1'b0;
    end
    if (MODE_PX_MAX > 1) begin : g_folds
      lanes_t pairs, pairs_q;
      logic [LANES/2-1:0] larger_q;
      assign pairs = lanes_t'(pairs_of(WORD_BITS'(value_i), MODE_PX_MAX > 2 && slots_i == 3'd4));
      always_ff @(posedge clk_i) begin
        pairs_q <= pairs;
        larger_q <= (LANES / 2)'(lower_larger(WORD_BITS'(pairs)));
      end
      assign value = (slots_i == '0) ? pairs_q : lanes_t'(folded(WORD_BITS'(pairs_q), (WORD_CHANNELS / 2)'(larger_q), item.right));
    end else begin : g_alone
      always_ff @(posedge clk_i) value <= value_i;
      logic unused;
      assign unused = &slots_i;
    end
  end

  // By the cycles since they were folded, less one. After item_q[1], valid: the window is complete.
  localparam int unsigned LATENCY = 8;
  item_t item_q [LATENCY];
  assign item_o = item_q[LATENCY-1];
  always_ff @(posedge clk_i) begin
    item_q[0] <= item;
    for (int unsigned s = 1; s < LATENCY; s++) item_q[s] <= item_q[s-1];
    item_q[2].valid <= item_q[1].valid && item_q[1].last;
    item_q[2].present <= 1'b1;
    if (!rst_ni) begin
      for (int unsigned s = 0; s < LATENCY; s++) item_q[s].valid <= 1'b0;
    end
  end

  // The settings of a pass are stable long before its first value arrives.
  logic [15:0] factor_q;
  logic [5:0] shift_q;
  always_ff @(posedge clk_i) begin
    factor_q <= is_average ? mult_i : 16'd1;
    shift_q <= is_average ? shift_i : '0;
  end

  if (EXACT) begin : g_exact
    // As in the body for simulation, except that the maximum uses values less -128, 0 to 255, and the sum is one of
    // products, in the register of a DSP slice.
    localparam logic [7:0] LOWEST = 8'h80;
    logic [7:0] x_zero_q, zero_q;
    logic [SHIFT_COPIES-1:0][5:0] shifts;
    always_ff @(posedge clk_i) begin
      x_zero_q <= is_average ? x_zero_i : LOWEST;
      zero_q <= is_average ? y_zero_i : LOWEST;
    end
    opu_copies #(
        .WIDTH (6),
        .COPIES(SHIFT_COPIES)
    ) u_shifts (
        .clk_i,
        .value_i (shift_q),
        .copies_o(shifts)
    );

    logic contributes, came_q, add_first_q, add_q;
    assign contributes = item_q[0].valid && item_q[0].present;
    always_ff @(posedge clk_i) begin
      came_q <= item_q[1].valid && rst_ni;  // as item_q[2].valid, windows that are not complete, too
      add_q <= came_q;                      // with the product
      add_first_q <= !is_average || (came_q && item_q[2].first);
    end

    for (genvar l = 0; l < int'(LANES); l++) begin : g_lane
      logic [7:0] x_q;
      logic signed [8:0] centred, now_q;   // for this window; nothing is 0
      logic [7:0] next_q, after_q;         // for the next two
      logic [7:0] window, later, latest;   // so far
      logic [7:0] window_q, later_q, latest_q;
      assign centred = 9'(signed'(x_q)) - 9'(signed'(x_zero_q));
      always_ff @(posedge clk_i) begin
        if (item.valid && item.present) x_q <= value[8*l+:8];
        now_q <= contributes ? centred : '0;
        next_q <= (contributes && item_q[0].again[0]) ? centred[7:0] : '0;
        after_q <= (contributes && item_q[0].again[1]) ? centred[7:0] : '0;
      end

      logic [7:0] largest, next_largest, after_largest;
      assign largest = (now_q[7:0] > window) ? now_q[7:0] : window;
      assign next_largest = (next_q > later) ? next_q : later;
      assign after_largest = (after_q > latest) ? after_q : latest;
      always_ff @(posedge clk_i) begin
        if (item_q[1].valid) begin
          window_q <= item_q[1].last ? next_largest : largest;
          later_q <= item_q[1].last ? after_largest : next_largest;
          latest_q <= item_q[1].last ? '0 : after_largest;
        end
        if (!rst_ni) {window_q, later_q, latest_q} <= '0;
      end

      logic signed [8:0] summand_q;
      logic signed [25:0] product_q;
      logic signed [40:0] sum, sum_q;
      always_ff @(posedge clk_i) begin
        summand_q <= is_average ? now_q : {1'b0, largest};
        product_q <= 26'(summand_q) * 26'(signed'({1'b0, factor_q}));
      end

      // States of the other beats wait in a circular shift register.
      if (BEATS > 1) begin : g_rotate
        logic [23:0] waiting_q [REST];
        logic signed [40:0] waiting_sum_q [REST];
        assign {window, later, latest} = waiting_q[0];
        assign sum = waiting_sum_q[0];
        always_ff @(posedge clk_i) begin
          if (item_q[1].valid) begin
            for (int unsigned t = 0; t + 1 < REST; t++) waiting_q[t] <= waiting_q[t+1];
            waiting_q[REST-1] <= {window_q, later_q, latest_q};
          end
          if (add_q) begin
            for (int unsigned t = 0; t + 1 < REST; t++) waiting_sum_q[t] <= waiting_sum_q[t+1];
            waiting_sum_q[REST-1] <= sum_q;
            sum_q <= 41'(product_q) + (add_first_q ? '0 : sum);
          end
          if (!rst_ni) waiting_q <= '{default: '0};
        end
      end else begin : g_single
        assign {window, later, latest} = {window_q, later_q, latest_q};
        assign sum = sum_q;
        always_ff @(posedge clk_i) sum_q <= 41'(product_q) + (add_first_q ? '0 : sum);
        logic unused;
        assign unused = add_q;
      end

      opu_round #(
          .WIDTH (41),
          .CLAMPS(1'b0)
      ) u_round (
          .clk_i,
          .value_i (sum_q),
          .shift_i (shifts[copy_of(l, LANES)]),
          .zero_i  (zero_q),
          .wraps_i (1'b0),
          .lo_i    ('0),
          .hi_i    ('0),
          .result_o(value_o[8*l+:8])
      );
    end
  end else begin : g_fast
    logic [7:0] x [LANES];                        // folded
    logic signed [CENTRED_BITS-1:0] centred [LANES];  // the same, less the zero of an average
    logic [7:0] y [LANES];
    pool_t window [LANES];
    logic [7:0] later [2][LANES];  // maximum so far of each of the next two windows; -128 when a row begins
    average_t product [LANES];
    pool_t waiting [REST][LANES];      // `window` of the next beats, `later` of them
    logic [7:0] waiting_later [REST][2][LANES];
    lanes_t result_q;                    // the newest result: to write elements of an array by bytes is slow in a simulator
    logic [1:0][LANES_BITS-1:0] late_q;
    assign value_o = late_q[1];
    logic signed [7:0] x_zero_q, zero_q;
    always_ff @(posedge clk_i) begin
      x_zero_q <= is_average ? x_zero_i : '0;
      zero_q <= is_average ? y_zero_i : '0;
    end

    // Loops in functions, rolled, parameters as arguments: a simulator's compiler sees vectors (see opu_array).
    function automatic void forget(logic n);
      /* verilator unroll_disable */
      for (int unsigned l = 0; l < LANES; l++) later[n][l] = 8'h80;
    endfunction

    // To the next beat.
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

    function automatic void accumulate_item(logic average);
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

    // Products are below 2**40: from shift 42 on everything rounds to 0.
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

    /* verilator lint_off BLKSEQ */
    always_ff @(posedge clk_i) begin
      late_q <= {late_q[0], result_q};
      /* verilator unroll_full */
      for (int unsigned l = 0; l < LANES; l++) result_q[8*l+:8] <= y[l];
      if (item_q[3].valid) begin
        if (is_average) scale((shift_q > 6'd42) ? 6'd42 : shift_q, AVERAGE_PRODUCT_BITS'(zero_q));
        else narrow();
      end
      if (item_q[2].valid) multiply(AVERAGE_PRODUCT_BITS'({1'b0, factor_q}));
      if (BEATS > 1 && item_q[1].valid) rotate();
      if (item_q[1].valid && item_q[1].first) start(is_average);
      if (item_q[1].valid && item_q[1].present) begin
        accumulate_item(is_average);
        if (item_q[1].again[0]) keep(1'b0);
        if (item_q[1].again[1]) keep(1'b1);
      end
      if (item_q[0].valid && item_q[0].present) centre(CENTRED_BITS'(x_zero_q));
      if (item.valid && item.present) begin
        /* verilator unroll_full */
        for (int unsigned l = 0; l < LANES; l++) x[l] = value[8*l+:8];
      end
      if (!rst_ni) begin
        forget(1'b0);
        forget(1'b1);
        waiting_later = '{default: 8'h80};
      end
    end
    /* verilator lint_on BLKSEQ */
  end

endmodule
