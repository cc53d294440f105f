// opu_store becomes quiet after every halt. Remaining work only decreases. Until nothing is left, every cycle either
// completes some work or has a request at the memory. quiet_o means exactly that the memory has answered everything.
// A response while nothing is open (of an aborted run) changes nothing. Bursts are those of opu_walk, of at least one
// beat (its own proof).
module opu_store_halt_proof
  import opu_pkg::*;
(
    input logic          clk_i,
    input logic          rst_ni,
    input logic          halt_i,
    input logic          start_valid_i,
    input store_params_t params_i,
    input logic          done_ready_i,
    input logic          aw_ready_i,
    input logic          w_ready_i,
    input logic          b_valid_i,
    input logic          b_error_i
);

  logic quiet, aw_valid, w_valid, w_last;
  opu_store dut (
      .clk_i,
      .rst_ni,
      .halt_i,
      .quiet_o      (quiet),
      .window_base_i('0),
      .window_size_i(33'h1_0000_0000),
      .start_valid_i,
      .start_ready_o(),
      .pc_i         ('0),
      .params_i,
      .done_valid_o (),
      .done_ready_i,
      .fault_o      (),
      .fault_code_o (),
      .fault_pc_o   (),
      .out_re_o     (),
      .out_addr_o   (),
      .out_data_i   ('0),
      .aw_valid_o   (aw_valid),
      .aw_ready_i,
      .aw_addr_o    (),
      .aw_beats_o   (),
      .w_valid_o    (w_valid),
      .w_ready_i,
      .w_data_o     (),
      .w_strobe_o   (),
      .w_last_o     (w_last),
      .b_valid_i,
      .b_error_i
  );

  // The oldest burst is in a register, the other one (OUTSTANDING is 2 here) in the memory of the queue.
  logic [OUTSTANDING-1:0][8:0] burst_beats;
  assign burst_beats = {dut.u_beats.entries[dut.u_beats.head_q][8:0], dut.u_beats.pop_data_o[8:0]};

  // Bursts in the queues of addresses, of beats to send and of answers to come; beats on their way; ends of bursts among them.
  int unsigned addresses, bursts, answers, data, ends, unsent, work;
  always_comb begin
    addresses = 32'(dut.u_addresses.count_q);
    bursts = 32'(dut.u_beats.count_q);
    answers = 32'(dut.u_answers.count_q);
    data = 32'(dut.u_data.count_q);
    ends = 0;
    unsent = 0;
    for (int unsigned k = 0; k < 4; k++) begin
      automatic logic [1:0] at = dut.u_data.head_q + 2'(k);
      ends += 32'(k < data && dut.u_data.entries[at][BUS_BYTES*9]);
    end
    for (int unsigned k = 0; k < OUTSTANDING; k++) if (k < bursts) unsent += 32'(burst_beats[k]);
    unsent -= 32'(dut.beat_q);
    work = 3 * unsent + 2 * 32'(dut.sent_q) + data + addresses + answers;
  end

  logic [1:0] newest;
  assign newest = dut.u_data.tail_q - 2'd1;

  logic begun_q = 1'b0, halted_q, done_q, answers_now, late_q;
  logic [7:0] dones_q;
  error_e code_q;
  int unsigned taken_q, ended_q, work_q;  // bursts whose address, whose last beat the memory has, without those it has answered
  assign answers_now = b_valid_i && taken_q != 0 && ended_q != 0;
  always_ff @(posedge clk_i) begin
    begun_q <= 1'b1;
    late_q <= begun_q && rst_ni && b_valid_i && quiet;
    dones_q <= 8'(dut.done_q);
    code_q <= dut.fault_code_q;
    halted_q <= begun_q && rst_ni && halt_i;
    done_q <= dut.send || dut.sent_q || (aw_valid && aw_ready_i) || (w_valid && w_ready_i) || answers_now;
    work_q <= work;
    if (!rst_ni) begin
      taken_q <= 0;
      ended_q <= 0;
    end else begin
      taken_q <= taken_q + 32'(aw_valid && aw_ready_i) - 32'(answers_now);
      ended_q <= ended_q + 32'(w_valid && w_ready_i && w_last) - 32'(answers_now);
    end
  end

  always_comb begin
    assume (begun_q || !rst_ni);
    assume (!b_valid_i || answers_now || quiet);
    assume (!dut.burst_valid || (dut.burst_beats != '0 && 32'(dut.burst_beats) <= MAX_BURST));
    if (halt_i) assert (!dut.burst_valid);
    if (begun_q) begin
      assert (quiet == (answers == 0) && (!quiet || work == 0));
      assert (quiet || aw_valid || w_valid || dut.sent_q || dut.send || (taken_q != 0 && ended_q != 0));
      if (late_q) assert (8'(dut.done_q) <= dones_q && (dut.fault_code_q == code_q || dut.fault_code_q != ERR_AXI_WRITE));
      if (halted_q) assert (work <= work_q && (!done_q || work < work_q));
      // What makes the above inductive.
      assert (answers == addresses + taken_q);
      assert (answers == bursts + 32'(dut.sent_q && dut.sent_end_q) + ends + ended_q);
      assert (taken_q <= OUTSTANDING && ended_q <= OUTSTANDING);
      assert (answers <= OUTSTANDING && addresses <= 2 && bursts <= OUTSTANDING && data <= 4);
      assert (32'(dut.room_q) + 32'(dut.sent_q) + data == 4);
      for (int unsigned k = 0; k < OUTSTANDING; k++) begin
        if (k < bursts) assert (burst_beats[k] != '0 && 32'(burst_beats[k]) <= MAX_BURST);
      end
      // Between bursts the newest beat on its way is the end of one.
      if (dut.beat_q == '0) assert (dut.sent_q ? dut.sent_end_q : data == 0 || dut.u_data.entries[newest][BUS_BYTES*9]);
      assert (bursts == 0 ? dut.beat_q == '0 : dut.beat_q < dut.beats);
      assert (dut.begins_q == (dut.beat_q == '0));
      if (!dut.begins_q) assert (dut.ends_q == (dut.beat_q + 9'd1 == dut.beats));
      assert (dut.u_addresses.some_q == (addresses != 0) && dut.u_addresses.room_q == (addresses != 2));
      assert (dut.u_beats.some_q == (bursts != 0) && dut.u_beats.room_q == (bursts != OUTSTANDING));
      assert (dut.u_answers.some_q == (answers != 0) && dut.u_answers.room_q == (answers != OUTSTANDING));
      assert (dut.u_data.some_q == (data != 0) && dut.u_data.room_q == (data != 4));
      assert (dut.u_beats.tail_q == 1'(32'(dut.u_beats.head_q) + (bursts == 0 ? 0 : bursts - 1)));
      assert (dut.u_data.tail_q == 2'(32'(dut.u_data.head_q) + data));
    end
  end

endmodule
