// A slope `pos` at and above the zero point, and one for every lane below it; / 2**shift, zero point, clamp. Latency 4, one word
// per cycle. Parameters are constant while items are inside, below_i while an item that is present enters.
// SAME: all lanes have the slope of lane 0 below.
module opu_slope
  import opu_pkg::*;
  import opu_post_pkg::*;
#(
    parameter bit SAME = 1'b0
) (
    input  logic                 clk_i,
    input  logic                 rst_ni,

    input  logic [15:0]          pos_i,
    input  logic signed [16:0]   below_i [LANES],
    input  logic [5:0]           shift_i,
    input  logic signed [7:0]    x_zero_i,
    input  logic signed [7:0]    y_zero_i,
    input  logic signed [7:0]    lo_i,
    input  logic signed [7:0]    hi_i,

    input  item_t                item_i,
    input  lanes_t               value_i,
    output item_t                item_o,
    output lanes_t               value_o
);

  logic [7:0] x [LANES];
  logic [7:0] y [LANES];
  scaled_t early [LANES];    // the product, where a simulator has it a cycle earlier
  scaled_t product [LANES];
  item_t multiply_item_q, product_item_q, round_item_q;

  // Loops in functions, rolled, parameters as arguments: a simulator's compiler sees vectors (see opu_array).
  function automatic void multiply(scaled_t x_zero, scaled_t pos, scaled_t same);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) begin
      automatic scaled_t centred = SCALED_BITS'(signed'(x[l])) - x_zero;
      automatic scaled_t below = SAME ? same : SCALED_BITS'(below_i[l]);
      early[l] = centred * ((centred < 0) ? below : pos);
    end
  endfunction

  function automatic void scale(logic [5:0] amount, scaled_t y_zero, scaled_t lo, scaled_t hi);
    automatic scaled_t half = scaled_half(amount);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) begin
      y[l] = clamp8(scaled_shift(product[l], amount, half) + y_zero, lo, hi);
    end
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
      .value_i (shift_i),
      .copies_o(shifts)
  );
  /* verilator lint_off UNUSEDSIGNAL */  // read where widths are exact
  logic signed [8:0] floor_q, ceiling_q;
  /* verilator lint_on UNUSEDSIGNAL */
  always_ff @(posedge clk_i) begin
    floor_q <= 9'(y_zero_i) - 9'(lo_i);
    ceiling_q <= 9'(hi_i) - 9'(y_zero_i);
  end
  for (genvar l = 0; l < int'(LANES); l++) begin : g_lane
    if (EXACT) begin : g_exact
      logic signed [8:0] centred;
      scaled_t scaled, product_q;
      always_ff @(posedge clk_i) product_q <= scaled;
      assign centred = 9'(signed'(value_i[8*l+:8])) - 9'(x_zero_i);
      opu_multiply_soft #(
          .X_BITS      (9),
          .FACTOR_BITS (17),
          .PRODUCT_BITS(SCALED_BITS)
      ) u_multiply (
          .clk_i,
          .x_i      (centred),
          .factor_i ((centred < 0) ? below_i[SAME ? 0 : l] : {1'b0, pos_i}),
          .product_o(scaled)
      );
      opu_round #(
          .WIDTH(SCALED_BITS)
      ) u_round (
          .clk_i,
          .value_i (product_q),
          .shift_i (shifts[copy_of(l, LANES)]),
          .zero_i  (y_zero_i),
          .lo_i,
          .hi_i,
          .floor_i (floor_q),
          .ceiling_i(ceiling_q),
          .result_o(rounded[l])
      );
    end else begin : g_none
      assign rounded[l] = '0;
    end
  end

  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    /* verilator unroll_full */
    for (int unsigned l = 0; l < LANES; l++) value_o[8*l+:8] <= EXACT ? rounded[l] : y[l];
    if (!EXACT) begin
      if (product_item_q.valid && product_item_q.present) begin
        scale(scaled_limit(shift_i), SCALED_BITS'(y_zero_i), SCALED_BITS'(lo_i), SCALED_BITS'(hi_i));
      end
      if (multiply_item_q.valid && multiply_item_q.present) product = early;
    end
    if (item_i.valid && item_i.present) begin
      /* verilator unroll_full */
      for (int unsigned l = 0; l < LANES; l++) x[l] = value_i[8*l+:8];
      if (!EXACT) multiply(SCALED_BITS'(x_zero_i), SCALED_BITS'({1'b0, pos_i}), SCALED_BITS'(below_i[0]));
    end
  end
  /* verilator lint_on BLKSEQ */

  always_ff @(posedge clk_i) begin
    multiply_item_q <= item_i;
    product_item_q <= multiply_item_q;
    round_item_q <= product_item_q;
    item_o <= round_item_q;
    if (!rst_ni) begin
      multiply_item_q.valid <= 1'b0;
      round_item_q.valid <= 1'b0;
      product_item_q.valid <= 1'b0;
      item_o.valid <= 1'b0;
    end
  end

endmodule
