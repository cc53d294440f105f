// The controller, registers as at the pads, and the memory, with an AXI master of Python (sdram_bench.py). Simulation only.
module sdram_bench #(
    parameter int unsigned CLOCK_KHZ = 60_000,
    parameter int unsigned BUS_BYTES = 8
) ();

  localparam int unsigned ID_BITS = 2;
  localparam int unsigned ADDRESS_BITS = 40;
  localparam int unsigned PERIOD_NS = 1_000_000 / CLOCK_KHZ;
  localparam int unsigned POWER_UP_NS = 2_000;

  // Rising edges at odd halves of the period.
  bit clk;
  initial forever begin
    #(PERIOD_NS - PERIOD_NS / 2) clk = 1'b1;
    #(PERIOD_NS / 2) clk = 1'b0;
  end
  logic sdram_clk;
  always @(clk) sdram_clk <= #3 clk;

  logic rst_n = 1'b0;
  logic [ID_BITS-1:0] awid = '0, arid = '0, bid, rid;
  logic [ADDRESS_BITS-1:0] awaddr = '0, araddr = '0;
  logic [7:0] awlen = '0, arlen = '0;
  logic awvalid = 1'b0, wvalid = 1'b0, wlast = 1'b0, bready = 1'b0, arvalid = 1'b0, rready = 1'b0;
  logic awready, wready, bvalid, arready, rlast, rvalid;
  logic [BUS_BYTES*8-1:0] wdata = '0, rdata;
  logic [BUS_BYTES-1:0] wstrb = '0;

  logic cke, oe, oe_pad, read_oe;
  logic [2:0] command;
  logic [1:0] ba, dqm;
  logic [12:0] a;
  logic [15:0] dq, dq_pad, read, read_q;
  logic [20:0] pads_q;

  sdram_controller #(
      .CLOCK_KHZ   (CLOCK_KHZ),
      .BUS_BYTES   (BUS_BYTES),
      .ADDRESS_BITS(ADDRESS_BITS),
      .ID_BITS     (ID_BITS),
      .POWER_UP_NS (POWER_UP_NS + 500)
  ) dut (
      .clk_i    (clk),
      .rst_ni   (rst_n),
      .awid_i   (awid),
      .awaddr_i (awaddr),
      .awlen_i  (awlen),
      .awvalid_i(awvalid),
      .awready_o(awready),
      .wdata_i  (wdata),
      .wstrb_i  (wstrb),
      .wlast_i  (wlast),
      .wvalid_i (wvalid),
      .wready_o (wready),
      .bid_o    (bid),
      .bvalid_o (bvalid),
      .bready_i (bready),
      .arid_i   (arid),
      .araddr_i (araddr),
      .arlen_i  (arlen),
      .arvalid_i(arvalid),
      .arready_o(arready),
      .rid_o    (rid),
      .rdata_o  (rdata),
      .rlast_o  (rlast),
      .rvalid_o (rvalid),
      .rready_i (rready),
      .cke_o    (cke),
      .command_o(command),
      .ba_o     (ba),
      .a_o      (a),
      .dqm_o    (dqm),
      .dq_o     (dq),
      .dq_oe_o  (oe),
      .dq_i     (read_q)
  );

  always_ff @(posedge clk) begin
    pads_q <= {cke, command, ba, a, dqm};
    dq_pad <= dq;
    oe_pad <= oe;
    read_q <= read_oe ? read : 16'hdead;
  end

  sdram_model #(
      .POWER_UP_NS(POWER_UP_NS)
  ) u_memory (
      .clk_i      (sdram_clk),
      .cke_i      (pads_q[20]),
      .cs_ni      (1'b0),
      .ras_ni     (pads_q[19]),
      .cas_ni     (pads_q[18]),
      .we_ni      (pads_q[17]),
      .ba_i       (pads_q[16:15]),
      .a_i        (pads_q[14:2]),
      .dqm_i      (pads_q[1:0]),
      .dq_i       (dq_pad),
      .dq_driven_i(oe_pad),
      .dq_o       (read),
      .dq_oe_o    (read_oe)
  );

endmodule
