// Whole-network simulation: the machine, a memory, a clock. The simulator's Python side only touches the signals marked public:
// it releases reset and talks to the control registers; everything per cycle happens here.
//
// Clock: period 2 time units, rising at odd times; the Python side writes and reads at even times.
// Plusargs: those of opu_machine.sv, +retired=FILE (opu_retired.sv).
module opu_system
  import opu_pkg::*;
();
  bit clk;
  initial forever #1 clk = !clk;

  logic rst_n /*verilator public_flat_rw*/ = 1'b0;
  logic irq /*verilator public_flat_rd*/;
  logic [CSR_ADDR_BITS-1:0] awaddr /*verilator public_flat_rw*/ = '0;
  logic awvalid /*verilator public_flat_rw*/ = 1'b0;
  logic awready /*verilator public_flat_rd*/;
  logic [31:0] wdata /*verilator public_flat_rw*/ = '0;
  logic wvalid /*verilator public_flat_rw*/ = 1'b0;
  logic [1:0] bresp /*verilator public_flat_rd*/;
  logic bvalid /*verilator public_flat_rd*/;
  logic bready /*verilator public_flat_rw*/ = 1'b0;
  logic [CSR_ADDR_BITS-1:0] araddr /*verilator public_flat_rw*/ = '0;
  logic arvalid /*verilator public_flat_rw*/ = 1'b0;
  logic arready /*verilator public_flat_rd*/;
  logic [31:0] rdata /*verilator public_flat_rd*/;
  logic [1:0] rresp /*verilator public_flat_rd*/;
  logic rvalid /*verilator public_flat_rd*/;
  logic rready /*verilator public_flat_rw*/ = 1'b0;
  logic wready /*verilator public_flat_rd*/;

  opu_machine u_machine (
      .clk_i    (clk),
      .rst_ni   (rst_n),
      .irq_o    (irq),
      .awaddr_i (awaddr),
      .awvalid_i(awvalid),
      .awready_o(awready),
      .wdata_i  (wdata),
      .wstrb_i  (4'hf),
      .wvalid_i (wvalid),
      .wready_o (wready),
      .bresp_o  (bresp),
      .bvalid_o (bvalid),
      .bready_i (bready),
      .araddr_i (araddr),
      .arvalid_i(arvalid),
      .arready_o(arready),
      .rdata_o  (rdata),
      .rresp_o  (rresp),
      .rvalid_o (rvalid),
      .rready_i (rready)
  );

  // Retire records: opu_retired, bound into the machine.

endmodule
