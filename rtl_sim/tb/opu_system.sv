// Whole-network simulation: the machine, a memory, a clock. The simulator's Python side only touches the signals marked public:
// it releases reset and talks to the control registers; everything per cycle happens here.
//
// Clock: period 2 time units, rising at odd times; the Python side writes and reads at even times.
// Plusargs: +image=FILE (mapped as DRAM, bus address 0 on), +latency=CYCLES, +rate256=BYTES_PER_CYCLE*256,
//           +retired=FILE (opu_retired.sv).
module opu_system
  import opu_pkg::*;
;
  localparam int unsigned ADDRESS_BITS = 40;

  import "DPI-C" function longint opu_image_open(input string path);

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

  int unsigned latency = 2;
  int unsigned rate256 = 256 * BUS_BYTES;
  initial begin
    string path;
    if (!$value$plusargs("image=%s", path)) $fatal(1, "+image=FILE is missing");
    if (opu_image_open(path) == 0) $fatal(1, "the image %s cannot be mapped", path);
    void'($value$plusargs("latency=%d", latency));
    if (latency < 2) latency = 2;
    void'($value$plusargs("rate256=%d", rate256));
  end

  logic m_awid, m_awvalid, m_awready, m_wlast, m_wvalid, m_wready, m_bid, m_bvalid, m_bready;
  logic m_arid, m_arvalid, m_arready, m_rid, m_rlast, m_rvalid, m_rready;
  logic [ADDRESS_BITS-1:0] m_awaddr, m_araddr;
  logic [7:0] m_awlen, m_arlen;
  logic [BUS_BYTES*8-1:0] m_wdata, m_rdata;
  logic [BUS_BYTES-1:0] m_wstrb;
  logic [1:0] m_bresp, m_rresp;

  /* verilator lint_off PINCONNECTEMPTY */
  opu_top #(
      .ADDRESS_BITS(ADDRESS_BITS)
  ) dut (
      .clk_i         (clk),
      .rst_ni        (rst_n),
      .irq_o         (irq),
      .s_axil_awaddr (awaddr),
      .s_axil_awprot (3'b000),
      .s_axil_awvalid(awvalid),
      .s_axil_awready(awready),
      .s_axil_wdata  (wdata),
      .s_axil_wstrb  (4'hf),
      .s_axil_wvalid (wvalid),
      .s_axil_wready (wready),
      .s_axil_bresp  (bresp),
      .s_axil_bvalid (bvalid),
      .s_axil_bready (bready),
      .s_axil_araddr (araddr),
      .s_axil_arprot (3'b000),
      .s_axil_arvalid(arvalid),
      .s_axil_arready(arready),
      .s_axil_rdata  (rdata),
      .s_axil_rresp  (rresp),
      .s_axil_rvalid (rvalid),
      .s_axil_rready (rready),
      .m_axi_awid    (m_awid),
      .m_axi_awaddr  (m_awaddr),
      .m_axi_awlen   (m_awlen),
      .m_axi_awsize  (),
      .m_axi_awburst (),
      .m_axi_awlock  (),
      .m_axi_awcache (),
      .m_axi_awprot  (),
      .m_axi_awvalid (m_awvalid),
      .m_axi_awready (m_awready),
      .m_axi_wdata   (m_wdata),
      .m_axi_wstrb   (m_wstrb),
      .m_axi_wlast   (m_wlast),
      .m_axi_wvalid  (m_wvalid),
      .m_axi_wready  (m_wready),
      .m_axi_bid     (m_bid),
      .m_axi_bresp   (m_bresp),
      .m_axi_bvalid  (m_bvalid),
      .m_axi_bready  (m_bready),
      .m_axi_arid    (m_arid),
      .m_axi_araddr  (m_araddr),
      .m_axi_arlen   (m_arlen),
      .m_axi_arsize  (),
      .m_axi_arburst (),
      .m_axi_arlock  (),
      .m_axi_arcache (),
      .m_axi_arprot  (),
      .m_axi_arvalid (m_arvalid),
      .m_axi_arready (m_arready),
      .m_axi_rid     (m_rid),
      .m_axi_rdata   (m_rdata),
      .m_axi_rresp   (m_rresp),
      .m_axi_rlast   (m_rlast),
      .m_axi_rvalid  (m_rvalid),
      .m_axi_rready  (m_rready)
  );
  /* verilator lint_on PINCONNECTEMPTY */

  opu_axi_memory #(
      .BUS_BYTES   (BUS_BYTES),
      .ADDRESS_BITS(ADDRESS_BITS)
  ) u_memory (
      .clk_i    (clk),
      .rst_ni   (rst_n),
      .latency_i(latency),
      .rate_i   (rate256),
      .awid_i   (m_awid),
      .awaddr_i (m_awaddr),
      .awlen_i  (m_awlen),
      .awvalid_i(m_awvalid),
      .awready_o(m_awready),
      .wdata_i  (m_wdata),
      .wstrb_i  (m_wstrb),
      .wlast_i  (m_wlast),
      .wvalid_i (m_wvalid),
      .wready_o (m_wready),
      .bid_o    (m_bid),
      .bresp_o  (m_bresp),
      .bvalid_o (m_bvalid),
      .bready_i (m_bready),
      .arid_i   (m_arid),
      .araddr_i (m_araddr),
      .arlen_i  (m_arlen),
      .arvalid_i(m_arvalid),
      .arready_o(m_arready),
      .rid_o    (m_rid),
      .rdata_o  (m_rdata),
      .rresp_o  (m_rresp),
      .rlast_o  (m_rlast),
      .rvalid_o (m_rvalid),
      .rready_i (m_rready)
  );
  // Retire records: opu_retired, bound into the machine.

endmodule
