// Address generator and burst splitter of load and store: the shape of an instruction becomes AXI bursts.
//
// A shape is `blocks` x `rows` x (1 + `repeats`) runs of `run` words. Run (b, r, q) starts at dram + (b * block_pitch +
// (r * (1 + repeats) + q) * row_pitch) words. Contiguous runs are merged, then split into bursts of at most MAX_BURST
// beats that never cross a 4 KB boundary.
//
//            +----------+   one run    +-----------------+   one burst
//   shape -->| loop nest| ----------> | merge and split  | ------------> burst side
//   (start)  +----------+  per cycle  +-----------------+   per cycle
//                           window check
//
// start side: valid/ready. A shape is accepted when the one before is split to its end. All counts must be >= 1 and
//             dram_i a multiple of the bus width. shift_i: log2 of the beats of a word, of the pitches only, up to
//             MOST_SHIFT. repeats_i: 0 without REPEATS. pc_i is passed along. run_i and legal_i are sampled one cycle
//             after the handshake; the first run is ready one cycle later.
// burst side: valid/ready, payload stable; burst_last_o marks the last burst of a shape. One burst per cycle.
// fault_o:    level until reset: a run outside the memory window, or of an illegal shape. None of its beats is issued.
`include "opu_assert.svh"

module opu_walk #(
    parameter int unsigned ADDRESS_BITS = 40,
    parameter int unsigned BUS_BYTES = 8,
    parameter int unsigned MAX_BURST = 16,
    parameter int unsigned PC_BITS = 24,
    parameter int unsigned RUN_BITS = 16,
    parameter int unsigned MOST_SHIFT = 7,
    parameter bit REPEATS = 1'b1
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
    input  logic [RUN_BITS-1:0]     run_i,           // beats; in the cycle after the others
    input  logic                    legal_i,         // in the cycle after the others
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
  localparam int unsigned PAGE_BEATS = 4096 / BUS_BYTES;
  localparam int unsigned PAGE_LOG2 = $clog2(PAGE_BEATS);
  localparam int unsigned WANTED = (MAX_BURST < 256) ? MAX_BURST : 256;
  localparam int unsigned LONGEST = (WANTED < PAGE_BEATS) ? WANTED : PAGE_BEATS;
  localparam int unsigned FRAME_LOG2 = (LONGEST > 1) ? $clog2(LONGEST) : 1;
  localparam int unsigned AT_BITS = 33 - BUS_LOG2;   // beats of the window
  localparam int unsigned LONG_BITS = (RUN_BITS > AT_BITS) ? RUN_BITS : AT_BITS;  // beats of any run
  localparam int unsigned PITCH_BITS = 22 + MOST_SHIFT;
  localparam int unsigned FAR_BITS = ((AT_BITS > PITCH_BITS) ? AT_BITS : PITCH_BITS) + 1;  // a pitch after the window

  typedef logic [AT_BITS-1:0] at_t;
  typedef logic [PITCH_BITS-1:0] pitch_t;
  typedef logic [FAR_BITS-1:0] far_t;

  // ---- runs, one per cycle ------------------------------------------------------------------------------------------
  // A shape is latched. One cycle later its run is sampled and measured (fresh_q); then runs are offered (runs_q). All
  // flags of an offered run are computed during the run before; the address of the next run, relative to dram, is
  // always valid.
  logic active_q, active_d, fresh_q, runs_q;
  logic idle_q;                                      // not active, for the many registers that take a shape
  // Runs, rows and blocks after the next one, less 1: negative on the last one.
  logic signed [16:0] rows_q, rows_left_q, rows_left_d, blocks_left_q, blocks_left_d;
  logic signed [8:0] repeats_q, repeats_left_q, repeats_left_d;
  logic [LONG_BITS-1:0] run_beats;
  at_t run_beats_q, run_less_q;                      // less_q: minus one
  pitch_t row_pitch_q, block_pitch_q;
  at_t dram_q, run_at_q, run_end_q;                  // run_*: of the run that is offered; end: from dram on
  far_t next_q, next_d, block_q, block_d;            // of the next one, of its block
  // room: beats of the window after dram. far: room less one run, the largest offset at which a run fits. Negative if
  // none fits.
  logic signed [AT_BITS:0] room_q;
  logic signed [AT_BITS+1:0] far_d;
  at_t far_q;                                        // where the first run fits
  logic signed [FAR_BITS:0] left;                    // what the next run leaves of it
  logic shown_q, first_far_q, run_offered, run_last_q;  // shown_q: runs, and none after the first one is too far
  logic [PC_BITS-1:0] pc_q;

  logic take, run_taken, block_ends_q, advances, refused;  // block_ends_q: the next run is the last one of its block
  assign take = start_valid_i && start_ready_o;
  assign run_offered = shown_q && !first_far_q;
  assign fault_o = runs_q && !run_offered;
  assign fault_pc_o = pc_q;

  assign run_beats = LONG_BITS'(run_i);
  assign far_d = (AT_BITS + 2)'(room_q) - signed'((AT_BITS + 2)'(at_t'(run_beats)));
  assign left = signed'((FAR_BITS + 1)'(far_q)) - signed'((FAR_BITS + 1)'(next_q));

  assign refused = fresh_q && (!legal_i || (LONG_BITS + 1)'(run_beats) >> AT_BITS != '0);

  // The successor of a run is computed before it is known whether the run is accepted. After the last run it is not
  // used.
  assign advances = !runs_q || run_taken;
  assign block_d = block_q + far_t'(block_pitch_q);
  assign next_d = block_ends_q ? block_d : next_q + far_t'(row_pitch_q);
  always_comb begin
    active_d = active_q;
    if (take) active_d = 1'b1;
    if (run_taken && run_last_q) active_d = 1'b0;
    repeats_left_d = repeats_left_q[8] ? repeats_q : repeats_left_q - 9'sd1;
    rows_left_d = rows_left_q;
    if (repeats_left_q[8]) rows_left_d = rows_left_q[16] ? rows_q : rows_left_q - 17'sd1;
    blocks_left_d = blocks_left_q - signed'(17'(block_ends_q));
    if (idle_q) begin
      repeats_left_d = 9'(repeats_i) - 9'sd1;
      rows_left_d = 17'(rows_i) - 17'sd2;
      blocks_left_d = 17'(blocks_i) - 17'sd2;
    end
    if (!REPEATS) repeats_left_d = -9'sd1;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      active_q <= 1'b0;
      idle_q <= 1'b1;
      fresh_q <= 1'b0;
      runs_q <= 1'b0;
      shown_q <= 1'b0;
    end else begin
      active_q <= active_d;
      idle_q <= !active_d;
      fresh_q <= take;
      runs_q <= active_d && (fresh_q || runs_q);
      if (advances) shown_q <= runs_q ? !left[FAR_BITS] && !run_last_q : fresh_q;
    end
  end

  // Loaded before they are used, so without reset. The fields of a shape are sampled until one is active.
  always_ff @(posedge clk_i) begin
    if (advances) begin
      repeats_left_q <= repeats_left_d;
      rows_left_q <= rows_left_d;
      blocks_left_q <= blocks_left_d;
      block_ends_q <= repeats_left_d[8] && rows_left_d[16];
    end
    if (idle_q) begin
      next_q <= '0;
      block_q <= '0;
    end else if (advances) begin
      next_q <= next_d;
      if (block_ends_q) block_q <= block_d;
    end
    if (advances) begin
      run_at_q <= dram_q + at_t'(next_q);
      run_end_q <= at_t'(next_q) + (fresh_q ? at_t'(run_beats) : run_beats_q);
      run_last_q <= block_ends_q && blocks_left_q[16];
    end
    if (idle_q) begin
      repeats_q <= 9'(repeats_i) - 9'sd1;
      rows_q <= 17'(rows_i) - 17'sd2;
      row_pitch_q <= pitch_t'(row_pitch_i) << shift_i;
      block_pitch_q <= pitch_t'(block_pitch_i) << shift_i;
      dram_q <= at_t'(dram_i >> BUS_LOG2);
      room_q <= signed'((AT_BITS + 1)'(window_size_i >> BUS_LOG2)) - signed'((AT_BITS + 1)'(dram_i >> BUS_LOG2));
      pc_q <= pc_i;
    end
    if (fresh_q) begin
      run_beats_q <= at_t'(run_beats);
      run_less_q <= at_t'(run_beats) - at_t'(1);
      far_q <= at_t'(far_d);
    end
    // far_d arrives last, so no logic follows it.
    if (refused) first_far_q <= 1'b1;
    else if (fresh_q) first_far_q <= far_d[AT_BITS+1];
  end

  // ---- the merged run being split: grows by runs that continue it, shrinks by bursts --------------------------------
  // A frame of 2^FRAME_LOG2 beats ends where the longest burst from the current position does; its slack precedes that
  // position. So the frame count of the last beat says how many bursts remain: the stretch exceeds its burst if it
  // reaches into the next frame. The slack of the next frame is known before it is known whether a burst is issued and
  // what is left.
  typedef logic [PAGE_LOG2-1:0] page_beat_t;             // beat of its page
  typedef logic [FRAME_LOG2-1:0] slack_t;
  typedef struct packed {
    page_beat_t                at;
    logic                  last;        // the burst ends with the page
    logic [FRAME_LOG2:0]   slack_less;  // its slack minus one
    slack_t                next;        // of the next frame
  } frame_t;

  // Where the longest burst is a power of two, the slack is 0, or the offset in the last frame of the page.
  localparam bit EVEN = LONGEST == 1 << FRAME_LOG2;
  localparam int unsigned PAGE_FRAMES = PAGE_BEATS >> FRAME_LOG2;
  function automatic logic ends_page(page_beat_t at);
    ends_page = EVEN ? 32'(at >> FRAME_LOG2) == PAGE_FRAMES - 1 : 32'(page_beat_t'(~at)) < LONGEST;
  endfunction
  function automatic page_beat_t next_burst_at(page_beat_t at);     // where the next burst begins
    next_burst_at = ends_page(at) ? '0 : at + page_beat_t'(LONGEST);
  endfunction
  function automatic slack_t slack_at(page_beat_t at);
    slack_at = ends_page(at) ? slack_t'(at) : slack_t'((1 << FRAME_LOG2) - LONGEST);
  endfunction
  function automatic slack_t slack_of_next(page_beat_t at);      // of the next burst
    if (EVEN) slack_of_next = (32'(at >> FRAME_LOG2) + 32'd2 == PAGE_FRAMES) ? slack_t'(at) : '0;
    else slack_of_next = slack_at(next_burst_at(at));
  endfunction
  function automatic slack_t slack_after_next(page_beat_t at);  // of the one after it
    if (EVEN) slack_after_next = (32'(at >> FRAME_LOG2) + 32'd3 == PAGE_FRAMES) ? slack_t'(at) : '0;
    else slack_after_next = slack_at(next_burst_at(next_burst_at(at)));
  endfunction
  function automatic frame_t frame_at(page_beat_t at, slack_t slack, slack_t next);
    frame_at = '{at: at, last: ends_page(at), slack_less: (FRAME_LOG2 + 1)'(slack) - (FRAME_LOG2 + 1)'(1), next: next};
  endfunction

  logic cur_valid_q, cur_valid_d, cur_last_q, cur_last_d;
  logic [AT_BITS-PAGE_LOG2-1:0] page_q;
  frame_t frame_q;
  logic [PC_BITS-1:0] cur_pc_q;
  // The last beat, counted from the start of the frame: its frame (frames_q + carry_q) and its offset in that frame.
  logic [AT_BITS-FRAME_LOG2:0] frames_q;
  logic carry_q;
  slack_t end_q;

  // The new end: without frames, with the carry out. `fills` is the carry of one more: the burst has its full length.
  typedef struct packed {
    logic   exceeds;
    logic   fills;
    logic   carry;
    slack_t last;
  } reach_t;
  function automatic reach_t reach(logic more, slack_t a, slack_t b);  // more: frames without the carry
    automatic logic [FRAME_LOG2:0] sum = {1'b0, a} + {1'b0, b};
    automatic logic [FRAME_LOG2+1:0] filled = {1'b0, a, 1'b1} + {1'b0, b, 1'b1};  // a sum for itself: one more of `sum` would wait for it
    reach = '{exceeds: more || sum[FRAME_LOG2], fills: more || filled[FRAME_LOG2+1], carry: sum[FRAME_LOG2], last: sum[FRAME_LOG2-1:0]};
  endfunction

  logic exceeds_q, fills_q, less_more_q, beats_more_q, two_frames;
  reach_t reach_run, reach_rest, reach_grown, reach_d;
  always_ff @(posedge clk_i) begin
    if (fresh_q) begin
      less_more_q <= at_t'(run_beats) >> FRAME_LOG2 > at_t'(1) || (run_beats[FRAME_LOG2] && slack_t'(run_beats) != '0);
      beats_more_q <= at_t'(run_beats) >> FRAME_LOG2 != '0;
    end
  end
  assign two_frames = frames_q[AT_BITS-FRAME_LOG2:1] != '0 || (frames_q[0] && carry_q);
  // In a frame that does not end the page there is no slack, if frames are even: that is seen last.
  reach_t near_run;
  assign near_run = reach(1'b0, slack_t'(run_less_q), EVEN ? slack_t'(run_at_q) : slack_at(page_beat_t'(run_at_q)));
  always_comb begin
    reach_run = near_run;
    if (EVEN && !ends_page(page_beat_t'(run_at_q))) reach_run = '{last: slack_t'(run_less_q), default: '0};
    reach_run.exceeds |= less_more_q;
    reach_run.fills |= EVEN ? beats_more_q : less_more_q;
  end
  assign reach_rest = reach(two_frames, end_q, frame_q.next);
  assign reach_grown = reach(exceeds_q || beats_more_q, end_q, slack_t'(run_beats_q));

  logic continues_q, finished, cut;
  assign burst_valid_o = cur_valid_q && !halt_i && (fills_q || cur_last_q || (run_offered && !continues_q));
  assign burst_addr_o = {window_base_i[ADDRESS_BITS-1:12] + (ADDRESS_BITS - 12)'(page_q), frame_q.at, {BUS_LOG2{1'b0}}};
  logic [FRAME_LOG2:0] piece;
  assign piece = {1'b0, end_q | {FRAME_LOG2{exceeds_q}}} - frame_q.slack_less;
  assign burst_beats_o = 9'(piece);
  assign finished = !exceeds_q;
  assign burst_last_o = cur_last_q && finished;
  assign burst_pc_o = cur_pc_q;
  assign cut = burst_valid_o && burst_ready_i;
  assign start_ready_o = !active_q;

  // Whether a burst is issued arrives last in the cycle; both successors are computed before. The stretch is replaced
  // by its rest or by the offered run, or it grows.
  logic replaces, from_run, grows;
  assign replaces = cut || !cur_valid_q;
  assign from_run = finished || !cur_valid_q;
  assign grows = run_offered && !cur_last_q && continues_q;
  // If a run is offered, this says whether a burst is issued, without testing again whether one is offered.
  logic issues;
  assign issues = cur_valid_q && !halt_i && burst_ready_i && (fills_q || cur_last_q || !continues_q);
  assign run_taken = run_offered && (issues ? finished : !cur_valid_q || (!cur_last_q && continues_q));
  assign reach_d = replaces ? (from_run ? reach_run : reach_rest) : reach_grown;

  always_comb begin
    cur_valid_d = 1'b1;
    cur_last_d = cur_last_q;
    if (replaces) begin
      cur_valid_d = run_offered || !from_run;
      if (from_run) cur_last_d = run_offered && run_last_q;
    end else if (grows) begin
      cur_last_d = run_last_q;
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

  // Loaded before they are used, so without reset. Whether a run is contiguous to the one before is computed when that
  // is accepted.
  always_ff @(posedge clk_i) begin
    if (replaces) begin
      frame_q <= from_run ? frame_at(page_beat_t'(run_at_q), slack_at(page_beat_t'(run_at_q)), slack_of_next(page_beat_t'(run_at_q)))
          : frame_at(next_burst_at(frame_q.at), frame_q.next, slack_after_next(frame_q.at));
      page_q <= from_run ? (AT_BITS - PAGE_LOG2)'(run_at_q >> PAGE_LOG2) : page_q + (AT_BITS - PAGE_LOG2)'(frame_q.last);
    end
    if (replaces || grows) begin
      exceeds_q <= reach_d.exceeds;
      fills_q <= reach_d.fills;
      carry_q <= reach_d.carry;
      end_q <= reach_d.last;
      frames_q <= !replaces ? frames_q + (AT_BITS - FRAME_LOG2 + 1)'(run_beats_q >> FRAME_LOG2) + (AT_BITS - FRAME_LOG2 + 1)'(carry_q)
          : from_run ? (AT_BITS - FRAME_LOG2 + 1)'(run_less_q >> FRAME_LOG2)
          : frames_q + '1 + (AT_BITS - FRAME_LOG2 + 1)'(carry_q);
    end
    if (run_taken) begin
      cur_pc_q <= pc_q;
      continues_q <= at_t'(next_q) == run_end_q;
    end
  end

  logic unused;
  assign unused = &{window_base_i[11:0]};  // 0

  `OPU_ASSERT(ShapeIsKnown, take |-> 32'(shift_i) <= MOST_SHIFT && (REPEATS || repeats_i == '0))
  `OPU_ASSERT(IdleOrActive, idle_q != active_q)
  `OPU_ASSERT(BurstHeld, burst_valid_o && !burst_ready_i |=> burst_valid_o || halt_i)
  `OPU_ASSERT(BurstStable, burst_valid_o && !burst_ready_i
      |=> ($stable(burst_addr_o) && $stable(burst_beats_o) && $stable(burst_last_o)) || halt_i)
  `OPU_ASSERT(BurstLength, burst_valid_o |-> burst_beats_o != '0 && 32'(burst_beats_o) <= LONGEST)
  `OPU_ASSERT(InsidePage, burst_valid_o
      |-> 32'(burst_addr_o[11:0]) + 32'(burst_beats_o) * BUS_BYTES <= 32'd4096)

endmodule
