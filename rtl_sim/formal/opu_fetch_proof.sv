// opu_fetch: while it is halted it asks for nothing and passes nothing on; an address is held until it is taken or
// fetch is halted; for every beat that it asked for there is room, whenever it comes, so the bus never waits for fetch.
// Beats are counted in every queue.
module opu_fetch_proof
  import opu_pkg::*;
#(
    parameter int unsigned AHEAD_BYTES = 256
) (
    input logic                   clk_i,
    input logic                   rst_ni,
    input logic                   halt_i,
    input logic                   run_i,
    input logic [39:12]           window_page_i,
    input logic [32:0]            window_size_i,
    input logic [31:6]            prog_base_i,
    input logic [31:0]            prog_words_i,
    input logic                   others_idle_i,
    input logic [4:1]             push_ready_i,
    input logic                   ar_ready_i,
    input logic                   r_valid_i,
    input logic [BUS_BYTES*8-1:0] r_data_i,
    input logic                   r_error_i
);

  localparam int unsigned AHEAD = AHEAD_BYTES / BUS_BYTES;
  logic ar_valid;
  logic [39:0] ar_addr;
  logic [8:0] ar_beats;
  logic [4:1] push_valid;

  opu_fetch #(
      .AHEAD_BYTES(AHEAD_BYTES)
  ) dut (
      .clk_i,
      .rst_ni,
      .halt_i,
      .run_i,
      .window_base_i({window_page_i, 12'd0}),
      .window_size_i,
      .prog_base_i  ({prog_base_i, 6'd0}),
      .prog_words_i,
      .others_idle_i,
      .done_o       (),
      .busy_o       (),
      .stall_o      (),
      .retire_o     (),
      .pc_o         (),
      .fault_o      (),
      .fault_code_o (),
      .push_valid_o (push_valid),
      .push_ready_i,
      .push_word_o  (),
      .push_pc_o    (),
      .ar_valid_o   (ar_valid),
      .ar_ready_i,
      .ar_addr_o    (ar_addr),
      .ar_beats_o   (ar_beats),
      .r_valid_i,
      .r_data_i,
      .r_error_i
  );

  logic begun_q = 1'b0, waits_q;
  logic [48:0] shown_q;
  logic [39:12] window_page_q;
  int unsigned owed_q, stored, held;  // asked for and not come; in the queue; its last word on its way, or just passed
  always_ff @(posedge clk_i) begin
    begun_q <= 1'b1;
    waits_q <= rst_ni && ar_valid && !ar_ready_i;
    shown_q <= {ar_addr, ar_beats};
    window_page_q <= window_page_i;
    owed_q <= !rst_ni ? 0 : owed_q + ((ar_valid && ar_ready_i) ? 32'(ar_beats) : 0) - 32'(r_valid_i);
  end
  assign stored = 32'(dut.u_beats.count_q);
  assign held = 32'(dut.word_valid_q && dut.word_end) + 32'(dut.second_valid_q && dut.taken_end_q[!dut.out_q])
      + 32'(dut.held_q && dut.beat_end_q) + 32'(dut.beat_passed_q);

  // What is left of the aligned stretch and of the program, from where fetch reads.
  logic [34:0] burst, stretch;
  assign stretch = 35'(dut.BURST) - 35'(dut.at_q) % 35'(dut.BURST);
  assign burst = (35'(dut.left_q) < stretch) ? 35'(dut.left_q) : stretch;

  always_comb begin
    assume (begun_q || !rst_ni);
    assume (!r_valid_i || owed_q != 0);  // the memory answers what it was asked
    assume (!begun_q || window_page_q == window_page_i);
    if (halt_i) assert (!ar_valid && push_valid == '0);
    if (begun_q) begin
      if (r_valid_i) assert (dut.room_ready);
      if (waits_q && !halt_i && dut.state_q == 3'd1) assert (ar_valid && shown_q == {ar_addr, ar_beats});  // READ
      if (ar_valid) assert (ar_beats != '0 && 32'(ar_beats) <= AHEAD);
      // What makes the above inductive.
      assert (dut.second_valid_q ? dut.word_valid_q && dut.in_q == dut.out_q : dut.in_q == (dut.out_q ^ dut.word_valid_q));
      assert (owed_q == 32'(dut.coming_q));
      assert (32'(dut.room_q) + owed_q + stored + held == AHEAD);
      assert (stored <= AHEAD);
      assert (dut.u_beats.room_q == (stored != AHEAD) && dut.u_beats.some_q == (stored != 0));
      if (dut.state_q == 3'd0) assert (!dut.measured_q && !dut.asks_q);  // IDLE
      if (dut.measured_q || dut.asks_q) begin
        assert (35'(dut.burst_q) == burst && dut.left_q != '0);
        assert (dut.addr_q == {window_page_i, 12'd0} + 40'(dut.at_q) * BUS_BYTES);
      end
      if (dut.asks_q) assert (dut.room_q >= dut.burst_q && !dut.outside);
      if (dut.asks_q && dut.state_q == 3'd1) assert (dut.measured_q);
    end
  end

endmodule
