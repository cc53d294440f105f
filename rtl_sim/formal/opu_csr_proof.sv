// opu_csr keeps AXI4-Lite's handshake: every write is answered once, after its address and its data, every read once;
// answers are held until they are taken; what is ready depends on registers only and waits for the end of a reset. A
// stop or an abort comes of a written command, once, and so does a start, unless it is that of a queued program when
// the one before is done: that comes once. Program and window of the machine change only after a start, to what the
// registers hold then.
module opu_csr_proof
  import opu_pkg::*;
(
    input logic                     clk_i,
    input logic                     rst_ni,
    input logic [CSR_ADDR_BITS-1:0] awaddr_i,
    input logic                     awvalid_i,
    input logic [31:0]              wdata_i,
    input logic [3:0]               wstrb_i,
    input logic                     wvalid_i,
    input logic                     bready_i,
    input logic [CSR_ADDR_BITS-1:0] araddr_i,
    input logic                     arvalid_i,
    input logic                     rready_i,
    input logic                     busy_i,
    input logic                     done_i,
    input logic                     error_i,
    input logic [63:0]              cycles_i
);

  logic awready, wready, bvalid, arready, rvalid, start, stop, abort;
  logic [1:0] bresp, rresp;
  logic [31:0] rdata;
  logic [63:0] prog_base, window_base, window_size;
  logic [31:0] prog_words;
  logic [31:0] counters [5];
  assign counters = '{default: cycles_i[31:0]};

  opu_csr dut (
      .clk_i,
      .rst_ni,
      .awaddr_i,
      .awvalid_i,
      .awready_o     (awready),
      .wdata_i,
      .wstrb_i,
      .wvalid_i,
      .wready_o      (wready),
      .bresp_o       (bresp),
      .bvalid_o      (bvalid),
      .bready_i,
      .araddr_i,
      .arvalid_i,
      .arready_o     (arready),
      .rdata_o       (rdata),
      .rresp_o       (rresp),
      .rvalid_o      (rvalid),
      .rready_i,
      .irq_o         (),
      .start_o       (start),
      .stop_o        (stop),
      .abort_o       (abort),
      .prog_base_o   (prog_base),
      .prog_words_o  (prog_words),
      .window_base_o (window_base),
      .window_size_o (window_size),
      .watchdog_o    (),
      .busy_i,
      .done_i,
      .error_i,
      .idle_i        ('0),
      .error_code_i  (ERR_NONE),
      .error_engine_i('0),
      .error_pc_i    ('0),
      .cycles_i,
      .busy_cycles_i (counters),
      .stall_cycles_i(counters),
      .read_beats_i  ('0),
      .write_beats_i ('0),
      .multiplying_i ('0),
      .memory_waits_i('0)
  );

  logic [223:0] named, named_q, given_q;  // by the registers, and to the machine
  assign named = {
    dut.prog_base_hi_q, dut.prog_base_lo_q, dut.prog_words_q,
    dut.window_base_hi_q, dut.window_base_lo_q, dut.window_size_hi_q, dut.window_size_lo_q
  };

  logic commanded;  // a start that no queued program asks for
  assign commanded = start && !(dut.queued_q && done_i);

  // Taken and not answered.
  logic begun_q = 1'b0, read_q, answer_waits_q, data_wait_q, command_q, queued_q, started_q, held_q;
  logic [1:0] addresses_q, data_q, answer_q;
  logic [33:0] shown_q;
  always_ff @(posedge clk_i) begin
    begun_q <= 1'b1;
    answer_waits_q <= rst_ni && bvalid && !bready_i;
    answer_q <= bresp;
    data_wait_q <= rst_ni && rvalid && !rready_i;
    shown_q <= {rdata, rresp};
    command_q <= rst_ni && (commanded || stop || abort);
    queued_q <= dut.queued_q;
    started_q <= rst_ni && start;
    held_q <= rst_ni;
    named_q <= named;
    given_q <= {prog_base, prog_words, window_base, window_size};
    if (!rst_ni) begin
      {addresses_q, data_q, read_q} <= '0;
    end else begin
      addresses_q <= addresses_q + 2'(awvalid_i && awready) - 2'(bvalid && bready_i);
      data_q <= data_q + 2'(wvalid_i && wready) - 2'(bvalid && bready_i);
      read_q <= (arvalid_i && arready) || (read_q && !rready_i);
    end
  end

  always_comb begin
    assume (begun_q || !rst_ni);
    if (!rst_ni) assert (!awready && !wready && !arready);
    if (begun_q && rst_ni) begin
      assert (!bvalid || (addresses_q != '0 && data_q != '0));
      assert (addresses_q == 2'(!awready) + 2'(bvalid));
      assert (data_q == 2'(!wready) + 2'(bvalid));
      assert (rvalid == read_q && arready == !read_q);
      if (answer_waits_q) assert (bvalid && bresp == answer_q);
      if (data_wait_q) assert (rvalid && {rdata, rresp} == shown_q);
      if (commanded || stop || abort) assert (!awready && !wready && !bvalid);
      if (start) assert (!busy_i);
      if (start && started_q && !commanded) assert (dut.queued_q && !queued_q);
      if (held_q) assert ({prog_base, prog_words, window_base, window_size} == (started_q ? named_q : given_q));
      if (held_q && queued_q) assert (named == named_q);
      if (command_q) assert (bvalid && bresp == 2'b00);
    end
  end

endmodule
