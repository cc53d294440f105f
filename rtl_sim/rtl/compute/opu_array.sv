// The MAC array: weight row registers, alignment of the feature words, the window of depthwise, multipliers and adder
// trees.
//
//   fill_i ----------------------> weight rows -------+
//                                                     v
//   feature_i, next_i --> [align] x 3 --> operands --> [multiply] x MULTIPLY_STAGES --> [combine] --> sums_o
//   enter_i ------> depthwise window -----^
//
// One step per cycle. Latency 1 + ALIGN_STAGES + MULTIPLY_STAGES from a step with its feature words to its sums:
//   align    The bytes of pixel p, those from `at` on, move to lane 0 and continue into the next word. Bytes outside
//            the tile are `pad`. depthwise: unit u gets the taps of lane u of the part. ALIGN_STAGES cycles.
//   multiply Unit u sums its MULTIPLIERS products with the operands of segment part u mod k of its pixel,
//            k = ic / MULTIPLIERS; px equal groups of neighbouring units have one pixel each. MULTIPLY_STAGES cycles:
//            factors, products, sums of two products and every adder level, of units too, are registered.
//   combine  k neighbouring units are summed to output channel o of the mode; the sums are in the lanes of the group.
// A copy step passes the aligned bytes, sign-extended, to all lanes. fill_i writes one word of a row register (one per
// pixel). A row that is being filled must not be used by a step in `multiply`. enter_i writes one or two words, those
// of the same cycle, into the window; steps of later cycles see them.
//
// There are two bodies with these ports: opu_array_rolled simulates fast, opu_array_exact is synthesised.
module opu_array
  import opu_pkg::*;
  import opu_compute_pkg::*;
(
    input  logic                     clk_i,

    input  fill_t                    fill_i,
    input  logic [WEIGHT_BITS-1:0]   fill_data_i,

    input  step_t                    align_i,
    input  step_t                    aligned_i,        // in the last cycle of align
    input  step_t                    multiply_i,
    input  step_t                    combining_i,      // what is combine_i in the next cycle
    input  step_t                    combine_i,
    input  enter_t                   enter_i,
    input  logic [WORD_BITS-1:0]     feature_i,        // belongs to align_i and enter_i, as does the next word
    input  logic [WORD_BITS-1:0]     next_i,

    output logic [PSUM_BITS-1:0]     sums_o            // one cycle after `combine`; lanes outside the group: anything
);

  if (EXACT) begin : g_exact
    opu_array_exact u_exact (
        .clk_i,
        .fill_i,
        .fill_data_i,
        .align_i,
        .aligned_i,
        .multiply_i,
        .combining_i,
        .combine_i,
        .enter_i,
        .feature_i,
        .next_i,
        .sums_o
    );
  end else begin : g_rolled
    logic unused;
    assign unused = &combining_i;
    opu_array_rolled u_rolled (
        .clk_i,
        .fill_i,
        .fill_data_i,
        .align_i,
        .aligned_i,
        .multiply_i,
        .combine_i,
        .enter_i,
        .feature_i,
        .next_i,
        .sums_o
    );
  end

endmodule
