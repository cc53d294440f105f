// ACT: slope `pos` at and above the zero point, `neg` below; / 2**shift, zero point, clamp. An opu_slope with one
// negative slope for all lanes. Latency 8, one word per cycle. Parameters are constant while items are inside.
//
//   pos_i, neg_i (of all lanes) --+
//                                 v
//   item_i, value_i --------> opu_slope (8) --> item_o, value_o
module opu_activate
  import opu_pkg::*;
  import opu_post_pkg::*;
(
    input  logic                 clk_i,
    input  logic                 rst_ni,

    input  logic [15:0]          pos_i,
    input  logic [15:0]          neg_i,
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

  opu_slope #(
      .SAME(1'b1)
  ) u_slope (
      .clk_i,
      .rst_ni,
      .pos_i,
      .below_i ('{default: {1'b0, neg_i}}),
      .shift_i,
      .x_zero_i,
      .y_zero_i,
      .lo_i,
      .hi_i,
      .item_i,
      .value_i,
      .item_o,
      .value_o
  );

endmodule
