// AXI4 slave memory for simulation, with settable latency and bandwidth. The image is a mapped file (opu_image.cpp).
//
//   ar --> open reads  --latency_i, rate_i--> r            (both directions share one budget of bytes per cycle)
//   aw --> open writes --+
//   w  --> beats --------+--> image --latency_i--> b
//
// latency_i:  cycles from the handshake of ar to that of its first r beat, and from that of the last w beat to that of b, when
//             nothing else delays it; at least 2.
// rate_i:     bytes per cycle times 256, one budget for read and written beats; at most one beat of unused budget is saved.
//             When both directions want the last of it they alternate.
// Reads and writes are answered in the order of their addresses. A beat outside of the image: DECERR.
// orders_i:   0: w is taken after its aw, which is what the cycle engine counts on. Otherwise a seed: of every burst it is drawn
//             whether aw is taken first, waits for the first beat or for the last one, or neither waits for the other.
// ddr_i:      1: reads and writes move a beat a cycle each, but no beat of a read before a DDR memory has it, and no write is taken
//             before the memory's controller has a slot for it (opu_ddr.cpp). cycle_i counts from the start of a program, which
//             finds all banks closed.
// Only what the machine's port uses: INCR bursts of full beats, responses in order.
`include "opu_assert.svh"

module opu_axi_memory #(
    parameter int unsigned BUS_BYTES = 8,
    parameter int unsigned ADDRESS_BITS = 40,
    parameter int unsigned DEPTH = 64           // open bursts per direction
) (
    input  logic                    clk_i,
    input  logic                    rst_ni,
    input  int unsigned             latency_i,
    input  int unsigned             rate_i,
    input  int unsigned             orders_i,
    input  bit                      ddr_i,
    input  logic [63:0]             cycle_i,

    input  logic                    awid_i,
    input  logic [ADDRESS_BITS-1:0] awaddr_i,
    input  logic [7:0]              awlen_i,
    input  logic                    awvalid_i,
    output logic                    awready_o,
    input  logic [BUS_BYTES*8-1:0]  wdata_i,
    input  logic [BUS_BYTES-1:0]    wstrb_i,
    input  logic                    wlast_i,
    input  logic                    wvalid_i,
    output logic                    wready_o,
    output logic                    bid_o,
    output logic [1:0]              bresp_o,
    output logic                    bvalid_o,
    input  logic                    bready_i,
    input  logic                    arid_i,
    input  logic [ADDRESS_BITS-1:0] araddr_i,
    input  logic [7:0]              arlen_i,
    input  logic                    arvalid_i,
    output logic                    arready_o,
    output logic                    rid_o,
    output logic [BUS_BYTES*8-1:0]  rdata_o,
    output logic [1:0]              rresp_o,
    output logic                    rlast_o,
    output logic                    rvalid_o,
    input  logic                    rready_i
);

  import "DPI-C" function int opu_image_read(
      input longint address, input int bytes, output bit [BUS_BYTES*8-1:0] data);
  import "DPI-C" function int opu_image_write(
      input longint address, input int bytes, input bit [BUS_BYTES*8-1:0] data, input bit [BUS_BYTES-1:0] strobes);

  import "DPI-C" function void opu_ddr_reset();
  import "DPI-C" function void opu_ddr_read(input longint cycle, input longint address, input int beats, input int bus);
  import "DPI-C" function int opu_ddr_due(input longint cycle);
  import "DPI-C" function void opu_ddr_take();
  import "DPI-C" function int opu_ddr_room(input longint cycle);
  import "DPI-C" function void opu_ddr_write(input longint cycle, input longint address, input int beats, input int bus);

  localparam int unsigned INDEX_BITS = $clog2(DEPTH);
  localparam logic [1:0] OKAY = 2'b00;
  localparam logic [1:0] DECERR = 2'b11;
  localparam int unsigned BEAT_COST = BUS_BYTES * 256;

  typedef logic [INDEX_BITS-1:0] index_t;

  localparam longint DDR_CYCLE = 64'd1;  // the cycle engine counts from the cycle in which the machine starts
  int unsigned now, budget, rate;
  longint ddr_now, first;
  bit write_first;

  // Open bursts as circular buffers: next entry to fill, next to serve, number of entries.
  longint ar_addr [DEPTH];
  int unsigned ar_left [DEPTH];
  int unsigned ar_time [DEPTH];
  logic ar_id [DEPTH];
  index_t ar_tail, ar_head;
  int unsigned ar_count;
  longint aw_addr [DEPTH];
  int unsigned aw_left [DEPTH];
  int unsigned aw_beats [DEPTH];
  logic aw_id [DEPTH];
  index_t aw_tail, aw_head;
  int unsigned aw_count;
  int unsigned b_time [DEPTH];
  logic b_id [DEPTH];
  logic [1:0] b_resp [DEPTH];
  index_t b_tail, b_head;
  int unsigned b_count;
  logic [1:0] worst;

  bit [BUS_BYTES*8-1:0] beat;
  bit want_read, want_write;

  // Orders that are drawn: the burst that the next aw and the next w belong to, the latter's beats so far, and beats that wait
  // for their address.
  typedef enum bit [1:0] {
    FREE,
    ADDRESS_FIRST,
    AFTER_FIRST_BEAT,
    AFTER_LAST_BEAT
  } order_e;
  typedef struct packed {
    logic [BUS_BYTES*8-1:0] data;
    logic [BUS_BYTES-1:0]   strobes;
    logic                   last;
  } beat_t;
  localparam int unsigned BEATS = 512;  // two of the longest bursts
  int unsigned aw_burst, w_burst, w_beats;
  beat_t waiting [BEATS];
  beat_t due;
  int unsigned waiting_tail, waiting_head;
  bit early;

  function automatic order_e order(int unsigned burst);
    automatic int unsigned mixed = (burst + orders_i) * 32'h9E37_79B1;
    mixed = (mixed ^ (mixed >> 15)) * 32'h85EB_CA77;
    order = order_e'(mixed[31:30]);
  endfunction

  // An address may precede its data by bursts, or follow them.
  function automatic bit takes_address();
    case (order(aw_burst))
      AFTER_FIRST_BEAT: takes_address = signed'(w_burst - aw_burst) > 0 || (w_burst == aw_burst && w_beats != 0);
      AFTER_LAST_BEAT: takes_address = signed'(w_burst - aw_burst) > 0;
      default: takes_address = 1'b1;
    endcase
  endfunction

  function automatic bit takes_data();
    if (orders_i == 0 || order(w_burst) == ADDRESS_FIRST) takes_data = signed'(aw_burst - w_burst) > 0;
    else takes_data = waiting_tail - waiting_head < BEATS - 1;
  endfunction

  // Behavioural: state in blocking variables of this one block, outputs in registers.
  /* verilator lint_off BLKSEQ */
  always @(posedge clk_i) begin
    if (!rst_ni) begin
      now = 0;
      budget = 0;
      write_first = 1'b0;
      ar_tail = '0;
      ar_head = '0;
      ar_count = 0;
      aw_tail = '0;
      aw_head = '0;
      aw_count = 0;
      b_tail = '0;
      b_head = '0;
      b_count = 0;
      worst = OKAY;
      aw_burst = 0;
      w_burst = 0;
      w_beats = 0;
      waiting_tail = 0;
      waiting_head = 0;
      early = 1'b0;
      awready_o <= 1'b0;
      wready_o <= 1'b0;
      bvalid_o <= 1'b0;
      arready_o <= 1'b0;
      rvalid_o <= 1'b0;
    end else begin
      now = now + 1;
      ddr_now = longint'(cycle_i) + DDR_CYCLE;
      if (ddr_i && cycle_i == '0) opu_ddr_reset();
      rate = ddr_i ? 2 * BEAT_COST : rate_i;
      budget = budget + rate;
      // What was handed out for a write beat that did not come (wready_o without wvalid_i) is still set aside.
      if (budget > BEAT_COST + rate) budget = BEAT_COST + rate;

      if (wvalid_i && wready_o) begin
        waiting[waiting_tail % BEATS] = '{data: wdata_i, strobes: wstrb_i, last: wlast_i};
        waiting_tail = waiting_tail + 1;
        w_beats = w_beats + 1;
        if (w_burst == aw_burst && !early && !(awvalid_i && awready_o)) begin
          early = 1'b1;
          $display("write data are taken before their address");
        end
        if (wlast_i) begin
          w_burst = w_burst + 1;
          w_beats = 0;
        end
      end

      // Beats after this address are those of an earlier cycle, or this one's when the address came before.
      while (waiting_head != waiting_tail && aw_count != 0) begin
        due = waiting[waiting_head % BEATS];
        waiting_head = waiting_head + 1;
        if (opu_image_write(aw_addr[aw_head], int'(BUS_BYTES), due.data, due.strobes) == 0) worst = DECERR;
        aw_addr[aw_head] = aw_addr[aw_head] + longint'(BUS_BYTES);
        if (due.last != (aw_left[aw_head] == 0)) $error("wlast does not mark the last beat");
        aw_left[aw_head] = aw_left[aw_head] - 1;
        if (due.last) begin
          if (ddr_i) begin
            first = aw_addr[aw_head] - longint'(BUS_BYTES * aw_beats[aw_head]);
            opu_ddr_write(ddr_now, first, int'(aw_beats[aw_head]), int'(BUS_BYTES));
          end
          b_time[b_tail] = now + latency_i - 1;
          b_id[b_tail] = aw_id[aw_head];
          b_resp[b_tail] = worst;
          b_tail = b_tail + index_t'(1);
          b_count = b_count + 1;
          worst = OKAY;
          aw_head = aw_head + index_t'(1);
          aw_count = aw_count - 1;
        end
      end

      if (awvalid_i && awready_o) begin
        aw_addr[aw_tail] = longint'(awaddr_i);
        aw_left[aw_tail] = 32'(awlen_i);
        aw_beats[aw_tail] = 32'(awlen_i) + 32'd1;
        aw_id[aw_tail] = awid_i;
        aw_tail = aw_tail + index_t'(1);
        aw_count = aw_count + 1;
        aw_burst = aw_burst + 1;
      end

      // Room on r and on w for the next cycle; a beat reserved for w remains reserved until it comes.
      want_read = ar_count != 0 && (!rvalid_o || rready_i) && (ddr_i ? opu_ddr_due(ddr_now) != 0 : now >= ar_time[ar_head]);
      want_write = takes_data() && (!wready_o || wvalid_i) && (!ddr_i || opu_ddr_room(ddr_now) != 0);
      if (rvalid_o && rready_i) rvalid_o <= 1'b0;
      if (wready_o && wvalid_i) wready_o <= 1'b0;
      if (want_write && write_first && budget >= BEAT_COST) begin
        wready_o <= 1'b1;
        budget = budget - BEAT_COST;
        write_first = 1'b0;
        want_write = 1'b0;
      end
      if (want_read && budget >= BEAT_COST) begin
        rvalid_o <= 1'b1;
        rid_o <= ar_id[ar_head];
        rresp_o <= opu_image_read(ar_addr[ar_head], int'(BUS_BYTES), beat) != 0 ? OKAY : DECERR;
        rdata_o <= beat;
        rlast_o <= ar_left[ar_head] == 0;
        budget = budget - BEAT_COST;
        if (ddr_i) opu_ddr_take();
        write_first = 1'b1;
        ar_addr[ar_head] = ar_addr[ar_head] + longint'(BUS_BYTES);
        if (ar_left[ar_head] == 0) begin
          ar_head = ar_head + index_t'(1);
          ar_count = ar_count - 1;
        end else begin
          ar_left[ar_head] = ar_left[ar_head] - 1;
        end
      end
      if (want_write && budget >= BEAT_COST) begin
        wready_o <= 1'b1;
        budget = budget - BEAT_COST;
        write_first = 1'b0;
      end

      if (arvalid_i && arready_o) begin
        ar_addr[ar_tail] = longint'(araddr_i);
        ar_left[ar_tail] = 32'(arlen_i);
        ar_id[ar_tail] = arid_i;
        ar_time[ar_tail] = now + latency_i - 1;
        if (ddr_i) opu_ddr_read(ddr_now, longint'(araddr_i), int'(32'(arlen_i) + 32'd1), int'(BUS_BYTES));
        ar_tail = ar_tail + index_t'(1);
        ar_count = ar_count + 1;
      end
      arready_o <= ar_count < DEPTH;

      if (bvalid_o && bready_i) bvalid_o <= 1'b0;
      if (b_count != 0 && now >= b_time[b_head] && (!bvalid_o || bready_i)) begin
        bvalid_o <= 1'b1;
        bid_o <= b_id[b_head];
        bresp_o <= b_resp[b_head];
        b_head = b_head + index_t'(1);
        b_count = b_count - 1;
      end
      awready_o <= aw_count + b_count < DEPTH && (orders_i == 0 || takes_address());
    end
  end
  /* verilator lint_on BLKSEQ */

  `OPU_STABLE(WriteAddressStable, awvalid_i, awready_o, {awid_i, awaddr_i, awlen_i})
  `OPU_STABLE(WriteDataStable, wvalid_i, wready_o, {wdata_i, wstrb_i, wlast_i})
  `OPU_STABLE(WriteAnswerStable, bvalid_o, bready_i, {bid_o, bresp_o})
  `OPU_STABLE(ReadAddressStable, arvalid_i, arready_o, {arid_i, araddr_i, arlen_i})
  `OPU_STABLE(ReadDataStable, rvalid_o, rready_i, {rid_o, rdata_o, rresp_o, rlast_o})

endmodule
