// Store engine: consecutive words of the output buffer -> DRAM words of a shape, with repeats, gaps and skipped bytes.
//
//   start --+--> run length --> opu_walk --bursts--+--> address FIFO -------------------------------> aw
//           |                                      +--> beat counts FIFO --> send --> data FIFO ----> w
//           +--> opu_scatter --word, strobes-------------------------> output buffer --^
//                                                  +--> open bursts FIFO <--------------------------- b
//
// start_*: valid/ready with program index and parameters, which are latched. The next instruction may start while
//          responses to its predecessor are missing: up to IN_FLIGHT instructions and OUTSTANDING bursts are open.
// done_*:  one handshake per instruction, in order, after its last write response.
// fault_*: level until reset: zero count, misaligned address, no byte left of a word, or a repeat without HAS_UPSAMPLE;
//          an access outside of the window or of the buffer; error response.
// out_*:   read port of the output buffer, latency 1, data held until the next read.
// aw_*, w_*, b_*: write side of an AXI4 port with one id; w does not wait for aw, b is always ready. A response that
//                 comes while no burst is open belongs to an aborted run and is dropped.
// Throughput: one beat per cycle. An instruction takes blocks * rows * (1 + repeat_rows) * (run * (1 + repeat_cols +
//             word_gap) - word_gap) words of WORD_BYTES / BUS_BYTES beats. Gaps are beats without strobes, so that a
//             run keeps its long bursts.
// halt_i:  no more bursts; open ones are completed. quiet_o: nothing is open on the bus.
`include "opu_assert.svh"

module opu_store
  import opu_pkg::*;
#(
    parameter int unsigned ADDRESS_BITS = 40,
    parameter int unsigned PC_BITS = 24,
    parameter int unsigned IN_FLIGHT = 4
) (
    input  logic                        clk_i,
    input  logic                        rst_ni,
    input  logic                        halt_i,
    output logic                        quiet_o,

    input  logic [ADDRESS_BITS-1:0]     window_base_i,
    input  logic [32:0]                 window_size_i,

    input  logic                        start_valid_i,
    output logic                        start_ready_o,
    input  logic [PC_BITS-1:0]          pc_i,
    input  store_params_t               params_i,
    output logic                        done_valid_o,
    input  logic                        done_ready_i,

    output logic                        fault_o,
    output error_e                      fault_code_o,
    output logic [PC_BITS-1:0]          fault_pc_o,

    output logic                        out_re_o,
    output logic [OUTPUT_ADDR_BITS-1:0] out_addr_o,
    input  logic [WORD_CHANNELS*8-1:0]  out_data_i,

    output logic                        aw_valid_o,
    input  logic                        aw_ready_i,
    output logic [ADDRESS_BITS-1:0]     aw_addr_o,
    output logic [8:0]                  aw_beats_o,
    output logic                        w_valid_o,
    input  logic                        w_ready_i,
    output logic [BUS_BYTES*8-1:0]      w_data_o,
    output logic [BUS_BYTES-1:0]        w_strobe_o,
    output logic                        w_last_o,
    input  logic                        b_valid_i,
    input  logic                        b_error_i
);

  localparam int unsigned WORD_BEATS = WORD_BYTES / BUS_BYTES;
  localparam int unsigned PART_BITS = (WORD_BEATS > 1) ? $clog2(WORD_BEATS) : 1;
  localparam int unsigned WORDS_BITS = 33;           // 16 bit run times 17 bit words
  localparam int unsigned RUN_BITS = WORDS_BITS + $clog2(WORD_BEATS);

  `OPU_ASSERT_STATIC(BusDividesWord, WORD_BEATS * BUS_BYTES == WORD_BYTES && WORD_BEATS > 0)

  typedef struct packed {
    logic [31:0]         dram;
    logic [15:0]         rows;
    logic [7:0]          repeats;
    logic [21:0]         row_pitch;
    logic [15:0]         blocks;
    logic [21:0]         block_pitch;
    logic [PC_BITS-1:0]  pc;
  } shape_t;

  // ---- start --------------------------------------------------------------------------------------------------------
  logic legal, start, walk_ready, word_ready;
  logic given_q, illegal_q, legal_q;                 // legal_q: with run_q
  logic [31:0] dram;
  logic [7:0] repeat_rows, repeat_cols;
  assign dram = {params_i.dram_hi, params_i.dram_lo};
  assign repeat_rows = HAS_UPSAMPLE ? params_i.repeat_rows : '0;
  assign repeat_cols = HAS_UPSAMPLE ? params_i.repeat_cols : '0;
  assign legal = params_i.run != '0 && params_i.rows != '0 && params_i.blocks != '0
      && (dram & 32'(WORD_BYTES - 1)) == '0
      && 32'(params_i.skip_low) + 32'(params_i.skip_high) < WORD_BYTES
      && repeat_rows == params_i.repeat_rows && repeat_cols == params_i.repeat_cols;
  assign start_ready_o = walk_ready && word_ready && !halt_i && !given_q;
  assign start = start_valid_i && start_ready_o;

  // An illegal instruction is accepted like the others and then stops in opu_walk: no other one follows it. opu_walk
  // starts one cycle after the instruction and samples the run in the next one. The DRAM words of a run, the gaps
  // between its words included, are a product in the first of these cycles, without an adder before it, and a sum in
  // the second: run * (gap + copies) + (run - gap).
  shape_t shape_q;
  logic [WORDS_BITS-1:0] product_q, difference_q, run_q;
  always_ff @(posedge clk_i) begin
    given_q <= rst_ni && start;
    legal_q <= !illegal_q;
    product_q <= WORDS_BITS'(params_i.run) * WORDS_BITS'(17'(params_i.word_gap) + 17'(repeat_cols));
    difference_q <= WORDS_BITS'(params_i.run) - WORDS_BITS'(params_i.word_gap);
    run_q <= product_q + difference_q;
    if (!given_q) begin
      shape_q <= '{dram: dram, rows: params_i.rows, repeats: repeat_rows, row_pitch: params_i.row_pitch,
                   blocks: params_i.blocks, block_pitch: params_i.block_pitch, pc: pc_i};
    end
  end

  // ---- addresses: every burst enters three queues, for aw, w and b --------------------------------------------------
  logic burst_valid, burst_ready, burst_last, walk_fault;
  logic [ADDRESS_BITS-1:0] burst_addr;
  logic [8:0] burst_beats;
  logic [PC_BITS-1:0] burst_pc, walk_pc;

  opu_walk #(
      .ADDRESS_BITS(ADDRESS_BITS),
      .BUS_BYTES   (BUS_BYTES),
      .MAX_BURST   (MAX_BURST),
      .PC_BITS     (PC_BITS),
      .RUN_BITS    (RUN_BITS),
      .MOST_SHIFT  ($clog2(WORD_BEATS)),
      .REPEATS     (HAS_UPSAMPLE)
  ) u_walk (
      .clk_i,
      .rst_ni,
      .halt_i,
      .window_base_i,
      .window_size_i,
      .start_valid_i(given_q && !halt_i),
      .start_ready_o(walk_ready),
      .dram_i       (shape_q.dram),
      .shift_i      (3'($clog2(WORD_BEATS))),
      .run_i        (RUN_BITS'(run_q) << $clog2(WORD_BEATS)),
      .legal_i      (legal_q),
      .rows_i       (shape_q.rows),
      .repeats_i    (shape_q.repeats),
      .row_pitch_i  (shape_q.row_pitch),
      .blocks_i     (shape_q.blocks),
      .block_pitch_i(shape_q.block_pitch),
      .pc_i         (shape_q.pc),
      .burst_valid_o(burst_valid),
      .burst_ready_i(burst_ready),
      .burst_addr_o (burst_addr),
      .burst_beats_o(burst_beats),
      .burst_last_o (burst_last),
      .burst_pc_o   (burst_pc),
      .fault_o      (walk_fault),
      .fault_pc_o   (walk_pc)
  );

  logic address_ready, beats_ready, answer_ready, push;
  assign burst_ready = address_ready && beats_ready && answer_ready;
  assign push = burst_valid && burst_ready;

  opu_queue #(
      .WIDTH(ADDRESS_BITS + 9),
      .DEPTH(2)
  ) u_addresses (
      .clk_i,
      .rst_ni,
      .push_valid_i(push),
      .push_ready_o(address_ready),
      .push_data_i ({burst_addr, burst_beats}),
      .pop_valid_o (aw_valid_o),
      .pop_ready_i (aw_ready_i),
      .pop_data_o  ({aw_addr_o, aw_beats_o})
  );

  // ---- data: read the word, then send its beats ---------------------------------------------------------------------
  logic beats_valid, beats_last, burst_end, send;
  logic [8:0] beats, beat_q;
  logic begins_q, ends_q;                            // beat_q is 0; of another one: it is the last of its burst
  opu_queue #(
      .WIDTH(10),
      .DEPTH(OUTSTANDING),
      .REGISTER(1'b1)
  ) u_beats (
      .clk_i,
      .rst_ni,
      .push_valid_i(push),
      .push_ready_o(beats_ready),
      .push_data_i ({burst_last, burst_beats}),
      .pop_valid_o (beats_valid),
      .pop_ready_i (send && burst_end),
      .pop_data_o  ({beats_last, beats})
  );

  // Two beats of room cover the one that is on its way from the buffer.
  logic [2:0] room_q;
  logic sent_q, sent_end_q, w_push_ready, finish, word_valid;
  assign send = beats_valid && room_q != '0;
  assign burst_end = begins_q ? beats == 9'd1 : ends_q;
  assign finish = send && burst_end && beats_last;

  logic word_read, overflow, read_q;
  logic [VALUE_BITS:0] word_at, read_at_q;
  always_ff @(posedge clk_i) begin
    read_q <= rst_ni && out_re_o;
    read_at_q <= word_at;
  end
  logic [PC_BITS-1:0] word_pc;
  logic [PART_BITS-1:0] part, sent_part_q;
  logic [BUS_BYTES-1:0] strobe, sent_strobe_q;
  opu_scatter #(
      .PC_BITS  (PC_BITS),
      .IN_FLIGHT(IN_FLIGHT)
  ) u_scatter (
      .clk_i,
      .rst_ni,
      .start_valid_i(start),
      .start_ready_o(word_ready),
      .params_i,
      .pc_i,
      .step_i       (send),
      .finish_i     (finish),
      .valid_o      (word_valid),
      .pc_o         (word_pc),
      .read_o       (word_read),
      .address_o    (word_at),
      .part_o       (part),
      .strobe_o     (strobe)
  );
  assign overflow = read_q && read_at_q >= (VALUE_BITS + 1)'(OUTPUT_WORDS);
  assign out_re_o = send && word_read;
  assign out_addr_o = word_at[OUTPUT_ADDR_BITS-1:0];

  logic [WORD_BYTES*8-1:0] padded;
  logic [BUS_BYTES*8-1:0] beat_data;
  assign padded = (WORD_BYTES * 8)'(out_data_i);
  assign beat_data = padded[32'(sent_part_q) * BUS_BYTES * 8 +: BUS_BYTES*8];

  logic w_pop;
  assign w_pop = w_valid_o && w_ready_i;
  opu_queue #(
      .WIDTH(BUS_BYTES * 9 + 1),
      .DEPTH(4)
  ) u_data (
      .clk_i,
      .rst_ni,
      .push_valid_i(sent_q),
      .push_ready_o(w_push_ready),
      .push_data_i ({sent_end_q, sent_strobe_q, beat_data}),
      .pop_valid_o (w_valid_o),
      .pop_ready_i (w_ready_i),
      .pop_data_o  ({w_last_o, w_strobe_o, w_data_o})
  );

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      beat_q <= '0;
      begins_q <= 1'b1;
      ends_q <= 1'b0;
      room_q <= 3'd4;
      sent_q <= 1'b0;
      sent_end_q <= 1'b0;
      sent_strobe_q <= '0;
      sent_part_q <= '0;
    end else begin
      if (send) begin
        beat_q <= burst_end ? '0 : beat_q + 9'd1;
        begins_q <= burst_end;
        ends_q <= beat_q + 9'd2 == beats;
      end
      room_q <= room_q + 3'(w_pop) - 3'(send);
      sent_q <= send;
      sent_end_q <= burst_end;
      sent_strobe_q <= strobe;
      if (send) sent_part_q <= part;
    end
  end

  // ---- responses ----------------------------------------------------------------------------------------------------
  logic answer_valid, answer_last, answered;
  logic [PC_BITS-1:0] answer_pc;
  opu_queue #(
      .WIDTH(1 + PC_BITS),
      .DEPTH(OUTSTANDING)
  ) u_answers (
      .clk_i,
      .rst_ni,
      .push_valid_i(push),
      .push_ready_o(answer_ready),
      .push_data_i ({burst_last, burst_pc}),
      .pop_valid_o (answer_valid),
      .pop_ready_i (b_valid_i),
      .pop_data_o  ({answer_last, answer_pc})
  );

  assign answered = b_valid_i && answer_valid;

  localparam int unsigned DONE_BITS = $clog2(IN_FLIGHT + 1);
  logic [DONE_BITS-1:0] done_q;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) done_q <= '0;
    else done_q <= done_q + DONE_BITS'(answered && answer_last) - DONE_BITS'(done_valid_o && done_ready_i);
  end
  assign done_valid_o = done_q != '0;
  assign quiet_o = !answer_valid;

  // ---- faults: those that arrive late in their cycle are reported a cycle later, before that instruction can be done.
  logic fault_q, overflow_q, beyond_q;
  error_e fault_code_q;
  logic [PC_BITS-1:0] fault_pc_q, read_pc_q, word_pc_q;
  always_ff @(posedge clk_i) begin
    overflow_q <= rst_ni && overflow;
    beyond_q <= rst_ni && walk_fault;
    illegal_q <= rst_ni && start && !legal;
    read_pc_q <= word_pc;
    word_pc_q <= read_pc_q;
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      fault_q <= 1'b0;
      fault_code_q <= ERR_NONE;
      fault_pc_q <= '0;
    end else begin
      if (!fault_q) begin
        if (answered && b_error_i) begin
          fault_q <= 1'b1;
          fault_code_q <= ERR_AXI_WRITE;
          fault_pc_q <= answer_pc;
        end else if (overflow_q) begin
          fault_q <= 1'b1;
          fault_code_q <= ERR_BUFFER;
          fault_pc_q <= word_pc_q;
        end else if (beyond_q) begin
          fault_q <= 1'b1;
          fault_code_q <= ERR_WINDOW;
          fault_pc_q <= walk_pc;
        end else if (illegal_q) begin
          fault_q <= 1'b1;
          fault_code_q <= ERR_ILLEGAL_INSTRUCTION;
          fault_pc_q <= shape_q.pc;
        end
      end
    end
  end
  assign fault_o = fault_q;
  assign fault_code_o = fault_code_q;
  assign fault_pc_o = fault_pc_q;

  logic unused;                                      // assertions look at them
  assign unused = &{w_push_ready, word_valid};

  `OPU_ASSERT(WalkTakesShapes, given_q && !halt_i |-> walk_ready)
  `OPU_STABLE(AddressStable, aw_valid_o, aw_ready_i, {aw_addr_o, aw_beats_o})
  `OPU_STABLE(DataStable, w_valid_o, w_ready_i, {w_data_o, w_strobe_o, w_last_o})
  `OPU_ASSERT(AnswerIsExpected, b_valid_i && !halt_i |-> answer_valid)
  `OPU_ASSERT(DataHasRoom, sent_q |-> w_push_ready)
  `OPU_ASSERT(BeatsHaveWords, send |-> word_valid)

endmodule
