// Serial line, eight bits, no parity, one stop bit, DIVIDER cycles a bit.
//
// Sending: a byte is taken in a cycle with tx_valid_i and tx_ready_o. Receiving: the oldest byte is on rx_data_o while rx_valid_o
// and leaves with rx_ready_i; DEPTH bytes may wait, what comes then is lost.
module ulx3s_uart #(
    parameter int unsigned DIVIDER = 60,
    parameter int unsigned DEPTH = 4096
) (
    input  logic       clk_i,
    input  logic       rst_ni,

    input  logic       rxd_i,
    output logic       txd_o,

    input  logic       tx_valid_i,
    output logic       tx_ready_o,
    input  logic [7:0] tx_data_i,
    output logic       rx_valid_o,
    input  logic       rx_ready_i,
    output logic [7:0] rx_data_o
);

  localparam int unsigned TICK_BITS = $clog2(DIVIDER);
  typedef logic [TICK_BITS-1:0] tick_t;
  localparam tick_t LAST = tick_t'(DIVIDER - 1), MIDDLE = tick_t'(DIVIDER / 2);

  // Ten bits go out, the lowest first; ones follow.
  logic [9:0] tx_q;
  logic [3:0] tx_left_q;
  tick_t tx_tick_q;
  assign tx_ready_o = tx_left_q == '0;
  assign txd_o = tx_q[0];
  always_ff @(posedge clk_i) begin
    tx_tick_q <= tx_tick_q == LAST ? '0 : tx_tick_q + tick_t'(1);
    if (tx_ready_o) begin
      if (tx_valid_i) begin
        tx_q <= {1'b1, tx_data_i, 1'b0};
        tx_left_q <= 4'd10;
      end
      tx_tick_q <= '0;
    end else if (tx_tick_q == LAST) begin
      tx_q <= {1'b1, tx_q[9:1]};
      tx_left_q <= tx_left_q - 4'd1;
    end
    if (!rst_ni) begin
      tx_q <= '1;
      tx_left_q <= '0;
    end
  end

  // A bit is taken in its middle; a byte counts when its stop bit is one.
  logic [2:0] rxd_q;
  logic [8:0] rx_q;
  logic [3:0] rx_left_q;
  tick_t rx_tick_q;
  logic rx_done, rx_room;
  assign rx_done = rx_left_q == 4'd1 && rx_tick_q == MIDDLE;
  always_ff @(posedge clk_i) begin
    rxd_q <= {rxd_q[1:0], rxd_i};
    rx_tick_q <= rx_tick_q == LAST ? '0 : rx_tick_q + tick_t'(1);
    if (rx_left_q == '0) begin
      rx_tick_q <= '0;
      if (!rxd_q[2]) rx_left_q <= 4'd10;
    end else if (rx_tick_q == MIDDLE) begin
      rx_q <= {rxd_q[2], rx_q[8:1]};
      rx_left_q <= rx_left_q - 4'd1;
    end
    if (!rst_ni) begin
      rxd_q <= '1;
      rx_left_q <= '0;
    end
  end

  opu_queue #(
      .WIDTH(8),
      .DEPTH(DEPTH)
  ) u_received (
      .clk_i,
      .rst_ni,
      .push_valid_i(rx_done && rxd_q[2]),
      .push_ready_o(rx_room),
      .push_data_i (rx_q[8:1]),
      .pop_valid_o (rx_valid_o),
      .pop_ready_i (rx_ready_i),
      .pop_data_o  (rx_data_o)
  );

  logic unused;
  assign unused = &{rx_room, rx_q[0]};

endmodule
