// opu_control: whatever comes in any order, a run ends with one outcome; an error, a stop or the watchdog halts the engines at once,
// and a quiet bus then ends the run in the next cycle, with its reason, engines reset. An abort resets the engines in the next cycle and ends
// the run in the one after it at the latest, whatever is open. Outside of a run nothing is let go.
module opu_control_proof
  import opu_pkg::*;
(
    input logic        clk_i,
    input logic        rst_ni,
    input logic        start_i,
    input logic        stop_i,
    input logic        abort_i,
    input logic [31:0] watchdog_i,
    input logic        done_i,
    input logic        quiet_i,
    input logic [4:0]  fault_i,
    input logic [4:0]  retire_i
);

  logic engine_rst_n, run, halt, busy, done, error;
  error_e codes [5];
  error_e code;
  logic [23:0] pcs [5];
  assign codes = '{default: ERR_WINDOW};
  assign pcs = '{default: '0};

  opu_control dut (
      .clk_i,
      .rst_ni,
      .start_i,
      .stop_i,
      .abort_i,
      .watchdog_i,
      .engine_rst_no (engine_rst_n),
      .run_o         (run),
      .halt_o        (halt),
      .done_i,
      .quiet_i,
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
      .done_o        (done),
      .error_o       (error),
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

  logic begun_q = 1'b0, met_q, waits_q, ends_q, idle_q, age_q = 1'b0;
  logic aborted_q, over_q;  // in the cycle before; in the one before that, and the run went on
  always_ff @(posedge clk_i) begin
    begun_q <= 1'b1;
    age_q <= begun_q && rst_ni;
    met_q <= rst_ni && run && (fault_i != '0 || stop_i || abort_i);  // an error in a run
    waits_q <= rst_ni && busy && halt && code != ERR_NONE && !dut.over;
    ends_q <= rst_ni && busy && halt && code != ERR_NONE && quiet_i;
    idle_q <= rst_ni && !busy && !start_i;
    aborted_q <= rst_ni && busy && abort_i;
    over_q <= rst_ni && aborted_q && busy;
  end

  always_comb begin
    assume (begun_q || !rst_ni);
    if (begun_q) begin
      assert (!(done && error) && !((done || error) && busy));
      assert (halt == !run && (busy || halt));
      assert (error ? code != ERR_NONE : !done || code == ERR_NONE);
      if (run) assert (code == ERR_NONE);
      if (dut.state_q == 2'd3) assert (code != ERR_NONE);  // DRAIN
    end
    if (age_q) begin
      if (met_q || waits_q) assert (busy && halt && code != ERR_NONE);
      if (ends_q) assert (!busy && error && !engine_rst_n);
      if (aborted_q) assert (!engine_rst_n && halt && (busy || error));
      if (over_q) assert (!busy && error);
      if (aborted_q && busy) assert (dut.abort_q);
      if (idle_q) assert (!busy && engine_rst_n);
    end
  end

endmodule
