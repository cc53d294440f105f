// The machine on the board ULX3S: processor and serial line, SDRAM shared by processor and machine, one clock for all of it. Ports are
// named as in the board's constraint files (ulx3s.lpf). btn[1] (FIRE1) resets.
//
//   rxd, txd <--> ulx3s_cpu ----AXI4-Lite----> opu_top         25 MHz --> ulx3s_clocks --> clk, SDRAM clock
//                     |  AXI4                     |  AXI4
//                     +--------> soc_share <------+
//                                    v
//                            sdram_controller --> ulx3s_pads <--> SDRAM
//
// LEDs: 0 to 5 what the firmware writes, 6 a program runs or ended unread (irq), 7 the processor is lost.
`include "opu_assert.svh"

module ulx3s
  import opu_pkg::*;
#(
    parameter int unsigned CLOCK_KHZ = 60_000,
    parameter int unsigned CLKI_DIV = 5,
    parameter int unsigned CLKFB_DIV = 12,
    parameter int unsigned CLKOP_DIV = 10,
    parameter int unsigned UART_DIVIDER = CLOCK_KHZ / 1000,  // 1 Mbaud
    parameter int unsigned POWER_UP_NS = 200_000
) (
    input  logic        clk_25mhz,
    input  logic        ftdi_txd,   // from the USB bridge
    output logic        ftdi_rxd,
    output logic [7:0]  led,
    input  logic [1:1]  btn,

    output logic        sdram_clk,
    output logic        sdram_cke,
    output logic        sdram_csn,
    output logic        sdram_rasn,
    output logic        sdram_casn,
    output logic        sdram_wen,
    output logic [1:0]  sdram_ba,
    output logic [12:0] sdram_a,
    output logic [1:0]  sdram_dqm,
    inout  wire  [15:0] sdram_d
);

  localparam int unsigned ADDRESS_BITS = 32;
  localparam int unsigned AX_BITS = ADDRESS_BITS + 8;
  localparam int unsigned W_BITS = BUS_BYTES * 9;

  `OPU_ASSERT_STATIC(ProcessorsBeat, BUS_BYTES == 8)

  logic clk, sdram_clock, locked;
  ulx3s_clocks #(
      .CLOCK_KHZ(CLOCK_KHZ),
      .CLKI_DIV (CLKI_DIV),
      .CLKFB_DIV(CLKFB_DIV),
      .CLKOP_DIV(CLKOP_DIV)
  ) u_clocks (
      .clk_25_i   (clk_25mhz),
      .clk_o      (clk),
      .sdram_clk_o(sdram_clock),
      .locked_o   (locked)
  );

  // Reset ends 15 cycles after the last disturbance. What these registers hold at first does not matter: the PLL is not locked then.
  logic [1:0] steady_q;
  logic [3:0] counted_q;
  logic rst_n;
  always_ff @(posedge clk) begin
    steady_q <= {steady_q[0], locked && !btn[1]};
    if (!steady_q[1]) counted_q <= '0;
    else if (counted_q != '1) counted_q <= counted_q + 4'd1;
    rst_n <= counted_q == '1;
  end

  // ---- processor ---------------------------------------------------------------------------------------------------------------
  logic irq, trap;
  logic [7:0] leds;
  logic [11:0] axil_addr;
  logic [31:0] axil_wdata, axil_rdata;
  logic [3:0] axil_wstrb;
  logic axil_awvalid, axil_awready, axil_wvalid, axil_wready, axil_bvalid, axil_arvalid, axil_arready, axil_rvalid;
  logic [1:0] axil_bresp, axil_rresp;

  // Index 0: the machine, 1: the processor.
  logic [1:0] awvalid, awready, wvalid, wready, wlast, bvalid, arvalid, arready, rvalid;
  logic [1:0][AX_BITS-1:0] aw, ar;
  logic [1:0][W_BITS-1:0] w;
  logic [24:0] cpu_addr;
  logic [BUS_BYTES*8-1:0] rdata;
  assign aw[1] = {32'(cpu_addr), 8'd0};
  assign ar[1] = {32'(cpu_addr), 8'd0};
  assign wlast[1] = 1'b1;

  ulx3s_cpu #(
      .CLOCK_KHZ   (CLOCK_KHZ),
      .UART_DIVIDER(UART_DIVIDER)
  ) u_cpu (
      .clk_i         (clk),
      .rst_ni        (rst_n),
      .rxd_i         (ftdi_txd),
      .txd_o         (ftdi_rxd),
      .led_o         (leds),
      .trap_o        (trap),
      .axil_addr_o   (axil_addr),
      .axil_wdata_o  (axil_wdata),
      .axil_wstrb_o  (axil_wstrb),
      .axil_awvalid_o(axil_awvalid),
      .axil_awready_i(axil_awready),
      .axil_wvalid_o (axil_wvalid),
      .axil_wready_i (axil_wready),
      .axil_bvalid_i (axil_bvalid),
      .axil_arvalid_o(axil_arvalid),
      .axil_arready_i(axil_arready),
      .axil_rdata_i  (axil_rdata),
      .axil_rvalid_i (axil_rvalid),
      .axi_addr_o    (cpu_addr),
      .axi_wdata_o   (w[1][BUS_BYTES+:BUS_BYTES*8]),
      .axi_wstrb_o   (w[1][BUS_BYTES-1:0]),
      .axi_awvalid_o (awvalid[1]),
      .axi_awready_i (awready[1]),
      .axi_wvalid_o  (wvalid[1]),
      .axi_wready_i  (wready[1]),
      .axi_bvalid_i  (bvalid[1]),
      .axi_arvalid_o (arvalid[1]),
      .axi_arready_i (arready[1]),
      .axi_rdata_i   (rdata),
      .axi_rvalid_i  (rvalid[1])
  );
  assign led = {trap, irq, leds[5:0]};

  // ---- machine -----------------------------------------------------------------------------------------------------------------
  logic [1:0] rid, bid;
  logic rlast, machine_awid, machine_arid;
  logic [ADDRESS_BITS-1:0] machine_awaddr, machine_araddr;
  logic [7:0] machine_awlen, machine_arlen;
  assign aw[0] = {machine_awaddr, machine_awlen};
  assign ar[0] = {machine_araddr, machine_arlen};

  /* verilator lint_off PINCONNECTEMPTY */
  opu_top #(
      .ADDRESS_BITS(ADDRESS_BITS)
  ) u_machine (
      .clk_i         (clk),
      .rst_ni        (rst_n),
      .irq_o         (irq),
      .s_axil_awaddr (axil_addr),
      .s_axil_awprot (3'd0),
      .s_axil_awvalid(axil_awvalid),
      .s_axil_awready(axil_awready),
      .s_axil_wdata  (axil_wdata),
      .s_axil_wstrb  (axil_wstrb),
      .s_axil_wvalid (axil_wvalid),
      .s_axil_wready (axil_wready),
      .s_axil_bresp  (axil_bresp),
      .s_axil_bvalid (axil_bvalid),
      .s_axil_bready (1'b1),
      .s_axil_araddr (axil_addr),
      .s_axil_arprot (3'd0),
      .s_axil_arvalid(axil_arvalid),
      .s_axil_arready(axil_arready),
      .s_axil_rdata  (axil_rdata),
      .s_axil_rresp  (axil_rresp),
      .s_axil_rvalid (axil_rvalid),
      .s_axil_rready (1'b1),
      .m_axi_awid    (machine_awid),
      .m_axi_awaddr  (machine_awaddr),
      .m_axi_awlen   (machine_awlen),
      .m_axi_awsize  (),
      .m_axi_awburst (),
      .m_axi_awlock  (),
      .m_axi_awcache (),
      .m_axi_awprot  (),
      .m_axi_awvalid (awvalid[0]),
      .m_axi_awready (awready[0]),
      .m_axi_wdata   (w[0][BUS_BYTES+:BUS_BYTES*8]),
      .m_axi_wstrb   (w[0][BUS_BYTES-1:0]),
      .m_axi_wlast   (wlast[0]),
      .m_axi_wvalid  (wvalid[0]),
      .m_axi_wready  (wready[0]),
      .m_axi_bid     (bid[0]),
      .m_axi_bresp   (2'b00),
      .m_axi_bvalid  (bvalid[0]),
      .m_axi_bready  (),
      .m_axi_arid    (machine_arid),
      .m_axi_araddr  (machine_araddr),
      .m_axi_arlen   (machine_arlen),
      .m_axi_arsize  (),
      .m_axi_arburst (),
      .m_axi_arlock  (),
      .m_axi_arcache (),
      .m_axi_arprot  (),
      .m_axi_arvalid (arvalid[0]),
      .m_axi_arready (arready[0]),
      .m_axi_rid     (rid[0]),
      .m_axi_rdata   (rdata),
      .m_axi_rresp   (2'b00),
      .m_axi_rlast   (rlast),
      .m_axi_rvalid  (rvalid[0]),
      .m_axi_rready  ()
  );
  /* verilator lint_on PINCONNECTEMPTY */

  // ---- memory ------------------------------------------------------------------------------------------------------------------
  // Both take every answer at once.
  logic s_awvalid, s_awready, s_aw_owner, s_wvalid, s_wready, s_wlast, s_bvalid, s_bready;
  logic s_arvalid, s_arready, s_ar_owner, s_rvalid, s_rready, s_arid;
  logic [AX_BITS-1:0] s_aw, s_ar;
  logic [W_BITS-1:0] s_w;
  soc_share #(
      .AX_BITS(AX_BITS),
      .W_BITS (W_BITS)
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
      .bready_i  (2'b11),
      .arvalid_i (arvalid),
      .arready_o (arready),
      .ar_i      (ar),
      .rvalid_o  (rvalid),
      .rready_i  (2'b11),
      .awvalid_o (s_awvalid),
      .awready_i (s_awready),
      .aw_owner_o(s_aw_owner),
      .aw_o      (s_aw),
      .wvalid_o  (s_wvalid),
      .wready_i  (s_wready),
      .wlast_o   (s_wlast),
      .w_o       (s_w),
      .bvalid_i  (s_bvalid),
      .bready_o  (s_bready),
      .b_owner_i (bid[1]),
      .arvalid_o (s_arvalid),
      .arready_i (s_arready),
      .ar_owner_o(s_ar_owner),
      .ar_o      (s_ar),
      .rvalid_i  (s_rvalid),
      .rready_o  (s_rready),
      .r_owner_i (rid[1])
  );
  assign s_arid = !s_ar_owner && machine_arid;

  logic cke, dq_oe;
  logic [2:0] command;
  logic [1:0] ba, dqm;
  logic [12:0] a;
  logic [15:0] dq_written, dq_found;
  sdram_controller #(
      .CLOCK_KHZ   (CLOCK_KHZ),
      .BUS_BYTES   (BUS_BYTES),
      .ADDRESS_BITS(ADDRESS_BITS),
      .ID_BITS     (2),
      .POWER_UP_NS (POWER_UP_NS)
  ) u_sdram (
      .clk_i    (clk),
      .rst_ni   (rst_n),
      .awid_i   ({s_aw_owner, 1'b0}),
      .awaddr_i (s_aw[AX_BITS-1:8]),
      .awlen_i  (s_aw[7:0]),
      .awvalid_i(s_awvalid),
      .awready_o(s_awready),
      .wdata_i  (s_w[BUS_BYTES+:BUS_BYTES*8]),
      .wstrb_i  (s_w[BUS_BYTES-1:0]),
      .wlast_i  (s_wlast),
      .wvalid_i (s_wvalid),
      .wready_o (s_wready),
      .bid_o    (bid),
      .bvalid_o (s_bvalid),
      .bready_i (s_bready),
      .arid_i   ({s_ar_owner, s_arid}),
      .araddr_i (s_ar[AX_BITS-1:8]),
      .arlen_i  (s_ar[7:0]),
      .arvalid_i(s_arvalid),
      .arready_o(s_arready),
      .rid_o    (rid),
      .rdata_o  (rdata),
      .rlast_o  (rlast),
      .rvalid_o (s_rvalid),
      .rready_i (s_rready),
      .cke_o    (cke),
      .command_o(command),
      .ba_o     (ba),
      .a_o      (a),
      .dqm_o    (dqm),
      .dq_o     (dq_written),
      .dq_oe_o  (dq_oe),
      .dq_i     (dq_found)
  );

  assign sdram_csn = 1'b0;
  ulx3s_pads u_pads (
      .clk_i          (clk),
      .sdram_clk_i    (sdram_clock),
      .cke_i          (cke),
      .command_i      (command),
      .ba_i           (ba),
      .a_i            (a),
      .dqm_i          (dqm),
      .dq_i           (dq_written),
      .dq_oe_i        (dq_oe),
      .dq_o           (dq_found),
      .sdram_clk_o    (sdram_clk),
      .sdram_cke_o    (sdram_cke),
      .sdram_command_o({sdram_rasn, sdram_casn, sdram_wen}),
      .sdram_ba_o     (sdram_ba),
      .sdram_a_o      (sdram_a),
      .sdram_dqm_o    (sdram_dqm),
      .sdram_d_io     (sdram_d)
  );

  // The processor knows what it may write where; writes have one id.
  logic unused;
  assign unused = &{axil_bresp, axil_rresp, leds[7:6], machine_awid};

endmodule
