// opu_round: clamp(rne(value * 2**LEFT / 2**shift) + zero, lo, hi), halves to even, three cycles later, for every
// value, shift, zero and limits; without CLAMPS the limits of int8.
module opu_round_proof #(
    parameter int unsigned WIDTH = 49,
    parameter int unsigned LEFT = 0,
    parameter int unsigned RANGE = 64,
    parameter bit CLAMPS = 1'b1
) (
    input logic                     clk_i,
    input logic [$clog2(RANGE)-1:0] case_i,   // the shift
    input logic [$clog2(RANGE)-1:0] shift_i,  // that of later cycles
    input logic signed [WIDTH-1:0]  value_i,
    input logic signed [7:0]        zero_i,   // a cycle after the value
    input logic signed [7:0]        lo_i,     // two cycles
    input logic signed [7:0]        hi_i
);

  logic [2:0] begun_q = '0;
  logic [7:0] result;
  opu_round #(
      .WIDTH (WIDTH),
      .LEFT  (LEFT),
      .RANGE (RANGE),
      .CLAMPS(CLAMPS)
  ) dut (
      .clk_i,
      .value_i,
      .shift_i (begun_q[0] ? shift_i : case_i),
      .zero_i,
      .wraps_i (1'b0),
      .lo_i,
      .hi_i,
      .result_o(result)
  );

  // The whole part, and the rest above it: rounded up beyond the half, and at the half if that makes it even.
  localparam int unsigned BITS = 96;
  logic signed [2:0][WIDTH-1:0] value_q;
  logic signed [1:0][7:0] zero_q;
  logic signed [7:0] lo_q, hi_q;
  logic signed [BITS-1:0] value, whole, rest, half, rounded, sum, lo, hi;
  always_ff @(posedge clk_i) begin
    begun_q <= {begun_q[1:0], 1'b1};
    value_q <= {value_q[1:0], value_i};
    zero_q <= {zero_q[0], zero_i};
    lo_q <= lo_i;
    hi_q <= hi_i;
  end
  assign value = BITS'(signed'(value_q[2])) <<< LEFT;
  assign whole = value >>> case_i;
  assign rest = value - (whole <<< case_i);
  assign half = (BITS'(1) <<< case_i) >>> 1;
  assign rounded = whole + BITS'(case_i != '0 && (rest > half || (rest == half && whole[0])));
  assign sum = rounded + BITS'(signed'(zero_q[1]));
  assign lo = CLAMPS ? BITS'(lo_q) : -BITS'(128);
  assign hi = CLAMPS ? BITS'(hi_q) : BITS'(127);

  always_comb begin
    assume (lo_i <= hi_i);
    if (begun_q[2]) assert (BITS'(signed'(result)) == (sum < lo ? lo : sum > hi ? hi : sum));
  end

endmodule
