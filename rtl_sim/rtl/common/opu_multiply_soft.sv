// A signed product in look-up tables, where DSP slices are scarce. Latency 1: a register lies behind the first digits.
//
// Booth's digits of x, -2 … 2, from the lowest on: each subtracts a multiple of the factor, one table a bit, and settles two
// bits of the product. A multiple is complemented to change its sign, what lacks to that comes in as the borrow.
module opu_multiply_soft #(
    parameter int unsigned X_BITS = 9,
    parameter int unsigned FACTOR_BITS = 17,
    parameter int unsigned PRODUCT_BITS = X_BITS + FACTOR_BITS,
    parameter int unsigned FIRST_DIGITS = (X_BITS + 1) / 4
) (
    input  logic                           clk_i,
    input  logic signed [X_BITS-1:0]       x_i,
    input  logic signed [FACTOR_BITS-1:0]  factor_i,
    output logic signed [PRODUCT_BITS-1:0] product_o
);

  localparam int unsigned DIGITS = (X_BITS + 1) / 2;
  localparam int unsigned BITS = FACTOR_BITS + 2;

  typedef struct packed {
    logic [2*DIGITS-1:0]           settled;
    logic signed [BITS-1:0]        rest;
    logic [2*DIGITS:0]             x;       // one bit behind the lowest digit
    logic signed [FACTOR_BITS-1:0] factor;
  } partial_t;

  function automatic partial_t digits(partial_t given, int unsigned first, int unsigned end_);
    automatic logic positive, once, twice;
    automatic logic signed [BITS-1:0] multiple;
    digits = given;
    for (int unsigned d = first; d < end_; d++) begin
      positive = !given.x[2*d+2];
      once = given.x[2*d+1] != given.x[2*d];
      twice = !once && given.x[2*d+1] == positive;
      multiple = once ? BITS'(given.factor) : twice ? BITS'(given.factor) <<< 1 : '0;
      digits.rest = BITS'(({digits.rest >>> 2, 1'b0} - {multiple ^ {BITS{positive}}, positive}) >> 1);
      digits.settled[2*d+:2] = digits.rest[1:0];
    end
  endfunction

  partial_t start, first_q;
  /* verilator lint_off UNUSEDSIGNAL */  // behind the last digit x and the factor are of no use
  partial_t last;
  /* verilator lint_on UNUSEDSIGNAL */
  assign start = '{settled: '0, rest: '0, x: {(2 * DIGITS)'(x_i), 1'b0}, factor: factor_i};
  always_ff @(posedge clk_i) first_q <= digits(start, 0, FIRST_DIGITS);
  assign last = digits(first_q, FIRST_DIGITS, DIGITS);
  assign product_o = PRODUCT_BITS'({last.rest >>> 2, last.settled});

endmodule
