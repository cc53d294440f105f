// The lanes of RESIDUAL: clamp(rne(((a - a_zero) * a_mult + (b - b_zero) * b_mult) / 2**shift) + y_zero), b from the
// residual buffer; or, on machines with products, clamp(rne((a - a_zero) * a_mult * (b - b_zero) / 2**shift) + y_zero);
// or max(a, b), which is the sum of a and b, unscaled, with the smaller one zeroed.
//
//   value_i (a) --> [a] --> scale a --------> + offset ---+
//   address --> residual buffer (2 cycles) --> [b] --> scale b --> [sum] --> opu_round (3) --> value_o
//
// RESIDUAL_LANES channels per beat, item_i.beat says which. The address is sent with the item, its word arrives two
// cycles later; a is scaled meanwhile. With products a is centred and scaled in tables, so that sum and product share
// one multiplier. Without, both are scaled in slices, or both in tables (RESIDUAL_TABLES). Latency 8, 11 with tables of
// either kind; one item per cycle. Items that are not present do not read. Parameters are constant while items are
// inside. Without multipliers (MULT_BITS 0) a_mult and b_mult are 0 or powers of two, and scaling is a shift; those of
// a maximum may be anything. negative_i negates the factor of a (bit 0) or b (bit 1) of a sum.
module opu_residual_lanes
  import opu_pkg::*;
  import opu_post_pkg::*;
