// Rounding shifter: clamp(rne(value * 2**LEFT / 2**shift) + zero, lo, hi), halves to even. Latency 3, one value per
// cycle.
//
//   value_i, shift_i --> [coarse shift] --> [fine shift, round, + zero] --> [clamp] --> result_o
//   sampled in cycle 0                      1: zero_i                       2: wraps_i, lo_i, hi_i
//
// Cycle 1 shifts by quarters of RANGE, then by quarters of what is left, and again. Only bits that a later shift can
// still move into a 10-bit result pass on, so the shifters have a fifth of the value's width. `over` says that bits
// above them matter (the result is a limit), `rest` that bits below the half were set (no tie). Cycle 2 rounds and adds
// the zero point. Cycle 3 compares with the limits. zero_i is sampled one cycle after the value, wraps_i, lo_i and hi_i
// two cycles after.
module opu_round #(
    parameter int unsigned WIDTH = 50,  // with LEFT at most 72, or 40 with a RANGE of 32
    parameter int unsigned LEFT = 0,
    parameter int unsigned RANGE = 64,  // 32 or 64: shifts are lower
    parameter bit          CLAMPS = 1'b1  // else lo is -128 and hi 127, whatever the ports say
) (
    input  logic                     clk_i,
    input  logic signed [WIDTH-1:0]  value_i,
    input  logic [$clog2(RANGE)-1:0] shift_i,
    input  logic signed [7:0]        zero_i,
    input  logic                     wraps_i,  // the lowest 8 bits, whatever the limits: no CLAMPS
    input  logic signed [7:0]        lo_i,
    input  logic signed [7:0]        hi_i,
    output logic [7:0]               result_o
);

  localparam int unsigned STEP = RANGE / 4;
  localparam int unsigned SMALL = STEP / 4;
  localparam int unsigned COARSE_BITS = STEP + 9;
  localparam int unsigned MIDDLE_BITS = SMALL + 9;
  localparam int unsigned BITS = 4 * STEP + 9;

  // The lowest bit of these is the half.
  logic signed [BITS-1:0] value;
  logic signed [COARSE_BITS-1:0] coarse;
  logic signed [MIDDLE_BITS-1:0] middle;
  logic [1:0] by_step, by_small;
  assign value = BITS'(signed'({value_i, {(LEFT + 1) {1'b0}}}));
  assign by_step = shift_i[$clog2(RANGE)-1-:2];
  assign by_small = shift_i[$clog2(RANGE)-3-:2];
  assign coarse = COARSE_BITS'(value >>> STEP * 32'(by_step));
  assign middle = MIDDLE_BITS'(coarse >>> SMALL * 32'(by_small));

  // For each part of a shift: bits that differ from the sign, bits that are not 0. The first cycle combines only those
  // that are ready early.
  logic [2:0] over_step, rest_step, over_small;
  logic [2:0] rest_small;
  logic over_fine, rest_fine;
  always_comb begin
    for (int unsigned k = 0; k < 3; k++) begin
      over_step[k] = 2'(k) >= by_step
          && (value[BITS-1] ? !(&value[STEP*k+COARSE_BITS-1+:STEP]) : |value[STEP*k+COARSE_BITS-1+:STEP]);
      rest_step[k] = 2'(k) < by_step && value[STEP*k+:STEP] != '0;
      over_small[k] = coarse[SMALL*k+MIDDLE_BITS-1+:SMALL] != {SMALL{coarse[COARSE_BITS-1]}};
      rest_small[k] = 2'(k) < by_small && coarse[SMALL*k+:SMALL] != '0;
    end
  end

  // What is left is a shift by 0 to 3, or one by 0 or 1, for which the second cycle has room.
  logic signed [10:0] fine, fine_q;
  logic last, last_q;
  if (SMALL == 4) begin : g_fine
    assign fine = 11'(signed'(10'(middle >>> shift_i[1:0])));
    assign last = 1'b0;
    always_comb begin
      {over_fine, rest_fine} = '0;
      for (int unsigned k = 0; k < 3; k++) begin
        over_fine |= shift_i[1:0] <= 2'(k) && middle[k+9] != middle[12];
        rest_fine |= shift_i[1:0] > 2'(k) && middle[k];
      end
    end
  end else begin : g_last
    assign fine = middle;
    assign last = shift_i[0];
    assign over_fine = !last && middle[9] != middle[10];
    assign rest_fine = last && middle[0];
  end

  logic [6:0] over_q;
  logic [5:0] rest_q;
  logic [1:0] by_small_q;
  logic negative_q;
  always_ff @(posedge clk_i) begin
    fine_q <= fine;
    last_q <= last;
    by_small_q <= by_small;
    over_q <= {over_small, over_step, over_fine};
    rest_q <= {rest_step[2:1], rest_small, rest_fine || rest_step[0]};
    if (RANGE == 32) begin  // more of it is ready in time
      by_small_q <= '0;
      over_q <= {4'd0, over_step != '0, 3'(over_small >> by_small) != '0, over_fine};
      rest_q <= {3'd0, rest_step != '0, rest_small != '0, rest_fine};
    end
    negative_q <= value_i[WIDTH-1];
  end

  // The second cycle. The bit below the lowest one is the carry: a sum of two.
  logic half, odd, over;
  logic signed [8:0] whole;
  /* verilator lint_off UNUSEDSIGNAL */  // the carry has no sum
  logic [10:0] rounded;
  /* verilator lint_on UNUSEDSIGNAL */
  logic signed [9:0] sum_q;
  logic low_q, high_q;
  assign {whole, half} = last_q ? fine_q[10:1] : fine_q[9:0];
  assign odd = whole[0];
  assign over = over_q[3:0] != '0 || 3'(over_q[6:4] >> by_small_q) != '0;
  assign rounded = {{2{zero_i[7]}}, zero_i, 1'b1} + {whole[8], whole, half && (odd || rest_q != '0)};
  always_ff @(posedge clk_i) begin
    sum_q <= rounded[10:1];
    low_q <= over && negative_q;
    high_q <= over && !negative_q;
  end

  // The third cycle. Sums that do not fit into int8 are beyond both limits.
  logic wraps, beyond, below, above, lower, higher;
  logic [7:0] lo, hi;
  assign beyond = sum_q[9:7] != '0 && sum_q[9:7] != '1;
  assign below = !wraps && (low_q || (!high_q && (beyond ? sum_q[9] : lower)));
  assign above = !wraps && (high_q || (!low_q && (beyond ? !sum_q[9] : higher)));
  if (CLAMPS) begin : g_clamps
    assign {lo, hi} = {lo_i, hi_i};
    assign lower = signed'(sum_q[7:0]) < lo_i;
    assign higher = signed'(sum_q[7:0]) > hi_i;
    assign wraps = 1'b0;
    logic unused;
    assign unused = wraps_i;
  end else begin : g_limits
    assign {lo, hi} = {8'h80, 8'h7f};
    assign {lower, higher} = '0;
    assign wraps = wraps_i;
    logic unused;
    assign unused = &{lo_i, hi_i};
  end
  always_ff @(posedge clk_i) result_o <= below ? lo : above ? hi : sum_q[7:0];

endmodule
