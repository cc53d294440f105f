// A signed product in look-up tables, where DSP slices are scarce. Combinational.
//
// Booth's digits of x, -2 … 2, from the lowest on: each subtracts a multiple of the factor, one table a bit, and settles two
// bits of the product. A multiple is complemented to change its sign, what lacks to that comes in as the borrow.
module opu_multiply_soft #(
    parameter int unsigned X_BITS = 9,
    parameter int unsigned FACTOR_BITS = 17,
    parameter int unsigned PRODUCT_BITS = X_BITS + FACTOR_BITS
) (
    input  logic signed [X_BITS-1:0]       x_i,
    input  logic signed [FACTOR_BITS-1:0]  factor_i,
    output logic signed [PRODUCT_BITS-1:0] product_o
);

  localparam int unsigned DIGITS = (X_BITS + 1) / 2;
  localparam int unsigned BITS = FACTOR_BITS + 2;

  logic [2*DIGITS:0] x;  // one bit behind the lowest digit
  logic [2*DIGITS-1:0] settled;
  logic signed [BITS-1:0] sum, multiple;
  logic positive, once, twice;

  always_comb begin
    x = {(2 * DIGITS)'(x_i), 1'b0};
    settled = '0;
    sum = '0;
    for (int unsigned d = 0; d < DIGITS; d++) begin
      positive = !x[2*d+2];
      once = x[2*d+1] != x[2*d];
      twice = !once && x[2*d+1] == positive;
      multiple = once ? BITS'(factor_i) : twice ? BITS'(factor_i) <<< 1 : '0;
      sum = BITS'(({sum >>> 2, 1'b0} - {multiple ^ {BITS{positive}}, positive}) >> 1);
      settled[2*d+:2] = sum[1:0];
    end
    product_o = PRODUCT_BITS'({sum >>> 2, settled});
  end

endmodule
