// opu_multiply_soft, by trying all: what comes out is the signed product of X_BITS / 2 - 1 cycles before, for every x and every factor.
// Sixteen modules share the work.
module opu_multiply_soft_proof #(
    parameter int unsigned X_BITS = 9,
    parameter int unsigned FACTOR_BITS = 17,
    parameter int unsigned PRODUCT_BITS = X_BITS + FACTOR_BITS
);

  localparam int unsigned ALL_BITS = X_BITS + FACTOR_BITS, MODULES = 16, LATENCY = X_BITS / 2 - 1;

  logic clk = 1'b0;
  logic [ALL_BITS-4:0] cycle_q = '0;
  logic [MODULES-1:0] wrong;
  always #1 clk = !clk;

  for (genvar m = 0; m < int'(MODULES); m++) begin : g_module
    logic signed [X_BITS-1:0] x, told_x;
    logic signed [FACTOR_BITS-1:0] factor, told_factor;
    logic [LATENCY-1:0][ALL_BITS-1:0] inside_q;
    logic signed [PRODUCT_BITS-1:0] product;
    assign {factor, x} = {4'(m), cycle_q[ALL_BITS-5:0]};
    opu_multiply_soft #(
        .X_BITS      (X_BITS),
        .FACTOR_BITS (FACTOR_BITS),
        .PRODUCT_BITS(PRODUCT_BITS)
    ) dut (
        .clk_i    (clk),
        .x_i      (x),
        .factor_i (factor),
        .product_o(product)
    );
    always_ff @(posedge clk) begin
      inside_q <= (LATENCY * ALL_BITS)'({inside_q, factor, x});
    end
    assign {told_factor, told_x} = inside_q[LATENCY-1];
    assign wrong[m] = product != PRODUCT_BITS'(told_x) * PRODUCT_BITS'(told_factor);
  end

  always_ff @(posedge clk) begin
    cycle_q <= cycle_q + 1'b1;
    if (cycle_q >= (ALL_BITS - 3)'(LATENCY) && wrong != '0) begin
      $display("Assert failed: a product is wrong in cycle %0d", cycle_q);
      $finish;
    end
    if (cycle_q == (ALL_BITS - 3)'((1 << ALL_BITS - 4) + LATENCY)) begin
      $display("all are right");
      $finish;
    end
  end

endmodule
