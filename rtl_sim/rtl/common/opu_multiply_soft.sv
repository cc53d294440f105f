// A signed product in look-up tables, where DSP slices are scarce. One product per cycle. Latency X_BITS / 2 - 1 (3 for
// 8 and 9 bits): a register follows every digit but the last.
//
//   x_i, factor_i --> [digit 0] --> [digit 1] --> ... --> digit n --> product_o    ([ ]: registered)
//
// x is recoded into Booth digits -2 ... 2, from the lowest on. Each digit subtracts a multiple of the factor (one table
// per bit) and settles two bits of the product. A multiple is complemented to change its sign; the missing 1 enters as
// the borrow. If x has an odd number of bits, the lowest one comes first, with its own multiple in the first sum.
module opu_multiply_soft #(
    parameter int unsigned X_BITS = 9,
    parameter int unsigned FACTOR_BITS = 17,
    parameter int unsigned PRODUCT_BITS = X_BITS + FACTOR_BITS
) (
    input  logic                           clk_i,
    input  logic signed [X_BITS-1:0]       x_i,
    input  logic signed [FACTOR_BITS-1:0]  factor_i,
    output logic signed [PRODUCT_BITS-1:0] product_o
);

  localparam int unsigned DIGITS = X_BITS / 2;
  localparam int unsigned ODD = X_BITS % 2;
  localparam int unsigned LATENCY = DIGITS - 1;
  localparam int unsigned BITS = FACTOR_BITS + 2;

  typedef struct packed {
    logic [2*DIGITS-1:0]           settled;  // after the odd bit
    logic                          odd;
    logic signed [BITS-1:0]        rest;
    logic [2*DIGITS:0]             x;        // one bit after the lowest digit
    logic signed [FACTOR_BITS-1:0] factor;
  } partial_t;

  typedef struct packed {logic positive, once, twice;} digit_t;

  function automatic digit_t recoded(logic [2:0] x);
    recoded = '{positive: !x[2], once: x[1] != x[0], twice: x[1] == x[0] && x[1] != x[2]};
  endfunction

  function automatic partial_t digit(partial_t partial, int unsigned at, digit_t recoding);
    automatic logic signed [BITS-1:0] multiple;
    digit = partial;
    multiple = recoding.once ? BITS'(partial.factor) : recoding.twice ? BITS'(partial.factor) <<< 1 : '0;
    digit.rest = BITS'(({partial.rest, 1'b0} - {multiple ^ {BITS{recoding.positive}}, recoding.positive}) >> 1);
    digit.settled[2*at+:2] = digit.rest[1:0];
    digit.rest = digit.rest >>> 2;
  endfunction

  partial_t start;
  always_comb begin
    start = '{settled: '0, odd: 1'b0, rest: '0, x: {x_i[X_BITS-1:ODD], 1'b0}, factor: factor_i};
    if (ODD == 1 && x_i[0]) begin
      start.odd = factor_i[0];
      start.rest = BITS'(factor_i >>> 1);
    end
  end

  // The last digit is recoded before its register: tools make a slow shift register of a value that is only delayed for
  // three cycles.
  partial_t stage_q [LATENCY];
  digit_t last_q;
  /* verilator lint_off UNUSEDSIGNAL */  // after the last digit x and the factor are not used
  partial_t last;
  /* verilator lint_on UNUSEDSIGNAL */
  always_ff @(posedge clk_i) begin
    for (int unsigned s = 0; s < LATENCY; s++) begin
      automatic partial_t partial = (s == 0) ? start : stage_q[(s == 0) ? 0 : s - 1];
      if (s == LATENCY - 1) last_q <= recoded(partial.x[2*DIGITS-2+:3]);
      stage_q[s] <= digit(partial, s, recoded(partial.x[2*s+:3]));
    end
  end
  assign last = digit(stage_q[LATENCY-1], DIGITS - 1, last_q);
  if (ODD == 1) begin : g_odd
    assign product_o = PRODUCT_BITS'({last.rest, last.settled, last.odd});
  end else begin : g_even
    assign product_o = PRODUCT_BITS'({last.rest, last.settled});
  end

endmodule
