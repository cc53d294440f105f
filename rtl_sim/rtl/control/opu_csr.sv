// AXI4-Lite slave with the control registers of docs/registers.md.
//
//   aw, w --> [hold] --> write decode --> registers --> configuration, pulses (start, stop, abort, queue)
//   ar -----> read decode by blocks of an address --> [r]
//
// One write and one read at a time; a write is executed when address and data have both arrived. Responses come one
// cycle later and wait for ready. SLVERR: an address without a register, a write to a read-only register, and to PROG_*
// and WINDOW_* while a program is queued. Bytes without strobe keep their value.
//
// prog_*_o and window_*_o are those of the program that was started last: they change in the cycle after start_o. A queued
// program is started in the cycle in which that one is done.
`include "opu_assert.svh"

module opu_csr
  import opu_pkg::*;
#(
    parameter int unsigned ENGINES = 5,
    parameter int unsigned PC_BITS = 24
) (
    input  logic                     clk_i,
    input  logic                     rst_ni,

    input  logic [CSR_ADDR_BITS-1:0] awaddr_i,
    input  logic                     awvalid_i,
    output logic                     awready_o,
    input  logic [31:0]              wdata_i,
    input  logic [3:0]               wstrb_i,
    input  logic                     wvalid_i,
    output logic                     wready_o,
    output logic [1:0]               bresp_o,
    output logic                     bvalid_o,
    input  logic                     bready_i,
    input  logic [CSR_ADDR_BITS-1:0] araddr_i,
    input  logic                     arvalid_i,
    output logic                     arready_o,
    output logic [31:0]              rdata_o,
    output logic [1:0]               rresp_o,
    output logic                     rvalid_o,
    input  logic                     rready_i,
    output logic                     irq_o,

    output logic                     start_o,
    output logic                     stop_o,
    output logic                     abort_o,
    output logic [63:0]              prog_base_o,
    output logic [31:0]              prog_words_o,
    output logic [63:0]              window_base_o,
    output logic [63:0]              window_size_o,
    output logic [31:0]              watchdog_o,

    input  logic                     busy_i,
    input  logic                     done_i,
    input  logic                     error_i,
    input  logic [ENGINES-1:0]       idle_i,
    input  error_e                   error_code_i,
    input  logic [2:0]               error_engine_i,
    input  logic [PC_BITS-1:0]       error_pc_i,
    input  logic [63:0]              cycles_i,
    input  logic [31:0]              busy_cycles_i [ENGINES],
    input  logic [31:0]              stall_cycles_i [ENGINES],
    input  logic [31:0]              read_beats_i,
    input  logic [31:0]              write_beats_i,
    input  logic [31:0]              multiplying_i,
    input  logic [31:0]              memory_waits_i
);

  localparam logic [1:0] OKAY = 2'b00;
  localparam logic [1:0] SLVERR = 2'b10;

  // Registers are whole words; a byte of one is written by its strobe.
  typedef logic [CSR_ADDR_BITS-1:0] address_t;
  address_t write_addr, read_addr;
  assign write_addr = {awaddr_i[CSR_ADDR_BITS-1:2], 2'b00};
  assign read_addr = {araddr_i[CSR_ADDR_BITS-1:2], 2'b00};
  logic unused;
  assign unused = &{awaddr_i[1:0], araddr_i[1:0]};

  logic [31:0] prog_base_lo_q, prog_base_hi_q, prog_words_q, watchdog_q, programs_q;
  logic [63:0] run_base_q, run_window_base_q, run_window_size_q;
  logic [31:0] run_words_q;
  logic [31:0] window_base_lo_q, window_base_hi_q, window_size_lo_q, window_size_hi_q;
  logic [1:0] irq_enable_q, irq_status_q;
  logic running_q, queued_q, ended;
  assign ended = running_q && !busy_i;  // in this cycle

  // ---- write --------------------------------------------------------------------------------------------------------
  logic bvalid_q, write;
  logic [1:0] bresp_q, bresp_d;
  logic [31:0] mask, bits;
  // Address and data wait for each other in registers: neither ready depends on a valid. Accesses during a reset wait
  // for its end.
  logic aw_here_q, w_here_q;
  // The register that the address selects, decoded while the access waits.
  typedef struct packed {
    logic ctrl, irq_enable, irq_status, watchdog;
    logic prog_base_lo, prog_base_hi, prog_words;
    logic window_base_lo, window_base_hi, window_size_lo, window_size_hi;
  } target_t;
  target_t target, target_q;
  logic [31:0] wdata_q;
  logic [3:0] wstrb_q;
  always_comb begin
    target = '0;
    target.ctrl = write_addr == CSR_CTRL;
    target.irq_enable = write_addr == CSR_IRQ_ENABLE;
    target.irq_status = write_addr == CSR_IRQ_STATUS;
    target.watchdog = write_addr == CSR_WATCHDOG;
    target.prog_base_lo = write_addr == CSR_PROG_BASE_LO;
    target.prog_base_hi = write_addr == CSR_PROG_BASE_HI;
    target.prog_words = write_addr == CSR_PROG_WORDS;
    target.window_base_lo = write_addr == CSR_WINDOW_BASE_LO;
    target.window_base_hi = write_addr == CSR_WINDOW_BASE_HI;
    target.window_size_lo = write_addr == CSR_WINDOW_SIZE_LO;
    target.window_size_hi = write_addr == CSR_WINDOW_SIZE_HI;
  end
  assign awready_o = rst_ni && !aw_here_q;
  assign wready_o = rst_ni && !w_here_q;
  assign write = aw_here_q && w_here_q && !bvalid_q;
  assign mask = {{8{wstrb_q[3]}}, {8{wstrb_q[2]}}, {8{wstrb_q[1]}}, {8{wstrb_q[0]}}};
  assign bits = wdata_q & mask;

  function automatic logic [31:0] merged(logic [31:0] old, logic [31:0] data, logic [31:0] strobes);
    merged = (old & ~strobes) | (data & strobes);
  endfunction

  logic of_next, always_free;  // of the program that starts next
  assign of_next = target_q.prog_base_lo || target_q.prog_base_hi || target_q.prog_words
      || target_q.window_base_lo || target_q.window_base_hi || target_q.window_size_lo || target_q.window_size_hi;
  assign always_free = target_q.ctrl || target_q.irq_enable || target_q.irq_status || target_q.watchdog;
  assign bresp_d = (always_free || (of_next && !queued_q)) ? OKAY : SLVERR;

  logic command, queue, begins;
  assign command = write && target_q.ctrl;
  assign queue = command && bits[CSR_CTRL_QUEUE];
  assign begins = (command && bits[CSR_CTRL_START]) || queue || (queued_q && done_i);
  assign start_o = begins && !busy_i;
  assign stop_o = command && bits[CSR_CTRL_STOP];
  assign abort_o = command && bits[CSR_CTRL_ABORT];

  logic [1:0] irq_set, irq_clear;
  always_comb begin
    irq_set = '0;
    irq_clear = '0;
    irq_set[CSR_IRQ_STATUS_DONE] = ended && done_i;
    irq_set[CSR_IRQ_STATUS_ERROR] = ended && error_i;
    if (write && target_q.irq_status) irq_clear = bits[1:0];
    if (command && bits[CSR_CTRL_IRQ_CLEAR]) irq_clear = '1;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      aw_here_q <= 1'b0;
      w_here_q <= 1'b0;
      bvalid_q <= 1'b0;
      bresp_q <= OKAY;
      prog_base_lo_q <= '0;
      prog_base_hi_q <= '0;
      prog_words_q <= '0;
      window_base_lo_q <= '0;
      window_base_hi_q <= '0;
      window_size_lo_q <= '0;
      window_size_hi_q <= '0;
      watchdog_q <= CSR_WATCHDOG_RESET;
      irq_enable_q <= '0;
      irq_status_q <= '0;
      running_q <= 1'b0;
      queued_q <= 1'b0;
      programs_q <= '0;
      run_base_q <= '0;
      run_words_q <= '0;
      run_window_base_q <= '0;
      run_window_size_q <= '0;
    end else begin
      if (awready_o) aw_here_q <= awvalid_i;
      else if (write) aw_here_q <= 1'b0;
      if (wready_o) w_here_q <= wvalid_i;
      else if (write) w_here_q <= 1'b0;
      running_q <= busy_i;
      queued_q <= busy_i && (queue || queued_q);
      if (ended) programs_q <= programs_q + 32'd1;
      if (start_o) begin
        run_base_q <= {prog_base_hi_q, prog_base_lo_q};
        run_words_q <= prog_words_q;
        run_window_base_q <= {window_base_hi_q, window_base_lo_q};
        run_window_size_q <= {window_size_hi_q, window_size_lo_q};
      end
      irq_status_q <= (irq_status_q & ~irq_clear) | irq_set;
      if (bready_i) bvalid_q <= 1'b0;
      if (write) begin
        bvalid_q <= 1'b1;
        bresp_q <= bresp_d;
        if (target_q.irq_enable) irq_enable_q <= 2'(merged(32'(irq_enable_q), wdata_q, mask));
        if (target_q.watchdog) watchdog_q <= merged(watchdog_q, wdata_q, mask);
        if (!queued_q) begin
          if (target_q.prog_base_lo) prog_base_lo_q <= merged(prog_base_lo_q, wdata_q, mask);
          if (target_q.prog_base_hi) prog_base_hi_q <= merged(prog_base_hi_q, wdata_q, mask);
          if (target_q.prog_words) prog_words_q <= merged(prog_words_q, wdata_q, mask);
          if (target_q.window_base_lo) window_base_lo_q <= merged(window_base_lo_q, wdata_q, mask);
          if (target_q.window_base_hi) window_base_hi_q <= merged(window_base_hi_q, wdata_q, mask);
          if (target_q.window_size_lo) window_size_lo_q <= merged(window_size_lo_q, wdata_q, mask);
          if (target_q.window_size_hi) window_size_hi_q <= merged(window_size_hi_q, wdata_q, mask);
        end
      end
    end
  end
  assign bvalid_o = bvalid_q;
  assign bresp_o = bresp_q;
  assign irq_o = (irq_status_q & irq_enable_q) != '0;
  assign prog_base_o = run_base_q;
  assign prog_words_o = run_words_q;
  assign window_base_o = run_window_base_q;
  assign window_size_o = run_window_size_q;
  assign watchdog_o = watchdog_q;

  always_ff @(posedge clk_i) begin
    if (awready_o) target_q <= target;
    if (wready_o) begin
      wdata_q <= wdata_i;
      wstrb_q <= wstrb_i;
    end
  end

  // ---- read ---------------------------------------------------------------------------------------------------------
  // A multiplexer of all words would be late from the pin: one word is selected in every block of them, 0 where the
  // address names none.
  localparam int unsigned BLOCKS = 4;
  localparam int unsigned BLOCK_BITS = 6;  // of an address, within a block
  typedef struct packed {
    logic        known;
    logic [31:0] word;
  } answer_t;
  answer_t [BLOCKS-1:0] answer_q;
  answer_t answer;
  logic [31:0] cycles_hi_q;  // of the cycle in which the low half was read
  logic rvalid_q, read;
  assign arready_o = rst_ni && !rvalid_q;
  assign read = arvalid_i && arready_o;

  function automatic answer_t answer_of(address_t address);
    answer_of = '{known: 1'b1, word: '0};
    case (address)
      CSR_ID: answer_of.word = CSR_ID_VALUE;
      CSR_VERSION: answer_of.word = CSR_VERSION_VALUE;
      CSR_SPEC_HASH_LO: answer_of.word = SPEC_HASH[31:0];
      CSR_SPEC_HASH_HI: answer_of.word = 32'(SPEC_HASH[43:32]);
      CSR_CTRL: ;
      CSR_STATUS: begin
        answer_of.word[CSR_STATUS_BUSY] = busy_i;
        answer_of.word[CSR_STATUS_DONE] = done_i;
        answer_of.word[CSR_STATUS_ERROR] = error_i;
        answer_of.word[CSR_STATUS_QUEUED] = queued_q;
        answer_of.word[CSR_STATUS_IDLE_FETCH+:ENGINES] = idle_i;
      end
      CSR_IRQ_ENABLE: answer_of.word = 32'(irq_enable_q);
      CSR_IRQ_STATUS: answer_of.word = 32'(irq_status_q);
      CSR_ERROR: begin
        answer_of.word[CSR_ERROR_CODE+:8] = error_code_i;
        answer_of.word[CSR_ERROR_ENGINE+:3] = error_engine_i;
      end
      CSR_ERROR_PC: answer_of.word = 32'(error_pc_i);
      CSR_PROG_BASE_LO: answer_of.word = prog_base_lo_q;
      CSR_PROG_BASE_HI: answer_of.word = prog_base_hi_q;
      CSR_PROG_WORDS: answer_of.word = prog_words_q;
      CSR_WINDOW_BASE_LO: answer_of.word = window_base_lo_q;
      CSR_WINDOW_BASE_HI: answer_of.word = window_base_hi_q;
      CSR_WINDOW_SIZE_LO: answer_of.word = window_size_lo_q;
      CSR_WINDOW_SIZE_HI: answer_of.word = window_size_hi_q;
      CSR_WATCHDOG: answer_of.word = watchdog_q;
      CSR_CYCLES_LO: answer_of.word = cycles_i[31:0];
      CSR_CYCLES_HI: answer_of.word = cycles_hi_q;
      CSR_AXI_READ_BEATS: answer_of.word = read_beats_i;
      CSR_AXI_WRITE_BEATS: answer_of.word = write_beats_i;
      CSR_MULTIPLYING: answer_of.word = multiplying_i;
      CSR_MEMORY_WAIT: answer_of.word = memory_waits_i;
      CSR_PROGRAMS: answer_of.word = programs_q;
      CSR_CAP_ARRAY: answer_of.word = {16'(MULTIPLIERS), 16'(UNITS)};
      CSR_CAP_LANES: answer_of.word = {16'(POST_LANES), 16'(WORD_CHANNELS)};
      CSR_CAP_BUS: answer_of.word = {16'(MAX_BURST), 16'(BUS_BYTES)};
      CSR_CAP_FEATURE_WORDS: answer_of.word = FEATURE_WORDS;
      CSR_CAP_WEIGHT_WORDS: answer_of.word = WEIGHT_WORDS;
      CSR_CAP_PARAM_WORDS: answer_of.word = PARAM_WORDS;
      CSR_CAP_RESIDUAL_WORDS: answer_of.word = RESIDUAL_WORDS;
      CSR_CAP_PSUM_WORDS: answer_of.word = PSUM_WORDS;
      CSR_CAP_OUTPUT_WORDS: answer_of.word = OUTPUT_WORDS;
      CSR_CAP_PRE_WORDS: answer_of.word = HAS_PRE ? PRE_WORDS : '0;
      CSR_CAP_TABLE_WORDS: answer_of.word = HAS_TABLE ? TABLE_WORDS : '0;
      CSR_CAP_MODULES: begin
        answer_of.word[CSR_CAP_MODULES_ACT] = HAS_ACT;
        answer_of.word[CSR_CAP_MODULES_POOL] = HAS_POOL;
        answer_of.word[CSR_CAP_MODULES_RESIDUAL] = HAS_RESIDUAL;
        answer_of.word[CSR_CAP_MODULES_PRODUCT] = HAS_PRODUCT;
        answer_of.word[CSR_CAP_MODULES_TABLE] = HAS_TABLE;
        answer_of.word[CSR_CAP_MODULES_PRELU] = HAS_PRELU;
        answer_of.word[CSR_CAP_MODULES_PRE] = HAS_PRE;
        answer_of.word[CSR_CAP_MODULES_DEPTHWISE] = HAS_DEPTHWISE;
        answer_of.word[CSR_CAP_MODULES_UPSAMPLE] = HAS_UPSAMPLE;
        answer_of.word[CSR_CAP_MODULES_KEEP] = HAS_KEEP;
        answer_of.word[CSR_CAP_MODULES_GATES] = HAS_GATES;
        answer_of.word[CSR_CAP_MODULES_NORM] = HAS_NORM;
        answer_of.word[CSR_CAP_MODULES_MAP_NORM] = HAS_NORM;
        answer_of.word[CSR_CAP_MODULES_ZEROES] = HAS_ZEROES;
      end
      CSR_CAP_IMAGE_WORDS: answer_of.word = HAS_UNFOLD ? IMAGE_WORDS : '0;
      CSR_CAP_NORM_WORDS: answer_of.word = HAS_NORM ? NORM_WORDS : '0;
      default: begin
        answer_of.known = 1'b0;
        for (int unsigned e = 0; e < ENGINES; e++) begin
          if (address == CSR_BUSY_FETCH + address_t'(4 * e)) begin
            answer_of.word = busy_cycles_i[e];
            answer_of.known = 1'b1;
          end
          if (address == CSR_STALL_FETCH + address_t'(4 * e)) begin
            answer_of.word = stall_cycles_i[e];
            answer_of.known = 1'b1;
          end
        end
      end
    endcase
  endfunction

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      rvalid_q <= 1'b0;
      answer_q <= '0;
      cycles_hi_q <= '0;
    end else begin
      if (rready_i) rvalid_q <= 1'b0;
      if (read) begin
        rvalid_q <= 1'b1;
        for (int unsigned b = 0; b < BLOCKS; b++) begin
          answer_q[b] <= (read_addr >> BLOCK_BITS != address_t'(b)) ? '0
              : answer_of(address_t'(b << BLOCK_BITS) | address_t'(read_addr[BLOCK_BITS-1:0]));
        end
        if (read_addr == CSR_CYCLES_LO) cycles_hi_q <= cycles_i[63:32];
      end
    end
  end
  always_comb begin
    answer = '0;
    for (int unsigned b = 0; b < BLOCKS; b++) answer |= answer_q[b];
  end
  assign rvalid_o = rvalid_q;
  assign rresp_o = answer.known ? OKAY : SLVERR;
  assign rdata_o = answer.word;

  `OPU_ASSERT_STATIC(BlocksHoldAll, 32'(CSR_CAP_NORM_WORDS) >> BLOCK_BITS < BLOCKS)
  `OPU_COVER(AnotherWindowIsQueued, queued_q && window_base_lo_q != run_window_base_q[31:0])
  `OPU_STABLE(AnswerStable, bvalid_o, bready_i, bresp_o)
  `OPU_STABLE(ReadStable, rvalid_o, rready_i, {rdata_o, rresp_o})

endmodule
