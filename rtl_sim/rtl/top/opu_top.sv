// The machine: control registers, fetch, four engines with their queues and front ends, dependency counters, buffers,
// AXI ports. Wiring only.
//
//   s_axil --> opu_csr <--> opu_control            irq_o
//                  | start, program      | run, halt, reset
//                  v                     v
//             opu_fetch --words--> opu_issue --starts--> opu_engines --writes--> m_axi
//                  |                                          | reads
//                  +-------------> opu_read_arbiter <---------+ ---------------> m_axi
//
// rst_ni:   low for at least one clock edge, and may rise at any time (opu_reset).
// s_axil_*: AXI4-Lite slave, 32 bit (docs/registers.md). irq_o: level, see IRQ_STATUS.
// m_axi_*:  AXI4 master, INCR bursts inside 4 KB pages, read ids 0 (fetch) and 1 (load), write id 0.
`include "opu_assert.svh"

module opu_top
  import opu_pkg::*;
#(
    parameter int unsigned ADDRESS_BITS = 40
) (
    input  logic                     clk_i,
    input  logic                     rst_ni,
    output logic                     irq_o,

    input  logic [CSR_ADDR_BITS-1:0] s_axil_awaddr,
    input  logic [2:0]               s_axil_awprot,
    input  logic                     s_axil_awvalid,
    output logic                     s_axil_awready,
    input  logic [31:0]              s_axil_wdata,
    input  logic [3:0]               s_axil_wstrb,
    input  logic                     s_axil_wvalid,
    output logic                     s_axil_wready,
    output logic [1:0]               s_axil_bresp,
    output logic                     s_axil_bvalid,
    input  logic                     s_axil_bready,
    input  logic [CSR_ADDR_BITS-1:0] s_axil_araddr,
    input  logic [2:0]               s_axil_arprot,
    input  logic                     s_axil_arvalid,
    output logic                     s_axil_arready,
    output logic [31:0]              s_axil_rdata,
    output logic [1:0]               s_axil_rresp,
    output logic                     s_axil_rvalid,
    input  logic                     s_axil_rready,

    output logic                     m_axi_awid,
    output logic [ADDRESS_BITS-1:0]  m_axi_awaddr,
    output logic [7:0]               m_axi_awlen,
    output logic [2:0]               m_axi_awsize,
    output logic [1:0]               m_axi_awburst,
    output logic                     m_axi_awlock,
    output logic [3:0]               m_axi_awcache,
    output logic [2:0]               m_axi_awprot,
    output logic                     m_axi_awvalid,
    input  logic                     m_axi_awready,
    output logic [BUS_BYTES*8-1:0]   m_axi_wdata,
    output logic [BUS_BYTES-1:0]     m_axi_wstrb,
    output logic                     m_axi_wlast,
    output logic                     m_axi_wvalid,
    input  logic                     m_axi_wready,
    input  logic                     m_axi_bid,
    input  logic [1:0]               m_axi_bresp,
    input  logic                     m_axi_bvalid,
    output logic                     m_axi_bready,
    output logic                     m_axi_arid,
    output logic [ADDRESS_BITS-1:0]  m_axi_araddr,
    output logic [7:0]               m_axi_arlen,
    output logic [2:0]               m_axi_arsize,
    output logic [1:0]               m_axi_arburst,
    output logic                     m_axi_arlock,
    output logic [3:0]               m_axi_arcache,
    output logic [2:0]               m_axi_arprot,
    output logic                     m_axi_arvalid,
    input  logic                     m_axi_arready,
    input  logic                     m_axi_rid,
    input  logic [BUS_BYTES*8-1:0]   m_axi_rdata,
    input  logic [1:0]               m_axi_rresp,
    input  logic                     m_axi_rlast,
    input  logic                     m_axi_rvalid,
    output logic                     m_axi_rready
);

  localparam int unsigned ENGINES = 5;
  localparam int unsigned PC_BITS = 24;
  localparam int unsigned IN_FLIGHT = 4;

  `OPU_ASSERT_STATIC(BusWidth, BUS_BYTES >= 4 && BUS_BYTES <= 128 && BUS_BYTES == 1 << $clog2(BUS_BYTES))
  `OPU_ASSERT_STATIC(AddressWidth, ADDRESS_BITS >= 32 && ADDRESS_BITS <= 64)

  typedef logic [PC_BITS-1:0] pc_t;
  typedef logic [ADDRESS_BITS-1:0] address_t;

  logic rst_n;
  opu_reset u_reset (.clk_i, .rst_ni, .rst_no(rst_n));

  // ---- control ------------------------------------------------------------------------------------------------------
  logic start, stop, abort, engine_rst_n, run, halt, busy, done, error;
  logic [63:0] prog_base, window_base_full, window_size_full, cycles;
  logic [31:0] prog_words, watchdog, read_beats, write_beats, multiplying, memory_waits;
  logic [31:0] busy_cycles [ENGINES], stall_cycles [ENGINES];
  error_e error_code, fault_code [ENGINES];
  logic [2:0] error_engine;
  pc_t error_pc, fault_pc [ENGINES];
  logic [ENGINES-1:0] idle, engine_busy, engine_stall, retire, fault;

  opu_csr #(
      .ENGINES(ENGINES),
      .PC_BITS(PC_BITS)
  ) u_csr (
      .clk_i,
      .rst_ni        (rst_n),
      .awaddr_i      (s_axil_awaddr),
      .awvalid_i     (s_axil_awvalid),
      .awready_o     (s_axil_awready),
      .wdata_i       (s_axil_wdata),
      .wstrb_i       (s_axil_wstrb),
      .wvalid_i      (s_axil_wvalid),
      .wready_o      (s_axil_wready),
      .bresp_o       (s_axil_bresp),
      .bvalid_o      (s_axil_bvalid),
      .bready_i      (s_axil_bready),
      .araddr_i      (s_axil_araddr),
      .arvalid_i     (s_axil_arvalid),
      .arready_o     (s_axil_arready),
      .rdata_o       (s_axil_rdata),
      .rresp_o       (s_axil_rresp),
      .rvalid_o      (s_axil_rvalid),
      .rready_i      (s_axil_rready),
      .irq_o,
      .start_o       (start),
      .stop_o        (stop),
      .abort_o       (abort),
      .prog_base_o   (prog_base),
      .prog_words_o  (prog_words),
      .window_base_o (window_base_full),
      .window_size_o (window_size_full),
      .watchdog_o    (watchdog),
      .busy_i        (busy),
      .done_i        (done),
      .error_i       (error),
      .idle_i        (idle),
      .error_code_i  (error_code),
      .error_engine_i(error_engine),
      .error_pc_i    (error_pc),
      .cycles_i      (cycles),
      .busy_cycles_i (busy_cycles),
      .stall_cycles_i(stall_cycles),
      .read_beats_i  (read_beats),
      .write_beats_i (write_beats),
      .multiplying_i (multiplying),
      .memory_waits_i(memory_waits)
  );

  logic fetch_done, read_quiet, write_quiet, multiplies;
  logic [1:0] ar_valid, ar_ready, r_valid;           // of fetch, of load
  logic r_end, r_error_q;
  logic [BUS_BYTES*8-1:0] r_data_q;
  pc_t fetch_pc;

  opu_control #(
      .ENGINES(ENGINES),
      .PC_BITS(PC_BITS)
  ) u_control (
      .clk_i,
      .rst_ni        (rst_n),
      .start_i       (start),
      .stop_i        (stop),
      .abort_i       (abort),
      .watchdog_i    (watchdog),
      .engine_rst_no (engine_rst_n),
      .run_o         (run),
      .halt_o        (halt),
      .done_i        (fetch_done),
      .quiet_i       (read_quiet && write_quiet),
      .fetch_pc_i    (fetch_pc),
      .fault_i       (fault),
      .fault_code_i  (fault_code),
      .fault_pc_i    (fault_pc),
      .retire_i      (retire),
      .engine_busy_i (engine_busy),
      .engine_stall_i(engine_stall),
      .read_beat_i   (r_valid != '0),
      .write_beat_i  (m_axi_wvalid && m_axi_wready),
      .multiplies_i  (multiplies),
      .memory_wait_i ((!read_quiet && !m_axi_rvalid) || (m_axi_wvalid && !m_axi_wready)),
      .busy_o        (busy),
      .done_o        (done),
      .error_o       (error),
      .error_code_o  (error_code),
      .error_engine_o(error_engine),
      .error_pc_o    (error_pc),
      .cycles_o      (cycles),
      .busy_cycles_o (busy_cycles),
      .stall_cycles_o(stall_cycles),
      .read_beats_o  (read_beats),
      .write_beats_o (write_beats),
      .multiplying_o (multiplying),
      .memory_waits_o(memory_waits)
  );

  // The window starts at a page and has at most 4 GiB. Another one, a larger value of a HI register than fits, and a
  // window across the end of the bus' addresses make it empty: every access is then outside. opu_fetch checks that the
  // program starts at a multiple of 64 of it.
  address_t window_base;
  logic [32:0] window_size;
  logic [ADDRESS_BITS:0] window_end;
  logic window_usable;
  assign window_usable = (window_size_full >> 32 == '0 || window_size_full == 64'h1_0000_0000) && (prog_base >> 32) == '0
      && (window_base_full >> ADDRESS_BITS) == '0 && window_base_full[11:0] == '0 && window_end <= {1'b1, {ADDRESS_BITS{1'b0}}};
  assign window_base = {window_base_full[ADDRESS_BITS-1:12], 12'd0};
  assign window_end = {1'b0, window_base} + (ADDRESS_BITS + 1)'(window_size_full[32:0]);
  // Stable from the first cycle of a run on: program and window change two cycles before, and not during one.
  always_ff @(posedge clk_i) window_size <= window_usable ? window_size_full[32:0] : '0;

  // ---- read side of the bus -----------------------------------------------------------------------------------------
  address_t ar_addr [2];
  logic [8:0] ar_beats [2];
  logic bus_ar_valid;

  always_ff @(posedge clk_i) begin                   // next to r_valid
    r_error_q <= m_axi_rresp[1];
    r_data_q <= m_axi_rdata;
  end

  opu_read_arbiter #(
      .ADDRESS_BITS(ADDRESS_BITS),
      .OUTSTANDING (OUTSTANDING)
  ) u_read_arbiter (
      .clk_i,
      .rst_ni        (engine_rst_n),
      .quiet_o       (read_quiet),
      .ar_valid_i    (ar_valid),
      .ar_ready_o    (ar_ready),
      .ar_addr_i     (ar_addr),
      .ar_beats_i    (ar_beats),
      .r_valid_o     (r_valid),
      .r_end_o       (r_end),
      .bus_ar_valid_o(bus_ar_valid),
      .bus_ar_ready_i(m_axi_arready),
      .bus_ar_id_o   (m_axi_arid),
      .bus_ar_addr_o (m_axi_araddr),
      .bus_ar_len_o  (m_axi_arlen),
      .bus_r_valid_i (m_axi_rvalid),
      .bus_r_id_i    (m_axi_rid),
      .bus_r_last_i  (m_axi_rlast)
  );

  // A reset, even of one cycle, holds all valids low; engines and arbiter are reset in the cycle after it.
  assign m_axi_arvalid = bus_ar_valid && rst_n;
  assign m_axi_arsize = 3'($clog2(BUS_BYTES));
  assign m_axi_arburst = 2'b01;
  assign {m_axi_arlock, m_axi_arprot} = '0;
  assign m_axi_arcache = 4'b0011;
  assign m_axi_rready = 1'b1;

  // ---- fetch --------------------------------------------------------------------------------------------------------
  logic [ENGINES-1:1] push_valid, push_ready;
  logic [31:0] push_word;
  pc_t push_pc;

  opu_fetch #(
      .ADDRESS_BITS(ADDRESS_BITS),
      .PC_BITS     (PC_BITS),
      .ENGINES     (ENGINES)
  ) u_fetch (
      .clk_i,
      .rst_ni       (engine_rst_n),
      .halt_i       (halt),
      .run_i        (run),
      .window_base_i(window_base),
      .window_size_i(window_size),
      .prog_base_i  (prog_base[31:0]),
      .prog_words_i (prog_words),
      .others_idle_i(&idle[ENGINES-1:1]),
      .done_o       (fetch_done),
      .busy_o       (engine_busy[ENGINE_FETCH]),
      .stall_o      (engine_stall[ENGINE_FETCH]),
      .retire_o     (retire[ENGINE_FETCH]),
      .pc_o         (fetch_pc),
      .fault_o      (fault[ENGINE_FETCH]),
      .fault_code_o (fault_code[ENGINE_FETCH]),
      .push_valid_o (push_valid),
      .push_ready_i (push_ready),
      .push_word_o  (push_word),
      .push_pc_o    (push_pc),
      .ar_valid_o   (ar_valid[0]),
      .ar_ready_i   (ar_ready[0]),
      .ar_addr_o    (ar_addr[0]),
      .ar_beats_o   (ar_beats[0]),
      .r_valid_i    (r_valid[0]),
      .r_data_i     (r_data_q),
      .r_error_i    (r_error_q)
  );
  assign fault_pc[ENGINE_FETCH] = fetch_pc;
  assign idle[ENGINE_FETCH] = !run || fetch_done;

  // ---- instruction issue --------------------------------------------------------------------------------------------
  logic [ENGINES-1:1] set_valid, set_legal, start_valid, start_ready, done_valid, done_ready;
  logic [5:0] set_index [ENGINES];
  logic [21:0] set_value [ENGINES];
  logic [3:0] start_op [ENGINES];
  pc_t start_pc [ENGINES];
  pc_t latest_pc [ENGINES];
  logic [ENGINES-1:1] word_fault, engine_fault;
  pc_t word_fault_pc [ENGINES];
  error_e engine_fault_code [ENGINES];
  pc_t engine_fault_pc [ENGINES];

  opu_issue #(
      .ENGINES  (ENGINES),
      .PC_BITS  (PC_BITS),
      .IN_FLIGHT(IN_FLIGHT)
  ) u_issue (
      .clk_i,
      .rst_ni       (engine_rst_n),
      .halt_i       (halt),
      .push_valid_i (push_valid),
      .push_ready_o (push_ready),
      .push_word_i  (push_word),
      .push_pc_i    (push_pc),
      .set_valid_o  (set_valid),
      .set_index_o  (set_index),
      .set_value_o  (set_value),
      .set_legal_i  (set_legal),
      .start_valid_o(start_valid),
      .start_ready_i(start_ready),
      .start_op_o   (start_op),
      .start_pc_o   (start_pc),
      .done_valid_i (done_valid),
      .done_ready_o (done_ready),
      .idle_o       (idle[ENGINES-1:1]),
      .busy_o       (engine_busy[ENGINES-1:1]),
      .stall_o      (engine_stall[ENGINES-1:1]),
      .retire_o     (retire[ENGINES-1:1]),
      .latest_pc_o  (latest_pc),
      .fault_o      (word_fault),
      .fault_pc_o   (word_fault_pc)
  );

  for (genvar e = 1; e < int'(ENGINES); e++) begin : g_fault
    assign fault[e] = engine_fault[e] || word_fault[e];
    assign fault_code[e] = engine_fault[e] ? engine_fault_code[e] : ERR_ILLEGAL_INSTRUCTION;
    assign fault_pc[e] = engine_fault[e] ? engine_fault_pc[e] : word_fault_pc[e];
  end

  // ---- engines ------------------------------------------------------------------------------------------------------
  logic [8:0] aw_beats;
  logic aw_valid, w_valid;

  opu_engines #(
      .ADDRESS_BITS(ADDRESS_BITS),
      .ENGINES     (ENGINES),
      .PC_BITS     (PC_BITS),
      .IN_FLIGHT   (IN_FLIGHT)
  ) u_engines (
      .clk_i,
      .rst_ni       (engine_rst_n),
      .halt_i       (halt),
      .window_base_i(window_base),
      .window_size_i(window_size),
      .set_valid_i  (set_valid),
      .set_index_i  (set_index),
      .set_value_i  (set_value),
      .set_legal_o  (set_legal),
      .start_valid_i(start_valid),
      .start_ready_o(start_ready),
      .start_op_i   (start_op),
      .start_pc_i   (start_pc),
      .done_valid_o (done_valid),
      .done_ready_i (done_ready),
      .latest_pc_i  (latest_pc),
      .fault_o      (engine_fault),
      .fault_code_o (engine_fault_code),
      .fault_pc_o   (engine_fault_pc),
      .multiplies_o (multiplies),
      .ar_valid_o   (ar_valid[1]),
      .ar_ready_i   (ar_ready[1]),
      .ar_addr_o    (ar_addr[1]),
      .ar_beats_o   (ar_beats[1]),
      .r_valid_i    (r_valid[1]),
      .r_data_i     (r_data_q),
      .r_error_i    (r_error_q),
      .r_end_i      (r_end),
      .write_quiet_o(write_quiet),
      .aw_valid_o   (aw_valid),
      .aw_ready_i   (m_axi_awready),
      .aw_addr_o    (m_axi_awaddr),
      .aw_beats_o   (aw_beats),
      .w_valid_o    (w_valid),
      .w_ready_i    (m_axi_wready),
      .w_data_o     (m_axi_wdata),
      .w_strobe_o   (m_axi_wstrb),
      .w_last_o     (m_axi_wlast),
      .b_valid_i    (m_axi_bvalid),
      .b_error_i    (m_axi_bresp[1])
  );

  assign m_axi_awvalid = aw_valid && rst_n;
  assign m_axi_wvalid = w_valid && rst_n;
  assign {m_axi_awid, m_axi_awlock, m_axi_awprot} = '0;
  assign m_axi_awlen = 8'(aw_beats - 9'd1);
  assign m_axi_awsize = 3'($clog2(BUS_BYTES));
  assign m_axi_awburst = 2'b01;
  assign m_axi_awcache = 4'b0011;
  assign m_axi_bready = 1'b1;

  // Protection and locks are not used, answers carry one id per direction, and EXOKAY cannot come.
  logic unused;
  assign unused = &{s_axil_awprot, s_axil_arprot, m_axi_bid, m_axi_bresp[0], m_axi_rresp[0],
                    engine_fault_code[0], engine_fault_pc[0],
                    word_fault_pc[0]};

  // ---- promises to the bus: only an abort, which resets the engines, withdraws a valid that waits for ready.
  `OPU_ASSERT(ReadAddressStable, m_axi_arvalid && !m_axi_arready && engine_rst_n
      |=> m_axi_arvalid && $stable({m_axi_arid, m_axi_araddr, m_axi_arlen}))
  `OPU_ASSERT(WriteAddressStable, m_axi_awvalid && !m_axi_awready && engine_rst_n
      |=> m_axi_awvalid && $stable({m_axi_awaddr, m_axi_awlen}))
  `OPU_ASSERT(WriteDataStable, m_axi_wvalid && !m_axi_wready && engine_rst_n
      |=> m_axi_wvalid && $stable({m_axi_wdata, m_axi_wstrb, m_axi_wlast}))
  `OPU_ASSERT(NothingOutsideARun, m_axi_arvalid || m_axi_awvalid || m_axi_wvalid |-> busy)
  // Of the bus. Outside of a run answers of an aborted one may arrive late.
  `OPU_ASSERT(ProgramAndWindowStable, run |=> !run || $stable({prog_base, prog_words, window_base, window_size}))
  `OPU_ASSERT(DataAreExpected, m_axi_rvalid && busy |-> !read_quiet)
  `OPU_ASSERT(ResponseIsExpected, m_axi_bvalid && busy |-> !write_quiet)

  // Every way in which an engine can wait.
  for (genvar e = 0; e < int'(ENGINES); e++) begin : g_stalls
    `OPU_COVER(EngineStalls, engine_busy[e] && engine_stall[e])
    if (e != int'(ENGINE_FETCH)) begin : g_tokens
      `OPU_COVER(WaitsForToken, start_valid[e] && !start_ready[e])
    end
  end
  `OPU_COVER(ReadAddressWaits, m_axi_arvalid && !m_axi_arready)
  `OPU_COVER(WriteAddressWaits, m_axi_awvalid && !m_axi_awready)
  `OPU_COVER(WriteDataWaits, m_axi_wvalid && !m_axi_wready)
  `OPU_COVER(FetchWaitsForQueues, (push_valid & ~push_ready) != '0)

endmodule
