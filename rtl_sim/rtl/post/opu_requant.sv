// Head of the post chain: partial sums to int8. REQUANT: clamp(rne((v + bias) * mult / 2**shift) + zero), or the low 8
// bits. Latency 5, one word per cycle.
//
// load_*: one parameter word into one of the two banks of parameters; the word holds 8 bytes for each of an eighth of its
//         channels: int32 bias, uint16 mult, int8 shift (0..47), zero. A bank may be loaded from the cycle on in which the
//         last item that uses it is in its third stage. Without multipliers (MULT_BITS 0) mult is 0 or 1 and shift
//         -16..47.
//
// One clocked process, last stage first, blocking assignments to variables nothing else reads (see opu_array).
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

  item_t sum_item_q, multiply_item_q, product_item_q, round_item_q;

  // Shifts are used two cycles behind the factors, and written a cycle behind them.
  logic shift_we_q, shift_bank_q;
  logic [3:0] shift_word_q;
  logic [WORD_CHANNELS/8-1:0][6:0] shift_data_q;

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

  // Where widths are exact (synthesis): a DSP slice has 25 x 18 bits, so the highest bits of the sum are multiplied in tables. Two
  // slices of 18 x 18 bits take both parts.
  // Without multipliers value and divisor are 2**16 times as large when they are rounded: no left shift is left.
  localparam int unsigned LEFT = (MULT_BITS > 0) ? 0 : 16;
  /* verilator lint_off UNUSEDSIGNAL */  // read where widths are exact
  logic signed [32:0] sum_q [LANES];
  /* verilator lint_on UNUSEDSIGNAL */
  logic [7:0] rounded [LANES];
  logic [7:0] narrowed [LANES];
  /* verilator lint_off UNUSEDSIGNAL */  // read where widths are exact
  logic signed [8:0] floor_q, ceiling_q;  // from the lowest value, to the highest one
  /* verilator lint_on UNUSEDSIGNAL */
  always_ff @(posedge clk_i) begin
    floor_q <= 9'(zero_i) + 9'sd128;
    ceiling_q <= 9'sd127 - 9'(zero_i);
  end
  for (genvar l = 0; l < int'(LANES); l++) begin : g_lane
    if (EXACT) begin : g_exact
      logic signed [6:0] amount_q;  // beside the product
      requant_t product_q;
      always_ff @(posedge clk_i) amount_q <= shift[record_of(multiply_item_q.bank, 32'(multiply_item_q.turn))][l];
      if (MULT_BITS > 0) begin : g_multiply
        logic [15:0] factor_q;  // beside the sum: no multiplexer in front of the multiplier
        localparam int unsigned LOW_BITS = SHORT_SLICES ? 17 : 24;
        logic signed [49-LOW_BITS:0] high;
        logic signed [LOW_BITS+16:0] low_q;
        if (SHORT_SLICES) begin : g_short
          always_ff @(posedge clk_i) begin
            high <= (50 - LOW_BITS)'(signed'(sum_q[l][32:LOW_BITS])) * (50 - LOW_BITS)'(signed'({1'b0, factor_q}));
          end
        end else begin : g_long
          opu_multiply_soft #(
              .X_BITS      (33 - LOW_BITS),
              .FACTOR_BITS (17),
              .FIRST_DIGITS(3)
          ) u_multiply (
              .clk_i,
              .x_i      (sum_q[l][32:LOW_BITS]),
              .factor_i ({1'b0, factor_q}),
              .product_o(high)
          );
        end
        always_ff @(posedge clk_i) begin
          factor_q <= !requant_i ? 16'd1 : mult[record_of(item_i.bank, 32'(item_i.turn))][l];
          low_q <= (LOW_BITS + 17)'(sum_q[l][LOW_BITS-1:0]) * (LOW_BITS + 17)'(factor_q);
          product_q <= REQUANT_BITS'(low_q) + (REQUANT_BITS'(high) <<< LOW_BITS);
        end
      end else begin : g_power
        requant_t scaled_q;
        always_ff @(posedge clk_i) begin
          scaled_q <= (!requant_i || mult[record_of(sum_item_q.bank, 32'(sum_item_q.turn))][l][0]) ? REQUANT_BITS'(sum_q[l]) : '0;
          product_q <= scaled_q;
        end
      end
      opu_round #(
          .WIDTH(REQUANT_BITS)
      ) u_round (
          .clk_i,
          .value_i (product_q <<< LEFT),
          .shift_i (6'(amount_q + 7'(LEFT))),
          .zero_i,
          .lo_i    (-8'sd128),
          .hi_i    (8'sd127),
          .floor_i (floor_q),
          .ceiling_i(ceiling_q),
          .result_o(rounded[l])
      );
      always_ff @(posedge clk_i) if (!requant_i) narrowed[l] <= product_q[7:0];
    end else begin : g_none
      assign rounded[l] = '0;
      assign narrowed[l] = '0;
    end
  end

  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    /* verilator unroll_full */
    for (int unsigned l = 0; l < LANES; l++) value_o[8*l+:8] <= !EXACT ? y[l] : requant_i ? rounded[l] : narrowed[l];
    if (!EXACT) begin
      if (product_item_q.valid && product_item_q.present) begin
        if (requant_i) scale(record_of(product_item_q.bank, 32'(product_item_q.turn)), REQUANT_BITS'(zero_i));
        else narrow();
      end
      if (multiply_item_q.valid && multiply_item_q.present) product = early;
      if (sum_item_q.valid && sum_item_q.present) multiply(record_of(sum_item_q.bank, 32'(sum_item_q.turn)), requant_i);
    end
    if (item_i.valid && item_i.present) begin
      /* verilator unroll_full */
      for (int unsigned l = 0; l < LANES; l++) psum[l] = psum_i[32*l+:32];
      add_bias(record_of(item_i.bank, 32'(item_i.turn)), requant_i);
      if (EXACT) begin
        /* verilator unroll_full */
        for (int unsigned l = 0; l < LANES; l++) sum_q[l] <= 33'(sum[l]);
      end
    end
    if (load_we_i) begin
      /* verilator unroll_full */
      for (int unsigned i = 0; i < WORD_CHANNELS / 8; i++) begin
        automatic int unsigned lane = 32'(load_word_i) * (WORD_CHANNELS / 8) + i;
        bias[record_of(load_bank_i, lane / LANES)][lane%LANES] <= load_data_i[64*i+:32];
        mult[record_of(load_bank_i, lane / LANES)][lane%LANES] <= load_data_i[64*i+32+:16];
      end
    end
    if (shift_we_q) begin
      /* verilator unroll_full */
      for (int unsigned i = 0; i < WORD_CHANNELS / 8; i++) begin
        automatic int unsigned lane = 32'(shift_word_q) * (WORD_CHANNELS / 8) + i;
        shift[record_of(shift_bank_q, lane / LANES)][lane%LANES] <= shift_data_q[i];
      end
    end
  end
  /* verilator lint_on BLKSEQ */

  always_ff @(posedge clk_i) begin
    sum_item_q <= item_i;
    multiply_item_q <= sum_item_q;
    product_item_q <= multiply_item_q;
    round_item_q <= product_item_q;
    item_o <= round_item_q;
    shift_we_q <= load_we_i && rst_ni;
    shift_bank_q <= load_bank_i;
    shift_word_q <= load_word_i;
    for (int unsigned i = 0; i < WORD_CHANNELS / 8; i++) shift_data_q[i] <= load_data_i[64*i+48+:7];
    if (!rst_ni) begin
      sum_item_q.valid <= 1'b0;
      multiply_item_q.valid <= 1'b0;
      round_item_q.valid <= 1'b0;
      product_item_q.valid <= 1'b0;
      item_o.valid <= 1'b0;
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

endmodule
