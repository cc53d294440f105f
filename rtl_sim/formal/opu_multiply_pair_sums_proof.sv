// opu_multiply_pair, second half of its proof: every term alone gives what the lowest one in such a slice of a chain (term 0 or 1) would,
// and terms together give the sum of what they give alone. Whatever the products are: multipliers are cut out, what
// these two terms give has the range of products.
module opu_multiply_pair_sums_proof #(
    parameter int unsigned TERMS = 16,
    parameter int unsigned SUM_STAGES = 3
) (
    input logic               clk_i,
    input logic               load_i,
    input logic [8*TERMS-1:0] shared_i,
    input logic [8*TERMS-1:0] low_i,
    input logic [9*TERMS-1:0] high_i
);

  localparam int unsigned SUM_BITS = 16 + $clog2(TERMS);
  typedef logic signed [SUM_BITS-1:0] sum_t;
  localparam sum_t LEAST = sum_t'(-128 * 127), MOST = sum_t'(128 * 128);

  // Pair 1 has all terms, pair n those of 2n and of 2n + 1, pair TERMS + t has term t alone.
  sum_t low [2*TERMS], high [2*TERMS];
  assign low[0] = '0, high[0] = '0;
  for (genvar n = 1; n < 2 * int'(TERMS); n++) begin : g_pair
    localparam int unsigned LEVEL = $clog2(n + 1) - 1;
    localparam int unsigned COUNT = TERMS >> LEVEL, FIRST = COUNT * (n - (1 << LEVEL));
    localparam logic [8*TERMS-1:0] MASK = ((8*TERMS)'(1) << (8 * COUNT)) - (8*TERMS)'(1);
    localparam logic [8*TERMS-1:0] PLACE = (COUNT == TERMS) ? '1 : MASK << (8 * FIRST);
    opu_multiply_pair #(
        .TERMS     (TERMS),
        .SUM_STAGES(SUM_STAGES)
    ) dut (
        .clk_i,
        .load_i,
        .shared_i  (shared_i & PLACE),
        .low_i,
        .high_i,
        .low_sum_o (low[n]),
        .high_sum_o(high[n])
    );
    if (COUNT > 1) begin : g_sum
      always_comb begin
        assert (low[n] == low[2*n] + low[2*n+1]);
        assert (high[n] == high[2*n] + high[2*n+1]);
      end
    end else begin : g_alone
      sum_t lowest_low, lowest_high;
      opu_multiply_pair #(
          .TERMS     (TERMS),
          .SUM_STAGES(SUM_STAGES)
      ) u_lowest (
          .clk_i,
          .load_i,
          .shared_i  ((8*TERMS)'(shared_i[8*FIRST+:8]) << 8 * (FIRST % 2)),
          .low_i     ((8*TERMS)'(low_i[8*FIRST+:8]) << 8 * (FIRST % 2)),
          .high_i    ((9*TERMS)'(high_i[9*FIRST+:9]) << 9 * (FIRST % 2)),
          .low_sum_o (lowest_low),
          .high_sum_o(lowest_high)
      );
      always_comb begin
        assume (LEAST <= lowest_low && lowest_low <= MOST);
        assume (LEAST <= lowest_high && lowest_high <= MOST);
        assert (low[n] == lowest_low && high[n] == lowest_high);
      end
    end
  end

endmodule
