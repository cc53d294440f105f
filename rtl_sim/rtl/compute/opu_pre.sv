// A unit of the pre chain: clamp(rne((v * A + B) / 2**s) + zero, lo, hi) on every lane of the feature words of steps that pass
// more than UNIT units; everything else passes unchanged. Latency 4, one word per cycle.
//
// load_*: one parameter word into one of the two banks; the word holds 8 bytes for each of WORD_CHANNELS / 8 lanes: int32 B,
//         int16 A, int8 s (-16..47), zero. A bank may be loaded from the cycle on in which the last step that uses it is in
//         its second stage.
// Steps, window and weight words travel along, so that they still meet.
//
// One clocked process, last stage first, blocking assignments to variables nothing else reads (see opu_array).
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
    output logic                   unfit_o,      // a cycle later: a shift of that word is out of range

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

  // By the cycles since they entered, less one.
  localparam int unsigned INSIDE = 3;
  step_t step_q [INSIDE];
  enter_t enter_q [INSIDE];
  fill_t fill_q [INSIDE];
  logic [WORD_BITS-1:0] feature_q [INSIDE], next_q [INSIDE];
  logic [WEIGHT_BITS-1:0] fill_data_q [INSIDE];
  assign drained_o = !(step_q[0].valid || step_q[1].valid || step_q[2].valid);

  logic [INSIDE-1:0] passes;
  always_comb begin
    for (int unsigned s = 0; s < INSIDE; s++) passes[s] = step_q[s].valid && step_q[s].pre.units > 3'(UNIT);
  end

  // Summands and shifts are used a cycle behind the factors, and written a cycle behind them.
  pre_load_t load_q;
  logic [WORD_BITS-1:0] load_data_q;

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
  logic [7:0] rounded [WORD_CHANNELS];
  /* verilator lint_off UNUSEDSIGNAL */  // read where widths are exact
  logic signed [8:0] floor_q, ceiling_q;
  /* verilator lint_on UNUSEDSIGNAL */
  always_ff @(posedge clk_i) begin
    floor_q <= 9'(signed'(step_q[1].pre.zero[UNIT])) - 9'(signed'(step_q[1].pre.lo[UNIT]));
    ceiling_q <= 9'(signed'(step_q[1].pre.hi[UNIT])) - 9'(signed'(step_q[1].pre.zero[UNIT]));
  end
  for (genvar l = 0; l < int'(WORD_CHANNELS); l++) begin : g_lane
    if (EXACT) begin : g_exact
      logic signed [23:0] scaled;
      affine_t product_q;
      logic [5:0] amount;
      opu_multiply_soft #(
          .X_BITS     (8),
          .FACTOR_BITS(16)
      ) u_multiply (
          .clk_i,
          .x_i      (feature_i[8*l+:8]),
          .factor_i (16'(step_i.pre.bank ? mult[1][l] : mult[0][l])),
          .product_o(scaled)
      );
      always_ff @(posedge clk_i) product_q <= AFFINE_BITS'(scaled) + (step_q[0].pre.bank ? add[1][l] : add[0][l]);
      assign amount = 6'((step_q[1].pre.bank ? shift[1][l] : shift[0][l]) + 8'sd16);
      opu_round #(
          .WIDTH(AFFINE_BITS + 16)
      ) u_round (
          .clk_i,
          .value_i ({product_q, 16'd0}),
          .shift_i (amount),
          .zero_i  (step_q[2].pre.zero[UNIT]),
          .lo_i    (step_q[2].pre.lo[UNIT]),
          .hi_i    (step_q[2].pre.hi[UNIT]),
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
    feature_o <= feature_q[2];
    if (passes[2]) begin
      /* verilator unroll_full */
      for (int unsigned l = 0; l < WORD_CHANNELS; l++) feature_o[8*l+:8] <= EXACT ? rounded[l] : result[l];
    end
    if (!EXACT && passes[1]) begin
      scale(step_q[1].pre.bank, AFFINE_BITS'(signed'(step_q[1].pre.zero[UNIT])), AFFINE_BITS'(signed'(step_q[1].pre.lo[UNIT])),
          AFFINE_BITS'(signed'(step_q[1].pre.hi[UNIT])));
    end
    if (!EXACT && passes[0]) affine(step_q[0].pre.bank);
    /* verilator unroll_full */
    for (int unsigned l = 0; l < WORD_CHANNELS; l++) value[l] = AFFINE_BITS'(signed'(feature_i[8*l+:8]));
    if (load_i.valid && load_i.unit == 3'(UNIT)) begin
      /* verilator unroll_full */
      for (int unsigned i = 0; i < LOAD_LANES; i++) begin
        mult[load_i.bank][32'(load_i.word)*LOAD_LANES+i] <= AFFINE_BITS'(signed'(load_data_i[64*i+32+:16]));
      end
    end
    if (load_q.valid && load_q.unit == 3'(UNIT)) begin
      /* verilator unroll_full */
      for (int unsigned i = 0; i < LOAD_LANES; i++) begin
        add[load_q.bank][32'(load_q.word)*LOAD_LANES+i] <= AFFINE_BITS'(signed'(load_data_q[64*i+:32]));
        shift[load_q.bank][32'(load_q.word)*LOAD_LANES+i] <= load_data_q[64*i+48+:8];
      end
    end
  end
  /* verilator lint_on BLKSEQ */

  always_ff @(posedge clk_i) begin
    load_q <= load_i;
    load_data_q <= load_data_i;
    step_q[0] <= step_i;
    enter_q[0] <= enter_i;
    fill_q[0] <= fill_i;
    feature_q[0] <= feature_i;
    next_q[0] <= next_i;
    fill_data_q[0] <= fill_data_i;
    for (int unsigned s = 1; s < INSIDE; s++) begin
      step_q[s] <= step_q[s-1];
      enter_q[s] <= enter_q[s-1];
      fill_q[s] <= fill_q[s-1];
      feature_q[s] <= feature_q[s-1];
      next_q[s] <= next_q[s-1];
      fill_data_q[s] <= fill_data_q[s-1];
    end
    step_o <= step_q[INSIDE-1];
    enter_o <= enter_q[INSIDE-1];
    fill_o <= fill_q[INSIDE-1];
    next_o <= next_q[INSIDE-1];
    fill_data_o <= fill_data_q[INSIDE-1];
    if (!rst_ni) begin
      load_q.valid <= 1'b0;
      for (int unsigned s = 0; s < INSIDE; s++) begin
        step_q[s].valid <= 1'b0;
        enter_q[s].valid <= 1'b0;
        fill_q[s].valid <= 1'b0;
      end
      step_o.valid <= 1'b0;
      enter_o.valid <= 1'b0;
      fill_o.valid <= 1'b0;
    end
  end

  function automatic logic shifts_in_range(logic [WORD_BITS-1:0] parameters);
    shifts_in_range = 1'b1;
    for (int unsigned i = 0; i < LOAD_LANES; i++) begin
      if (signed'(parameters[64*i+48+:8]) > 8'sd47 || signed'(parameters[64*i+48+:8]) < -8'sd16) shifts_in_range = 1'b0;
    end
  endfunction

  always_ff @(posedge clk_i) unfit_o <= rst_ni && load_i.valid && !shifts_in_range(load_data_i);

endmodule
