// POOL: the items of a window, from `first` to `last`, become one. Maximum over the present ones (-128 where there is
// none), or clamp(rne(sum of (v - x_zero) over the present ones * mult / 2**shift) + y_zero).
// Latency 3 from the last item of the window, one item per cycle. Parameters are constant while items are inside.
`include "opu_assert.svh"

module opu_pool
  import opu_pkg::*;
  import opu_post_pkg::*;
(
    input  logic                 clk_i,
    input  logic                 rst_ni,

    input  logic                 average_i,
    input  logic [15:0]          mult_i,
    input  logic [5:0]           shift_i,
    input  logic signed [7:0]    x_zero_i,
    input  logic signed [7:0]    y_zero_i,

    input  item_t                item_i,
    input  logic [WORD_BITS-1:0] value_i,
    output item_t                item_o,
    output logic [WORD_BITS-1:0] value_o
);

  logic [7:0] x [LANES];
  logic [7:0] y [LANES];
  pool_t window [LANES];
  average_t product [LANES];
  item_t window_item_q, product_item_q;  // valid: the window is complete

  // Loops in functions, rolled, parameters as arguments: a simulator's compiler sees vectors (see opu_array).
  function automatic void start(pool_t value);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) window[l] = value;
  endfunction

  function automatic void visit(logic average, pool_t x_zero);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) begin
      automatic pool_t v = POOL_BITS'(signed'(x[l]));
      window[l] = average ? window[l] + v - x_zero : (v > window[l]) ? v : window[l];
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

  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    if (product_item_q.valid) begin
      if (average_i) scale((shift_i > 6'd42) ? 6'd42 : shift_i, AVERAGE_PRODUCT_BITS'(y_zero_i));
      else narrow();
      /* verilator unroll_full */
      for (int unsigned l = 0; l < LANES; l++) value_o[8*l+:8] <= y[l];
    end
    if (window_item_q.valid) multiply(average_i ? AVERAGE_PRODUCT_BITS'({1'b0, mult_i}) : average_t'(1));
    if (item_i.valid && item_i.first) start(average_i ? '0 : -pool_t'(128));
    if (item_i.valid && item_i.present) begin
      /* verilator unroll_full */
      for (int unsigned l = 0; l < LANES; l++) x[l] = value_i[8*l+:8];
      visit(average_i, POOL_BITS'(x_zero_i));
    end
  end
  /* verilator lint_on BLKSEQ */

  always_ff @(posedge clk_i) begin
    window_item_q <= item_i;
    window_item_q.valid <= item_i.valid && item_i.last;
    window_item_q.present <= 1'b1;
    product_item_q <= window_item_q;
    item_o <= product_item_q;
    if (!rst_ni) begin
      window_item_q.valid <= 1'b0;
      product_item_q.valid <= 1'b0;
      item_o.valid <= 1'b0;
    end
  end

endmodule
