// The machine and the memory at its port, for simulation. Plusargs:
//   +image=FILE (mapped as DRAM, bus address 0 on), +latency=CYCLES (2, no less), +rate256=BYTES_PER_CYCLE*256 (the port's),
//   +ddr=NUMBERS: a DDR memory (opu_ddr.cpp) instead of +rate256,
//   +orders=SEED (0): in which order addresses and data of writes are taken (opu_axi_memory.sv).
//
//   AXI4-Lite ports --> opu_top --AXI4--> opu_axi_memory --> opu_image.cpp
module opu_machine
  import opu_pkg::*;
(
    input  logic                     clk_i,
    input  logic                     rst_ni,
    output logic                     irq_o,

    input  logic [CSR_ADDR_BITS-1:0] awaddr_i,
    input  logic                     awvalid_i,
    output logic                     awready_o,
    input  logic [31:0]              wdata_i,
    input  logic [3:0]               wstrb_i,
    input  logic                     wvalid_i,
    output logic                     wready_o,
    output logic [1:0]               bresp_o,
    output logic                     bvalid_o,
    input  logic                     bready_i,
    input  logic [CSR_ADDR_BITS-1:0] araddr_i,
    input  logic                     arvalid_i,
    output logic                     arready_o,
    output logic [31:0]              rdata_o,
    output logic [1:0]               rresp_o,
    output logic                     rvalid_o,
    input  logic                     rready_i
);

  localparam int unsigned ADDRESS_BITS = 40;

  import "DPI-C" function longint opu_image_open(input string path);
  import "DPI-C" function int opu_ddr_open(input string numbers);

  int unsigned latency = 2;
  int unsigned rate256 = 256 * BUS_BYTES;
  int unsigned orders = 0;
  bit ddr = 1'b0;
  initial begin
    string path, numbers;
    if (!$value$plusargs("image=%s", path)) $fatal(1, "+image=FILE is missing");
    if (opu_image_open(path) == 0) $fatal(1, "the image %s cannot be mapped", path);
    void'($value$plusargs("latency=%d", latency));
    if (latency < 2) latency = 2;
    void'($value$plusargs("rate256=%d", rate256));
    void'($value$plusargs("orders=%d", orders));
    if ($value$plusargs("ddr=%s", numbers)) begin
      if (opu_ddr_open(numbers) == 0) $fatal(1, "+ddr=%s are not the numbers of a memory", numbers);
      ddr = 1'b1;
    end
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
      .clk_i,
      .rst_ni,
      .irq_o,
      .s_axil_awaddr (awaddr_i),
      .s_axil_awprot (3'b000),
      .s_axil_awvalid(awvalid_i),
      .s_axil_awready(awready_o),
      .s_axil_wdata  (wdata_i),
      .s_axil_wstrb  (wstrb_i),
      .s_axil_wvalid (wvalid_i),
      .s_axil_wready (wready_o),
      .s_axil_bresp  (bresp_o),
      .s_axil_bvalid (bvalid_o),
      .s_axil_bready (bready_i),
      .s_axil_araddr (araddr_i),
      .s_axil_arprot (3'b000),
      .s_axil_arvalid(arvalid_i),
      .s_axil_arready(arready_o),
      .s_axil_rdata  (rdata_o),
      .s_axil_rresp  (rresp_o),
      .s_axil_rvalid (rvalid_o),
      .s_axil_rready (rready_i),
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
      .clk_i,
      .rst_ni,
      .latency_i(latency),
      .rate_i   (rate256),
      .orders_i (orders),
      .ddr_i    (ddr),
      .cycle_i  (dut.cycles),
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

endmodule
