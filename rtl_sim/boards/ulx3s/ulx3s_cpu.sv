// The processor of the board, PicoRV32, with its memory, the serial line, and its buses to the machine's control registers (AXI4-Lite)
// and to the SDRAM (AXI4, single beats of 8 bytes). Runs firmware.c; one access at a time, every one of them answered.
//
//   0x0000_0000  own memory, 16 KB: firmware0.hex … firmware3.hex, a byte of every word each
//   0x1000_0000  serial line: a write sends a byte; a read takes one, bit 31 says that there was none
//   0x1000_0004  read: the clock in kHz; write: the eight LEDs
//   0x4000_0000  control registers of the machine     0x8000_0000  SDRAM, 32 MB
module ulx3s_cpu #(
    parameter int unsigned CLOCK_KHZ = 60_000,
    parameter int unsigned UART_DIVIDER = 60
) (
    input  logic        clk_i,
    input  logic        rst_ni,

    input  logic        rxd_i,
    output logic        txd_o,
    output logic [7:0]  led_o,
    output logic        trap_o,

    output logic [11:0] axil_addr_o,
    output logic [31:0] axil_wdata_o,
    output logic [3:0]  axil_wstrb_o,
    output logic        axil_awvalid_o,
    input  logic        axil_awready_i,
    output logic        axil_wvalid_o,
    input  logic        axil_wready_i,
    input  logic        axil_bvalid_i,
    output logic        axil_arvalid_o,
    input  logic        axil_arready_i,
    input  logic [31:0] axil_rdata_i,
    input  logic        axil_rvalid_i,

    output logic [24:0] axi_addr_o,
    output logic [63:0] axi_wdata_o,
    output logic [7:0]  axi_wstrb_o,
    output logic        axi_awvalid_o,
    input  logic        axi_awready_i,
    output logic        axi_wvalid_o,
    input  logic        axi_wready_i,
    input  logic        axi_bvalid_i,
    output logic        axi_arvalid_o,
    input  logic        axi_arready_i,
    input  logic [63:0] axi_rdata_i,
    input  logic        axi_rvalid_i
);

  localparam int unsigned WORDS = 4096;
  localparam int unsigned WORD_BITS = $clog2(WORDS);

  logic valid, ready_q;
  logic [31:0] addr, wdata, rdata_q;
  logic [3:0] wstrb;
  /* verilator lint_off PINMISSING */
  picorv32 #(
      .ENABLE_COUNTERS(0),
      .BARREL_SHIFTER (1),
      .TWO_CYCLE_ALU  (1),
      .STACKADDR      (WORDS * 4)
  ) u_cpu (
      .clk       (clk_i),
      .resetn    (rst_ni),
      .trap      (trap_o),
      .mem_valid (valid),
      .mem_ready (ready_q),
      .mem_addr  (addr),
      .mem_wdata (wdata),
      .mem_wstrb (wstrb),
      .mem_rdata (rdata_q),
      .pcpi_wr   (1'b0),
      .pcpi_rd   (32'd0),
      .pcpi_wait (1'b0),
      .pcpi_ready(1'b0),
      .irq       (32'd0)
  );
  /* verilator lint_on PINMISSING */

  logic start, write;
  logic [3:0] region;
  assign start = valid && !ready_q;
  assign write = wstrb != '0;
  assign region = addr[31:28];

  // ---- own memory --------------------------------------------------------------------------------------------------------------
  logic [7:0] lane0 [WORDS];
  logic [7:0] lane1 [WORDS];
  logic [7:0] lane2 [WORDS];
  logic [7:0] lane3 [WORDS];
  initial begin
    $readmemh("firmware0.hex", lane0);
    $readmemh("firmware1.hex", lane1);
    $readmemh("firmware2.hex", lane2);
    $readmemh("firmware3.hex", lane3);
  end
  logic [31:0] own_q;
  logic [WORD_BITS-1:0] word_index;
  logic [3:0] own_write;
  assign word_index = addr[WORD_BITS+1:2];
  assign own_write = start && region == 4'h0 ? wstrb : 4'h0;
  always_ff @(posedge clk_i) begin
    own_q <= {lane3[word_index], lane2[word_index], lane1[word_index], lane0[word_index]};
    if (own_write[0]) lane0[word_index] <= wdata[7:0];
    if (own_write[1]) lane1[word_index] <= wdata[15:8];
    if (own_write[2]) lane2[word_index] <= wdata[23:16];
    if (own_write[3]) lane3[word_index] <= wdata[31:24];
  end

  // ---- serial line -------------------------------------------------------------------------------------------------------------
  logic serial, tx_ready, rx_valid;
  logic [7:0] rx_data;
  assign serial = start && region == 4'h1 && !addr[2];
  ulx3s_uart #(
      .DIVIDER(UART_DIVIDER)
  ) u_uart (
      .clk_i,
      .rst_ni,
      .rxd_i,
      .txd_o,
      .tx_valid_i(serial && write),
      .tx_ready_o(tx_ready),
      .tx_data_i (wdata[7:0]),
      .rx_valid_o(rx_valid),
      .rx_ready_i(serial && !write),
      .rx_data_o (rx_data)
  );

  // ---- accesses: an address and data are shown until they are taken, then the answer is waited for ----------------------------------
  logic aw_done_q, w_done_q, ar_done_q, to_registers, to_memory, answered;
  assign to_registers = start && region == 4'h4;
  assign to_memory = start && region == 4'h8;
  assign answered = to_registers ? axil_bvalid_i || axil_rvalid_i : axi_bvalid_i || axi_rvalid_i;

  assign axil_addr_o = addr[11:0];
  assign axil_wdata_o = wdata;
  assign axil_wstrb_o = wstrb;
  assign axil_awvalid_o = to_registers && write && !aw_done_q;
  assign axil_wvalid_o = to_registers && write && !w_done_q;
  assign axil_arvalid_o = to_registers && !write && !ar_done_q;
  assign axi_addr_o = {addr[24:3], 3'd0};
  assign axi_wdata_o = {2{wdata}};
  assign axi_wstrb_o = addr[2] ? {wstrb, 4'd0} : {4'd0, wstrb};
  assign axi_awvalid_o = to_memory && write && !aw_done_q;
  assign axi_wvalid_o = to_memory && write && !w_done_q;
  assign axi_arvalid_o = to_memory && !write && !ar_done_q;

  // `waited_q`: own memory shows its word in the second cycle of an access.
  logic waited_q;
  always_ff @(posedge clk_i) begin
    ready_q <= 1'b0;
    waited_q <= start && !waited_q;
    if (to_registers || to_memory) begin
      aw_done_q <= aw_done_q || (axil_awvalid_o && axil_awready_i) || (axi_awvalid_o && axi_awready_i);
      w_done_q <= w_done_q || (axil_wvalid_o && axil_wready_i) || (axi_wvalid_o && axi_wready_i);
      ar_done_q <= ar_done_q || (axil_arvalid_o && axil_arready_i) || (axi_arvalid_o && axi_arready_i);
      if (answered) begin
        ready_q <= 1'b1;
        {aw_done_q, w_done_q, ar_done_q} <= '0;
      end
      rdata_q <= to_registers ? axil_rdata_i : addr[2] ? axi_rdata_i[63:32] : axi_rdata_i[31:0];
    end else if (start && region == 4'h1) begin
      ready_q <= addr[2] || !write || tx_ready;
      rdata_q <= addr[2] ? 32'(CLOCK_KHZ) : {!rx_valid, 23'd0, rx_data};
      if (addr[2] && write) led_o <= wdata[7:0];
    end else if (start) begin
      ready_q <= waited_q || write;
      rdata_q <= own_q;
    end
    if (!rst_ni) begin
      {aw_done_q, w_done_q, ar_done_q, ready_q, waited_q} <= '0;
      led_o <= '0;
    end
  end

  logic unused;
  assign unused = &{addr[27:25]};

endmodule
