// Load engine: DRAM words of a shape -> consecutive words of a buffer (feature, weight, parameters, residual, pre
// chain, tables, images), and rows of images -> columns of the feature buffer (opu_unfold).
//
//   start --+--> opu_walk --bursts--> ar            open bursts FIFO ---+
//           +--> open instructions FIFO (buffer, dst) --------------+   v
//           |                                  r --> collect beats --+--> [word] --> buffer write
//           +--> opu_unfold <--> image buffer ------------------------------------> feature buffer write
//
// start_*: valid/ready with opcode, program index and parameters, which are latched. start_ready_o depends on op_i.
//          Addresses are prefetched: those of an instruction precede its data and the data of earlier ones, up to
//          IN_FLIGHT instructions and 2 * OUTSTANDING bursts. An im2row starts when all earlier loads are done, and no load
//          starts before it is done.
// done_*:  one handshake per instruction, in order; valid from the cycle in which its last word is written.
// fault_*: level until reset: zero count, misaligned address, a buffer that the machine does not have or wrong lanes; an access
//          outside of the window or of the buffer; error response.
// unfold_*: byte writes to the feature buffer. image_*: read port of the image buffer, latency 2.
// ar_*, r_*: read side of an AXI4 port with one id; r is always ready. Throughput: a beat per cycle; a word is written
//            one cycle after its last beat.
// halt_i:  no more bursts; open ones are received.
`include "opu_assert.svh"

module opu_load
  import opu_pkg::*;
#(
    parameter int unsigned ADDRESS_BITS = 40,
    parameter int unsigned PC_BITS = 24,
    parameter int unsigned IN_FLIGHT = 4,
    localparam int unsigned WIDTH_BYTES = (WORD_BYTES > WEIGHT_WIDTH) ? WORD_BYTES : WEIGHT_WIDTH
) (
    input  logic                     clk_i,
    input  logic                     rst_ni,
    input  logic                     halt_i,

    input  logic [ADDRESS_BITS-1:0]  window_base_i,
    input  logic [32:0]              window_size_i,

    input  logic                     start_valid_i,
    output logic                     start_ready_o,
    input  logic [3:0]               op_i,
    input  logic [PC_BITS-1:0]       pc_i,
    input  load_params_t             params_i,
    output logic                     done_valid_o,
    input  logic                     done_ready_i,

    output logic                     fault_o,
    output error_e                   fault_code_o,
    output logic [PC_BITS-1:0]       fault_pc_o,

    output logic                     ar_valid_o,
    input  logic                     ar_ready_i,
    output logic [ADDRESS_BITS-1:0]  ar_addr_o,
    output logic [8:0]               ar_beats_o,
    input  logic                     r_valid_i,
    input  logic [BUS_BYTES*8-1:0]   r_data_i,
    input  logic                     r_error_i,
    input  logic                     r_end_i,      // the last beat of a burst

    output logic                     feature_we_o,
    output logic                     weight_we_o,
    output logic                     param_we_o,
    output logic                     residual_we_o,
    output logic                     pre_we_o,
    output logic                     table_we_o,
    output logic                     norm_we_o,
    output logic                     image_we_o,
    output logic [VALUE_BITS-1:0]    waddr_o,
    output logic [WIDTH_BYTES*8-1:0] wdata_o,

    output logic                       unfold_we_o,
    output logic [WORD_BYTES-1:0]      unfold_strobe_o,
    output logic [VALUE_BITS-1:0]      unfold_addr_o,
    output logic [WORD_BYTES*8-1:0]    unfold_data_o,
    output logic                       image_re_o,
    output logic [IMAGE_ADDR_BITS-1:0] image_addr_o,
    input  logic [WORD_BYTES*8-1:0]    image_rdata_i
);

  localparam int unsigned WORD_BEATS = WORD_BYTES / BUS_BYTES;
  localparam int unsigned WEIGHT_BEATS = WEIGHT_WIDTH / BUS_BYTES;
  localparam int unsigned MOST_BEATS = WIDTH_BYTES / BUS_BYTES;
  localparam int unsigned SUM_BITS = VALUE_BITS + 1;
  localparam int unsigned RUN_BITS = 16 + $clog2(MOST_BEATS);
  localparam int unsigned ZERO_BITS = $clog2(WORD_BYTES);

  `OPU_ASSERT_STATIC(BusDividesWord, WORD_BEATS * BUS_BYTES == WORD_BYTES && WORD_BEATS > 0)
  `OPU_ASSERT_STATIC(BusDividesWeight, WEIGHT_BEATS * BUS_BYTES == WEIGHT_WIDTH && WEIGHT_BEATS > 0)
  `OPU_ASSERT_STATIC(WeightPowerOfTwo, WEIGHT_BEATS == 1 << $clog2(WEIGHT_BEATS))

  // ---- start --------------------------------------------------------------------------------------------------------
  logic is_weight, is_im2row, legal, start, walk_ready, word_ready, word_valid, im2row_busy, im2row_done, im2row_beyond;
  logic [31:0] dram, align_mask;
  assign is_weight = op_i == OP_LOAD_WEIGHT;
  assign dram = {params_i.dram_hi, params_i.dram_lo};
  assign align_mask = is_weight ? 32'(WEIGHT_WIDTH - 1) : 32'(WORD_BYTES - 1);
  assign is_im2row = HAS_UNFOLD && op_i == OP_LOAD_UNFOLD;
  logic moves, columns, zeroes;                      // legal registers of a transfer, of im2row, of lanes that are zero
  logic [8:0] zero_bytes;
  assign zero_bytes = 9'(params_i.zero_low) + 9'(params_i.zero_high);
  assign zeroes = HAS_ZEROES ? 32'(zero_bytes) < WORD_BYTES : zero_bytes == '0;
  assign moves = params_i.blocks != '0 && (dram & align_mask) == '0;
  assign columns = params_i.stride_y != '0 && params_i.kernel_rows inside {8'd3, 8'd5, 8'd7};
  assign legal = params_i.run != '0 && params_i.rows != '0 && (is_im2row ? columns : moves)
      && (HAS_PRE || op_i != OP_LOAD_PRE) && (HAS_TABLE || op_i != OP_LOAD_TABLE) && (HAS_NORM || op_i != OP_LOAD_NORM)
      && (HAS_UNFOLD || (op_i != OP_LOAD_IMAGE && op_i != OP_LOAD_UNFOLD)) && (!is_weight || zeroes);
  assign start_ready_o = !im2row_busy && (is_im2row ? !word_valid : walk_ready && word_ready) && !halt_i;
  // An illegal instruction is accepted like the others and then faults in opu_walk or opu_unfold: no other one follows
  // it.
  assign start = start_valid_i && start_ready_o;

  // ---- addresses ----------------------------------------------------------------------------------------------------
  logic burst_valid, burst_ready, burst_last, walk_fault, open_ready;
  logic [RUN_BITS-1:0] run_q;                        // beats
  logic started_q, legal_q;
  logic [2:0] shift;
  assign shift = is_weight ? 3'($clog2(WEIGHT_BEATS)) : 3'($clog2(WORD_BEATS));
  always_ff @(posedge clk_i) begin
    run_q <= RUN_BITS'(params_i.run) << shift;
    legal_q <= legal;
    started_q <= rst_ni && start;
  end
  logic [PC_BITS-1:0] burst_pc, walk_pc;

  opu_walk #(
      .ADDRESS_BITS(ADDRESS_BITS),
      .BUS_BYTES   (BUS_BYTES),
      .MAX_BURST   (MAX_BURST),
      .PC_BITS     (PC_BITS),
      .RUN_BITS    (RUN_BITS),
      .MOST_SHIFT  ($clog2(MOST_BEATS)),
      .REPEATS     (1'b0)
  ) u_walk (
      .clk_i,
      .rst_ni,
      .halt_i,
      .window_base_i,
      .window_size_i,
      .start_valid_i(start && !is_im2row),
      .start_ready_o(walk_ready),
      .dram_i       (dram),
      .shift_i      (shift),
      .run_i        (run_q),
      .legal_i      (legal_q),
      .rows_i       (params_i.rows),
      .repeats_i    ('0),
      .row_pitch_i  (params_i.row_pitch),
      .blocks_i     (params_i.blocks),
      .block_pitch_i(params_i.block_pitch),
      .pc_i,
      .burst_valid_o(burst_valid),
      .burst_ready_i(burst_ready),
      .burst_addr_o (ar_addr_o),
      .burst_beats_o(ar_beats_o),
      .burst_last_o (burst_last),
      .burst_pc_o   (burst_pc),
      .fault_o      (walk_fault),
      .fault_pc_o   (walk_pc)
  );

  assign ar_valid_o = burst_valid && open_ready;
  assign burst_ready = ar_ready_i && open_ready;

  // ---- data ---------------------------------------------------------------------------------------------------------
  // Open bursts: last of its instruction, program index.  Open instructions: opcode, first word, lanes of weights that
  // are zero.
  logic open_valid, open_last, finish;
  logic [PC_BITS-1:0] open_pc;
  logic [3:0] word_op;
  logic [VALUE_BITS-1:0] word_dst;
  logic [ZERO_BITS-1:0] zero_low, zero_high;

  opu_queue #(
      .WIDTH(1 + PC_BITS),
      .DEPTH(2 * OUTSTANDING)                        // the bus may take an address before the end of a burst is seen
  ) u_open (
      .clk_i,
      .rst_ni,
      .push_valid_i(burst_valid && ar_ready_i),
      .push_ready_o(open_ready),
      .push_data_i ({burst_last, burst_pc}),
      .pop_valid_o (open_valid),
      .pop_ready_i (r_end_i),
      .pop_data_o  ({open_last, open_pc})
  );

  opu_queue #(
      .WIDTH(4 + VALUE_BITS + 2 * ZERO_BITS),
      .DEPTH(IN_FLIGHT)
  ) u_words (
      .clk_i,
      .rst_ni,
      .push_valid_i(start && !is_im2row),
      .push_ready_o(word_ready),
      .push_data_i ({op_i, params_i.dst, params_i.zero_low[ZERO_BITS-1:0], params_i.zero_high[ZERO_BITS-1:0]}),
      .pop_valid_o (word_valid),
      .pop_ready_i (finish),
      .pop_data_o  ({word_op, word_dst, zero_low, zero_high})
  );

  assign finish = r_end_i && open_last;

  // Beats are collected to words, words are counted from the first one of the instruction on.
  logic beat_last, begins_q;  // begins_q: the next word is the first one of its instruction
  logic [SUM_BITS-1:0] at_q, word_at;
  logic [WIDTH_BYTES*8-1:0] word_data;
  if (MOST_BEATS > 1) begin : g_collect
    localparam int unsigned BEAT_BITS = $clog2(MOST_BEATS);
    logic [BEAT_BITS-1:0] beat_q;
    logic [WIDTH_BYTES*8-1:0] collect_q;
    assign beat_last = beat_q == ((word_op == OP_LOAD_WEIGHT) ? BEAT_BITS'(WEIGHT_BEATS - 1)
                                                              : BEAT_BITS'(WORD_BEATS - 1));
    always_comb begin
      word_data = collect_q;
      for (int unsigned k = 0; k < MOST_BEATS; k++) begin
        if (32'(beat_q) == k) word_data[k*BUS_BYTES*8 +: BUS_BYTES*8] = r_data_i;
      end
    end
    always_ff @(posedge clk_i) begin
      if (!rst_ni) begin
        beat_q <= '0;
        collect_q <= '0;
      end else if (r_valid_i) begin
        beat_q <= beat_last ? '0 : beat_q + BEAT_BITS'(1);
        collect_q <= word_data;
      end
    end
  end else begin : g_direct
    assign beat_last = 1'b1;
    assign word_data = r_data_i;
  end

  // Weights that are a map: lanes of others are zero.
  logic [WIDTH_BYTES*8-1:0] written;
  if (HAS_ZEROES) begin : g_zeroes                   // weight words are words of a map
    logic [WORD_BYTES-1:0] lanes;
    assign lanes = (word_op != OP_LOAD_WEIGHT) ? '1 : ({WORD_BYTES{1'b1}} << zero_low) & ({WORD_BYTES{1'b1}} >> zero_high);
    for (genvar k = 0; k < int'(WORD_BYTES); k++) begin : g_lane
      assign written[8*k +: 8] = word_data[8*k +: 8] & {8{lanes[k]}};
    end
  end else begin : g_no_zeroes
    logic unused_zeroes;
    assign written = word_data;
    assign unused_zeroes = &{zero_low, zero_high};
  end

  logic write;
  assign write = r_valid_i && beat_last;
  assign word_at = begins_q ? {1'b0, word_dst} : at_q + SUM_BITS'(1);

  logic feature_we_q, weight_we_q, param_we_q, residual_we_q, pre_we_q, table_we_q, norm_we_q, image_we_q;
  logic [WIDTH_BYTES*8-1:0] wdata_q;
  localparam int unsigned DONE_BITS = $clog2(IN_FLIGHT + 1);
  logic [DONE_BITS-1:0] done_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      begins_q <= 1'b1;
      done_q <= '0;
      feature_we_q <= 1'b0;
      weight_we_q <= 1'b0;
      param_we_q <= 1'b0;
      residual_we_q <= 1'b0;
      pre_we_q <= 1'b0;
      table_we_q <= 1'b0;
      norm_we_q <= 1'b0;
      image_we_q <= 1'b0;
    end else begin
      if (finish) begins_q <= 1'b1;
      else if (write) begins_q <= 1'b0;
      done_q <= done_q + DONE_BITS'(finish || im2row_done) - DONE_BITS'(done_valid_o && done_ready_i);
      feature_we_q <= write && word_op == OP_LOAD_FEATURE;
      weight_we_q <= write && word_op == OP_LOAD_WEIGHT;
      param_we_q <= write && word_op == OP_LOAD_PARAM;
      residual_we_q <= write && word_op == OP_LOAD_RESIDUAL;
      pre_we_q <= HAS_PRE && write && word_op == OP_LOAD_PRE;
      table_we_q <= HAS_TABLE && write && word_op == OP_LOAD_TABLE;
      norm_we_q <= HAS_NORM && write && word_op == OP_LOAD_NORM;
      image_we_q <= HAS_UNFOLD && write && word_op == OP_LOAD_IMAGE;
    end
  end

  always_ff @(posedge clk_i) begin
    if (write) begin
      at_q <= word_at;
      wdata_q <= written;
    end
  end

  // An address after the end of its buffer is detected in parallel to the write, which it suppresses.
  logic overflow;
  function automatic logic is_below(logic [SUM_BITS-1:0] at, int unsigned words);  // powers of two: no carry chain
    is_below = (words == 1 << $clog2(words)) ? at >> $clog2(words) == '0 : at < SUM_BITS'(words);
  endfunction
  assign feature_we_o = feature_we_q && is_below(at_q, FEATURE_WORDS);
  assign weight_we_o = weight_we_q && is_below(at_q, WEIGHT_WORDS);
  assign param_we_o = param_we_q && is_below(at_q, PARAM_WORDS);
  assign residual_we_o = residual_we_q && is_below(at_q, RESIDUAL_WORDS);
  assign pre_we_o = pre_we_q && is_below(at_q, PRE_WORDS);
  assign table_we_o = table_we_q && is_below(at_q, TABLE_WORDS);
  assign norm_we_o = norm_we_q && is_below(at_q, NORM_WORDS);
  assign image_we_o = image_we_q && is_below(at_q, IMAGE_WORDS);
  assign overflow = (feature_we_q && !feature_we_o) || (weight_we_q && !weight_we_o) || (param_we_q && !param_we_o)
      || (residual_we_q && !residual_we_o) || (pre_we_q && !pre_we_o) || (table_we_q && !table_we_o)
      || (norm_we_q && !norm_we_o) || (image_we_q && !image_we_o);
  assign waddr_o = at_q[VALUE_BITS-1:0];
  assign wdata_o = wdata_q;
  assign done_valid_o = done_q != '0;

  // ---- columns of images --------------------------------------------------------------------------------------------
  logic [PC_BITS-1:0] im2row_pc_q;
  if (HAS_UNFOLD) begin : g_im2row
    opu_unfold u_im2row (
        .clk_i,
        .rst_ni,
        .halt_i,
        .start_i      (start && is_im2row),
        .params_i,
        .legal_i      (legal_q),
        .busy_o       (im2row_busy),
        .finish_o     (im2row_done),
        .beyond_o     (im2row_beyond),
        .image_re_o,
        .image_addr_o,
        .image_rdata_i,
        .we_o         (unfold_we_o),
        .strobe_o     (unfold_strobe_o),
        .addr_o       (unfold_addr_o),
        .data_o       (unfold_data_o)
    );
    always_ff @(posedge clk_i) begin
      if (!im2row_busy) im2row_pc_q <= pc_i;
    end
  end else begin : g_no_im2row
    assign {im2row_busy, im2row_done, im2row_beyond, image_re_o, image_addr_o} = '0;
    assign {unfold_we_o, unfold_strobe_o, unfold_addr_o, unfold_data_o} = '0;
    assign im2row_pc_q = '0;
    logic unused;
    assign unused = &{image_rdata_i, params_i};
  end

  // ---- faults: one register is set in the cycle of a fault, or a cycle later for bus, buffers and starts. The
  // registers that say which one have no late enable.
  logic fault_q, failed_q, overflowed_q, read_q, overflow_q, beyond_q;  // failed: a read; overflowed: a buffer, in the cycle before
  logic [PC_BITS-1:0] open_pc_q, other_pc_q, write_pc_q, before_pc_q;  // of data, of addresses, of the word that is written
  always_ff @(posedge clk_i) begin
    write_pc_q <= open_pc;
    before_pc_q <= write_pc_q;
    failed_q <= rst_ni && r_valid_i && r_error_i;
    overflowed_q <= rst_ni && overflow;
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) fault_q <= 1'b0;
    else fault_q <= fault_q || failed_q || overflowed_q || im2row_beyond || walk_fault || (started_q && !legal_q);
  end
  always_ff @(posedge clk_i) begin
    if (!fault_q) begin
      read_q <= failed_q && !overflowed_q;
      overflow_q <= overflowed_q || im2row_beyond;
      beyond_q <= walk_fault;
      open_pc_q <= overflowed_q ? before_pc_q : im2row_busy ? im2row_pc_q : write_pc_q;  // im2row may have begun since
      other_pc_q <= walk_pc;                         // of im2row as well: opu_walk is idle then
    end
  end
  assign fault_code_o = read_q ? ERR_AXI_READ : overflow_q ? ERR_BUFFER : beyond_q ? ERR_WINDOW : ERR_ILLEGAL_INSTRUCTION;
  assign fault_o = fault_q;
  assign fault_pc_o = (read_q || overflow_q) ? open_pc_q : other_pc_q;

  logic unused_open;                                 // assertions look at it
  assign unused_open = open_valid;

  `OPU_ASSERT(DataIsExpected, r_valid_i |-> open_valid && word_valid)
  `OPU_ASSERT(EndIsABeat, r_end_i |-> r_valid_i)
  `OPU_ASSERT(OneKindAtATime, im2row_busy |-> !word_valid && !open_valid)
  `OPU_ASSERT(WordsAreWhole, finish |-> beat_last)

endmodule
