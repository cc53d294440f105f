// A unit of the pre chain: clamp(rne((v * A + B) / 2**s) + zero, lo, hi) on every lane of the feature words of steps that pass
// more than UNIT units; everything else passes unchanged. Latency 2, one word per cycle.
//
// load_*: one parameter word into one of the two banks; the word holds 8 bytes for each of WORD_CHANNELS / 8 lanes: int32 B,
//         int16 A, int8 s (-16..47), zero. A bank may be loaded from the cycle on in which the last step that uses it is in
//         its second stage.
// Steps, window and weight words travel along, so that they still meet.
//
// One clocked process, last stage first, blocking assignments to variables nothing else reads (see opu_array).
`include "opu_assert.svh"

module opu_pre
  import opu_pkg::*;
  import opu_compute_pkg::*;
#(
    parameter int unsigned UNIT = 0
) (
    input  logic                   clk_i,
    input  logic                   rst_ni,

    input  pre_load_t              load_i,
    input  logic [WORD_BITS-1:0]   load_data_i,

    input  step_t                  step_i,
    input  enter_t                 enter_i,
    input  logic [WORD_BITS-1:0]   feature_i,
    input  logic [WORD_BITS-1:0]   next_i,
    input  fill_t                  fill_i,
    input  logic [WEIGHT_BITS-1:0] fill_data_i,
    output logic                   drained_o,   // no step inside, those at the ports apart

    output step_t                  step_o,
    output enter_t                 enter_o,
    output logic [WORD_BITS-1:0]   feature_o,
    output logic [WORD_BITS-1:0]   next_o,
    output fill_t                  fill_o,
    output logic [WEIGHT_BITS-1:0] fill_data_o
);

  localparam int unsigned LOAD_LANES = WORD_CHANNELS / 8;

  affine_t add [2][WORD_CHANNELS];
  affine_t mult [2][WORD_CHANNELS];
  logic signed [7:0] shift [2][WORD_CHANNELS];
  affine_t value [WORD_CHANNELS];
  affine_t product [WORD_CHANNELS];
  logic [7:0] result [WORD_CHANNELS];

  step_t step_q;
  enter_t enter_q;
  fill_t fill_q;
  logic [WORD_BITS-1:0] feature_q, next_q;
  logic [WEIGHT_BITS-1:0] fill_data_q;
  assign drained_o = !step_q.valid;

  // Loops in functions, rolled, parameters as arguments: a simulator's compiler sees vectors (see opu_array).
  function automatic void affine(logic bank);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < WORD_CHANNELS; l++) product[l] = value[l] * mult[bank][l] + add[bank][l];
  endfunction

  function automatic void scale(logic bank, affine_t zero, affine_t lo, affine_t hi);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < WORD_CHANNELS; l++) begin
      automatic logic signed [7:0] amount = shift[bank][l];
      automatic logic [5:0] right = amount[7] ? '0 : amount[5:0];
      automatic logic [4:0] left = amount[7] ? 5'(-amount) : '0;
      automatic affine_t half = (right == '0) ? '0 : (affine_t'(1) << (right - 6'd1)) - affine_t'(1);
      automatic affine_t odd = (right == '0) ? '0 : (product[l] >>> right) & affine_t'(1);
      automatic affine_t wide = (((product[l] + half + odd) >>> right) <<< left) + zero;
      result[l] = (wide < lo) ? lo[7:0] : (wide > hi) ? hi[7:0] : wide[7:0];
    end
  endfunction

  // Where widths are exact (synthesis). Value and divisor are 2**16 times as large: no left shift is left.
  affine_t sum [WORD_CHANNELS];
  logic [7:0] rounded [WORD_CHANNELS];
  for (genvar l = 0; l < int'(WORD_CHANNELS); l++) begin : g_lane
    if (EXACT) begin : g_exact
      logic signed [23:0] scaled;
      logic [5:0] amount;
      opu_multiply_soft #(
          .X_BITS     (8),
          .FACTOR_BITS(16)
      ) u_multiply (
          .x_i      (feature_i[8*l+:8]),
          .factor_i (16'(step_i.pre.bank ? mult[1][l] : mult[0][l])),
          .product_o(scaled)
      );
      assign sum[l] = AFFINE_BITS'(scaled) + (step_i.pre.bank ? add[1][l] : add[0][l]);
      assign amount = 6'((step_q.pre.bank ? shift[1][l] : shift[0][l]) + 8'sd16);
      opu_round #(
          .WIDTH(AFFINE_BITS + 16)
      ) u_round (
          .value_i ({product[l], 16'd0}),
          .shift_i (amount),
          .zero_i  (step_q.pre.zero[UNIT]),
          .lo_i    (step_q.pre.lo[UNIT]),
          .hi_i    (step_q.pre.hi[UNIT]),
          .result_o(rounded[l])
      );
    end else begin : g_none
      assign sum[l] = '0;
      assign rounded[l] = '0;
    end
  end

  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    feature_o <= feature_q;
    if (step_q.valid && step_q.pre.units > 3'(UNIT)) begin
      if (EXACT) result = rounded;
      else scale(step_q.pre.bank, AFFINE_BITS'(signed'(step_q.pre.zero[UNIT])), AFFINE_BITS'(signed'(step_q.pre.lo[UNIT])),
          AFFINE_BITS'(signed'(step_q.pre.hi[UNIT])));
      /* verilator unroll_full */
      for (int unsigned l = 0; l < WORD_CHANNELS; l++) feature_o[8*l+:8] <= result[l];
    end
    if (step_i.valid && step_i.pre.units > 3'(UNIT)) begin
      /* verilator unroll_full */
      for (int unsigned l = 0; l < WORD_CHANNELS; l++) value[l] = AFFINE_BITS'(signed'(feature_i[8*l+:8]));
      if (EXACT) product = sum;
      else affine(step_i.pre.bank);
    end
    if (load_i.valid && load_i.unit == 3'(UNIT)) begin
      /* verilator unroll_full */
      for (int unsigned i = 0; i < LOAD_LANES; i++) begin
        add[load_i.bank][32'(load_i.word)*LOAD_LANES+i] = AFFINE_BITS'(signed'(load_data_i[64*i+:32]));
        mult[load_i.bank][32'(load_i.word)*LOAD_LANES+i] = AFFINE_BITS'(signed'(load_data_i[64*i+32+:16]));
        shift[load_i.bank][32'(load_i.word)*LOAD_LANES+i] = load_data_i[64*i+48+:8];
      end
    end
  end
  /* verilator lint_on BLKSEQ */

  always_ff @(posedge clk_i) begin
    feature_q <= feature_i;
    next_q <= next_i;
    next_o <= next_q;
    fill_data_q <= fill_data_i;
    fill_data_o <= fill_data_q;
    step_q <= step_i;
    step_o <= step_q;
    enter_q <= enter_i;
    enter_o <= enter_q;
    fill_q <= fill_i;
    fill_o <= fill_q;
    if (!rst_ni) begin
      step_q.valid <= 1'b0;
      step_o.valid <= 1'b0;
      enter_q.valid <= 1'b0;
      enter_o.valid <= 1'b0;
      fill_q.valid <= 1'b0;
      fill_o.valid <= 1'b0;
    end
  end

  function automatic logic shifts_in_range(logic [WORD_BITS-1:0] parameters);
    shifts_in_range = 1'b1;
    for (int unsigned i = 0; i < LOAD_LANES; i++) begin
      if (signed'(parameters[64*i+48+:8]) > 8'sd47 || signed'(parameters[64*i+48+:8]) < -8'sd16) shifts_in_range = 1'b0;
    end
  endfunction

  `OPU_ASSERT(ShiftInRange, load_i.valid |-> shifts_in_range(load_data_i))

endmodule
