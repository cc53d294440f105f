// Head of the post chain: partial sums to int8. REQUANT: clamp(rne((v + bias) * mult / 2**shift) + zero), or the low 8
// bits. Latency 9, one word per cycle.
//
//   psum_i --> [v + bias] --> product (5 cycles) --> opu_round (3 cycles) --> value_o
//
// load_*: one parameter word into one of the two banks of parameters. The word holds 8 bytes for each of an eighth of
//         its channels: int32 bias, uint16 mult, int8 shift (0..47), zero. A bank may be loaded from the cycle on in
//         which the first item comes that uses the other one, at least 8 cycles after the one before that did so. Its
//         last word may come in the cycle before the first item that uses it. Without multipliers (MULT_BITS 0) mult is
//         0 or 1 and shift -16..47.
// coming_i: what item_i is in the next cycle.
//
// In simulation it is one clocked process, last stage first, with blocking assignments to variables that nothing else
// reads (see opu_array_rolled).
`include "opu_assert.svh"

module opu_requant
  import opu_pkg::*;
  import opu_post_pkg::*;
(
    input  logic                 clk_i,
    input  logic                 rst_ni,

    input  logic                 load_we_i,
    input  logic                 load_bank_i,
    input  logic [3:0]           load_word_i,
    input  logic [WORD_BITS-1:0] load_data_i,
    output logic                 unfit_o,    // a cycle later: no machine like this computes with that word

    input  logic                 requant_i,  // else narrow; constant while items are inside
    input  logic signed [7:0]    zero_i,

    /* verilator lint_off UNUSEDSIGNAL */  // whether it is one, and its bank
    input  item_t                coming_i,
    /* verilator lint_on UNUSEDSIGNAL */
    input  item_t                item_i,
    input  logic [4*LANES_BITS-1:0] psum_i,

    output item_t                item_o,
    output lanes_t               value_o
);

  `OPU_ASSERT_STATIC(ChannelsInEights, WORD_CHANNELS % 8 == 0)
  `OPU_ASSERT_STATIC(EightWordsABlock, PARAM_BLOCK_WORDS == 8)

  logic signed [31:0] bias [RECORDS][LANES];
  logic [15:0] mult [RECORDS][LANES];
  logic signed [6:0] shift [RECORDS][LANES];
  logic signed [31:0] psum [LANES];
  requant_t sum [LANES];
  requant_t early [LANES];    // the product, where a simulator has it a cycle earlier
  requant_t product [LANES];
  logic [7:0] y [LANES];
  localparam int unsigned LATE = 5;  // results, where a simulator has them earlier
  lanes_t made_q;  // the newest one: to write elements of an array by bytes is slow in a simulator
  logic [LATE-2:0][LANES_BITS-1:0] late_q;

  // Shifts are used some cycles after the factors, and written as many after them.
  localparam int unsigned SHIFT_LATE = EXACT ? 4 : 1;
  logic [SHIFT_LATE-1:0] shift_we_q, shift_bank_q;
  logic [3:0] shift_word_q [SHIFT_LATE];
  logic [WORD_CHANNELS/8-1:0][6:0] shift_data_q [SHIFT_LATE];

  localparam int unsigned LATENCY = 9;
  item_t item_q [LATENCY];  // by the cycles since they entered, less one
  assign item_o = item_q[LATENCY-1];

  // Loops in functions, rolled, parameters as arguments: a simulator's compiler sees vectors (see opu_array).
  function automatic void add_bias(record_t record, logic requant);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) begin
      sum[l] = REQUANT_BITS'(psum[l]) + (requant ? REQUANT_BITS'(bias[record][l]) : '0);
    end
  endfunction

  function automatic void multiply(record_t record, logic requant);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) begin
      automatic requant_t factor = requant ? REQUANT_BITS'({1'b0, mult[record][l]}) : requant_t'(1);
      if (MULT_BITS > 0) early[l] = sum[l] * factor;
      else early[l] = factor[0] ? sum[l] << ((requant && shift[record][l] < 0) ? 5'(-shift[record][l]) : 5'd0) : '0;
    end
  endfunction

  function automatic void scale(record_t record, requant_t zero);
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) begin
      automatic logic [5:0] amount = (shift[record][l] < 0) ? '0 : shift[record][l][5:0];
      automatic requant_t half = (amount == '0) ? '0 : (requant_t'(1) << (amount - 6'd1)) - requant_t'(1);
      automatic requant_t odd = (amount == '0) ? '0 : (product[l] >>> amount) & requant_t'(1);
      automatic requant_t wide = ((product[l] + half + odd) >>> amount) + zero;
      y[l] = (wide < -requant_t'(128)) ? 8'h80 : (wide > requant_t'(127)) ? 8'h7f : wide[7:0];
    end
  endfunction

  function automatic void narrow();
    /* verilator unroll_disable */
    for (int unsigned l = 0; l < LANES; l++) y[l] = product[l][7:0];
  endfunction

  // Where widths are exact (synthesis): a DSP slice has 25 x 18 bits, so the highest bits of the sum are multiplied in
  // tables, which take three cycles more. Two slices of 18 x 18 bits take both parts. Without multipliers value and
  // divisor are 2**16 times as large when they are rounded: no left shift is left.
  localparam int unsigned LEFT = (MULT_BITS > 0) ? 0 : 16;
  localparam int unsigned LOW_BITS = SHORT_SLICES ? 17 : 24;
  /* verilator lint_off UNUSEDSIGNAL */  // read where widths are exact
  logic signed [7:0] zero_q;
  /* verilator lint_on UNUSEDSIGNAL */
  logic [7:0] rounded [LANES];
  always_ff @(posedge clk_i) zero_q <= requant_i ? zero_i : '0;

  // With one beat a word, parameters need no second bank: the next ones wait in registers until their first item
  // arrives.
  logic next_q, next_bank_q, take;
  /* verilator lint_off UNUSEDSIGNAL */  // read where widths are exact
  logic [5:0] took_q;
  /* verilator lint_on UNUSEDSIGNAL */
  assign take = coming_i.valid && (load_we_i ? coming_i.bank == load_bank_i : next_q && coming_i.bank == next_bank_q);
  always_ff @(posedge clk_i) begin
    if (load_we_i) next_bank_q <= load_bank_i;
    next_q <= rst_ni && (load_we_i || next_q) && !take;
    took_q <= {took_q[4:0], take};
  end

  for (genvar l = 0; l < int'(LANES); l++) begin : g_lane
    if (EXACT) begin : g_exact
      logic signed [32:0] sum_q;
      logic [15:0] factor_q;            // with the sum
      logic [5:0] early_q, amount_q;    // with the factor, with the product
      if (BEATS == 1) begin : g_next
        localparam int unsigned LOAD_LANES = WORD_CHANNELS / 8;
        localparam int unsigned WORD = 32'(l) / LOAD_LANES;
        localparam int unsigned PLACE = 32'(l) % LOAD_LANES;
        logic signed [31:0] next_bias, next_bias_q, bias_q;
        logic [15:0] next_factor_q;
        logic [5:0] next_amount_q;
        logic mine;
        assign mine = load_we_i && load_word_i == 4'(WORD);
        assign next_bias = (WORD == PARAM_BLOCK_WORDS - 1 && mine) ? load_data_i[64*PLACE+:32] : next_bias_q;
        always_ff @(posedge clk_i) begin
          if (mine) begin
            next_bias_q <= load_data_i[64*PLACE+:32];
            next_factor_q <= load_data_i[64*PLACE+32+:16];
            next_amount_q <= 6'(load_data_i[64*PLACE+48+:7] + 7'(LEFT));
          end
          if (take) bias_q <= next_bias;
          if (!requant_i) bias_q <= '0;
          if (took_q[0]) begin
            factor_q <= next_factor_q;
            early_q <= next_amount_q;
          end
          if (!requant_i) factor_q <= 16'd1;
          if (took_q[5]) amount_q <= early_q;
          if (!requant_i) amount_q <= 6'(LEFT);
          if (item_i.valid) sum_q <= 33'(signed'(psum_i[32*l+:32])) + 33'(bias_q);  // enabled, so none of a slow shift register
        end
      end else begin : g_records
        assign early_q = 6'(shift[record_of(item_q[4].bank, 32'(item_q[4].beat))][l] + 7'(LEFT));
        always_ff @(posedge clk_i) begin
          factor_q <= !requant_i ? 16'd1 : mult[record_of(item_i.bank, 32'(item_i.beat))][l];
          amount_q <= !requant_i ? 6'(LEFT) : early_q;
          if (item_i.valid) begin
            sum_q <= 33'(signed'(psum_i[32*l+:32])) + (requant_i ? 33'(bias[record_of(item_i.bank, 32'(item_i.beat))][l]) : '0);
          end
        end
      end

      // Until the tables are done. One of the registers has a reset, or tools would make slow shift registers of them.
      logic signed [32:0] waiting_q [3];
      logic [15:0] waiting_factor_q [3];
      requant_t product_q;
      always_ff @(posedge clk_i) begin
        waiting_q <= '{sum_q, waiting_q[0], waiting_q[1]};
        waiting_factor_q <= '{factor_q, waiting_factor_q[0], waiting_factor_q[1]};
        if (!rst_ni) begin
          waiting_q[1] <= '0;
          waiting_factor_q[1] <= '0;
        end
      end

      if (MULT_BITS > 0) begin : g_multiply
        logic signed [49-LOW_BITS:0] high_q;
        logic [LOW_BITS+15:0] low_q;
        logic [47:0] sum_of_both_q;
        logic negative_q;
        if (SHORT_SLICES) begin : g_short
          always_ff @(posedge clk_i) begin
            high_q <= (50 - LOW_BITS)'(signed'(waiting_q[2][32:LOW_BITS])) * (50 - LOW_BITS)'(signed'({1'b0, waiting_factor_q[2]}));
          end
        end else begin : g_long
          logic signed [49-LOW_BITS:0] high;
          opu_multiply_soft #(
              .X_BITS      (33 - LOW_BITS),
              .FACTOR_BITS (17)
          ) u_multiply (
              .clk_i,
              .x_i      (sum_q[32:LOW_BITS]),
              .factor_i ({1'b0, factor_q}),
              .product_o(high)
          );
          always_ff @(posedge clk_i) high_q <= rst_ni ? high : '0;
        end
        // The highest bit of the product is known by then: the sum is one of 48 bits, a slice's.
        always_ff @(posedge clk_i) begin
          low_q <= (LOW_BITS + 16)'(waiting_q[2][LOW_BITS-1:0]) * (LOW_BITS + 16)'(waiting_factor_q[2]);
          sum_of_both_q <= 48'(low_q) + {high_q[47-LOW_BITS:0], {LOW_BITS{1'b0}}};
          negative_q <= high_q[49-LOW_BITS];
        end
        assign product_q = {negative_q, sum_of_both_q};
      end else begin : g_power
        requant_t scaled_q;
        always_ff @(posedge clk_i) begin
          scaled_q <= waiting_factor_q[2][0] ? REQUANT_BITS'(waiting_q[2]) : '0;
          product_q <= scaled_q;
        end
      end
      opu_round #(
          .WIDTH (REQUANT_BITS),
          .LEFT  (LEFT),
          .CLAMPS(1'b0)
      ) u_round (
          .clk_i,
          .value_i (product_q),
          .shift_i (amount_q),
          .zero_i  (zero_q),
          .wraps_i (!requant_i),
          .lo_i    ('0),
          .hi_i    ('0),
          .result_o(rounded[l])
      );
    end else begin : g_none
      assign rounded[l] = '0;
    end
  end

  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    if (!EXACT) begin
      late_q <= (LANES_BITS * (LATE - 1))'({late_q, made_q});
      /* verilator unroll_full */
      for (int unsigned l = 0; l < LANES; l++) made_q[8*l+:8] <= y[l];
      if (item_q[2].valid && item_q[2].present) begin
        if (requant_i) scale(record_of(item_q[2].bank, 32'(item_q[2].beat)), REQUANT_BITS'(zero_i));
        else narrow();
      end
      if (item_q[1].valid && item_q[1].present) product = early;
      if (item_q[0].valid && item_q[0].present) multiply(record_of(item_q[0].bank, 32'(item_q[0].beat)), requant_i);
    end
    if (!EXACT && item_i.valid && item_i.present) begin
      /* verilator unroll_full */
      for (int unsigned l = 0; l < LANES; l++) psum[l] = psum_i[32*l+:32];
      add_bias(record_of(item_i.bank, 32'(item_i.beat)), requant_i);
    end
    if (load_we_i) begin
      /* verilator unroll_full */
      for (int unsigned i = 0; i < WORD_CHANNELS / 8; i++) begin
        automatic int unsigned lane = 32'(load_word_i) * (WORD_CHANNELS / 8) + i;
        bias[record_of(load_bank_i, lane / LANES)][lane%LANES] <= load_data_i[64*i+:32];
        mult[record_of(load_bank_i, lane / LANES)][lane%LANES] <= load_data_i[64*i+32+:16];
      end
    end
    if (shift_we_q[SHIFT_LATE-1]) begin
      /* verilator unroll_full */
      for (int unsigned i = 0; i < WORD_CHANNELS / 8; i++) begin
        automatic int unsigned lane = 32'(shift_word_q[SHIFT_LATE-1]) * (WORD_CHANNELS / 8) + i;
        shift[record_of(shift_bank_q[SHIFT_LATE-1], lane / LANES)][lane%LANES] <= shift_data_q[SHIFT_LATE-1][i];
      end
    end
  end
  /* verilator lint_on BLKSEQ */

  always_comb begin
    value_o = late_q[LATE-2];
    if (EXACT) begin
      for (int unsigned l = 0; l < LANES; l++) value_o[8*l+:8] = rounded[l];
    end
  end

  always_ff @(posedge clk_i) begin
    item_q[0] <= item_i;
    for (int unsigned s = 1; s < LATENCY; s++) item_q[s] <= item_q[s-1];
    shift_we_q <= SHIFT_LATE'({shift_we_q, load_we_i});
    shift_bank_q <= SHIFT_LATE'({shift_bank_q, load_bank_i});
    for (int unsigned s = 1; s < SHIFT_LATE; s++) begin
      shift_word_q[s] <= shift_word_q[s-1];
      shift_data_q[s] <= shift_data_q[s-1];
    end
    shift_word_q[0] <= load_word_i;
    for (int unsigned i = 0; i < WORD_CHANNELS / 8; i++) shift_data_q[0][i] <= load_data_i[64*i+48+:7];
    if (!rst_ni) begin
      shift_we_q <= '0;
      for (int unsigned s = 0; s < LATENCY; s++) item_q[s].valid <= 1'b0;
      item_q[LATENCY-1] <= '0;  // not the end of a slow shift register
    end
  end

  function automatic logic in_range(logic [WORD_BITS-1:0] parameters);
    in_range = 1'b1;
    for (int unsigned i = 0; i < WORD_CHANNELS / 8; i++) begin
      automatic logic signed [7:0] amount = parameters[64*i+48+:8];
      if (amount > 8'sd47 || amount < ((MULT_BITS > 0) ? 8'sd0 : -8'sd16)) in_range = 1'b0;
      if (MULT_BITS == 0 && parameters[64*i+33+:15] != '0) in_range = 1'b0;
    end
  endfunction

  always_ff @(posedge clk_i) unfit_o <= rst_ni && load_we_i && !in_range(load_data_i);

  `OPU_ASSERT(NextAreTaken, load_we_i && next_q |-> load_bank_i == next_bank_q)
  `OPU_ASSERT(ComingComes, item_i.valid |-> $past(coming_i.valid) && $past(coming_i.bank) == item_i.bank)

endmodule
