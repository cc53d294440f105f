// opu_round: clamp(rne(value / 2**shift) + zero, lo, hi), halves to even, a cycle later, for every value, shift, zero and limits.
module opu_round_proof #(
    parameter int unsigned WIDTH = 49
) (
    input logic                    clk_i,
    input logic        [5:0]       case_i,   // the shift
    input logic        [5:0]       shift_i,  // that of the next cycle
    input logic signed [WIDTH-1:0] value_i,
    input logic signed [7:0]       zero_i,
    input logic signed [7:0]       lo_i,
    input logic signed [7:0]       hi_i
);

  logic begun_q = 1'b0;
  logic [7:0] result;
  opu_round #(
      .WIDTH(WIDTH)
  ) dut (
      .clk_i,
      .value_i,
      .shift_i  (begun_q ? shift_i : case_i),
      .zero_i,
      .lo_i,
      .hi_i,
      .floor_i  (9'(zero_i) - 9'(lo_i)),
      .ceiling_i(9'(hi_i) - 9'(zero_i)),
      .result_o (result)
  );

  // The whole part, and how far the rest lies above it: rounded up beyond the half, and at the half if that makes it even.
  localparam int unsigned BITS = 80;
  logic signed [WIDTH-1:0] value_q;
  logic signed [BITS-1:0] value, whole, rest, half, rounded, sum;
  always_ff @(posedge clk_i) begin
    begun_q <= 1'b1;
    value_q <= value_i;
  end
  assign value = BITS'(value_q);
  assign whole = value >>> case_i;
  assign rest = value - (whole <<< case_i);
  assign half = (BITS'(1) <<< case_i) >>> 1;
  assign rounded = whole + BITS'(case_i != '0 && (rest > half || (rest == half && whole[0])));
  assign sum = rounded + BITS'(zero_i);

  always_comb begin
    assume (lo_i <= hi_i);
    if (begun_q) assert (signed'(result) == (sum < BITS'(lo_i) ? lo_i : sum > BITS'(hi_i) ? hi_i : 8'(sum)));
  end

endmodule
