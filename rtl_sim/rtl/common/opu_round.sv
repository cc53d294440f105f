// clamp(rne(value / 2**shift) + zero, lo, hi), halves to even. Latency 1; zero, lo and hi are those of the cycle of the result,
// and so are floor = zero - lo and ceiling = hi - zero, with which a value is compared while the zero is added to it.
//
// Shifted by 48 … 16, 12 … 4 and 3 … 0 in turn. What a later shift cannot bring into 9 bits is only told by `over` (the
// result is a limit), what falls off below the halves by `rest`: so the shifters are a fifth of the value's width.
module opu_round #(
    parameter int unsigned WIDTH = 50  // at most 72
) (
    input  logic                    clk_i,
    input  logic signed [WIDTH-1:0] value_i,
    input  logic        [5:0]       shift_i,
    input  logic signed [7:0]       zero_i,
    input  logic signed [7:0]       lo_i,
    input  logic signed [7:0]       hi_i,
    input  logic signed [8:0]       floor_i,
    input  logic signed [8:0]       ceiling_i,
    output logic        [7:0]       result_o
);

  // The lowest bit of these is the half.
  logic signed [72:0] value;
  logic signed [24:0] coarse;
  logic signed [12:0] middle;
  logic over, rest;

  assign value = {72'(value_i), 1'b0};
  assign coarse = 25'(value >>> {shift_i[5:4], 4'b0});
  assign middle = 13'(coarse >>> {shift_i[3:2], 2'b0});

  // Above the second shift it is told by fours: which of them count is found in the second cycle, behind its sums.
  logic [2:0] above;

  always_comb begin
    {over, rest} = '0;
    for (int unsigned k = 0; k < 4; k++) begin
      if (shift_i[5:4] == 2'(k)) begin
        over = (value >>> (16 * k + 24)) != (value >>> 72);
        if ((value & ((73'd1 << (16 * k)) - 73'd1)) != '0) rest = 1'b1;
      end
      if (shift_i[3:2] == 2'(k) && (coarse & ((25'd1 << (4 * k)) - 25'd1)) != '0) rest = 1'b1;
    end
    above = {coarse[23:20] != {4{coarse[24]}}, coarse[19:16] != {4{coarse[24]}}, coarse[15:12] != {4{coarse[24]}}};
  end

  // The second cycle.
  logic signed [12:0] middle_q;
  logic [3:0] shift_q;
  logic [2:0] above_q;
  logic negative_q, over_q, rest_q, over_low, rest_low;
  logic signed [9:0] fine;
  assign fine = 10'(middle_q >>> shift_q[1:0]);

  always_comb begin
    {over_low, rest_low} = '0;
    for (int unsigned k = 0; k < 4; k++) begin
      if (shift_q[3:2] == 2'(k) && 3'(above_q >> k) != '0) over_low = 1'b1;
      if (shift_q[1:0] == 2'(k)) begin
        if ((middle_q >>> (k + 9)) != (middle_q >>> 12)) over_low = 1'b1;
        if ((middle_q & ((13'd1 << k) - 13'd1)) != '0) rest_low = 1'b1;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    middle_q <= middle;
    shift_q <= shift_i[3:0];
    negative_q <= value_i[WIDTH-1];
    over_q <= over;
    rest_q <= rest;
    above_q <= above;
  end

  // The bit below the lowest one is the carry: sums of two, one chain each. Negative: below lo, above hi.
  logic up, beyond;
  logic signed [8:0] whole;
  logic [8:0] rounded;
  logic signed [11:0] above_lo, below_hi;
  assign beyond = over_q || over_low;
  assign up = fine[0] && (rest_q || rest_low || fine[1]);
  assign whole = fine[9:1];
  assign rounded = {whole[7:0], 1'b1} + {zero_i, up};
  assign above_lo = 12'(signed'({whole, 1'b1})) + 12'(signed'({floor_i, up}));
  assign below_hi = 12'(signed'({ceiling_i, 1'b1})) + 12'(signed'({~whole, !up}));

  always_comb begin
    result_o = rounded[8:1];
    if (beyond ? negative_q : above_lo[11]) result_o = lo_i;
    else if (beyond || below_hi[11]) result_o = hi_i;
  end

endmodule
