// The lanes of RESIDUAL: clamp(rne(((a - a_zero) * a_mult + (b - b_zero) * b_mult) / 2**shift) + y_zero), b from the residual
// buffer; or, on machines with products, clamp(rne((a - a_zero) * a_mult * (b - b_zero) / 2**shift) + y_zero). RESIDUAL_LANES
// channels a turn, item_i.turn says which.
// The address goes out with the item, its word comes back two cycles later; a is centred and scaled meanwhile, so that sum and
// product take one multiplier more. Without products the factors meet registers on either side: b_zero * b_mult is taken from
// the scaled a. Latency 6, one item per cycle. Items that are not present do not read. Parameters are constant while items are
// inside. Without multipliers (MULT_BITS 0) a_mult and b_mult are 0 or powers of two, and shift.
module opu_residual_lanes
  import opu_pkg::*;
  import opu_post_pkg::*;
#(
    parameter int unsigned UNIT = 0  // among those that read the residual buffer
) (
    input  logic                 clk_i,
    input  logic                 rst_ni,

    input  logic                 kind_i,
    input  logic [15:0]          a_mult_i,
    input  logic [15:0]          b_mult_i,
    input  logic [5:0]           shift_i,
    input  logic signed [7:0]    a_zero_i,
    input  logic signed [7:0]    b_zero_i,
    input  logic signed [7:0]    y_zero_i,

    output logic                 re_o,
    output residual_addr_t       addr_o,
    input  logic [WORD_BITS-1:0] rdata_i,

    input  item_t                item_i,
    input  logic [8*RESIDUAL_LANES-1:0] value_i,
    output item_t                item_o,
    output logic [8*RESIDUAL_LANES-1:0] value_o
);

  logic signed [CENTRED_BITS-1:0] a [RESIDUAL_LANES];  // less its zero
  logic [7:0] b [RESIDUAL_LANES];
  logic [7:0] y [RESIDUAL_LANES];
  scaled_t scaled_a [RESIDUAL_LANES];   // when b is there
  residual_t other_a [RESIDUAL_LANES];  // when b is scaled, less the scaled zero of b where that is not centred
  residual_t scaled_b [RESIDUAL_LANES]; // or the product
  residual_t total [RESIDUAL_LANES];
  /* verilator lint_off UNUSEDSIGNAL */  // read where widths are exact
  residual_t total_q [RESIDUAL_LANES];
  /* verilator lint_on UNUSEDSIGNAL */
  item_t read_item_q, word_item_q, scaled_item_q, total_item_q, round_item_q;

  assign re_o = item_i.valid && item_i.present;
  assign addr_o = item_i.res_addr[UNIT];

  function automatic logic [3:0] log2_of(logic [15:0] power);
    log2_of = {|(power & 16'hff00), |(power & 16'hf0f0), |(power & 16'hcccc), |(power & 16'haaaa)};
  endfunction

  function automatic residual_t times(residual_t x, residual_t mult, logic [3:0] log2);
    if (MULT_BITS > 0) times = x * mult;
    else times = (mult == '0) ? '0 : x <<< log2;
  endfunction

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

  // From shift LIMIT on everything rounds to 0.
  localparam logic [5:0] LIMIT = HAS_PRODUCT ? 6'd34 : 6'd27;
  function automatic void scale(logic [5:0] amount, residual_t y_zero);
    automatic residual_t half = (amount == '0) ? '0 : (residual_t'(1) << (amount - 6'd1)) - residual_t'(1);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < RESIDUAL_LANES; l++) begin
      automatic residual_t odd = (amount == '0) ? '0 : (total[l] >>> amount) & residual_t'(1);
      automatic residual_t wide = ((total[l] + half + odd) >>> amount) + y_zero;
      y[l] = (wide < -residual_t'(128)) ? 8'h80 : (wide > residual_t'(127)) ? 8'h7f : wide[7:0];
    end
  endfunction

  // Where widths are exact (synthesis). Three DSP slices a lane would be too many: with products a is scaled in tables.
  localparam bit SOFT = EXACT && HAS_PRODUCT && MULT_BITS > 0;
  scaled_t soft_a [RESIDUAL_LANES];
  /* verilator lint_off UNUSEDSIGNAL */  // read where widths are exact
  logic signed [8:0] floor_q, ceiling_q;  // from the lowest value, to the highest one
  /* verilator lint_on UNUSEDSIGNAL */
  always_ff @(posedge clk_i) begin
    floor_q <= 9'(y_zero_i) + 9'sd128;
    ceiling_q <= 9'sd127 - 9'(y_zero_i);
  end
  // The scaled zero of b; it stands long before the first value comes.
  residual_t offset_q;
  if (HAS_PRODUCT) begin : g_centred
    assign offset_q = '0;
  end else begin : g_offset
    logic signed [25:0] offset;
    if (MULT_BITS > 0) begin : g_multiply
      opu_multiply_soft #(
          .X_BITS     (9),
          .FACTOR_BITS(17)
      ) u_offset (
          .clk_i,
          .x_i      (9'(b_zero_i)),
          .factor_i ({1'b0, b_mult_i}),
          .product_o(offset)
      );
    end else begin : g_shift
      assign offset = 26'(times(RESIDUAL_BITS'(b_zero_i), RESIDUAL_BITS'({1'b0, b_mult_i}), log2_of(b_mult_i)));
    end
    always_ff @(posedge clk_i) offset_q <= RESIDUAL_BITS'(offset);
  end
  logic [7:0] rounded [RESIDUAL_LANES];
  /* verilator lint_off UNUSEDSIGNAL */  // read where widths are exact
  logic [SHIFT_COPIES-1:0][5:0] shifts;
  /* verilator lint_on UNUSEDSIGNAL */
  opu_copies #(
      .WIDTH (6),
      .COPIES(SHIFT_COPIES)
  ) u_shifts (
      .clk_i,
      .value_i (shift_i),
      .copies_o(shifts)
  );
  for (genvar l = 0; l < int'(RESIDUAL_LANES); l++) begin : g_lane
    if (EXACT) begin : g_round
      opu_round #(
          .WIDTH(RESIDUAL_BITS)
      ) u_round (
          .clk_i,
          .value_i (total_q[l]),
          .shift_i (shifts[copy_of(l, RESIDUAL_LANES)]),
          .zero_i  (y_zero_i),
          .lo_i    (-8'sd128),
          .hi_i    (8'sd127),
          .floor_i (floor_q),
          .ceiling_i(ceiling_q),
          .result_o(rounded[l])
      );
    end else begin : g_none
      assign rounded[l] = '0;
    end
    if (SOFT) begin : g_soft
      opu_multiply_soft #(
          .X_BITS      (9),
          .FACTOR_BITS (17),
          .PRODUCT_BITS(SCALED_BITS)
      ) u_scale_a (
          .clk_i,
          .x_i      (9'(signed'(value_i[8*l+:8])) - 9'(a_zero_i)),
          .factor_i ({1'b0, a_mult_i}),
          .product_o(soft_a[l])
      );
    end else begin : g_slices
      assign soft_a[l] = '0;
    end
  end

  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    /* verilator unroll_full */
    for (int unsigned l = 0; l < RESIDUAL_LANES; l++) value_o[8*l+:8] <= EXACT ? rounded[l] : y[l];
    if (!EXACT && total_item_q.valid && total_item_q.present) begin
      scale((shift_i > LIMIT) ? LIMIT : shift_i, RESIDUAL_BITS'(y_zero_i));
    end
    if (EXACT || (scaled_item_q.valid && scaled_item_q.present)) add(HAS_PRODUCT && kind_i == RESIDUAL_MULTIPLY);
    if (EXACT) total_q <= total;
    if (word_item_q.valid && word_item_q.present) begin
      offset_a(offset_q);
      /* verilator unroll_full */
      for (int unsigned l = 0; l < RESIDUAL_LANES; l++) b[l] = rdata_i[8*(RESIDUAL_LANES*32'(word_item_q.turn)+l)+:8];
      if (HAS_PRODUCT) begin
        combine(kind_i == RESIDUAL_MULTIPLY, RESIDUAL_BITS'(b_zero_i), RESIDUAL_BITS'({1'b0, b_mult_i}), log2_of(b_mult_i));
      end else begin
        scale_b(RESIDUAL_BITS'({1'b0, b_mult_i}), log2_of(b_mult_i));
      end
    end
    if (SOFT) scaled_a = soft_a;
    else if (read_item_q.valid && read_item_q.present) scale_a(RESIDUAL_BITS'({1'b0, a_mult_i}), log2_of(a_mult_i));
    if (re_o && !SOFT) centre_a(CENTRED_BITS'(a_zero_i));
  end
  /* verilator lint_on BLKSEQ */

  always_ff @(posedge clk_i) begin
    read_item_q <= item_i;
    word_item_q <= read_item_q;
    scaled_item_q <= word_item_q;
    total_item_q <= scaled_item_q;
    round_item_q <= total_item_q;
    item_o <= round_item_q;
    if (!rst_ni) begin
      word_item_q.valid <= 1'b0;
      scaled_item_q.valid <= 1'b0;
      round_item_q.valid <= 1'b0;
      read_item_q.valid <= 1'b0;
      total_item_q.valid <= 1'b0;
      item_o.valid <= 1'b0;
    end
  end

endmodule
