// opu_read_arbiter keeps AXI's handshake: a read address is held until it is taken, is the one that its reader gave,
// each is offered once; never more than OUTSTANDING bursts are open; data go to who asked, a cycle later. quiet_o says exactly that
// nothing is held or open, so the bus is quiet as soon as the readers ask for nothing and the memory has answered. Its
// reset, which is an abort's as well, may come at any time: it takes back the address that waits and forgets what is
// open. While nothing is, the memory may say what it likes (it answers the run that was aborted): nobody gets it, and
// nothing changes.
module opu_read_arbiter_proof #(
    parameter int unsigned ADDRESS_BITS = 40,
    parameter int unsigned OUTSTANDING = 4
) (
    input logic                    clk_i,
    input logic                    rst_ni,
    input logic [1:0]              ar_valid_i,
    input logic [ADDRESS_BITS-1:0] addr_0_i,
    input logic [ADDRESS_BITS-1:0] addr_1_i,
    input logic [8:0]              beats_0_i,
    input logic [8:0]              beats_1_i,
    input logic                    bus_ar_ready_i,
    input logic                    bus_r_valid_i,
    input logic                    bus_r_id_i,
    input logic                    bus_r_last_i
);

  logic quiet, bus_valid, bus_id;
  logic [1:0] ready, r_valid;
  logic r_end;
  logic [ADDRESS_BITS-1:0] bus_addr;
  logic [7:0] bus_len;
  logic [ADDRESS_BITS-1:0] addr [2];
  logic [8:0] beats [2];
  assign addr = '{addr_0_i, addr_1_i};
  assign beats = '{beats_0_i, beats_1_i};

  opu_read_arbiter #(
      .ADDRESS_BITS(ADDRESS_BITS),
      .OUTSTANDING (OUTSTANDING)
  ) dut (
      .clk_i,
      .rst_ni,
      .quiet_o       (quiet),
      .ar_valid_i,
      .ar_ready_o    (ready),
      .ar_addr_i     (addr),
      .ar_beats_i    (beats),
      .r_valid_o     (r_valid),
      .r_end_o       (r_end),
      .bus_ar_valid_o(bus_valid),
      .bus_ar_ready_i,
      .bus_ar_id_o   (bus_id),
      .bus_ar_addr_o (bus_addr),
      .bus_ar_len_o  (bus_len),
      .bus_r_valid_i,
      .bus_r_id_i,
      .bus_r_last_i
  );

  logic begun_q = 1'b0, reset_q, taken_q, waits_q;
  logic [1:0] takes;
  logic [ADDRESS_BITS+8:0] given_q, shown;
  int unsigned open_q;  // taken by the bus, not answered to the end
  assign takes = ar_valid_i & ready;
  assign shown = {bus_id, bus_addr, bus_len};

  always_ff @(posedge clk_i) begin
    begun_q <= 1'b1;
    reset_q <= !rst_ni;
    taken_q <= rst_ni && takes != '0;
    given_q <= {takes[1], addr[takes[1]], 8'(beats[takes[1]] - 9'd1)};
    waits_q <= rst_ni && bus_valid && !bus_ar_ready_i;
    if (!rst_ni) open_q <= 0;
    else open_q <= open_q + 32'(bus_valid && bus_ar_ready_i) - 32'(bus_r_valid_i && bus_r_last_i && open_q != 0);
    if (bus_valid && !bus_ar_ready_i) assert (takes == '0);
  end

  logic [ADDRESS_BITS+8:0] shown_q;
  logic [1:0] answered_q;
  logic ended_q;
  always_ff @(posedge clk_i) begin
    shown_q <= shown;
    answered_q <= (rst_ni && bus_r_valid_i && !quiet) ? 2'b01 << bus_r_id_i : 2'b00;
    ended_q <= rst_ni && bus_r_valid_i && bus_r_last_i && bus_r_id_i && !quiet;
  end

  always_comb begin
    assume (begun_q || !rst_ni);
    assume (!bus_r_valid_i || open_q != 0 || !bus_valid);  // an answer, or one that comes late
    if (begun_q) begin
      assert (takes != 2'b11);
      assert (bus_valid == (taken_q || waits_q));
      if (taken_q) assert (shown == given_q);
      if (waits_q) assert (shown == shown_q);
      assert (open_q + 32'(bus_valid) <= OUTSTANDING);
      assert (quiet == (open_q == 0 && !bus_valid));
      assert (r_valid == answered_q && r_end == ended_q);
      if (reset_q) assert (quiet && !bus_valid);
      assert (32'(dut.open_q) == open_q + 32'(bus_valid));
      assert (dut.some_q == (dut.open_q != '0) && dut.room_q == (32'(dut.open_q) != OUTSTANDING));
    end
  end

endmodule
