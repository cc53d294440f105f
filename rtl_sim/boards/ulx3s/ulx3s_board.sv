// The board in simulation: the FPGA's design, the SDRAM, and a serial line whose other end is a socket (ulx3s_link.cpp).
// Plusargs: +image=FILE (contents of the SDRAM), +link=PATH (a Unix socket that somebody listens on). Ends when the other side closes.
module ulx3s_board #(
    parameter int unsigned CLOCK_KHZ = 62_500,
    parameter int unsigned UART_DIVIDER = 4
) ();

  import "DPI-C" function longint opu_image_open(input string path);
  import "DPI-C" function int ulx3s_link_open(input string path);
  import "DPI-C" function int ulx3s_link_get();
  import "DPI-C" function void ulx3s_link_put(input int value);

  localparam int unsigned PERIOD_NS = 1_000_000 / CLOCK_KHZ;
  localparam int unsigned POWER_UP_NS = 2_000;
  localparam int NONE = -1, CLOSED = -2;

  logic finished /*verilator public_flat_rd*/ = 1'b0;
  bit clk;
  initial forever #(PERIOD_NS / 2) clk = !clk;

  initial begin
    string path;
    if (!$value$plusargs("image=%s", path)) $fatal(1, "+image=FILE is missing");
    if (opu_image_open(path) == 0) $fatal(1, "the image %s cannot be mapped", path);
    if (!$value$plusargs("link=%s", path)) $fatal(1, "+link=PATH is missing");
    if (ulx3s_link_open(path) == 0) $fatal(1, "nobody listens at %s", path);
  end

  logic to_board = 1'b1, from_board;
  logic [7:0] led;
  logic sdram_clk, cke, csn, rasn, casn, wen, read_oe;
  logic [1:0] ba, dqm;
  logic [12:0] a;
  logic [15:0] read;
  wire [15:0] d;

  ulx3s #(
      .CLOCK_KHZ   (CLOCK_KHZ),
      .UART_DIVIDER(UART_DIVIDER),
      .POWER_UP_NS (POWER_UP_NS)
  ) dut (
      .clk_25mhz (clk),
      .ftdi_txd  (to_board),
      .ftdi_rxd  (from_board),
      .led,
      .btn       (1'b0),
      .sdram_clk,
      .sdram_cke (cke),
      .sdram_csn (csn),
      .sdram_rasn(rasn),
      .sdram_casn(casn),
      .sdram_wen (wen),
      .sdram_ba  (ba),
      .sdram_a   (a),
      .sdram_dqm (dqm),
      .sdram_d   (d)
  );

  sdram_model #(
      .IMAGE      (1'b1),
      .POWER_UP_NS(POWER_UP_NS)
  ) u_memory (
      .clk_i      (sdram_clk),
      .cke_i      (cke),
      .cs_ni      (csn),
      .ras_ni     (rasn),
      .cas_ni     (casn),
      .we_ni      (wen),
      .ba_i       (ba),
      .a_i        (a),
      .dqm_i      (dqm),
      .dq_i       (d),
      .dq_driven_i(dut.u_pads.driven_q),
      .dq_o       (read),
      .dq_oe_o    (read_oe)
  );
  assign d = read_oe ? read : 16'hzzzz;

  // Both directions of the line, a bit at a time.
  localparam int RESET = 256;  // cycles in which nobody listens on the board
  int sent, sent_left, sent_tick, begun;
  int received, received_left, received_tick;
  always @(posedge clk) begin
    if (begun != RESET) begin
      begun <= begun + 1;
    end else if (sent_left == 0) begin
      automatic int value = ulx3s_link_get();
      if (value == CLOSED) finished <= 1'b1;
      else if (value != NONE) begin
        sent <= (512 | value << 1) & 'h3ff;
        sent_left <= 10;
        sent_tick <= 0;
      end
      to_board <= 1'b1;
    end else begin
      to_board <= sent[0];
      if (sent_tick == int'(UART_DIVIDER) - 1) begin
        sent <= sent >> 1;
        sent_left <= sent_left - 1;
        sent_tick <= 0;
      end else begin
        sent_tick <= sent_tick + 1;
      end
    end
    if (received_left == 0) begin
      if (!from_board) received_left <= 10;
      received_tick <= 1;
    end else begin
      received_tick <= received_tick + 1 == int'(UART_DIVIDER) ? 0 : received_tick + 1;
      if (received_tick == int'(UART_DIVIDER / 2)) begin
        received <= received >> 1 | int'(from_board) << 9;
        received_left <= received_left - 1;
        if (received_left == 1) begin
          ulx3s_link_put((received >> 1 | int'(from_board) << 9) >> 1 & 255);
          if (!from_board) $error("a byte of the board without a stop bit");
        end
      end
    end
    if (led[7]) $fatal(1, "the processor met an instruction or address that it does not know");
  end

endmodule