#(
    parameter int unsigned UNIT = 0  // among those that read the residual buffer
) (
    input  logic                 clk_i,
    input  logic                 rst_ni,

    input  logic [1:0]           kind_i,
    input  logic [15:0]          a_mult_i,
    input  logic [15:0]          b_mult_i,
    input  logic [5:0]           shift_i,
    input  logic signed [7:0]    a_zero_i,
    input  logic signed [7:0]    b_zero_i,
    input  logic signed [7:0]    y_zero_i,
    input  logic [1:0]           negative_i,

    output logic                 re_o,
    output residual_addr_t       addr_o,
    input  logic [WORD_BITS-1:0] rdata_i,

    input  item_t                item_i,
    input  logic [8*RESIDUAL_LANES-1:0] value_i,
    output item_t                item_o,
    output logic [8*RESIDUAL_LANES-1:0] value_o
);

  localparam bit IN_TABLES = RESIDUAL_TABLES == 1;
  localparam int unsigned LATENCY = (HAS_PRODUCT || IN_TABLES) ? 11 : 8;
  item_t item_q [LATENCY];  // by the cycles since they entered, less one
  assign item_o = item_q[LATENCY-1];
  always_ff @(posedge clk_i) begin
    item_q[0] <= item_i;
    for (int unsigned s = 1; s < LATENCY; s++) item_q[s] <= item_q[s-1];
    if (!rst_ni) begin
      for (int unsigned s = 0; s < LATENCY; s++) item_q[s].valid <= 1'b0;
    end
  end

  assign re_o = item_i.valid && item_i.present;
  assign addr_o = item_i.res_addr[UNIT];

  function automatic logic [3:0] log2_of(logic [15:0] power);
    log2_of = {|(power & 16'hff00), |(power & 16'hf0f0), |(power & 16'hcccc), |(power & 16'haaaa)};
  endfunction

  function automatic residual_t shifted(residual_t x, residual_t mult, logic [3:0] log2);  // the sign of mult left out
    shifted = (mult == '0) ? '0 : x <<< log2;
  endfunction

  function automatic residual_t times(residual_t x, residual_t mult, logic [3:0] log2);
    if (MULT_BITS > 0) times = x * mult;
    else times = (mult < 0) ? -shifted(x, mult, log2) : shifted(x, mult, log2);
  endfunction

  // A maximum takes both as they are.
  logic maximum;
  logic [15:0] a_mult, b_mult;
  logic signed [16:0] a_factor, b_factor;
  logic a_minus, b_minus;
  logic [5:0] shift;
  logic signed [7:0] a_zero, b_zero, y_zero;
  assign maximum = kind_i == RESIDUAL_MAXIMUM;
  assign {a_mult, b_mult} = maximum ? {16'd1, 16'd1} : {a_mult_i, b_mult_i};
  assign {b_minus, a_minus} = (kind_i == RESIDUAL_ADD) ? negative_i : '0;
  assign a_factor = a_minus ? -signed'({1'b0, a_mult}) : signed'({1'b0, a_mult});
  assign b_factor = b_minus ? -signed'({1'b0, b_mult}) : signed'({1'b0, b_mult});
  assign shift = maximum ? '0 : shift_i;
  assign {a_zero, b_zero, y_zero} = maximum ? '0 : {a_zero_i, b_zero_i, y_zero_i};

  // Where widths are exact (synthesis). Sums are below 2**25: from shift 31 on they round to 0.
  localparam int unsigned RANGE = HAS_PRODUCT ? 64 : 32;
  localparam int unsigned SHIFT_BITS = $clog2(RANGE);
  /* verilator lint_off UNUSEDSIGNAL */  // read where widths are exact
  logic [SHIFT_BITS-1:0] shift_q;
  logic [SHIFT_COPIES-1:0][SHIFT_BITS-1:0] shifts;
  // Factors have a register more: the first is next to the negation, the second is inside the multiplier of every lane.
  logic signed [16:0] a_signed_q, b_signed_q, a_factor_q, b_factor_q;
  logic [3:0] a_log2_q, b_log2_q;
  logic signed [7:0] a_zero_q, b_zero_q, y_zero_q;
  logic multiplies_q, maximum_q;
  /* verilator lint_on UNUSEDSIGNAL */
  always_ff @(posedge clk_i) begin
    shift_q <= (32'(shift) >= RANGE) ? '1 : SHIFT_BITS'(shift);
    a_signed_q <= a_factor;
    b_signed_q <= b_factor;
    a_factor_q <= a_signed_q;
    b_factor_q <= b_signed_q;
    a_log2_q <= log2_of(a_mult);
    b_log2_q <= log2_of(b_mult);
    a_zero_q <= a_zero;
    b_zero_q <= b_zero;
    y_zero_q <= y_zero;
    multiplies_q <= HAS_PRODUCT && kind_i == RESIDUAL_MULTIPLY;
    maximum_q <= maximum;
  end
  opu_copies #(
      .WIDTH (SHIFT_BITS),
      .COPIES(SHIFT_COPIES)
  ) u_shifts (
      .clk_i,
      .value_i (shift_q),
      .copies_o(shifts)
  );

  if (EXACT) begin : g_exact
    // The scaled zero points of both, negated: they are stable long before the first value arrives.
    logic signed [8:0] a_less_q, b_less_q;
    residual_t a_offset_q, b_offset_q, some_q, offset_q;
    if (!HAS_PRODUCT) begin : g_offset
      // What is shifted is complemented to become negative: less by one than it should be.
      localparam bit COMPLEMENTS = MULT_BITS == 0 && !IN_TABLES;
      logic [1:0] lacks;
      assign lacks = COMPLEMENTS ? 2'(a_factor_q[16]) + 2'(b_factor_q[16]) : '0;
      always_ff @(posedge clk_i) begin
        a_less_q <= -9'(a_zero_q);
        b_less_q <= -9'(b_zero_q);
        a_offset_q <= times(RESIDUAL_BITS'(a_less_q), RESIDUAL_BITS'(a_factor_q), a_log2_q);
        b_offset_q <= times(RESIDUAL_BITS'(b_less_q), RESIDUAL_BITS'(b_factor_q), b_log2_q);
        some_q <= a_offset_q;
        offset_q <= b_offset_q + some_q + RESIDUAL_BITS'(lacks);
      end
    end else begin : g_centred
      assign {a_less_q, b_less_q, a_offset_q, b_offset_q, some_q, offset_q} = '0;
      logic unused;
      assign unused = &{a_less_q, b_less_q, a_offset_q, b_offset_q, some_q, offset_q};
    end

    for (genvar l = 0; l < int'(RESIDUAL_LANES); l++) begin : g_lane
      logic signed [7:0] b;
      residual_t total_q;
      assign b = rdata_i[8*(RESIDUAL_LANES*32'(item_q[1].beat)+l)+:8];

      // Of a maximum: which operand is selected, as soon as b is registered. Pairs of bits are compared before: the
      // result resets the registers of a whole lane.
      logic signed [7:0] first_a_q;
      logic [3:0] above_q, equal_q;  // pairs of b, compared with those of a
      logic [7:0] a_biased, b_biased;  // in the order of unsigned numbers
      logic b_larger;
      assign b_biased = b ^ 8'h80;
      assign a_biased = first_a_q ^ 8'h80;
      always_comb begin
        b_larger = 1'b0;
        for (int unsigned k = 0; k < 4; k++) b_larger = above_q[k] || (equal_q[k] && b_larger);
      end
      always_ff @(posedge clk_i) begin
        for (int unsigned k = 0; k < 4; k++) begin
          above_q[k] <= b_biased[2*k+:2] > a_biased[2*k+:2];
          equal_q[k] <= b[2*k+:2] == first_a_q[2*k+:2];
        end
      end

      if (!HAS_PRODUCT) begin : g_sum
        logic signed [7:0] a_q, b_q;
        // As wide as a product is: were one more bit registered, tools would leave the sum outside the slice.
        logic signed [24:0] scaled_a, scaled_b, scaled_a_q, scaled_b_q;
        residual_t other_q, waiting_q;
        logic b_stays;  // when b is scaled
        if (IN_TABLES) begin : g_tables
          logic [2:0] b_larger_q;
          assign b_stays = b_larger_q[2];
          always_ff @(posedge clk_i) begin
            b_larger_q <= {b_larger_q[1:0], b_larger};
            if (!rst_ni) b_larger_q[1] <= 1'b0;
          end
          opu_multiply_soft #(
              .X_BITS     (8),
              .FACTOR_BITS(17)
          ) u_scale_a (
              .clk_i,
              .x_i      (a_q),
              .factor_i (a_factor_q),
              .product_o(scaled_a)
          );
          opu_multiply_soft #(
              .X_BITS     (8),
              .FACTOR_BITS(17)
          ) u_scale_b (
              .clk_i,
              .x_i      (b_q),
              .factor_i (b_factor_q),
              .product_o(scaled_b)
          );
        end else begin : g_slices
          assign b_stays = b_larger;
          if (MULT_BITS > 0) begin : g_multiply
            assign scaled_a = 25'(a_q) * 25'(a_factor_q);
            assign scaled_b = 25'(b_q) * 25'(b_factor_q);
          end else begin : g_shift
            assign scaled_a = 25'(shifted(RESIDUAL_BITS'(a_q), RESIDUAL_BITS'(a_factor_q), a_log2_q)) ^ {25{a_factor_q[16]}};
            assign scaled_b = 25'(shifted(RESIDUAL_BITS'(b_q), RESIDUAL_BITS'(b_factor_q), b_log2_q)) ^ {25{b_factor_q[16]}};
          end
        end
        always_ff @(posedge clk_i) begin
          a_q <= value_i[8*l+:8];
          scaled_a_q <= scaled_a;
          first_a_q <= a_q;
          other_q <= RESIDUAL_BITS'(scaled_a_q) + offset_q;
          waiting_q <= (maximum_q && b_stays) ? '0 : other_q;
          b_q <= b;
          scaled_b_q <= (maximum_q && !b_stays) ? '0 : scaled_b;
          total_q <= RESIDUAL_BITS'(scaled_b_q) + waiting_q;
        end
      end else begin : g_product
        logic signed [8:0] a_q;
        logic signed [8:0] b_q [4];
        scaled_t scaled_a, scaled_a_q, factor_q;
        logic signed [33:0] product_q;
        scaled_t other_q, summand_q;
        logic b_larger_q, no_a_q, no_b_q;  // the latter when they are scaled
        logic negates_b;
        assign negates_b = MULT_BITS == 0 && b_factor_q[16];
        if (MULT_BITS > 0) begin : g_soft
          opu_multiply_soft #(
              .X_BITS      (9),
              .FACTOR_BITS (17),
              .PRODUCT_BITS(SCALED_BITS)
          ) u_scale_a (
              .clk_i,
              .x_i      (a_q),
              .factor_i (a_factor_q),
              .product_o(scaled_a)
          );
        end else begin : g_shift
          logic signed [8:0] waiting_q [3];
          always_ff @(posedge clk_i) waiting_q <= '{a_factor_q[16] ? -a_q : a_q, waiting_q[0], waiting_q[1]};
          assign scaled_a = SCALED_BITS'(shifted(RESIDUAL_BITS'(waiting_q[2]), RESIDUAL_BITS'(a_factor_q), a_log2_q));
        end
        always_ff @(posedge clk_i) begin
          a_q <= 9'(signed'(value_i[8*l+:8])) - 9'(a_zero_q);
          first_a_q <= a_q[7:0];  // of a maximum nothing was subtracted
          b_larger_q <= b_larger;
          no_a_q <= multiplies_q || (maximum_q && b_larger_q);
          no_b_q <= maximum_q && !b_larger_q;
          scaled_a_q <= scaled_a;
          b_q <= '{9'(b) - 9'(b_zero_q), negates_b ? -b_q[0] : b_q[0], b_q[1], no_b_q ? '0 : b_q[2]};
          if (!rst_ni) begin  // a register with a reset is none of a slow shift register
            a_q <= '0;
            b_q[1] <= '0;
          end
          factor_q <= multiplies_q ? scaled_a_q : SCALED_BITS'(b_factor_q);
          other_q <= no_a_q ? '0 : scaled_a_q;
          if (MULT_BITS > 0 || multiplies_q) product_q <= 34'(b_q[3]) * 34'(factor_q);
          else product_q <= 34'(shifted(RESIDUAL_BITS'(b_q[3]), RESIDUAL_BITS'(b_factor_q), b_log2_q));
          summand_q <= other_q;
          total_q <= RESIDUAL_BITS'(product_q) + RESIDUAL_BITS'(summand_q);
        end
        logic unused;                                // its highest bit, where sums are narrower
        assign unused = &product_q;
      end

      opu_round #(
          .WIDTH (RESIDUAL_BITS),
          .RANGE (RANGE),
          .CLAMPS(1'b0)
      ) u_round (
          .clk_i,
          .value_i (total_q),
          .shift_i (shifts[copy_of(l, RESIDUAL_LANES)]),
          .zero_i  (y_zero_q),
          .wraps_i (1'b0),
          .lo_i    ('0),
          .hi_i    ('0),
          .result_o(value_o[8*l+:8])
      );
    end
  end else begin : g_fast
    logic signed [CENTRED_BITS-1:0] a [RESIDUAL_LANES];  // less its zero
    logic [7:0] b [RESIDUAL_LANES];
    logic [7:0] y [RESIDUAL_LANES];
    scaled_t scaled_a [RESIDUAL_LANES];   // when b has arrived
    residual_t other_a [RESIDUAL_LANES];  // when b is scaled, less the scaled zero of b where that is not centred
    residual_t scaled_b [RESIDUAL_LANES]; // or the product
    residual_t total [RESIDUAL_LANES];
    localparam int unsigned LATE = LATENCY - 5;  // results
    logic [8*RESIDUAL_LANES-1:0] made_q;  // the newest one: to write elements of an array by bytes is slow in a simulator
    logic [LATE-2:0][8*RESIDUAL_LANES-1:0] late_q;
    residual_t offset_q;
    assign value_o = late_q[LATE-2];
    always_ff @(posedge clk_i) begin
      offset_q <= HAS_PRODUCT ? '0 : times(RESIDUAL_BITS'(b_zero), RESIDUAL_BITS'(b_factor), log2_of(b_mult));
    end

    // Loops in functions, rolled, parameters as arguments: a simulator's compiler sees vectors (see opu_array).
    function automatic void centre_a(logic signed [CENTRED_BITS-1:0] zero);
      /* verilator unroll_disable */
      for (int unsigned l = 0; l < RESIDUAL_LANES; l++) a[l] = CENTRED_BITS'(signed'(value_i[8*l+:8])) - zero;
    endfunction

    function automatic void scale_a(residual_t mult, logic [3:0] log2);
      /* verilator unroll_disable */
      for (int unsigned l = 0; l < RESIDUAL_LANES; l++) scaled_a[l] = SCALED_BITS'(times(RESIDUAL_BITS'(a[l]), mult, log2));
    endfunction

    function automatic void offset_a(residual_t offset);
      /* verilator unroll_disable */
      for (int unsigned l = 0; l < RESIDUAL_LANES; l++) other_a[l] = RESIDUAL_BITS'(scaled_a[l]) - offset;
    endfunction

    function automatic void scale_b(residual_t mult, logic [3:0] log2);
      /* verilator unroll_disable */
      for (int unsigned l = 0; l < RESIDUAL_LANES; l++) scaled_b[l] = times(RESIDUAL_BITS'(signed'(b[l])), mult, log2);
    endfunction

    // One multiplier for sum and product, where there is one.
    function automatic void combine(logic product, residual_t zero, residual_t mult, logic [3:0] log2);
      /* verilator unroll_disable */
      for (int unsigned l = 0; l < RESIDUAL_LANES; l++) begin
        automatic residual_t other = RESIDUAL_BITS'(scaled_a[l]);
        automatic residual_t centred = RESIDUAL_BITS'(signed'(b[l])) - zero;
        if (MULT_BITS > 0) scaled_b[l] = centred * (product ? other : mult);
        else scaled_b[l] = product ? centred * other : times(centred, mult, log2);
      end
    endfunction

    function automatic void add(logic product);
      /* verilator unroll_disable */
      for (int unsigned l = 0; l < RESIDUAL_LANES; l++) begin
        total[l] = scaled_b[l] + (product ? '0 : other_a[l]);
      end
    endfunction

    function automatic void leave_larger();
      /* verilator unroll_disable */
      for (int unsigned l = 0; l < RESIDUAL_LANES; l++) total[l] = (scaled_b[l] > other_a[l]) ? scaled_b[l] : other_a[l];
    endfunction

    // From shift LIMIT on everything rounds to 0.
    localparam logic [5:0] LIMIT = HAS_PRODUCT ? 6'd34 : 6'd27;
    function automatic void scale(logic [5:0] amount, residual_t zero);
      automatic residual_t half = (amount == '0) ? '0 : (residual_t'(1) << (amount - 6'd1)) - residual_t'(1);
      /* verilator unroll_disable */
      for (int unsigned l = 0; l < RESIDUAL_LANES; l++) begin
        automatic residual_t odd = (amount == '0) ? '0 : (total[l] >>> amount) & residual_t'(1);
        automatic residual_t wide = ((total[l] + half + odd) >>> amount) + zero;
        y[l] = (wide < -residual_t'(128)) ? 8'h80 : (wide > residual_t'(127)) ? 8'h7f : wide[7:0];
      end
    endfunction

    /* verilator lint_off BLKSEQ */
    always_ff @(posedge clk_i) begin
      late_q <= (8 * RESIDUAL_LANES * (LATE - 1))'({late_q, made_q});
      /* verilator unroll_full */
      for (int unsigned l = 0; l < RESIDUAL_LANES; l++) made_q[8*l+:8] <= y[l];
      if (item_q[3].valid && item_q[3].present) begin
        scale((shift > LIMIT) ? LIMIT : shift, RESIDUAL_BITS'(y_zero));
      end
      if (item_q[2].valid && item_q[2].present) begin
        if (maximum) leave_larger();
        else add(HAS_PRODUCT && kind_i == RESIDUAL_MULTIPLY);
      end
      if (item_q[1].valid && item_q[1].present) begin
        offset_a(offset_q);
        /* verilator unroll_full */
        for (int unsigned l = 0; l < RESIDUAL_LANES; l++) b[l] = rdata_i[8*(RESIDUAL_LANES*32'(item_q[1].beat)+l)+:8];
        if (HAS_PRODUCT) begin
          combine(kind_i == RESIDUAL_MULTIPLY, RESIDUAL_BITS'(b_zero), RESIDUAL_BITS'(b_factor), log2_of(b_mult));
        end else begin
          scale_b(RESIDUAL_BITS'(b_factor), log2_of(b_mult));
        end
      end
      if (item_q[0].valid && item_q[0].present) scale_a(RESIDUAL_BITS'(a_factor), log2_of(a_mult));
      if (re_o) centre_a(CENTRED_BITS'(a_zero));
    end
    /* verilator lint_on BLKSEQ */
  end

endmodule
