// The board in simulation: the SoC that LiteX wrote for it, the SDRAM, and a serial line that ends in a terminal (ulx3s_link.cpp).
// Plusargs: +image=FILE (contents of the SDRAM), +link=PATH (where the serial port is to be). Ends when a host closes it.
`timescale 1ns / 1ps
module ulx3s_board #(
    parameter int unsigned BAUD = 3_000_000
) ();

  import "DPI-C" function longint opu_image_open(input string path);
  import "DPI-C" function int ulx3s_link_open(input string path);
  import "DPI-C" function int ulx3s_link_get();
  import "DPI-C" function void ulx3s_link_put(input int value);

  localparam int UART_DIVIDER = 8;  // looks at the line in the time of a bit
  localparam int NONE = -1, CLOSED = -2;

  logic finished /*verilator public_flat_rd*/ = 1'b0;
  bit clk25, clk;
  initial forever #20 clk25 = !clk25;
  initial forever #(0.5e9 / (BAUD * UART_DIVIDER)) clk = !clk;

  initial begin
    string path;
    if (!$value$plusargs("image=%s", path)) $fatal(1, "+image=FILE is missing");
    if (opu_image_open(path) == 0) $fatal(1, "the image %s cannot be mapped", path);
    if (!$value$plusargs("link=%s", path)) $fatal(1, "+link=PATH is missing");
    if (ulx3s_link_open(path) == 0) $fatal(1, "there is no terminal at %s", path);
  end

  logic to_board = 1'b1, from_board;
  logic sdram_clk, cke, csn, rasn, casn, wen, read_oe;
  logic [1:0] ba, dqm;
  logic [12:0] a;
  logic [15:0] read;
  wire [15:0] d;

  radiona_ulx3s dut (
      .clk25,
      .rst        (1'b0),
      .serial_rx  (to_board),
      .serial_tx  (from_board),
      .sdram_clock(sdram_clk),
      .sdram_cke  (cke),
      .sdram_cs_n (csn),
      .sdram_ras_n(rasn),
      .sdram_cas_n(casn),
      .sdram_we_n (wen),
      .sdram_ba   (ba),
      .sdram_a    (a),
      .sdram_dm   (dqm),
      .sdram_dq   (d),
      .user_led0  (),
      .user_led1  (),
      .user_led2  (),
      .user_led3  (),
      .user_led4  (),
      .user_led5  (),
      .user_led6  (),
      .user_led7  (),
      .wifi_gpio0 ()
  );

  sdram_model u_memory (
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
      .dq_driven_i(!dut.TRELLIS_IO.T),
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
      if (sent_tick == UART_DIVIDER - 1) begin
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
      received_tick <= received_tick + 1 == UART_DIVIDER ? 0 : received_tick + 1;
      if (received_tick == UART_DIVIDER / 2) begin
        received <= received >> 1 | int'(from_board) << 9;
        received_left <= received_left - 1;
        if (received_left == 1) begin
          ulx3s_link_put((received >> 1 | int'(from_board) << 9) >> 1 & 255);
          if (!from_board) $error("a byte of the board without a stop bit");
        end
      end
    end
  end

endmodule
