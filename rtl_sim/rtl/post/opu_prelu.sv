// PRELU: y = clamp(round((v - x_zero) * slope / 2**shift) + y_zero), in int8. The slope is pos_i for v >= x_zero, else
// that of the channel. An opu_slope with a table of slopes. Latency 8, one item per cycle. Parameters must not change
// while items are inside.
//
//   load_* --> slopes (bank, channel) --bank and beat of item_i--+
//                                                                v
//   item_i, value_i -----------------------------------------> opu_slope (8) --> item_o, value_o
//
// load_*: writes one parameter word (16-bit slopes of WORD_CHANNELS / 2 channels) into one of the two banks of slopes.
//         A bank must not be loaded while items that use it are in the chain before this unit.
`include "opu_assert.svh"

module opu_prelu
  import opu_pkg::*;
  import opu_post_pkg::*;
(
    input  logic                 clk_i,
    input  logic                 rst_ni,

    input  logic [15:0]          pos_i,
    input  logic [5:0]           shift_i,
    input  logic signed [7:0]    x_zero_i,
    input  logic signed [7:0]    y_zero_i,

    input  logic                 load_we_i,
    input  logic                 load_bank_i,
    input  logic [3:0]           load_word_i,
    input  logic [WORD_BITS-1:0] load_data_i,

    input  item_t                item_i,
    input  lanes_t               value_i,
    output item_t                item_o,
    output lanes_t               value_o
);

  logic signed [15:0] slope [RECORDS][LANES];
  // 17 bits: opu_slope also takes the unsigned 16-bit slope of ACT.
  logic signed [16:0] below [LANES];
  always_comb begin
    for (int unsigned l = 0; l < LANES; l++) below[l] = 17'(slope[record_of(item_i.bank, 32'(item_i.beat))][l]);
  end

  always_ff @(posedge clk_i) begin
    if (load_we_i) begin
      /* verilator unroll_full */
      for (int unsigned i = 0; i < WORD_CHANNELS / 2; i++) begin
        automatic int unsigned channel = 32'(load_word_i) * (WORD_CHANNELS / 2) + i;
        slope[record_of(load_bank_i, channel / LANES)][channel%LANES] <= load_data_i[16*i+:16];
      end
    end
  end

  opu_slope u_slope (
      .clk_i,
      .rst_ni,
      .pos_i,
      .below_i (below),
      .shift_i,
      .x_zero_i,
      .y_zero_i,
      .lo_i    (-8'sd128),
      .hi_i    (8'sd127),
      .item_i,
      .value_i,
      .item_o,
      .value_o
  );

  `OPU_ASSERT(BankUnused, load_we_i |-> !(item_i.valid && item_i.bank == load_bank_i))

endmodule
