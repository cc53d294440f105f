// Run control: start, stop, end, first error, watchdog and the counters of a run.
//
//   IDLE --start--> CLEAR --> RUN --done_i--> IDLE            done_o
//    ^              reset      |  error, stop, watchdog
//    |           the engines   v
//    +------- bus quiet ----- DRAIN (halt_o)                  error_o
//
// start_i, stop_i, abort_i: pulses. A start is accepted while !busy_o: it resets engines, queues and dependency
//                           counters (engine_rst_no) and clears the results of the run before; then run_o rises.
// fault_*:  one level per engine; the lowest engine wins if several come in one cycle. The program index is captured a
//           cycle after the code, still before the end of the run. The first error, a stop or the watchdog raises
//           halt_o. The run ends when the bus is quiet (quiet_i), with error_o; then the engines are reset and their
//           queues dropped. A memory that never answers keeps busy_o up; error_code_o is valid already then.
// abort_i:  resets the engines in the next cycle, whatever is open on the bus; the run ends in the cycle after. So the
//           bus port is quiet when busy_o falls.
// done_i:   the program has ended (level); the run ends with done_o.
// Counters run from the start to the end of the run and keep their values until the next start.
`include "opu_assert.svh"

module opu_control
  import opu_pkg::*;
#(
    parameter int unsigned ENGINES = 5,
    parameter int unsigned PC_BITS = 24
) (
    input  logic               clk_i,
    input  logic               rst_ni,

    input  logic               start_i,
    input  logic               stop_i,
    input  logic               abort_i,
    input  logic [31:0]        watchdog_i,      // cycles without a retirement; 0: off
    output logic               engine_rst_no,
    output logic               run_o,
    output logic               halt_o,

    input  logic               done_i,
    input  logic               quiet_i,
    input  logic [PC_BITS-1:0] fetch_pc_i,
    input  logic [ENGINES-1:0] fault_i,
    input  error_e             fault_code_i [ENGINES],
    input  logic [PC_BITS-1:0] fault_pc_i [ENGINES],

    input  logic [ENGINES-1:0] retire_i,
    input  logic [ENGINES-1:0] engine_busy_i,
    input  logic [ENGINES-1:0] engine_stall_i,
    input  logic               read_beat_i,
    input  logic               write_beat_i,
    input  logic               multiplies_i,
    input  logic               memory_wait_i,

    output logic               busy_o,
    output logic               done_o,
    output logic               error_o,
    output error_e             error_code_o,
    output logic [2:0]         error_engine_o,
    output logic [PC_BITS-1:0] error_pc_o,
    output logic [63:0]        cycles_o,
    output logic [31:0]        busy_cycles_o [ENGINES],
    output logic [31:0]        stall_cycles_o [ENGINES],
    output logic [31:0]        read_beats_o,
    output logic [31:0]        write_beats_o,
    output logic [31:0]        multiplying_o,
    output logic [31:0]        memory_waits_o
);

  typedef enum logic [1:0] {
    IDLE,
    CLEAR,
    RUN,
    DRAIN
  } state_e;
  state_e state_q, state_d;

  logic start, expired, stopped, over, abort_q, finish_done, finish_error;
  logic [31:0] quiet_cycles_q;
  logic late_q;  // what the watchdog said in the cycle before
  assign start = state_q == IDLE && start_i;
  assign expired = state_q == RUN && late_q;
  assign stopped = (state_q == RUN || state_q == CLEAR) && (stop_i || abort_i);

  // The first of the errors of this cycle.
  logic error_now;
  error_e error_code;
  logic [2:0] error_engine;
  logic error_alone;  // of no engine: the position of fetch
  always_comb begin
    error_now = 1'b0;
    error_code = ERR_NONE;
    error_engine = '0;
    error_alone = 1'b1;
    if (stopped || expired) begin
      error_now = 1'b1;
      error_code = stopped ? ERR_STOPPED : ERR_WATCHDOG;
    end
    for (int e = int'(ENGINES) - 1; e >= 0; e--) begin
      if (state_q == RUN && fault_i[e]) begin
        error_now = 1'b1;
        error_code = fault_code_i[e];
        error_engine = 3'(e);
        error_alone = 1'b0;
      end
    end
  end

  logic told_q, alone_q;  // an error came in the cycle before
  logic [PC_BITS-1:0] fetch_pc_q, fault_pc_q [ENGINES];
  always_ff @(posedge clk_i) begin
    told_q <= rst_ni && error_now;
    alone_q <= error_alone;
    fetch_pc_q <= fetch_pc_i;
    fault_pc_q <= fault_pc_i;
  end

  assign finish_done = state_q == RUN && !error_now && done_i;
  assign over = quiet_i || abort_q;
  assign finish_error = state_q == DRAIN && over;

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      IDLE: if (start) state_d = CLEAR;
      CLEAR: state_d = stopped ? DRAIN : RUN;
      RUN: if (error_now) state_d = DRAIN; else if (done_i) state_d = IDLE;
      DRAIN: if (over) state_d = IDLE;
      default: ;
    endcase
  end

  logic engine_rst_q, run_q, done_q, error_q;
  error_e error_code_q;
  logic [2:0] error_engine_q;
  logic [PC_BITS-1:0] error_pc_q;
  logic [31:0] cycles_low_q, cycles_high_q;
  logic cycles_full_q;  // all bits of the low half are set
  logic [31:0] read_beats_q, write_beats_q, multiplying_q, memory_waits_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= IDLE;
      engine_rst_q <= 1'b0;
      run_q <= 1'b0;
      abort_q <= 1'b0;
      quiet_cycles_q <= '0;
      late_q <= 1'b0;
      done_q <= 1'b0;
      error_q <= 1'b0;
      error_code_q <= ERR_NONE;
      error_engine_q <= '0;
      error_pc_q <= '0;
      cycles_low_q <= '0;
      cycles_high_q <= '0;
      cycles_full_q <= 1'b0;
      read_beats_q <= '0;
      write_beats_q <= '0;
      multiplying_q <= '0;
      memory_waits_q <= '0;
    end else begin
      state_q <= state_d;
      run_q <= state_d == RUN;
      abort_q <= state_q != IDLE && (abort_i || abort_q);
      engine_rst_q <= !(start || finish_error || (state_q != IDLE && abort_i));
      late_q <= watchdog_i != '0 && quiet_cycles_q >= watchdog_i;
      quiet_cycles_q <= (state_q != RUN || retire_i != '0) ? '0 : quiet_cycles_q + 32'd1;
      if (start) begin
        done_q <= 1'b0;
        error_q <= 1'b0;
        error_code_q <= ERR_NONE;
        error_engine_q <= '0;
        error_pc_q <= '0;
        cycles_low_q <= '0;
        cycles_high_q <= '0;
        cycles_full_q <= 1'b0;
        read_beats_q <= '0;
        write_beats_q <= '0;
        multiplying_q <= '0;
        memory_waits_q <= '0;
      end else begin
        if (finish_done) done_q <= 1'b1;
        if (finish_error) error_q <= 1'b1;
        if (error_now) begin
          error_code_q <= error_code;
          error_engine_q <= error_engine;
        end
        if (told_q) error_pc_q <= alone_q ? fetch_pc_q : fault_pc_q[error_engine_q];
        if (state_q != IDLE) begin
          cycles_low_q <= cycles_low_q + 32'd1;
          cycles_full_q <= cycles_low_q == 32'hfffffffe;
          if (cycles_full_q) cycles_high_q <= cycles_high_q + 32'd1;
        end
        if (read_beat_i) read_beats_q <= read_beats_q + 32'd1;
        if (write_beat_i) write_beats_q <= write_beats_q + 32'd1;
        if (multiplies_i) multiplying_q <= multiplying_q + 32'd1;
        if (memory_wait_i) memory_waits_q <= memory_waits_q + 32'd1;
      end
    end
  end

  for (genvar e = 0; e < int'(ENGINES); e++) begin : g_engine
    logic [31:0] busy_q, stall_q;
    always_ff @(posedge clk_i) begin
      if (!rst_ni || start) begin
        busy_q <= '0;
        stall_q <= '0;
      end else if (state_q == RUN) begin
        if (engine_busy_i[e]) busy_q <= busy_q + 32'd1;
        if (engine_stall_i[e]) stall_q <= stall_q + 32'd1;
      end
    end
    assign busy_cycles_o[e] = busy_q;
    assign stall_cycles_o[e] = stall_q;
  end

  assign engine_rst_no = engine_rst_q;
  assign run_o = run_q;
  assign halt_o = !run_q;
  assign busy_o = state_q != IDLE;
  assign done_o = done_q;
  assign error_o = error_q;
  assign error_code_o = error_code_q;
  assign error_engine_o = error_engine_q;
  assign error_pc_o = error_pc_q;
  assign cycles_o = {cycles_high_q, cycles_low_q};
  assign read_beats_o = read_beats_q;
  assign write_beats_o = write_beats_q;
  assign multiplying_o = multiplying_q;
  assign memory_waits_o = memory_waits_q;

  `OPU_ASSERT(OneOutcome, !(done_o && error_o))
  `OPU_ASSERT(OutcomeAfterRun, done_o || error_o |-> !busy_o)
  `OPU_ASSERT(QuietAtEnd, finish_done |-> quiet_i)

endmodule
