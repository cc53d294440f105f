// RESIDUAL: clamp(rne(((a - a_zero) * a_mult + (b - b_zero) * b_mult) / 2**shift) + y_zero), b from the residual buffer.
// The address goes out with the item, its word comes back one cycle later. Latency 3, one word per cycle. Items that are
// not present do not read. Parameters are constant while items are inside.
module opu_residual
  import opu_pkg::*;
  import opu_post_pkg::*;
(
    input  logic                 clk_i,
    input  logic                 rst_ni,

    input  logic [15:0]          a_mult_i,
    input  logic [15:0]          b_mult_i,
    input  logic [5:0]           shift_i,
    input  logic signed [7:0]    a_zero_i,
    input  logic signed [7:0]    b_zero_i,
    input  logic signed [7:0]    y_zero_i,

    output logic                 res_re_o,
    output residual_addr_t       res_addr_o,
    input  logic [WORD_BITS-1:0] res_rdata_i,

    input  item_t                item_i,
    input  logic [WORD_BITS-1:0] value_i,
    output item_t                item_o,
    output logic [WORD_BITS-1:0] value_o
);

  logic [WORD_BITS-1:0] value_q;
  logic [7:0] a [LANES];
  logic [7:0] b [LANES];
  logic [7:0] y [LANES];
  scaled_t total [LANES];
  item_t read_item_q, total_item_q;

  assign res_re_o = item_i.valid && item_i.present;
  assign res_addr_o = item_i.res_addr;

  // Loops in functions, rolled, parameters as arguments: a simulator's compiler sees vectors (see opu_array).
  function automatic void add(scaled_t a_zero, scaled_t a_mult, scaled_t b_zero, scaled_t b_mult);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) begin
      total[l] = (SCALED_BITS'(signed'(a[l])) - a_zero) * a_mult
          + (SCALED_BITS'(signed'(b[l])) - b_zero) * b_mult;
    end
  endfunction

  function automatic void scale(logic [5:0] amount, scaled_t y_zero);
    automatic scaled_t half = scaled_half(amount);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) begin
      y[l] = clamp8(scaled_shift(total[l], amount, half) + y_zero, -scaled_t'(128), scaled_t'(127));
    end
  endfunction

  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    if (total_item_q.valid && total_item_q.present) begin
      scale(scaled_limit(shift_i), SCALED_BITS'(y_zero_i));
      /* verilator unroll_full */
      for (int unsigned l = 0; l < LANES; l++) value_o[8*l+:8] <= y[l];
    end
    if (read_item_q.valid && read_item_q.present) begin
      /* verilator unroll_full */
      for (int unsigned l = 0; l < LANES; l++) begin
        a[l] = value_q[8*l+:8];
        b[l] = res_rdata_i[8*l+:8];
      end
      add(SCALED_BITS'(a_zero_i), SCALED_BITS'({1'b0, a_mult_i}),
          SCALED_BITS'(b_zero_i), SCALED_BITS'({1'b0, b_mult_i}));
    end
    if (res_re_o) value_q = value_i;
  end
  /* verilator lint_on BLKSEQ */

  always_ff @(posedge clk_i) begin
    read_item_q <= item_i;
    total_item_q <= read_item_q;
    item_o <= total_item_q;
    if (!rst_ni) begin
      read_item_q.valid <= 1'b0;
      total_item_q.valid <= 1'b0;
      item_o.valid <= 1'b0;
    end
  end

endmodule
