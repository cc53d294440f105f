// opu_walk, any shape and any window: every burst lies in one page and in the window, has 1 … MAX_BURST beats and stands until it
// is taken; beats of the runs that were let in come out once each. Proved for every length of run: what the registers promise each
// other stands below.
module opu_walk_proof #(
    parameter int unsigned BUS_BYTES = 8,
    parameter int unsigned MAX_BURST = 16,
    localparam int unsigned ADDRESS_BITS = 40
) (
    input logic                     clk_i,
    input logic                     rst_ni,
    input logic                     halt_i,
    input logic [ADDRESS_BITS-1:12] window_page_i,
    input logic [32:0]              window_size_i,
    input logic                     start_valid_i,
    input logic [31:0]              dram_i,
    input logic [2:0]               shift_i,
    input logic [15:0]              run_i,
    input logic [15:0]              rows_i,
    input logic [7:0]               repeats_i,
    input logic [21:0]              row_pitch_i,
    input logic [15:0]              blocks_i,
    input logic [21:0]              block_pitch_i,
    input logic                     burst_ready_i
);

  localparam int unsigned BUS_LOG2 = $clog2(BUS_BYTES);
  localparam int unsigned PAGE_BEATS = 4096 / BUS_BYTES;

  logic start_ready, valid, last, fault;
  logic [ADDRESS_BITS-1:0] addr;
  logic [8:0] beats;
  opu_walk #(
      .ADDRESS_BITS(ADDRESS_BITS),
      .BUS_BYTES   (BUS_BYTES),
      .MAX_BURST   (MAX_BURST)
  ) dut (
      .clk_i,
      .rst_ni,
      .halt_i,
      .window_base_i({window_page_i, 12'd0}),
      .window_size_i,
      .start_valid_i,
      .start_ready_o(start_ready),
      .dram_i,
      .shift_i,
      .run_i,
      .rows_i,
      .repeats_i,
      .row_pitch_i,
      .blocks_i,
      .block_pitch_i,
      .pc_i         (24'd0),
      .burst_valid_o(valid),
      .burst_ready_i,
      .burst_addr_o (addr),
      .burst_beats_o(beats),
      .burst_last_o (last),
      .burst_pc_o   (),
      .fault_o      (fault),
      .fault_pc_o   ()
  );

  // Beats let in by runs and not yet sent.
  logic begun_q = 1'b0, waits_q;
  logic [47:0] owed_q;
  logic [ADDRESS_BITS+9:0] shown_q;
  logic [ADDRESS_BITS+32-11:0] window_q;
  always_ff @(posedge clk_i) begin
    begun_q <= 1'b1;
    window_q <= {window_page_i, window_size_i};
    waits_q <= rst_ni && valid && !burst_ready_i;
    shown_q <= {addr, beats, last};
    owed_q <= !rst_ni ? '0
        : owed_q + (dut.run_taken ? dut.run_beats_q : '0) - (valid && burst_ready_i ? 48'(beats) : '0);
  end

  logic [48:0] window, cur_end, room, block_room;
  logic [9:0] to_page;
  assign window = 49'(window_size_i >> BUS_LOG2);
  assign cur_end = {1'b0, dut.cur_at_q} + {1'b0, dut.cur_left_q};
  assign room = window - {1'b0, dut.run_at_q} - {1'b0, dut.run_beats_q};
  assign block_room = window - {1'b0, dut.block_at_q} - {1'b0, dut.run_beats_q};
  assign to_page = 10'(PAGE_BEATS) - 10'(dut.cur_at_q % PAGE_BEATS);

  always_comb begin
    assume (begun_q || !rst_ni);
    assume (run_i != '0 && rows_i != '0 && blocks_i != '0);
    assume (window_size_i <= 33'h1_0000_0000);
    assume (41'({window_page_i, 12'd0}) + 41'(window_size_i) <= 41'h100_0000_0000);
    assume (!begun_q || window_q == {window_page_i, window_size_i});
    if (begun_q && valid) begin
      assert (beats != '0 && 32'(beats) <= MAX_BURST);
      assert (32'(addr[11:0]) + 32'(beats) * BUS_BYTES <= 4096);
      assert (addr >= {window_page_i, 12'd0});
      assert (41'(addr) + 41'(beats) * BUS_BYTES <= 41'({window_page_i, 12'd0}) + 41'(window_size_i));
    end
    if (begun_q && waits_q && !halt_i) assert (valid && shown_q == {addr, beats, last});
    if (begun_q) begin
      assert (dut.idle_q == !dut.active_q);
      assert (owed_q == (dut.cur_valid_q ? dut.cur_left_q : '0));
      if (dut.cur_valid_q) begin
        assert (dut.cur_left_q != '0 && cur_end <= window);
        assert (dut.reach_q.exceeds == (dut.cur_left_q > 48'(dut.cap_q)));
        assert (dut.reach_q.fills == (dut.cur_left_q >= 48'(dut.cap_q)));
        if (dut.active_q && !dut.cur_last_q) assert (dut.continues_q == (dut.run_at_q == cur_end[47:0]));
        assert (32'(dut.cap_q) == (32'(to_page) < MAX_BURST ? 32'(to_page) : MAX_BURST));
        assert (dut.cur_last_q || dut.active_q);
      end
      if (dut.active_q) begin
        assert (dut.run_beats_q != '0 && dut.run_beats_q < 48'd1 << 23);
        assert (dut.row_pitch_q < 48'd1 << 29 && dut.block_pitch_q < 48'd1 << 29);
        assert (dut.run_at_q < 48'd1 << 34 && dut.block_at_q <= dut.run_at_q);
        assert (dut.room_q == room && dut.block_room_q == block_room);
        assert (!dut.block_room_q[48] || dut.block_at_q == dut.run_at_q);
      end
    end
  end

endmodule
