// Fetch engine: reads the program in order and pushes each word, with its index, to the queue of the engine that it
// names.
//
//   ar side: [measure burst] --> [check window, room] --> [request]
//   r --> FIFO of beats --> select word --> [2 registers] --> decode --> [word] --> push_*
//         (AHEAD_BYTES)                                                     +-----> own: set, check, end
//
//   IDLE --run_i--> READ --end--> AWAIT (other engines idle) --> DRAIN (reads returned) --> DONE
//
// run_i:    level. The program at prog_base_i of the window, valid at least a cycle before, is read while it is high.
//           Reset before the next program.
// push_*:   valid/ready for each engine (bit e); data shared. One word per cycle; a full queue stalls the following
//           words.
// done_o:   `end` was executed, the other engines are idle (others_idle_i) and all reads have returned (level, until
//           reset).
// fault_*:  level until reset. pc_o: index of the next word.
// ar_*, r_*: read side of an AXI4 port with one id, r always ready. Bursts are aligned, so they never cross 4 KB.
//            AHEAD_BYTES of the program are prefetched.
// halt_i:   no more reads and no more words.
`include "opu_assert.svh"

module opu_fetch
  import opu_pkg::*;
#(
    parameter int unsigned ADDRESS_BITS = 40,
    parameter int unsigned PC_BITS = 24,
    parameter int unsigned ENGINES = 5,
    parameter int unsigned AHEAD_BYTES = 1024
) (
    input  logic                    clk_i,
    input  logic                    rst_ni,
    input  logic                    halt_i,

    input  logic                    run_i,
    input  logic [ADDRESS_BITS-1:0] window_base_i,   // multiple of 4096
    input  logic [32:0]             window_size_i,
    input  logic [31:0]             prog_base_i,     // multiple of 64, else ERR_WINDOW
    input  logic [31:0]             prog_words_i,
    input  logic                    others_idle_i,
    output logic                    done_o,
    output logic                    busy_o,
    output logic                    stall_o,
    output logic                    retire_o,        // a `check` has passed
    output logic [PC_BITS-1:0]      pc_o,

    output logic                    fault_o,
    output error_e                  fault_code_o,

    output logic [ENGINES-1:1]      push_valid_o,
    input  logic [ENGINES-1:1]      push_ready_i,
    output logic [31:0]             push_word_o,
    output logic [PC_BITS-1:0]      push_pc_o,

    output logic                    ar_valid_o,
    input  logic                    ar_ready_i,
    output logic [ADDRESS_BITS-1:0] ar_addr_o,
    output logic [8:0]              ar_beats_o,
    input  logic                    r_valid_i,
    input  logic [BUS_BYTES*8-1:0]  r_data_i,
    input  logic                    r_error_i
);

  localparam int unsigned BUS_LOG2 = $clog2(BUS_BYTES);
  localparam int unsigned BEAT_WORDS = BUS_BYTES / 4;
  localparam int unsigned BASE_REST = (BUS_BYTES < 64) ? BUS_BYTES - 1 : 63;  // of a beat less one byte; together with what follows
  localparam int unsigned BEAT_REST = BUS_BYTES - 1 - BASE_REST;
  localparam int unsigned HALVES = (BEAT_WORDS > 4) ? 2 : 1;
  localparam int unsigned HALF_WORDS = BEAT_WORDS / HALVES;
  localparam int unsigned SELECT_BITS = (BEAT_WORDS > 1) ? $clog2(BEAT_WORDS) : 1;
  localparam int unsigned AHEAD_BEATS = (AHEAD_BYTES / BUS_BYTES > 4) ? AHEAD_BYTES / BUS_BYTES : 4;
  localparam int unsigned ROOM_BITS = $clog2(AHEAD_BEATS + 1);
  // Bursts end at multiples of their power-of-two length.
  localparam int unsigned QUARTER = AHEAD_BEATS / 4;
  localparam int unsigned LIMIT = (QUARTER < MAX_BURST) ? QUARTER : MAX_BURST;
  localparam int unsigned BURST_LOG2 = $clog2(LIMIT + 1) - 1;
  localparam int unsigned BURST = 1 << BURST_LOG2;
  localparam int unsigned AT_BITS = 35;              // holds the end of any program, in bytes
  localparam int unsigned BEATS_BITS = AT_BITS - BUS_LOG2 + 1;
  typedef logic [BEATS_BITS-1:0] beats_t;

  `OPU_ASSERT_STATIC(BusHoldsAWord, BEAT_WORDS * 4 == BUS_BYTES && BEAT_WORDS > 0)
  `OPU_ASSERT_STATIC(BurstInPage, BURST * BUS_BYTES <= 4096)

  typedef enum logic [2:0] {
    IDLE,
    READ,
    AWAIT,   // `end` was met, the engines still work
    DRAIN,   // reads beyond the end still come back
    DONE
  } state_e;
  state_e state_q, state_d;

  // ---- reads --------------------------------------------------------------------------------------------------------
  // Beats to the end of the program and of the window (negative beyond it): counted down, so that no address is
  // compared.
  logic [AT_BITS-1:0] prog_bytes;
  beats_t at_q, prog_at, left_q, end_at_q;
  logic signed [BEATS_BITS:0] window_left_q;
  logic [ROOM_BITS-1:0] room_q, burst_q, coming_q;
  logic begin_run, read, beat_valid, beat_pop, beat_passed_q;
  logic [BUS_BYTES*8-1:0] beat;
  logic beat_error, room_ready;

  assign begin_run = state_q == IDLE && run_i && !halt_i;
  assign prog_at = beats_t'(AT_BITS'(prog_base_i) >> BUS_LOG2);
  // To the end of the last beat, in one sum: the lowest bits of the base are 0.
  assign prog_bytes = (AT_BITS'(prog_base_i) | AT_BITS'(BASE_REST)) + AT_BITS'({prog_words_i, 2'b00}) + AT_BITS'(BEAT_REST);

  // From here to the end of the aligned frame, or of the program, whichever comes first, without a sum of all bits.
  logic [ROOM_BITS-1:0] burst;
  if (BURST_LOG2 > 0) begin : g_aligned
    logic [BURST_LOG2:0] end_at;
    assign end_at = {1'b0, at_q[BURST_LOG2-1:0]} + {1'b0, left_q[BURST_LOG2-1:0]};
    assign burst = (left_q >> BURST_LOG2 == '0 && !end_at[BURST_LOG2]) ? ROOM_BITS'(left_q[BURST_LOG2-1:0])
        : ROOM_BITS'(BURST) - ROOM_BITS'(at_q[BURST_LOG2-1:0]);
  end else begin : g_single
    assign burst = ROOM_BITS'(left_q != '0);
  end

  // A burst is measured, then compared with room and window, then requested. room_q counts beats that may still be
  // requested.
  logic more, measured_q, misplaced_q, outside, outside_q, asks_q;
  logic [ADDRESS_BITS-1:0] addr_q;
  assign more = state_q == READ && left_q != '0;
  assign outside = measured_q && (misplaced_q || window_left_q < signed'((BEATS_BITS + 1)'(burst_q)));
  assign ar_valid_o = asks_q && state_q == READ && !halt_i;
  assign ar_addr_o = addr_q;
  assign ar_beats_o = 9'(burst_q);
  assign read = ar_valid_o && ar_ready_i;

  always_ff @(posedge clk_i) begin
    burst_q <= burst;
    addr_q <= window_base_i + ADDRESS_BITS'({at_q, {BUS_LOG2{1'b0}}});
  end

  opu_queue #(
      .WIDTH(BUS_BYTES * 8 + 1),
      .DEPTH(AHEAD_BEATS)
  ) u_beats (
      .clk_i,
      .rst_ni,
      .push_valid_i(r_valid_i),
      .push_ready_o(room_ready),
      .push_data_i ({r_error_i, r_data_i}),
      .pop_valid_o (beat_valid),
      .pop_ready_i (beat_pop),
      .pop_data_o  ({beat_error, beat})
  );

  // ---- words --------------------------------------------------------------------------------------------------------
  // A word is selected from its beat, decoded one cycle later, then pushed.
  logic [PC_BITS-1:0] pc_q, left_words_q;
  logic [SELECT_BITS-1:0] select_q;
  logic [HALVES-1:0][31:0] half_word;  // that of select_q, 0 where it is in the other half
  logic [31:0] word, word_q;
  logic [2:0] engine;
  logic is_start, is_own, start_legal, set_legal;
  logic beat_end, word_end, word_error, taken_out, room_here, word_valid_q, word_load, word_here, word_taken;
  logic none_left_q;  // all words of the program are selected
  fetch_params_t params_q;

  if (BEAT_WORDS > 1) begin : g_select
    for (genvar h = 0; h < int'(HALVES); h++) begin : g_half
      logic [HALF_WORDS-1:0][31:0] words;
      assign words = beat[h*HALF_WORDS*32+:HALF_WORDS*32];
      assign half_word[h] = (32'(select_q) / HALF_WORDS == h) ? words[32'(select_q) % HALF_WORDS] : '0;
    end
    assign beat_end = select_q == SELECT_BITS'(BEAT_WORDS - 1);
  end else begin : g_whole
    assign half_word = beat;
    assign beat_end = 1'b1;
  end
  assign taken_out = state_q == READ && beat_valid && !none_left_q && room_here;
  assign beat_pop = taken_out && beat_end;

  // Two registers, so that a beat does not wait for the words before it. Words alternate between them: no logic is
  // between the beat, which arrives late, and either register, except half of the selection.
  logic [1:0][HALVES-1:0][31:0] taken_q;
  logic [1:0] taken_end_q, taken_error_q;
  logic in_q, out_q, second_valid_q;
  assign word_end = taken_end_q[out_q];
  assign word_error = taken_error_q[out_q];
  assign word = taken_q[out_q][0] | taken_q[out_q][HALVES-1];
  assign room_here = !second_valid_q;
  always_ff @(posedge clk_i) begin
    if (!second_valid_q) begin
      taken_q[in_q] <= half_word;
      taken_end_q[in_q] <= beat_end;
      taken_error_q[in_q] <= beat_error;
    end
    if (!rst_ni) begin
      word_valid_q <= 1'b0;
      second_valid_q <= 1'b0;
      in_q <= 1'b0;
      out_q <= 1'b0;
    end else begin
      in_q <= in_q ^ taken_out;
      out_q <= out_q ^ word_load;
      word_valid_q <= (word_valid_q && !word_load) || second_valid_q || taken_out;
      second_valid_q <= word_valid_q && !word_load && (second_valid_q || taken_out);
    end
  end

  assign is_start = word[31];
  assign engine = word[30:28];
  assign is_own = engine == ENGINE_FETCH;
  assign start_legal = 32'(word[27:24]) < OPCODES_FETCH && word[23:0] == '0;
  assign set_legal = fits_fetch(word[27:22], word[21:0]);

  // What is known of word_q. Fetch's own instructions wait a cycle for the comparison of what the word before has set.
  logic held_q, stood_q, error_q, illegal, stranger_q, bad_start_q, bad_set_q, own_q, start_q, end_q, beat_end_q, hash_equal_q;
  logic [ENGINES-1:1] engine_q;
  always_ff @(posedge clk_i) begin
    if (word_load) begin
      word_q <= word;
      error_q <= word_error;
      stranger_q <= 32'(engine) >= ENGINES;
      bad_start_q <= is_own && is_start && !start_legal;
      bad_set_q <= is_own && !is_start && !set_legal;
      own_q <= is_own;
      start_q <= is_own && is_start;
      end_q <= is_own && is_start && word[27:24] == OP_FETCH_END;
      beat_end_q <= word_end;
      for (int e = 1; e < int'(ENGINES); e++) engine_q[e] <= !word_error && engine == 3'(e);
    end
    hash_equal_q <= {params_q.hash_hi, params_q.hash_lo} == SPEC_HASH;
  end
  assign illegal = stranger_q || bad_start_q || bad_set_q;
  assign word_load = word_valid_q && (!held_q || word_taken);

  assign word_here = state_q == READ && held_q && !outside_q && !halt_i;
  assign push_word_o = word_q;
  assign push_pc_o = pc_q;
  assign push_valid_o = word_here ? engine_q : '0;

  error_e fault;
  always_comb begin
    fault = ERR_NONE;
    if (outside_q) fault = ERR_WINDOW;
    else if (state_q == READ && none_left_q && !word_valid_q && !held_q) fault = ERR_PROGRAM_END;
    else if (word_here) begin
      if (error_q) fault = ERR_AXI_READ;
      else if (illegal) fault = ERR_ILLEGAL_INSTRUCTION;
      else if (start_q && stood_q && !end_q && !hash_equal_q) fault = ERR_SPEC_MISMATCH;
    end
  end

  assign word_taken = word_here && !error_q && !illegal
      && (own_q ? !start_q || (stood_q && (end_q || hash_equal_q)) : (engine_q & push_ready_i) != '0);
  always_ff @(posedge clk_i) beat_passed_q <= rst_ni && word_taken && beat_end_q;  // its room, a cycle later
  assign busy_o = word_taken;
  assign stall_o = word_here && !error_q && !illegal && !own_q && !word_taken;
  assign retire_o = word_taken && start_q;
  assign pc_o = pc_q;

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      IDLE: if (begin_run) state_d = READ;
      READ: if (word_taken && end_q) state_d = AWAIT;
      AWAIT: if (others_idle_i) state_d = DRAIN;
      DRAIN: if (coming_q == '0) state_d = DONE;
      default: ;
    endcase
  end
  assign done_o = state_q == DONE;

  // The program's registers are stable from the cycle before run_i on.
  always_ff @(posedge clk_i) begin
    end_at_q <= beats_t'(prog_bytes >> BUS_LOG2);
    misplaced_q <= prog_base_i[5:0] != '0;  // the end would be wrong
  end

  error_e fault_q;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= IDLE;
      at_q <= '0;
      left_q <= '0;
      window_left_q <= '0;
      measured_q <= 1'b0;
      outside_q <= 1'b0;
      asks_q <= 1'b0;
      room_q <= ROOM_BITS'(AHEAD_BEATS);
      coming_q <= '0;
      pc_q <= '0;
      left_words_q <= '0;
      none_left_q <= 1'b0;
      held_q <= 1'b0;
      stood_q <= 1'b0;
      select_q <= '0;
      params_q <= '0;
      fault_q <= ERR_NONE;
    end else begin
      state_q <= state_d;
      if (begin_run) begin
        at_q <= prog_at;
        left_q <= end_at_q - prog_at;
        window_left_q <= signed'((BEATS_BITS + 1)'(window_size_i >> BUS_LOG2)) - signed'((BEATS_BITS + 1)'(prog_at));
      end else if (read) begin
        at_q <= at_q + beats_t'(burst_q);
        left_q <= left_q - beats_t'(burst_q);
        window_left_q <= window_left_q - signed'((BEATS_BITS + 1)'(burst_q));
      end
      measured_q <= more && !read;
      outside_q <= outside;
      asks_q <= measured_q && !outside && !read && room_q >= burst_q;
      // read arrives late.
      room_q <= read ? room_q - burst_q + ROOM_BITS'(beat_passed_q) : room_q + ROOM_BITS'(beat_passed_q);
      coming_q <= read ? coming_q + burst_q - ROOM_BITS'(r_valid_i) : coming_q - ROOM_BITS'(r_valid_i);
      if (begin_run) select_q <= SELECT_BITS'(prog_base_i[BUS_LOG2-1:0] >> 2);
      else if (taken_out) select_q <= beat_end ? '0 : select_q + SELECT_BITS'(1);
      // A program longer than any index has no words.
      if (begin_run) left_words_q <= (prog_words_i >= 32'd1 << PC_BITS) ? '0 : PC_BITS'(prog_words_i);
      else if (taken_out) left_words_q <= left_words_q - PC_BITS'(1);
      none_left_q <= state_q == READ && left_words_q == PC_BITS'(taken_out);
      held_q <= word_load || (held_q && !word_taken);
      stood_q <= held_q && !word_taken;
      if (word_taken) begin
        pc_q <= pc_q + PC_BITS'(1);
        if (own_q && !start_q) params_q <= set_fetch(params_q, word_q[27:22], word_q[21:0]);
      end
      if (fault_q == ERR_NONE) fault_q <= fault;
    end
  end
  assign fault_o = fault_q != ERR_NONE;
  assign fault_code_o = fault_q;

  logic unused;                                      // assertions look at it
  assign unused = room_ready;

  `OPU_ASSERT(ReadStable, ar_valid_o && !ar_ready_i
      |=> (ar_valid_o && $stable(ar_addr_o) && $stable(ar_beats_o)) || state_q != READ || halt_i)
  `OPU_ASSERT(DataIsExpected, r_valid_i |-> coming_q != '0 && room_ready)

endmodule
