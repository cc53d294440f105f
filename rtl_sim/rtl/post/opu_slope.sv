// A slope `pos` at and above the zero point, and one for every lane below it; / 2**shift, zero point, clamp. Latency 8,
// one word per cycle.
//
//   value_i --> [v - zero, select slope] --> opu_multiply_soft (3) --> [product] --> opu_round (3) --> value_o
//
// Parameters are constant while items are inside; below_i is sampled when a present item enters.
// SAME: all lanes use the negative slope of lane 0.
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
  lanes_t made_q;            // the newest result: to write elements of an array by bytes is slow in a simulator
  logic [3:0][LANES_BITS-1:0] late_q;

  localparam int unsigned LATENCY = 8;
  item_t item_q [LATENCY];   // by the cycles since they entered, less one
  assign item_o = item_q[LATENCY-1];

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

  // Where widths are exact (synthesis). Products are below 2**24: from shift 31 on everything rounds to 0.
  logic [7:0] rounded [LANES];
  /* verilator lint_off UNUSEDSIGNAL */  // read where widths are exact
  logic [4:0] shift_q;
  logic [SHIFT_COPIES-1:0][4:0] shifts;
  /* verilator lint_on UNUSEDSIGNAL */
  always_ff @(posedge clk_i) shift_q <= shift_i[5] ? '1 : shift_i[4:0];
  opu_copies #(
      .WIDTH (5),
      .COPIES(SHIFT_COPIES)
  ) u_shifts (
      .clk_i,
      .value_i (shift_q),
      .copies_o(shifts)
  );
  for (genvar l = 0; l < int'(LANES); l++) begin : g_lane
    if (EXACT) begin : g_exact
      logic signed [8:0] centred, centred_q;
      logic signed [16:0] factor_q;
      scaled_t scaled, product_q;
      assign centred = 9'(signed'(value_i[8*l+:8])) - 9'(x_zero_i);
      always_ff @(posedge clk_i) begin
        centred_q <= centred;
        factor_q <= (centred < 0) ? below_i[SAME ? 0 : l] : {1'b0, pos_i};
        product_q <= scaled;
        if (!rst_ni) begin  // a register with a reset is none of a slow shift register
          centred_q <= '0;
          product_q <= '0;
        end
      end
      opu_multiply_soft #(
          .X_BITS      (9),
          .FACTOR_BITS (17),
          .PRODUCT_BITS(SCALED_BITS)
      ) u_multiply (
          .clk_i,
          .x_i      (centred_q),
          .factor_i (factor_q),
          .product_o(scaled)
      );
      opu_round #(
          .WIDTH(SCALED_BITS),
          .RANGE(32)
      ) u_round (
          .clk_i,
          .value_i (product_q),
          .shift_i (shifts[copy_of(l, LANES)]),
          .zero_i  (y_zero_i),
          .wraps_i (1'b0),
          .lo_i,
          .hi_i,
          .result_o(rounded[l])
      );
    end else begin : g_none
      assign rounded[l] = '0;
    end
  end

  always_comb begin
    value_o = late_q[3];
    if (EXACT) begin
      for (int unsigned l = 0; l < LANES; l++) value_o[8*l+:8] = rounded[l];
    end
  end

  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    if (!EXACT) begin
      late_q <= {late_q[2:0], made_q};
      /* verilator unroll_full */
      for (int unsigned l = 0; l < LANES; l++) made_q[8*l+:8] <= y[l];
      if (item_q[1].valid && item_q[1].present) begin
        scale(scaled_limit(shift_i), SCALED_BITS'(y_zero_i), SCALED_BITS'(lo_i), SCALED_BITS'(hi_i));
      end
      if (item_q[0].valid && item_q[0].present) product = early;
    end
    if (item_i.valid && item_i.present) begin
      /* verilator unroll_full */
      for (int unsigned l = 0; l < LANES; l++) x[l] = value_i[8*l+:8];
      if (!EXACT) multiply(SCALED_BITS'(x_zero_i), SCALED_BITS'({1'b0, pos_i}), SCALED_BITS'(below_i[0]));
    end
  end
  /* verilator lint_on BLKSEQ */

  always_ff @(posedge clk_i) begin
    item_q[0] <= item_i;
    for (int unsigned s = 1; s < LATENCY; s++) item_q[s] <= item_q[s-1];
    if (!rst_ni) begin
      for (int unsigned s = 0; s < LATENCY; s++) item_q[s].valid <= 1'b0;
    end
  end

endmodule
