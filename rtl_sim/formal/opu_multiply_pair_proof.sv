// opu_multiply_pair, first half of its proof, by exhaustive simulation: a term alone (0 in the first slice of a chain,
// 1 in the second), operands of the others 0, gives both its products, with the weights of the same cycle and of the
// cycle before. opu_multiply_pair_sums_proof is the other half.
module opu_multiply_pair_proof #(
    parameter int unsigned TERMS = 16,
    parameter int unsigned SUM_STAGES = 3,
    parameter int unsigned TERM = 0
);

  localparam int unsigned SUM_BITS = 16 + $clog2(TERMS), MODULES = 8, LATENCY = 4 + SUM_STAGES;
  localparam int unsigned ALL_BITS = 24 - 3 + 1;  // every second cycle loads

  logic clk = 1'b0;
  logic [ALL_BITS:0] cycle_q = '0;
  logic [MODULES-1:0] wrong;
  always #1 clk = !clk;

  for (genvar m = 0; m < int'(MODULES); m++) begin : g_module
    typedef struct packed {
      logic signed [7:0] shared, low, high;
    } product_t;
    product_t entering, held_q;
    product_t [LATENCY-1:0] inside_q;
    logic load;
    logic signed [7:0] low, high;
    assign low = load ? entering.low : ~entering.low;
    assign high = load ? entering.high : ~entering.high;
    logic signed [SUM_BITS-1:0] low_sum, high_sum;
    assign load = !cycle_q[0];
    assign entering = load ? {3'(m), cycle_q[ALL_BITS-1:1]} : {~held_q.shared, held_q.low, held_q.high};
    opu_multiply_pair #(
        .TERMS     (TERMS),
        .SUM_STAGES(SUM_STAGES)
    ) dut (
        .clk_i     (clk),
        .load_i    (load),
        .shared_i  ((8*TERMS)'(unsigned'(entering.shared)) << 8 * TERM),
        .low_i     ({TERMS{low}}),
        .high_i    ({TERMS{9'(high) - 9'(low < 0)}}),
        .low_sum_o (low_sum),
        .high_sum_o(high_sum)
    );
    always_ff @(posedge clk) begin
      held_q <= entering;
      inside_q <= {inside_q[LATENCY-2:0], entering};
    end
    product_t leaving;
    assign leaving = inside_q[LATENCY-1];
    assign wrong[m] = low_sum != SUM_BITS'(leaving.shared) * SUM_BITS'(leaving.low)
        || high_sum != SUM_BITS'(leaving.shared) * SUM_BITS'(leaving.high);
  end

  always_ff @(posedge clk) begin
    cycle_q <= cycle_q + 1'b1;
    if (cycle_q >= (ALL_BITS + 1)'(LATENCY) && wrong != '0) begin
      $display("Assert failed: a product is wrong in cycle %0d", cycle_q);
      $finish;
    end
    if (cycle_q == (ALL_BITS + 1)'((1 << ALL_BITS) + LATENCY)) begin
      $display("all are right");
      $finish;
    end
  end

endmodule
