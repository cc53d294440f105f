// opu_multiply_soft, by trying all: what comes out is the signed product of the cycle before, for every x and every factor. Sixteen
// modules share the work.
module opu_multiply_soft_proof #(
    parameter int unsigned X_BITS = 9,
    parameter int unsigned FACTOR_BITS = 17,
    parameter int unsigned PRODUCT_BITS = X_BITS + FACTOR_BITS,
    parameter int unsigned FIRST_DIGITS = (X_BITS + 1) / 4
);

  localparam int unsigned ALL_BITS = X_BITS + FACTOR_BITS, MODULES = 16;

  logic clk = 1'b0;
  logic [ALL_BITS-4:0] cycle_q = '0;
  logic [MODULES-1:0] wrong;
  always #1 clk = !clk;

  for (genvar m = 0; m < int'(MODULES); m++) begin : g_module
    logic signed [X_BITS-1:0] x, x_q;
    logic signed [FACTOR_BITS-1:0] factor, factor_q;
    logic signed [PRODUCT_BITS-1:0] product;
    assign {factor, x} = {4'(m), cycle_q[ALL_BITS-5:0]};
    opu_multiply_soft #(
        .X_BITS      (X_BITS),
        .FACTOR_BITS (FACTOR_BITS),
        .PRODUCT_BITS(PRODUCT_BITS),
        .FIRST_DIGITS(FIRST_DIGITS)
    ) dut (
        .clk_i    (clk),
        .x_i      (x),
        .factor_i (factor),
        .product_o(product)
    );
    always_ff @(posedge clk) begin
      x_q <= x;
      factor_q <= factor;
    end
    assign wrong[m] = product != PRODUCT_BITS'(x_q) * PRODUCT_BITS'(factor_q);
  end

  always_ff @(posedge clk) begin
    cycle_q <= cycle_q + 1'b1;
    if (cycle_q != '0 && wrong != '0) begin
      $display("Assert failed: a product is wrong in cycle %0d", cycle_q);
      $finish;
    end
    if (cycle_q[ALL_BITS-4]) begin
      $display("all are right");
      $finish;
    end
  end

endmodule
