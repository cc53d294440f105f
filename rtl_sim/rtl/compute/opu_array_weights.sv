// A weight word as the array stores it (opu_array_exact); for pairs of units one cycle later.
//
// The weights of the high unit of a pair follow PARTS units after those of the low one. In the slices each high weight
// is stored less 1 if the low one is negative, since that borrows from it (opu_multiply_pair).
module opu_array_weights
  import opu_pkg::*;
  import opu_compute_pkg::*;
#(
    parameter bit PAIRED = 1'b1
) (
    input  logic                         clk_i,
    input  fill_t                        fill_i,
    input  logic [WEIGHT_BITS-1:0]       fill_data_i,
    output row_t                         row_o,
    output logic [WEIGHT_WIDTH-1:0][8:0] weights_o
);

  /* verilator lint_off UNUSEDSIGNAL */  // how long the row is
  fill_t fill_q, entering;
  /* verilator lint_on UNUSEDSIGNAL */
  logic [WEIGHT_BITS-1:0] fill_data_q, entering_data;
  logic [WORD_CHANNELS-1:0] negative_q;  // signs of the weights that entered last, the first one at bit 0
  logic [WEIGHT_WIDTH-1:0] signs;
  logic [WEIGHT_WIDTH+WORD_CHANNELS-1:0] negative;

  assign entering = PAIRED ? fill_q : fill_i;
  assign entering_data = PAIRED ? fill_data_q : fill_data_i;
  assign negative = {signs, negative_q};
  assign row_o = entering.row_select;

  for (genvar b = 0; b < int'(WEIGHT_WIDTH); b++) begin : g_weight
    logic high, sliced;
    assign signs[b] = entering_data[8*b+7];
    assign high = (32'(entering.word) * WEIGHT_WIDTH + b) / WORD_CHANNELS % 2 == 1;
    assign sliced = (32'(entering.word) * WEIGHT_WIDTH + b) % MULTIPLIERS < SLICE_TERMS;
    assign weights_o[b] = 9'(signed'(entering_data[8*b+:8])) - 9'(PAIRED && high && sliced && negative[b]);
  end

  always_ff @(posedge clk_i) begin
    fill_q <= fill_i;
    fill_data_q <= fill_data_i;
    if (entering.valid) negative_q <= negative[WEIGHT_WIDTH+:WORD_CHANNELS];
  end

endmodule
