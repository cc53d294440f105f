// RESIDUAL: adapts the width of the chain to that of opu_residual_lanes. If the unit has fewer lanes than the chain, a
// value passes it in RESIDUAL_PACE parts, one per cycle, and the sequencer leaves as many cycles between two values.
//
//   value_i --> [split into parts] --> opu_residual_lanes --> [gather parts] --> value_o
//
// Latency 8 (11 with products in the machine or in tables), RESIDUAL_PACE more with parts.
`include "opu_assert.svh"

module opu_residual
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
    input  lanes_t               value_i,
    output item_t                item_o,
    output lanes_t               value_o
);

  localparam int unsigned PART_BITS = 8 * RESIDUAL_LANES;

  item_t part_item, result_item;
  logic [PART_BITS-1:0] part, result;

  if (RESIDUAL_PACE > 1) begin : g_parts
    `OPU_ASSERT_STATIC(WholeWords, BEATS == 1)
    localparam beat_t LAST_PART = beat_t'(RESIDUAL_PACE - 1);
    item_t item_q;
    beat_t part_q;
    lanes_t rest_q;  // what is left of the value, the next part lowest
    logic [LANES_BITS-PART_BITS-1:0] gathered_q;

    always_comb begin
      part_item = item_q;
      part_item.beat = part_q;
      part = rest_q[PART_BITS-1:0];
      item_o = result_item;
      item_o.valid = result_item.valid && result_item.beat == LAST_PART;
      item_o.beat = '0;
      value_o = {result, gathered_q};
    end

    always_ff @(posedge clk_i) begin
      if (item_i.valid) begin
        item_q <= item_i;
        rest_q <= value_i;
      end else begin
        item_q.valid <= item_q.valid && part_q != LAST_PART;
        rest_q <= rest_q >> PART_BITS;
      end
      part_q <= (item_i.valid || part_q == LAST_PART) ? '0 : part_q + beat_t'(item_q.valid);
      if (result_item.valid) gathered_q <= value_o[LANES_BITS-1:PART_BITS];
      if (!rst_ni) begin
        item_q.valid <= 1'b0;
        part_q <= '0;
      end
    end

    `OPU_ASSERT(PaceKept, item_i.valid |-> !item_q.valid || part_q == LAST_PART)
  end else begin : g_whole
    assign part_item = item_i;
    assign part = value_i;
    assign item_o = result_item;
    assign value_o = result;
  end

  opu_residual_lanes #(
      .UNIT(UNIT)
  ) u_lanes (
      .clk_i,
      .rst_ni,
      .kind_i,
      .a_mult_i,
      .b_mult_i,
      .shift_i,
      .a_zero_i,
      .b_zero_i,
      .y_zero_i,
      .negative_i,
      .re_o,
      .addr_o,
      .rdata_i,
      .item_i (part_item),
      .value_i(part),
      .item_o (result_item),
      .value_o(result)
  );

endmodule
