// From every halt the bus becomes quiet and the run ends: opu_control and opu_read_arbiter together. What is left to do on the bus
// becomes less with everything that the memory does, never more; when nothing is left the run ends in the next cycle.
// An abort ends it whatever the memory does, and then nothing is held or open: outside of a run the read side of the bus is quiet, always. An
// address that waits is taken back by an abort only. What comes while nothing is open, of a run that was aborted, changes nothing.
// A reset takes two cycles at least (opu_reset).
// Of the others it takes what their own proofs say: halted, opu_fetch and opu_walk (within opu_store's)
// ask for nothing, and opu_store's work becomes less with what is done.
module opu_halt_proof
  import opu_pkg::*;
(
    input logic        clk_i,
    input logic        rst_ni,
    input logic        start_i,
    input logic        stop_i,
    input logic        abort_i,
    input logic [31:0] watchdog_i,
    input logic        done_i,
    input logic [4:0]  fault_i,
    input logic [4:0]  retire_i,
    input logic [1:0]  ar_valid_i,
    input logic [39:0] addr_i,
    input logic [8:0]  beats_i,
    input logic        ar_ready_i,
    input logic        r_valid_i,
    input logic        r_id_i,
    input logic        r_last_i,
    input logic [31:0] write_work_i,
    input logic        write_done_i   // by the memory or by opu_store, in this cycle
);

  logic halt, busy, engine_rst_n, read_quiet, bus_valid;
  error_e code;
  error_e codes [5];
  logic [23:0] pcs [5];
  assign codes = '{default: ERR_WINDOW};
  assign pcs = '{default: '0};

  opu_control u_control (
      .clk_i,
      .rst_ni,
      .start_i,
      .stop_i,
      .abort_i,
      .watchdog_i,
      .engine_rst_no (engine_rst_n),
      .run_o         (),
      .halt_o        (halt),
      .done_i,
      .quiet_i       (read_quiet && write_work_i == '0),
      .fetch_pc_i    ('0),
      .fault_i,
      .fault_code_i  (codes),
      .fault_pc_i    (pcs),
      .retire_i,
      .engine_busy_i ('0),
      .engine_stall_i('0),
      .read_beat_i   (1'b0),
      .write_beat_i  (1'b0),
      .multiplies_i  (1'b0),
      .memory_wait_i (1'b0),
      .busy_o        (busy),
      .done_o        (),
      .error_o       (),
      .error_code_o  (code),
      .error_engine_o(),
      .error_pc_o    (),
      .cycles_o      (),
      .busy_cycles_o (),
      .stall_cycles_o(),
      .read_beats_o  (),
      .write_beats_o (),
      .multiplying_o (),
      .memory_waits_o()
  );

  logic [39:0] addr [2];
  logic [8:0] beats [2];
  assign addr = '{default: addr_i};
  assign beats = '{default: beats_i};
  opu_read_arbiter #(
      .OUTSTANDING(OUTSTANDING)
  ) u_arbiter (
      .clk_i,
      .rst_ni        (engine_rst_n),
      .quiet_o       (read_quiet),
      .ar_valid_i    (halt ? 2'b00 : ar_valid_i),
      .ar_ready_o    (),
      .ar_addr_i     (addr),
      .ar_beats_i    (beats),
      .r_valid_o     (),
      .r_end_o       (),
      .bus_ar_valid_o(bus_valid),
      .bus_ar_ready_i(ar_ready_i),
      .bus_ar_id_o   (),
      .bus_ar_addr_o (),
      .bus_ar_len_o  (),
      .bus_r_valid_i (r_valid_i),
      .bus_r_id_i    (r_id_i),
      .bus_r_last_i  (r_last_i)
  );

  logic begun_q = 1'b0, reset_q = 1'b0, resets_q = 1'b0, drains, drains_q, less_q, write_done_q, answers, waits_q, aborted_q;
  logic [31:0] taken_q, write_q;  // bursts that the memory has and has not answered
  logic [33:0] work, work_q;
  assign work = {bus_valid, 1'b0} + 34'(taken_q) + 34'(write_work_i);
  assign drains = begun_q && rst_ni && busy && halt && code != ERR_NONE && !abort_i && !aborted_q;
  assign answers = r_valid_i && r_last_i && taken_q != '0;
  always_ff @(posedge clk_i) begin
    begun_q <= 1'b1;
    reset_q <= !rst_ni;
    resets_q <= !rst_ni && reset_q;
    drains_q <= drains;
    waits_q <= rst_ni && bus_valid && !ar_ready_i;
    aborted_q <= rst_ni && busy && abort_i;
    less_q <= (bus_valid && ar_ready_i) || answers || write_done_i;
    write_done_q <= write_done_i;
    work_q <= work;
    write_q <= write_work_i;
    taken_q <= (!rst_ni || !engine_rst_n) ? '0 : taken_q + 32'(bus_valid && ar_ready_i) - 32'(answers);
  end

  always_comb begin
    assume (begun_q || !rst_ni);
    assume (!reset_q || resets_q || !rst_ni);
    assume (!r_valid_i || taken_q != '0 || !bus_valid);  // an answer, or one that comes late
    if (drains_q) assume (write_done_q ? write_work_i < write_q : write_work_i <= write_q);
    assume (!write_done_i || write_work_i != '0);
    if (done_i) assume (read_quiet && ar_valid_i == '0);  // opu_fetch has its data, opu_load is idle
    if (begun_q && rst_ni) begin
      assert (32'(u_arbiter.open_q) == taken_q + 32'(bus_valid) && taken_q <= OUTSTANDING);
      assert (32'(u_arbiter.open_q) <= OUTSTANDING);
      if (!busy) assert (read_quiet && !bus_valid);
      if (waits_q) assert (bus_valid || !busy);
      // What makes that inductive.
      assert (halt == (u_control.state_q != 2'd2));  // RUN
      assert (u_arbiter.some_q == (u_arbiter.open_q != '0) && u_arbiter.room_q == (32'(u_arbiter.open_q) != OUTSTANDING));
      if (busy && u_control.abort_q) assert (!engine_rst_n);
      if (drains_q && busy) begin
        assert (halt && code != ERR_NONE);
        assert (work_q != '0);  // else it has ended
        assert (less_q ? work < work_q : work <= work_q);
      end
    end
  end

endmodule
