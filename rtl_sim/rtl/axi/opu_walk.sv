// Address walk of load and store: the shape of an instruction becomes AXI bursts.
//
// A shape is `blocks` x `rows` x (1 + `repeats`) runs of `run` words; run (b, r, q) starts at dram + (b * block_pitch +
// (r * (1 + repeats) + q) * row_pitch) words. Runs that continue each other are merged, then cut into bursts of at most
// MAX_BURST beats that never cross a 4 KB boundary.
//
// start side: valid/ready; a shape is taken when the walk before it has been cut to the end. All counts must be >= 1 and
//             dram_i a multiple of the bus width. shift_i: log2 of the beats a word takes. pc_i travels along.
// burst side: valid/ready, payload stable; burst_last_o marks the last burst of a shape. One burst per cycle.
// A run outside the memory window raises fault_o (level, until reset); none of its beats is issued.
`include "opu_assert.svh"

module opu_walk #(
    parameter int unsigned ADDRESS_BITS = 40,
    parameter int unsigned BUS_BYTES = 8,
    parameter int unsigned MAX_BURST = 16,
    parameter int unsigned PC_BITS = 24,
    parameter int unsigned RUN_BITS = 16
) (
    input  logic                    clk_i,
    input  logic                    rst_ni,
    input  logic                    halt_i,

    input  logic [ADDRESS_BITS-1:0] window_base_i,   // multiple of 4096
    input  logic [32:0]             window_size_i,   // bytes

    input  logic                    start_valid_i,
    output logic                    start_ready_o,
    input  logic [31:0]             dram_i,
    input  logic [2:0]              shift_i,
    input  logic [RUN_BITS-1:0]     run_i,
    input  logic [15:0]             rows_i,
    input  logic [7:0]              repeats_i,
    input  logic [21:0]             row_pitch_i,
    input  logic [15:0]             blocks_i,
    input  logic [21:0]             block_pitch_i,
    input  logic [PC_BITS-1:0]      pc_i,

    output logic                    burst_valid_o,
    input  logic                    burst_ready_i,
    output logic [ADDRESS_BITS-1:0] burst_addr_o,
    output logic [8:0]              burst_beats_o,
    output logic                    burst_last_o,
    output logic [PC_BITS-1:0]      burst_pc_o,
    output logic                    fault_o,
    output logic [PC_BITS-1:0]      fault_pc_o
);

  localparam int unsigned BUS_LOG2 = $clog2(BUS_BYTES);
  localparam int unsigned BEAT_BITS = 48;            // holds every sum of shifted pitches
  localparam int unsigned PAGE_BEATS = 4096 / BUS_BYTES;
  localparam int unsigned PAGE_LOG2 = $clog2(PAGE_BEATS);
  localparam int unsigned LONGEST = (MAX_BURST < 256) ? MAX_BURST : 256;

  typedef logic [BEAT_BITS-1:0] beats_t;

  // ---- runs, one per cycle -------------------------------------------------------------------------------------------
  logic active_q, active_d;
  logic idle_q;                                      // its complement, for the many registers that take a shape
  logic [15:0] rows_q;                               // of the shape, minus one
  logic [7:0] repeats_q;
  logic [7:0] repeats_left_q, repeats_left_d;        // after this run
  logic [15:0] rows_left_q, rows_left_d;
  logic [15:0] blocks_left_q, blocks_left_d;
  beats_t run_beats_q, row_pitch_q, block_pitch_q;
  beats_t block_at_q, block_at_d, run_at_q, run_at_d;
  // Beats of the window behind this run, behind the first one of the block; negative where it does not fit. Counted along, so
  // that no end is added and compared in one cycle.
  logic signed [BEAT_BITS:0] room_q, room_d, block_room_q, block_room_d;
  logic [PC_BITS-1:0] pc_q;

  logic take, run_taken, block_ends, run_last, fits;
  assign take = start_valid_i && start_ready_o;
  assign block_ends = repeats_left_q == '0 && rows_left_q == '0;
  assign run_last = block_ends && blocks_left_q == '0;
  assign fits = !room_q[BEAT_BITS];
  assign fault_o = active_q && !fits;
  assign fault_pc_o = pc_q;

  always_comb begin
    active_d = active_q;
    repeats_left_d = repeats_left_q;
    rows_left_d = rows_left_q;
    blocks_left_d = blocks_left_q;
    block_at_d = block_at_q;
    run_at_d = run_at_q;
    room_d = room_q;
    block_room_d = block_room_q;
    if (take) active_d = 1'b1;
    if (idle_q) begin
      repeats_left_d = repeats_i;
      rows_left_d = rows_i - 16'd1;
      blocks_left_d = blocks_i - 16'd1;
      block_at_d = BEAT_BITS'(dram_i >> BUS_LOG2);
      run_at_d = BEAT_BITS'(dram_i >> BUS_LOG2);
      room_d = signed'((BEAT_BITS + 1)'(window_size_i >> BUS_LOG2)) - signed'((BEAT_BITS + 1)'(dram_i >> BUS_LOG2))
          - signed'((BEAT_BITS + 1)'(run_i) << shift_i);
      block_room_d = room_d;
    end else if (run_taken) begin
      // Behind the last run nobody looks at what follows.
      if (run_last) active_d = 1'b0;
      run_at_d = run_at_q + row_pitch_q;
      room_d = room_q - signed'({1'b0, row_pitch_q});
      repeats_left_d = (repeats_left_q == '0) ? repeats_q : repeats_left_q - 8'd1;
      if (repeats_left_q == '0) rows_left_d = (rows_left_q == '0) ? rows_q : rows_left_q - 16'd1;
      if (block_ends) begin
        blocks_left_d = blocks_left_q - 16'd1;
        block_at_d = block_at_q + block_pitch_q;
        run_at_d = block_at_d;
        block_room_d = block_room_q - signed'({1'b0, block_pitch_q});
        room_d = block_room_d;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      active_q <= 1'b0;
      idle_q <= 1'b1;
      repeats_left_q <= '0;
      rows_left_q <= '0;
      blocks_left_q <= '0;
    end else begin
      active_q <= active_d;
      idle_q <= !active_d;
      repeats_left_q <= repeats_left_d;
      rows_left_q <= rows_left_d;
      blocks_left_q <= blocks_left_d;
    end
  end

  // Loaded before they are used, so without reset; what a shape keeps is taken until one is under way.
  always_ff @(posedge clk_i) begin
    block_at_q <= block_at_d;
    run_at_q <= run_at_d;
    block_room_q <= block_room_d;
    room_q <= room_d;
    if (idle_q) begin
      repeats_q <= repeats_i;
      rows_q <= rows_i - 16'd1;
      run_beats_q <= BEAT_BITS'(run_i) << shift_i;
      row_pitch_q <= BEAT_BITS'(row_pitch_i) << shift_i;
      block_pitch_q <= BEAT_BITS'(block_pitch_i) << shift_i;
      pc_q <= pc_i;
    end
  end

  // ---- the stretch being cut: grows by runs that continue it, shrinks by bursts --------------------------------------------
  logic cur_valid_q, cur_valid_d, cur_last_q, cur_last_d;
  beats_t cur_at_q, cur_at_d, cur_left_q, cur_left_d, grown, rest;
  logic [PC_BITS-1:0] cur_pc_q;

  // The longest burst that may begin at a beat: to the end of its page.
  function automatic logic [8:0] longest_at(logic [PAGE_LOG2-1:0] at);
    automatic logic [PAGE_LOG2:0] to_page = (PAGE_LOG2 + 1)'(PAGE_BEATS) - {1'b0, at};
    longest_at = (32'(to_page) > LONGEST) ? 9'(LONGEST) : 9'(to_page);
  endfunction

  // Caps of the stretch and of its rest, and how far they reach, are there before it is known whether a burst goes and what is left.
  logic [8:0] cap_q, cap_d, rest_cap, run_cap, piece;
  beats_t rest_at;
  assign rest_at = cur_at_q + BEAT_BITS'(cap_q);
  assign rest_cap = longest_at(rest_at[PAGE_LOG2-1:0]);
  assign run_cap = longest_at(run_at_q[PAGE_LOG2-1:0]);

  typedef struct packed {
    logic exceeds;  // the stretch is longer than its cap
    logic fills;    // at least as long
  } reach_t;
  function automatic reach_t reach(logic long, logic [8:0] left, logic [8:0] cap);  // long: 512 beats or more
    reach = '{exceeds: long || left > cap, fills: long || left >= cap};
  endfunction
  reach_t reach_q, reach_d;

  // Whether a rest or a sum is long is seen from what it is made of, so that no carry of 48 bits stands in front of it: of 1024 beats
  // a cap leaves 512 and more, and below that ten bits tell.
  logic run_long, left_long, left_more;
  logic [9:0] grown_low, rest_low;
  assign run_long = run_beats_q[BEAT_BITS-1:9] != '0;
  assign left_more = cur_left_q[BEAT_BITS-1:10] != '0;
  assign left_long = left_more || cur_left_q[9];
  assign grown_low = {1'b0, cur_left_q[8:0]} + {1'b0, run_beats_q[8:0]};
  assign rest_low = cur_left_q[9:0] - {1'b0, cap_q};

  logic continues_q, finished, cut, run_offered;
  assign grown = cur_left_q + run_beats_q;
  assign rest = cur_left_q - BEAT_BITS'(cap_q);
  assign piece = reach_q.exceeds ? cap_q : cur_left_q[8:0];

  assign run_offered = active_q && fits;
  assign burst_valid_o = cur_valid_q && !halt_i
      && (reach_q.fills || cur_last_q || (run_offered && !continues_q));
  assign burst_addr_o = window_base_i + ADDRESS_BITS'({cur_at_q, {BUS_LOG2{1'b0}}});
  assign burst_beats_o = piece;
  assign finished = !reach_q.exceeds;
  assign burst_last_o = cur_last_q && finished;
  assign burst_pc_o = cur_pc_q;
  assign cut = burst_valid_o && burst_ready_i;
  assign start_ready_o = !active_q;

  // Whether a burst goes comes last in the cycle: what it leads to, and what else happens, is there before. The stretch is made
  // anew by its rest or by the run that is offered, or it grows.
  logic anew, from_run, grows;
  reach_t reach_anew, reach_else;
  assign anew = cut || !cur_valid_q;
  assign from_run = finished || !cur_valid_q;
  assign grows = run_offered && !cur_last_q && continues_q;
  assign run_taken = cut ? run_offered && finished : run_offered && (!cur_valid_q || (!cur_last_q && continues_q));
  assign reach_anew = from_run ? reach(run_long, run_beats_q[8:0], run_cap)
                               : reach(left_more || rest_low[9], rest_low[8:0], rest_cap);
  assign reach_else = grows ? reach(run_long || left_long || grown_low[9], grown_low[8:0], cap_q) : reach_q;
  assign reach_d = ({2{anew}} & reach_anew) | (~{2{anew}} & reach_else);  // a multiplexer would become an enable

  always_comb begin
    cur_valid_d = 1'b1;
    cur_last_d = cur_last_q;
    cur_at_d = cur_at_q;
    cur_left_d = cur_left_q;
    cap_d = cap_q;
    if (anew) begin
      cur_valid_d = run_offered || !from_run;
      if (from_run) cur_last_d = run_offered && run_last;
      cur_at_d = from_run ? run_at_q : rest_at;
      cur_left_d = from_run ? run_beats_q : rest;
      cap_d = from_run ? run_cap : rest_cap;
    end else if (grows) begin
      cur_last_d = run_last;
      cur_left_d = grown;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      cur_valid_q <= 1'b0;
      cur_last_q <= 1'b0;
    end else begin
      cur_valid_q <= cur_valid_d;
      cur_last_q <= cur_last_d;
    end
  end

  // Loaded before they are used, so without reset. Whether a run begins where the one before ends is compared while that one is taken.
  always_ff @(posedge clk_i) begin
    cur_at_q <= cur_at_d;
    cur_left_q <= cur_left_d;
    cap_q <= cap_d;
    reach_q <= reach_d;
    if (run_taken) begin
      cur_pc_q <= pc_q;
      continues_q <= block_ends ? block_at_q + block_pitch_q == run_at_q + run_beats_q : row_pitch_q == run_beats_q;
    end
  end

  `OPU_ASSERT(IdleOrActive, idle_q != active_q)
  `OPU_ASSERT(BurstHeld, burst_valid_o && !burst_ready_i |=> burst_valid_o || halt_i)
  `OPU_ASSERT(BurstStable, burst_valid_o && !burst_ready_i
      |=> ($stable(burst_addr_o) && $stable(burst_beats_o) && $stable(burst_last_o)) || halt_i)
  `OPU_ASSERT(BurstLength, burst_valid_o |-> burst_beats_o != '0 && 32'(burst_beats_o) <= LONGEST)
  `OPU_ASSERT(InsidePage, burst_valid_o
      |-> 32'(burst_addr_o[11:0]) + 32'(burst_beats_o) * BUS_BYTES <= 32'd4096)

endmodule
