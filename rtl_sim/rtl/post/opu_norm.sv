// NORM: passes of Softmax, LayerNorm and RMSNorm over the channels of a pixel, of Softmax over each quarter of a word, and
// of GroupNorm over a map (docs/machine.md). Latency 21, one item per cycle. Passes of statistics have no results: opu_post writes nothing in them.
//
//   cycle   0         2                3            4           6              7         8          9
//   value_i --------> [maximum - x] -> [+ table] -> norm memory -> term --+
//        |            [x - zero] ------------------------------> x ------> [operands] -> [a * b] -> [- offset] -+-> ..
//        |                                     4..6: factor, offset, shift ---^                                 +--> opu_norm_statistics
//
//   9 --> [shift by 16s] -> [by 4s] -> [by 1s] -> 12 -> [round] -> 13 -> [u * gain] -> [+ offset] -> 15 -> opu_round --> 18
//   18 -> [norm_zero where there is no channel] -> two registers -> 21: value_o
//
// a * b: EXPSUM term * 1; SOFTMAX term * factor; MOMENTS, SQUARES (x - zero)**2; NORMALISE factor * x. Passes of maps do
// as the others, with the statistics of pixel 0. SOFTMAX then has gain 1 and offset 0. A factor of 2**24 does not fit the signed port of a multiplier: -2**24 times -x does.
//
// load_*: one parameter word into one of the two banks of records: 8 bytes for each of an eighth of its channels: int16
//         gain, uint8 gain_shift (its low six bits), an unused byte, int32 offset. A bank must not be loaded while items use it.
// re_o, addr_o, rdata_i: norm memory, 24 bits a lane, two cycles later.
`include "opu_assert.svh"

module opu_norm
  import opu_pkg::*;
  import opu_post_pkg::*;
(
    input  logic                 clk_i,
    input  logic                 rst_ni,

    input  logic [3:0]           op_i,
    /* verilator lint_off UNUSEDSIGNAL */  // as wide as its register; its upper bits are unused
    input  logic [VALUE_BITS-1:0] table_i,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic [7:0]           idle_i,
    input  logic signed [7:0]    zero_i,
    input  logic [15:0]          scale_i,
    input  logic signed [6:0]    shift_i,

    input  logic                 load_we_i,
    input  logic                 load_bank_i,
    input  logic [3:0]           load_word_i,
    input  logic [WORD_BITS-1:0] load_data_i,

    output logic                 re_o,
    output norm_addr_t [LANES-1:0] addr_o,
    input  logic [LANES-1:0][23:0] rdata_i,

    input  item_t                item_i,
    input  lanes_t               value_i,
    output item_t                item_o,
    output lanes_t               value_o
);

  localparam int unsigned LATENCY = 21;
  localparam int unsigned LOAD_LANES = WORD_CHANNELS / 8;

  item_t item_q [LATENCY];  // by the cycles since they entered, less one
  assign item_o = item_q[LATENCY-1];

  logic softmaxes, normalises, exponential, squares;  // constant while items are inside
  assign softmaxes = op_i inside {NORM_SOFTMAX, NORM_QUARTER_SOFTMAX};
  assign normalises = op_i inside {NORM_NORMALISE, NORM_MAP_NORMALISE};
  assign exponential = norm_adds_exponentials(op_i);
  assign squares = op_i == NORM_SQUARES;

  // Lanes of the last block that hold a channel, for each beat. Sums of quarters are those of one quarter of a beat.
  function automatic logic is_summed(logic [3:0] op, int unsigned lane);
    is_summed = !(op == NORM_QUARTER_EXPSUM && half_of(lane) == 1) && !(op == NORM_QUARTER_EXPSUM_ODD && half_of(lane) == 0);
  endfunction
  logic [WORD_CHANNELS-1:0] holds_q;
  always_ff @(posedge clk_i) begin
    for (int unsigned l = 0; l < WORD_CHANNELS; l++) holds_q[l] <= l + 32'(idle_i) < WORD_CHANNELS && is_summed(op_i, l);
  end
  function automatic logic [LANES-1:0] present_of(logic last_block, int unsigned beat);
    present_of = last_block ? holds_q[LANES*beat+:LANES] : '1;
  endfunction

  // ---- statistics of the pixel --------------------------------------------------------------------------------------

  logic signed [7:0] maximum [NORM_HALVES];  // of item 2, for each half of a beat
  logic [24:0] factor [NORM_HALVES];         // of item 6
  logic signed [31:0] offset;
  logic signed [32:0] less_q [2];  // the offset with its sign changed; 0 in passes of statistics
  logic [5:0] shift [NORM_HALVES], shift_q [NORM_HALVES][5];
  logic [LANES-1:0][23:0] term;        // of item 9
  logic [LANES-1:0][8:0] centred;

  opu_norm_statistics u_statistics (
      .clk_i,
      .rst_ni,
      .op_i,
      .idle_i,
      .zero_i,
      .scale_i,
      .shift_i,
      .item_i,
      .maximum_o(maximum),
      .factor_o (factor),
      .offset_o (offset),
      .shift_o  (shift),
      .terms_i  (term),
      .values_i (centred)
  );

  always_ff @(posedge clk_i) begin
    less_q <= '{norm_has_results(op_i) ? -33'(offset) : '0, less_q[0]};
    for (int unsigned h = 0; h < NORM_HALVES; h++) begin
      // The reset keeps them out of the shift registers of LUTs, which take long to read.
      shift_q[h] <= rst_ni ? '{shift[h], shift_q[h][0], shift_q[h][1], shift_q[h][2], shift_q[h][3]} : '{default: '0};
    end
  end

  // ---- lanes --------------------------------------------------------------------------------------------------------

  assign re_o = item_q[3].valid && (exponential || softmaxes);
  logic [LANES-1:0] present_q, result_present_q;  // of items 6, 18
  always_ff @(posedge clk_i) begin
    present_q <= present_of(item_q[4].last_block, 32'(item_q[4].beat));
    result_present_q <= present_of(item_q[16].last_block, 32'(item_q[16].beat));
  end

  for (genvar l = 0; l < int'(LANES); l++) begin : g_lane
    localparam int unsigned HALF = half_of(l);
    // Records of the channels.
    logic [15:0] gains [RECORDS];
    logic [31:0] offsets [RECORDS];
    logic [5:0] gain_shift [RECORDS];
    always_ff @(posedge clk_i) begin
      for (int unsigned b = 0; b < BEATS; b++) begin
        automatic int unsigned channel = b * LANES + 32'(l);
        automatic int unsigned place = channel % LOAD_LANES;
        if (load_we_i && 32'(load_word_i) == channel / LOAD_LANES) begin
          gains[record_of(load_bank_i, b)] <= load_data_i[64*place+:16];
          gain_shift[record_of(load_bank_i, b)] <= load_data_i[64*place+16+:6];
          offsets[record_of(load_bank_i, b)] <= load_data_i[64*place+32+:32];
        end
      end
    end

    // To the operands.
    logic signed [7:0] x_q [2];
    logic [7:0] below_q;
    logic signed [8:0] centred_q [4];   // of items 3 to 6
    logic signed [24:0] a_q;
    logic signed [17:0] b_q;
    norm_addr_t addr_q;
    assign addr_o[l] = addr_q;
    always_ff @(posedge clk_i) begin
      x_q <= '{value_i[8*l+:8], x_q[0]};
      below_q <= maximum[HALF] - x_q[1];
      centred_q <= rst_ni ? '{9'(x_q[1]) - (squares ? 9'(zero_i) : '0), centred_q[0], centred_q[1], centred_q[2]} : '{default: '0};
      addr_q <= norm_addr_t'(table_i) + norm_addr_t'(below_q);
      unique case (op_i)
        NORM_EXPSUM, NORM_SOFTMAX, NORM_QUARTER_EXPSUM, NORM_QUARTER_EXPSUM_ODD, NORM_QUARTER_SOFTMAX: begin
          a_q <= {1'b0, rdata_i[l]};
          b_q <= exponential ? 18'd1 : {1'b0, factor[HALF][16:0]};
        end
        NORM_NORMALISE, NORM_MAP_NORMALISE: begin
          a_q <= factor[0];
          b_q <= factor[0][24] ? -18'(centred_q[3]) : 18'(centred_q[3]);
        end
        default: begin
          a_q <= 25'(centred_q[3]);
          b_q <= 18'(centred_q[3]);
        end
      endcase
      if (!present_q[l] && !softmaxes && !normalises) a_q <= norm_finds_maximum(op_i) ? -25'sd128 : '0;
    end

    // Product, less the offset of the pixel.
    logic signed [42:0] product_q, scaled_q;  // one slice, since nothing else reads the product
    logic [8:0] value_q;
    assign term[l] = scaled_q[23:0];
    always_ff @(posedge clk_i) begin
      product_q <= a_q * b_q;
      scaled_q <= product_q + 43'(less_q[1]);
      value_q <= a_q[8:0];
      centred[l] <= rst_ni ? value_q : '0;
    end

    // Rounded shift to u, 25 bits: six bits more than the shift says. The lowest bit is the half; `rest`: bits below it
    // were set; `over`: bits above matter, so that it is a limit; `limit`: it is the upper one, which is not rounded up.
    logic signed [49:0] wide;
    logic [2:0] some_q;         // sixteens of its bits: one is set
    logic signed [40:0] coarse_q, coarse;
    logic signed [28:0] middle_q, middle;
    logic signed [24:0] fine_q;
    logic rest_q, rounds_q;
    logic [2:0] over_q;           // after each step
    logic signed [24:0] u_q;
    logic [2:0] differs_q;  // fours of bits above: not the sign
    logic [4:0] full_q;     // fours of the bits that are 1 in each upper limit, whatever the last step is: all set
    logic limit;
    logic negative_q;  // of item 12
    logic [1:0] sign_q;
    logic [1:0] by_16, late_by_16, by_4, by_1;
    assign wide = {scaled_q, 7'd0};
    assign by_16 = shift_q[HALF][2][5:4];
    assign late_by_16 = shift_q[HALF][3][5:4];
    assign by_4 = shift_q[HALF][3][3:2];
    assign by_1 = shift_q[HALF][4][1:0];
    assign coarse = coarse_q >>> 4 * 32'(by_4);
    assign middle = middle_q >>> by_1;
    // middle[25:1] is 0 and ones: the ones that it has for each shift, the others below them and above, then the 0.
    assign limit = middle_q[24] && full_q == '1 && (middle_q[3:1] | ~(3'h7 << by_1)) == '1
        && (middle_q[27:25] | 3'h7 << by_1) == '1 && !middle[25];
    always_ff @(posedge clk_i) begin
      coarse_q <= 41'(wide >>> 16 * 32'(by_16));
      for (int unsigned n = 0; n < 3; n++) some_q[n] <= wide[16*n+:16] != '0;
      over_q[0] <= by_16 == '0 && wide[49:40] != {10{wide[49]}};
      middle_q <= coarse[28:0];
      rest_q <= (some_q & ~(3'd7 << late_by_16)) != '0 || (coarse_q[11:0] & ~(12'hfff << 4 * 32'(by_4))) != '0;
      over_q[1] <= over_q[0];
      for (int unsigned n = 0; n < 3; n++) differs_q[n] <= coarse[28+4*n+:4] != {4{coarse_q[40]}};
      for (int unsigned n = 0; n < 5; n++) full_q[n] <= &coarse[4+4*n+:4];
      fine_q <= middle[25:1];
      rounds_q <= !limit && middle[0] && (middle[1] || rest_q || (middle_q[2:0] & ~(3'h7 << by_1)) != '0);
      over_q[2] <= over_q[1] || differs_q != '0 || middle[28:25] != {4{middle[28]}};
      if (over_q[2]) u_q <= negative_q ? 25'h1000000 : 25'h0ffffff;
      else u_q <= fine_q + 25'(rounds_q);
    end
    always_ff @(posedge clk_i) {negative_q, sign_q} <= {sign_q, wide[49]};

    // Gain and offset of the channel.
    logic signed [15:0] gain_q;
    logic signed [31:0] add_q [2];
    logic [5:0] gain_shift_q [3];
    logic signed [40:0] gained_q;
    logic signed [41:0] sum_q;
    logic [7:0] result;
    logic [2:0][7:0] y_q;
    record_t record;
    assign record = record_of(item_q[11].bank, 32'(item_q[11].beat));
    always_ff @(posedge clk_i) begin
      gain_q <= softmaxes ? 16'd1 : gains[record];
      add_q <= '{softmaxes ? '0 : offsets[record], add_q[0]};
      gain_shift_q <= '{softmaxes ? '0 : gain_shift[record], gain_shift_q[0], gain_shift_q[1]};
      gained_q <= u_q * gain_q;
      sum_q <= 42'(gained_q) + 42'(add_q[1]);
      y_q <= {y_q[1:0], result_present_q[l] ? result : zero_i};
    end
    opu_round #(
        .WIDTH (42),
        .CLAMPS(1'b0)
    ) u_round (
        .clk_i,
        .value_i (sum_q),
        .shift_i (gain_shift_q[2]),
        .zero_i,
        .wraps_i (1'b0),
        .lo_i    ('0),
        .hi_i    ('0),
        .result_o(result)
    );
    assign value_o[8*l+:8] = y_q[2];
  end

  always_ff @(posedge clk_i) begin
    item_q[0] <= item_i;
    for (int unsigned s = 1; s < LATENCY; s++) item_q[s] <= item_q[s-1];
    if (!rst_ni) begin
      for (int unsigned s = 0; s < LATENCY; s++) item_q[s].valid <= 1'b0;
    end
  end

  for (genvar s = 0; s < 13; s++) begin : g_bank
    `OPU_ASSERT(BankUnused, load_we_i |-> !(item_q[s].valid && item_q[s].bank == load_bank_i))
  end
  `OPU_ASSERT(WholePixels, item_i.valid |-> item_i.present)

endmodule
