// opu_walk, any shape and any window of up to 2^WINDOW_LOG2 bytes (more take the solver long): every burst is inside
// one page and the window, has 1 … MAX_BURST beats and is held until it is taken; beats of the accepted runs are issued
// once each. Proved for every length of run, by the invariants of the registers below.
module opu_walk_proof #(
    parameter int unsigned BUS_BYTES = 8,
    parameter int unsigned MAX_BURST = 16,
    parameter int unsigned WINDOW_LOG2 = 32,
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
    input logic                     legal_i,
    input logic [15:0]              rows_i,
    input logic [7:0]               repeats_i,
    input logic [21:0]              row_pitch_i,
    input logic [15:0]              blocks_i,
    input logic [21:0]              block_pitch_i,
    input logic                     burst_ready_i
);

  localparam int unsigned BUS_LOG2 = $clog2(BUS_BYTES);
  localparam int unsigned PAGE_BEATS = 4096 / BUS_BYTES;
  localparam int unsigned LONGEST = (MAX_BURST < PAGE_BEATS) ? MAX_BURST : PAGE_BEATS;
  localparam int unsigned FRAME_LOG2 = (LONGEST > 1) ? $clog2(LONGEST) : 1;

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
      .legal_i,
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
  logic [35:0] owed_q;
  logic [ADDRESS_BITS+9:0] shown_q;
  logic [ADDRESS_BITS+32-11:0] window_q;
  always_ff @(posedge clk_i) begin
    begun_q <= 1'b1;
    window_q <= {window_page_i, window_size_i};
    waits_q <= rst_ni && valid && !burst_ready_i;
    shown_q <= {addr, beats, last};
    owed_q <= !rst_ni ? '0
        : owed_q + (dut.run_taken ? 36'(dut.run_beats_q) : '0) - (valid && burst_ready_i ? 36'(beats) : '0);
  end

  // The stretch, and its burst: to the end of the page, no longer than allowed.
  logic [35:0] window, cur_at, cur_left, cur_end, slack, to_page, cap, next_to_page, next_cap;
  localparam logic [35:0] FRAME = 36'd1 << FRAME_LOG2;
  assign window = 36'(window_size_i >> BUS_LOG2);
  assign slack = 36'(signed'(dut.frame_q.slack_less)) + 36'd1;
  assign cur_at = 36'({dut.page_q, dut.frame_q.at});
  assign cur_left = 36'({dut.frames_q, dut.end_q}) + (dut.carry_q ? FRAME : '0) + 36'd1 - slack;
  assign cur_end = cur_at + owed_q;  // cur_left is the same
  assign to_page = 36'(PAGE_BEATS) - 36'(dut.frame_q.at);
  assign cap = (to_page < 36'(MAX_BURST)) ? to_page : 36'(MAX_BURST);
  assign next_to_page = (to_page == cap) ? 36'(PAGE_BEATS) : to_page - cap;
  assign next_cap = (next_to_page < 36'(MAX_BURST)) ? next_to_page : 36'(MAX_BURST);

  // The run that is offered, and the next one, which is no farther than a pitch after it.
  localparam int unsigned AT_BITS = 33 - BUS_LOG2;
  localparam int unsigned PITCH_BITS = 22 + 7;
  logic [35:0] dram, run_at, run_beats, run_end, next, block, successor;
  logic next_far;
  assign next_far = dut.left < 0;
  assign dram = 36'(dut.dram_q);
  assign run_at = 36'(dut.run_at_q);
  assign run_beats = 36'(dut.run_beats_q);
  assign run_end = 36'(dut.run_end_q);
  assign next = 36'(dut.next_q);
  assign block = 36'(dut.block_q);
  assign successor = dut.block_ends_q ? block + 36'(dut.block_pitch_q) : next + 36'(dut.row_pitch_q);

  always_comb begin
    assume (begun_q || !rst_ni);
    assume (run_i != '0 && rows_i != '0 && blocks_i != '0);
    assume (window_size_i <= 33'd1 << WINDOW_LOG2);
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
      assert (dut.active_q == (dut.fresh_q || dut.runs_q) && !(dut.fresh_q && dut.runs_q));
      assert (owed_q == (dut.cur_valid_q ? cur_left : '0));
      if (dut.cur_valid_q) begin
        assert (owed_q != '0 && owed_q <= window && cur_end <= window);
        assert (slack == FRAME - cap && 36'(dut.frame_q.next) == FRAME - next_cap);
        assert (dut.frame_q.last == (to_page == cap));
        assert (dut.exceeds_q == (owed_q > cap));
        assert (dut.fills_q == (owed_q >= cap));
        if (dut.run_offered && !dut.cur_last_q) assert (dut.continues_q == (run_at == cur_end));
        assert (dut.cur_last_q || dut.runs_q);
      end
      assert (dut.runs_q || !dut.shown_q);
      if (dut.active_q) assert (dut.block_ends_q == (dut.repeats_left_q[8] && dut.rows_left_q[16]));
      assert (fault == (dut.runs_q && !dut.run_offered));
      if (dut.fresh_q) begin
        assert (dram < 36'd1 << 32 - BUS_LOG2 && next == '0 && block == '0);
        assert (36'(signed'(dut.room_q)) == window - dram);
      end
      if (dut.run_offered) begin
        assert (run_beats != '0 && dut.run_less_q == dut.run_beats_q - 1'b1);
        assert (dut.less_more_q == (dut.run_less_q >> FRAME_LOG2 != '0));
        assert (dut.beats_more_q == (dut.run_beats_q >> FRAME_LOG2 != '0));
        assert (dram <= run_at && run_at <= window && run_beats <= window && run_at + run_beats <= window);
        assert (run_end == run_at - dram + run_beats);
        assert (36'(dut.far_q) == window - dram - run_beats && dram + run_beats <= window);
        assert (block <= next && next < (36'd1 << AT_BITS) + (36'd1 << PITCH_BITS));
        // A run that does not fit is not taken for one that does: no fault is reported wrongly after one that fits.
        assert (next_far == (dram + next + run_beats > window));
        if (!next_far) assert (36'(dut.next_d) == successor);
      end
    end
  end

endmodule
