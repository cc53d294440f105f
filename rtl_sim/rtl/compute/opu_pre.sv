// A unit of the pre chain: clamp(rne((v * A + B) / 2**s) + zero, lo, hi) on every lane of the feature words of steps
// that pass more than UNIT units. All else passes unchanged. Latency 10, one word per cycle.
//
//   feature_i --> [x] --> v * A --> + B --> opu_round (3) --> feature_o
//   step_i, enter_i, fill_i ------ delayed by as much ------> step_o, enter_o, fill_o
//
// load_*: records B, A, s (-16..47) of WORD_CHANNELS / 8 lanes for one of the two banks. A bank may be loaded from the
//         cycle on in which the last step that uses it is in its second stage. Steps of a block begin at least 8 cycles
//         after those of the block before. Steps, window and weight words are delayed too, so that they still meet.
//
// In simulation it is one clocked process, last stage first, with blocking assignments to variables that nothing else
// reads (see opu_array_rolled).
`include "opu_assert.svh"

module opu_pre
  import opu_pkg::*;
  import opu_compute_pkg::*;
  import opu_pre_pkg::*;
#(
    parameter int unsigned UNIT = 0
) (
    input  logic                   clk_i,
    input  logic                   rst_ni,

    input  pre_load_t              load_i,
    input  affine_record_t [LOAD_LANES-1:0] load_data_i,
    output logic                   unfit_o,      // a cycle later: a shift of that word is out of range

    input  step_t                  step_i,
    input  enter_t                 enter_i,
    input  logic [WORD_BITS-1:0]   feature_i,
    input  logic [WORD_BITS-1:0]   next_i,
    input  fill_t                  fill_i,
    input  logic [WEIGHT_BITS-1:0] fill_data_i,
    output logic                   drained_o,   // no step inside nor leaving

    output step_t                  step_o,
    output enter_t                 enter_o,
    output logic [WORD_BITS-1:0]   feature_o,
    output logic [WORD_BITS-1:0]   next_o,
    output fill_t                  fill_o,
    output logic [WEIGHT_BITS-1:0] fill_data_o
);

  affine_t add [2][WORD_CHANNELS];
  affine_t mult [2][WORD_CHANNELS];
  logic signed [7:0] shift [2][WORD_CHANNELS];
  affine_t value [WORD_CHANNELS];
  affine_t product [WORD_CHANNELS];
  logic [7:0] result [WORD_CHANNELS];
  localparam int unsigned LATE = 6;  // results, where a simulator has them earlier
  // The newest one in a register of its own: to write elements of an array by bytes is slow in a simulator.
  logic [WORD_BITS-1:0] made_q;
  logic [LATE-2:0][WORD_BITS-1:0] results_q;

  // By the cycles since they entered, less one.
  localparam int unsigned INSIDE = 9;
  step_t step_q [INSIDE];
  enter_t enter_q [INSIDE];
  fill_t fill_q [INSIDE];
  logic [WORD_BITS-1:0] feature_q [INSIDE], next_q [INSIDE];
  logic [WEIGHT_BITS-1:0] fill_data_q [INSIDE];

  logic [INSIDE-1:0] passes;
  logic [INSIDE-1:0] held;
  always_comb begin
    for (int unsigned s = 0; s < INSIDE; s++) held[s] = step_q[s].valid;
    for (int unsigned s = 0; s < INSIDE; s++) passes[s] = step_q[s].valid && step_q[s].pre.units > 3'(UNIT);
  end
  // Computed a cycle early, from the values that move up.
  always_ff @(posedge clk_i) drained_o <= !rst_ni || !(step_i.valid || |held);
  `OPU_ASSERT(DrainedIsNow, drained_o == !(step_o.valid || |held))

  // Units get their parameters 8 cycles after each other, and steps by the latency of the units before them.
  localparam int unsigned LOAD_LATE = (INSIDE + 1 - 8) * UNIT;
  pre_load_t load;
  affine_record_t [LOAD_LANES-1:0] load_data;
  if (LOAD_LATE > 0) begin : g_late
    pre_load_t late_q [LOAD_LATE];
    affine_record_t [LOAD_LANES-1:0] late_data_q [LOAD_LATE];
    always_ff @(posedge clk_i) begin
      late_q[0] <= load_i;
      late_data_q[0] <= load_data_i;
      for (int unsigned s = 1; s < LOAD_LATE; s++) begin
        late_q[s] <= late_q[s-1];
        late_data_q[s] <= late_data_q[s-1];
      end
      if (!rst_ni) for (int unsigned s = 0; s < LOAD_LATE; s++) late_q[s].valid <= 1'b0;
    end
    assign load = late_q[LOAD_LATE-1];
    assign load_data = late_data_q[LOAD_LATE-1];
  end else begin : g_at_once
    assign load = load_i;
    assign load_data = load_data_i;
  end

  // Summands and shifts are used a cycle after the factors, and written a cycle after them.
  logic mine, mine_q;
  /* verilator lint_off UNUSEDSIGNAL */  // the unit
  pre_load_t load_q;
  /* verilator lint_on UNUSEDSIGNAL */
  affine_record_t [LOAD_LANES-1:0] load_data_q;
  assign mine = load.valid && load.unit == 3'(UNIT);

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

  // Where widths are exact (synthesis). Value and divisor are 2**16 times as large: no left shift is left. Parameters
  // that arrive wait until the first step of their block, or the first parameter of the next one; the current ones have
  // no second bank.
  logic [7:0] rounded [WORD_CHANNELS];
  localparam int unsigned SLICED = WORD_CHANNELS / 2;  // lanes with a DSP slice, as many as are left
  logic waits_q, waiting_bank_q, take;
  /* verilator lint_off UNUSEDSIGNAL */  // read where widths are exact
  logic [4:0] took_q;
  /* verilator lint_on UNUSEDSIGNAL */
  assign take = waits_q && ((mine && load.bank != waiting_bank_q)
      || (step_i.valid && step_i.pre.units > 3'(UNIT) && step_i.pre.bank == waiting_bank_q));
  always_ff @(posedge clk_i) begin
    if (mine) waiting_bank_q <= load.bank;
    waits_q <= rst_ni && (mine || (waits_q && !take));
    took_q <= {took_q[3:0], take};
  end

  // Registers with a reset, of which tools make no slow shift registers.
  /* verilator lint_off UNUSEDSIGNAL */  // read where widths are exact
  logic [7:0] zero_q, lo_q, hi_q;
  /* verilator lint_on UNUSEDSIGNAL */
  logic passes_q;
  always_ff @(posedge clk_i) begin
    zero_q <= step_q[5].pre.zero[UNIT];
    lo_q <= step_q[6].pre.lo[UNIT];
    hi_q <= step_q[6].pre.hi[UNIT];
    passes_q <= passes[INSIDE-2];
    if (!rst_ni) {zero_q, lo_q, hi_q, passes_q} <= '0;
  end

  for (genvar l = 0; l < int'(WORD_CHANNELS); l++) begin : g_lane
    if (EXACT) begin : g_exact
      localparam int unsigned WORD = 32'(l) / LOAD_LANES;
      localparam int unsigned PLACE = 32'(l) % LOAD_LANES;
      logic signed [FACTOR_BITS-1:0] next_factor_q, factor_q;
      logic signed [31:0] next_add_q, add_q;
      logic [5:0] next_amount_q, early_amount_q, amount_q;
      logic signed [7:0] x_q;
      logic signed [33:0] product_q;
      always_ff @(posedge clk_i) begin
        if (mine && 32'(load.word) == WORD) next_factor_q <= load_data[PLACE].factor;
        if (mine_q && 32'(load_q.word) == WORD) begin
          next_add_q <= load_data_q[PLACE].add;
          next_amount_q <= load_data_q[PLACE].shift[5:0] + 6'd16;
        end
        if (take) factor_q <= next_factor_q;
        if (took_q[0]) early_amount_q <= next_amount_q;
        if (took_q[4]) amount_q <= early_amount_q;
        x_q <= rst_ni ? feature_i[8*l+:8] : '0;
      end
      if (l < int'(SLICED)) begin : g_slice
        logic signed [FACTOR_BITS+7:0] scaled_q;
        logic signed [33:0] sum_q [3];
        always_ff @(posedge clk_i) begin
          if (took_q[0]) add_q <= next_add_q;
          scaled_q <= (FACTOR_BITS + 8)'(x_q) * (FACTOR_BITS + 8)'(factor_q);
          sum_q <= '{34'(scaled_q) + 34'(add_q), sum_q[0], sum_q[1]};
          product_q <= sum_q[2];
          if (!rst_ni) sum_q[2] <= '0;
        end
      end else begin : g_tables
        logic signed [FACTOR_BITS+7:0] scaled, scaled_q;
        logic signed [31:0] early_add_q;
        opu_multiply_soft #(
            .X_BITS     (8),
            .FACTOR_BITS(FACTOR_BITS)
        ) u_multiply (
            .clk_i,
            .x_i      (x_q),
            .factor_i (factor_q),
            .product_o(scaled)
        );
        always_ff @(posedge clk_i) begin
          if (took_q[0]) early_add_q <= next_add_q;
          if (took_q[3]) add_q <= early_add_q;
          scaled_q <= rst_ni ? scaled : '0;
          product_q <= 34'(scaled_q) + 34'(add_q);
        end
      end
      opu_round #(
          .WIDTH(34),
          .LEFT (16)
      ) u_round (
          .clk_i,
          .value_i (product_q),
          .shift_i (amount_q),
          .zero_i  (zero_q),
          .wraps_i (1'b0),
          .lo_i    (lo_q),
          .hi_i    (hi_q),
          .result_o(rounded[l])
      );
    end else begin : g_none
      assign rounded[l] = '0;
    end
  end

  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    feature_o <= feature_q[INSIDE-1];
    if (passes_q) begin
      /* verilator unroll_full */
      for (int unsigned l = 0; l < WORD_CHANNELS; l++) feature_o[8*l+:8] <= EXACT ? rounded[l] : results_q[LATE-2][8*l+:8];
    end
    if (!EXACT) begin
      results_q <= (WORD_BITS * (LATE - 1))'({results_q, made_q});
      /* verilator unroll_full */
      for (int unsigned l = 0; l < WORD_CHANNELS; l++) made_q[8*l+:8] <= result[l];
    end
    if (!EXACT && passes[1]) begin
      scale(step_q[1].pre.bank, AFFINE_BITS'(signed'(step_q[1].pre.zero[UNIT])), AFFINE_BITS'(signed'(step_q[1].pre.lo[UNIT])),
          AFFINE_BITS'(signed'(step_q[1].pre.hi[UNIT])));
    end
    if (!EXACT && passes[0]) affine(step_q[0].pre.bank);
    /* verilator unroll_full */
    for (int unsigned l = 0; l < WORD_CHANNELS; l++) value[l] = AFFINE_BITS'(signed'(feature_i[8*l+:8]));
    if (mine) begin
      /* verilator unroll_full */
      for (int unsigned i = 0; i < LOAD_LANES; i++) begin
        mult[load.bank][32'(load.word)*LOAD_LANES+i] <= AFFINE_BITS'(signed'(load_data[i].factor));
      end
    end
    if (mine_q) begin
      /* verilator unroll_full */
      for (int unsigned i = 0; i < LOAD_LANES; i++) begin
        add[load_q.bank][32'(load_q.word)*LOAD_LANES+i] <= AFFINE_BITS'(signed'(load_data_q[i].add));
        shift[load_q.bank][32'(load_q.word)*LOAD_LANES+i] <= load_data_q[i].shift;
      end
    end
  end
  /* verilator lint_on BLKSEQ */

  always_ff @(posedge clk_i) begin
    mine_q <= mine && rst_ni;
    load_q <= load;
    load_data_q <= load_data;
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
      for (int unsigned s = 0; s < INSIDE; s++) begin
        step_q[s].valid <= 1'b0;
        enter_q[s].valid <= 1'b0;
        fill_q[s].valid <= 1'b0;
      end
      {step_o, enter_o, fill_o} <= '0;  // not the end of a slow shift register
    end
  end

  /* verilator lint_off UNUSEDSIGNAL */  // shifts only
  function automatic logic shifts_in_range(affine_record_t [LOAD_LANES-1:0] records);
  /* verilator lint_on UNUSEDSIGNAL */
    shifts_in_range = 1'b1;
    for (int unsigned i = 0; i < LOAD_LANES; i++) begin
      if (signed'(records[i].shift) > 8'sd47 || signed'(records[i].shift) < -8'sd16) shifts_in_range = 1'b0;
    end
  endfunction

  always_ff @(posedge clk_i) unfit_o <= rst_ni && mine && !shifts_in_range(load_data);

endmodule
