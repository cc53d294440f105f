// A small system with the machine inside. The bench is the processor: it reaches the machine's control registers by s_axil_*, and
// the memory, which the machine shares, by s_axi_*. The memory is connected to m_axi_*.
//
//   s_axil_* ────────── opu_top ─┐
//   s_axi_*  ────────────────────┴ soc_share ── m_axi_*
module soc
  import opu_pkg::*;
#(
    parameter int unsigned ADDRESS_BITS = 40
) (
    input  logic                     clk,
    input  logic                     rst_n,
    output logic                     irq,

    input  logic [CSR_ADDR_BITS-1:0] s_axil_awaddr,
    input  logic [2:0]               s_axil_awprot,
    input  logic                     s_axil_awvalid,
    output logic                     s_axil_awready,
    input  logic [31:0]              s_axil_wdata,
    input  logic [3:0]               s_axil_wstrb,
    input  logic                     s_axil_wvalid,
    output logic                     s_axil_wready,
    output logic [1:0]               s_axil_bresp,
    output logic                     s_axil_bvalid,
    input  logic                     s_axil_bready,
    input  logic [CSR_ADDR_BITS-1:0] s_axil_araddr,
    input  logic [2:0]               s_axil_arprot,
    input  logic                     s_axil_arvalid,
    output logic                     s_axil_arready,
    output logic [31:0]              s_axil_rdata,
    output logic [1:0]               s_axil_rresp,
    output logic                     s_axil_rvalid,
    input  logic                     s_axil_rready,

    input  logic                     s_axi_awid,
    input  logic [ADDRESS_BITS-1:0]  s_axi_awaddr,
    input  logic [7:0]               s_axi_awlen,
    input  logic [2:0]               s_axi_awsize,
    input  logic [1:0]               s_axi_awburst,
    input  logic                     s_axi_awvalid,
    output logic                     s_axi_awready,
    input  logic [BUS_BYTES*8-1:0]   s_axi_wdata,
    input  logic [BUS_BYTES-1:0]     s_axi_wstrb,
    input  logic                     s_axi_wlast,
    input  logic                     s_axi_wvalid,
    output logic                     s_axi_wready,
    output logic                     s_axi_bid,
    output logic [1:0]               s_axi_bresp,
    output logic                     s_axi_bvalid,
    input  logic                     s_axi_bready,
    input  logic                     s_axi_arid,
    input  logic [ADDRESS_BITS-1:0]  s_axi_araddr,
    input  logic [7:0]               s_axi_arlen,
    input  logic [2:0]               s_axi_arsize,
    input  logic [1:0]               s_axi_arburst,
    input  logic                     s_axi_arvalid,
    output logic                     s_axi_arready,
    output logic                     s_axi_rid,
    output logic [BUS_BYTES*8-1:0]   s_axi_rdata,
    output logic [1:0]               s_axi_rresp,
    output logic                     s_axi_rlast,
    output logic                     s_axi_rvalid,
    input  logic                     s_axi_rready,

    output logic [1:0]               m_axi_awid,
    output logic [ADDRESS_BITS-1:0]  m_axi_awaddr,
    output logic [7:0]               m_axi_awlen,
    output logic [2:0]               m_axi_awsize,
    output logic [1:0]               m_axi_awburst,
    output logic                     m_axi_awvalid,
    input  logic                     m_axi_awready,
    output logic [BUS_BYTES*8-1:0]   m_axi_wdata,
    output logic [BUS_BYTES-1:0]     m_axi_wstrb,
    output logic                     m_axi_wlast,
    output logic                     m_axi_wvalid,
    input  logic                     m_axi_wready,
    input  logic [1:0]               m_axi_bid,
    input  logic [1:0]               m_axi_bresp,
    input  logic                     m_axi_bvalid,
    output logic                     m_axi_bready,
    output logic [1:0]               m_axi_arid,
    output logic [ADDRESS_BITS-1:0]  m_axi_araddr,
    output logic [7:0]               m_axi_arlen,
    output logic [2:0]               m_axi_arsize,
    output logic [1:0]               m_axi_arburst,
    output logic                     m_axi_arvalid,
    input  logic                     m_axi_arready,
    input  logic [1:0]               m_axi_rid,
    input  logic [BUS_BYTES*8-1:0]   m_axi_rdata,
    input  logic [1:0]               m_axi_rresp,
    input  logic                     m_axi_rlast,
    input  logic                     m_axi_rvalid,
    output logic                     m_axi_rready
);

  typedef struct packed {
    logic id;
    logic [ADDRESS_BITS-1:0] addr;
    logic [7:0] len;
    logic [2:0] size;
    logic [1:0] burst;
  } address_t;

  typedef struct packed {
    logic [BUS_BYTES*8-1:0] data;
    logic [BUS_BYTES-1:0] strb;
  } word_t;

  // [1] the machine, [0] the processor
  address_t [1:0] aw, ar;
  word_t [1:0] w;
  logic [1:0] awvalid, awready, wvalid, wready, wlast, bvalid, bready, arvalid, arready, rvalid, rready;

  assign aw[0] = '{s_axi_awid, s_axi_awaddr, s_axi_awlen, s_axi_awsize, s_axi_awburst};
  assign ar[0] = '{s_axi_arid, s_axi_araddr, s_axi_arlen, s_axi_arsize, s_axi_arburst};
  assign w[0] = '{s_axi_wdata, s_axi_wstrb};
  assign awvalid[0] = s_axi_awvalid;
  assign wvalid[0] = s_axi_wvalid;
  assign wlast[0] = s_axi_wlast;
  assign bready[0] = s_axi_bready;
  assign arvalid[0] = s_axi_arvalid;
  assign rready[0] = s_axi_rready;
  assign s_axi_awready = awready[0];
  assign s_axi_wready = wready[0];
  assign s_axi_bvalid = bvalid[0];
  assign s_axi_arready = arready[0];
  assign s_axi_rvalid = rvalid[0];
  assign s_axi_bid = m_axi_bid[0];
  assign s_axi_bresp = m_axi_bresp;
  assign s_axi_rid = m_axi_rid[0];
  assign s_axi_rdata = m_axi_rdata;
  assign s_axi_rresp = m_axi_rresp;
  assign s_axi_rlast = m_axi_rlast;

  opu_top #(
      .ADDRESS_BITS(ADDRESS_BITS)
  ) u_opu (
      .clk_i        (clk),
      .rst_ni       (rst_n),
      .irq_o        (irq),
      .s_axil_awaddr,
      .s_axil_awprot,
      .s_axil_awvalid,
      .s_axil_awready,
      .s_axil_wdata,
      .s_axil_wstrb,
      .s_axil_wvalid,
      .s_axil_wready,
      .s_axil_bresp,
      .s_axil_bvalid,
      .s_axil_bready,
      .s_axil_araddr,
      .s_axil_arprot,
      .s_axil_arvalid,
      .s_axil_arready,
      .s_axil_rdata,
      .s_axil_rresp,
      .s_axil_rvalid,
      .s_axil_rready,
      .m_axi_awid   (aw[1].id),
      .m_axi_awaddr (aw[1].addr),
      .m_axi_awlen  (aw[1].len),
      .m_axi_awsize (aw[1].size),
      .m_axi_awburst(aw[1].burst),
      .m_axi_awlock (),
      .m_axi_awcache(),
      .m_axi_awprot (),
      .m_axi_awvalid(awvalid[1]),
      .m_axi_awready(awready[1]),
      .m_axi_wdata  (w[1].data),
      .m_axi_wstrb  (w[1].strb),
      .m_axi_wlast  (wlast[1]),
      .m_axi_wvalid (wvalid[1]),
      .m_axi_wready (wready[1]),
      .m_axi_bid    (m_axi_bid[0]),
      .m_axi_bresp  (m_axi_bresp),
      .m_axi_bvalid (bvalid[1]),
      .m_axi_bready (bready[1]),
      .m_axi_arid   (ar[1].id),
      .m_axi_araddr (ar[1].addr),
      .m_axi_arlen  (ar[1].len),
      .m_axi_arsize (ar[1].size),
      .m_axi_arburst(ar[1].burst),
      .m_axi_arlock (),
      .m_axi_arcache(),
      .m_axi_arprot (),
      .m_axi_arvalid(arvalid[1]),
      .m_axi_arready(arready[1]),
      .m_axi_rid    (m_axi_rid[0]),
      .m_axi_rdata  (m_axi_rdata),
      .m_axi_rresp  (m_axi_rresp),
      .m_axi_rlast  (m_axi_rlast),
      .m_axi_rvalid (rvalid[1]),
      .m_axi_rready (rready[1])
  );

  soc_share #(
      .AX_BITS($bits(address_t)),
      .W_BITS ($bits(word_t))
  ) u_share (
      .clk,
      .rst_n,
      .awvalid_i (awvalid),
      .awready_o (awready),
      .aw_i      (aw),
      .wvalid_i  (wvalid),
      .wready_o  (wready),
      .wlast_i   (wlast),
      .w_i       (w),
      .bvalid_o  (bvalid),
      .bready_i  (bready),
      .arvalid_i (arvalid),
      .arready_o (arready),
      .ar_i      (ar),
      .rvalid_o  (rvalid),
      .rready_i  (rready),
      .awvalid_o (m_axi_awvalid),
      .awready_i (m_axi_awready),
      .aw_owner_o(m_axi_awid[1]),
      .aw_o      ({m_axi_awid[0], m_axi_awaddr, m_axi_awlen, m_axi_awsize, m_axi_awburst}),
      .wvalid_o  (m_axi_wvalid),
      .wready_i  (m_axi_wready),
      .wlast_o   (m_axi_wlast),
      .w_o       ({m_axi_wdata, m_axi_wstrb}),
      .bvalid_i  (m_axi_bvalid),
      .bready_o  (m_axi_bready),
      .b_owner_i (m_axi_bid[1]),
      .arvalid_o (m_axi_arvalid),
      .arready_i (m_axi_arready),
      .ar_owner_o(m_axi_arid[1]),
      .ar_o      ({m_axi_arid[0], m_axi_araddr, m_axi_arlen, m_axi_arsize, m_axi_arburst}),
      .rvalid_i  (m_axi_rvalid),
      .rready_o  (m_axi_rready),
      .r_owner_i (m_axi_rid[1])
  );

endmodule
