// AXI4 slave and controller of one SDR SDRAM, 16 bits wide, 32 MB (4 banks of 8,192 rows of 512 columns), CAS latency 2.
//
// Bus: INCR bursts of full beats inside 4 KB, beats aligned, whatever ready does; data of a write may come before their address.
//      Bursts are done one after the other, reads and writes alternate where both wait; answers in the order of the addresses, b
//      when the last word has been sent to the memory. Addresses wrap at 32 MB: the master must not exceed them.
// Memory: every word is a command of its own in a row that remains open, so that 2 bytes pass in a cycle; a burst is left for a
//      refresh and continues after it. Byte address: row 24:12, bank 11:10, column 9:1.
// Pins: registers, to be connected to the pads through one register each; the memory has a clock of its own, a part of a cycle
//      late; dq_i, through a register at the pad, shows a word READ_DELAY cycles after the read is on the pins.
//
//   ar, aw --> [next] --> [burst] --> commands --> [pins] --> memory
//   w -------> [next] --> [beat] ---- 16 bits ----> [dq_o] ------^
//   r <------- [out] <--- FIFO <--- [beat] <--- dq_i, by the tags of the reads
//
// From address to the first beat, row open: READ_DELAY + words of a beat + 6 cycles.
`include "opu_assert.svh"

module sdram_controller #(
    parameter int unsigned CLOCK_KHZ = 60_000,
    parameter int unsigned BUS_BYTES = 8,
    parameter int unsigned ADDRESS_BITS = 40,
    parameter int unsigned ID_BITS = 2,
    parameter int unsigned READ_DELAY = 3,
    parameter int unsigned POWER_UP_NS = 200_000  // shorter in simulation
) (
    input  logic                    clk_i,
    input  logic                    rst_ni,

    input  logic [ID_BITS-1:0]      awid_i,
    input  logic [ADDRESS_BITS-1:0] awaddr_i,
    input  logic [7:0]              awlen_i,
    input  logic                    awvalid_i,
    output logic                    awready_o,
    input  logic [BUS_BYTES*8-1:0]  wdata_i,
    input  logic [BUS_BYTES-1:0]    wstrb_i,
    input  logic                    wlast_i,
    input  logic                    wvalid_i,
    output logic                    wready_o,
    output logic [ID_BITS-1:0]      bid_o,
    output logic                    bvalid_o,
    input  logic                    bready_i,
    input  logic [ID_BITS-1:0]      arid_i,
    input  logic [ADDRESS_BITS-1:0] araddr_i,
    input  logic [7:0]              arlen_i,
    input  logic                    arvalid_i,
    output logic                    arready_o,
    output logic [ID_BITS-1:0]      rid_o,
    output logic [BUS_BYTES*8-1:0]  rdata_o,
    output logic                    rlast_o,
    output logic                    rvalid_o,
    input  logic                    rready_i,

    output logic                    cke_o,
    output logic [2:0]              command_o,  // RAS, CAS, WE, active low; chip select is constant
    output logic [1:0]              ba_o,
    output logic [12:0]             a_o,
    output logic [1:0]              dqm_o,
    output logic [15:0]             dq_o,
    output logic                    dq_oe_o,
    input  logic [15:0]             dq_i
);

  // ---- times: the slowest of what the board has been sold with (MT48LC16M16A2-75, IS42S16160G-7, AS4C16M16SA-7), rounded up ---
  function automatic int unsigned cycles(int unsigned ns);
    return (ns * (CLOCK_KHZ / 1000 + 1) + 999) / 1000;
  endfunction
  function automatic int unsigned at_least(int unsigned least, int unsigned cycles_needed);
    return cycles_needed < least ? least : cycles_needed;
  endfunction
  localparam int unsigned T_RP = at_least(1, cycles(20));
  localparam int unsigned T_RCD = at_least(1, cycles(20));
  localparam int unsigned T_RAS = at_least(2, cycles(50));   // with T_RP more than tRC
  localparam int unsigned T_RFC = at_least(2, cycles(70));
  localparam int unsigned T_WR = at_least(2, cycles(15));
  localparam int unsigned T_MRD = 2;
  localparam int unsigned REFRESH = CLOCK_KHZ / 1000 * 7_812 / 1000 - 24;  // what waits for a row to be closed is in the 24
  localparam int unsigned POWER_UP = cycles(POWER_UP_NS);
  localparam int unsigned CAS_LATENCY = 2;
  localparam int unsigned TURN = CAS_LATENCY + 2;  // from a read to a write: the memory has let go of the data

  localparam int unsigned WORDS = BUS_BYTES / 2;  // of a beat
  localparam int unsigned WORD_BITS = $clog2(WORDS);
  localparam int unsigned FIFO = 16;  // beats that wait for r
  localparam logic [12:0] MODE = {6'd0, 3'(CAS_LATENCY), 4'd0};  // bursts of one word

  `OPU_ASSERT_STATIC(Beats, BUS_BYTES >= 4 && BUS_BYTES == 1 << $clog2(BUS_BYTES))
  `OPU_ASSERT_STATIC(Latency2, CLOCK_KHZ <= 100_000)

  typedef enum logic [2:0] {
    MODE_SET  = 3'b000,
    REFRESHED = 3'b001,
    PRECHARGE = 3'b010,
    ACTIVATE  = 3'b011,
    WRITE     = 3'b100,
    READ      = 3'b101,
    NOTHING   = 3'b111
  } command_e;

  typedef struct packed {
    logic               write;
    logic [ID_BITS-1:0] id;
    logic [23:0]        word;   // next one
    logic [7:0]         left;   // beats after this one
  } burst_t;

  // ---- bursts: the one that is worked on and the next --------------------------------------------------------------------------
  burst_t burst_q, next_q;
  logic active_q, next_valid_q, write_first_q;
  logic take_write, burst_done, issue, last_word;

  // Ready of either aw or ar is high when `next` is empty.
  assign take_write = awvalid_i && (write_first_q || !arvalid_i);
  assign awready_o = !next_valid_q && take_write;
  assign arready_o = !next_valid_q && !take_write;
  assign last_word = &burst_q.word[WORD_BITS-1:0];
  assign burst_done = issue && last_word && burst_q.left == '0;

  always_ff @(posedge clk_i) begin
    if (!next_valid_q) begin
      if (take_write) next_q <= '{write: 1'b1, id: awid_i, word: awaddr_i[24:1], left: awlen_i};
      else next_q <= '{write: 1'b0, id: arid_i, word: araddr_i[24:1], left: arlen_i};
      next_valid_q <= awvalid_i || arvalid_i;
      if (awvalid_i || arvalid_i) write_first_q <= !take_write;
    end
    if (!active_q || burst_done) begin
      burst_q <= next_q;
      active_q <= next_valid_q;
      if (next_valid_q) next_valid_q <= 1'b0;
    end else if (issue) begin
      burst_q.word <= burst_q.word + 24'd1;
      if (last_word) burst_q.left <= burst_q.left - 8'd1;
    end
    if (!rst_ni) begin
      active_q <= 1'b0;
      next_valid_q <= 1'b0;
      write_first_q <= 1'b0;
    end
  end

  // ---- data to be written: the beat that is worked on and the next ------------------------------------------------------------
  logic [BUS_BYTES*8-1:0] wdata_q, wnext_q;
  logic [BUS_BYTES-1:0] wstrb_q, wnext_strb_q;
  logic w_valid_q, wnext_valid_q;
  assign wready_o = !wnext_valid_q;

  always_ff @(posedge clk_i) begin
    if (issue && burst_q.write) begin
      wdata_q <= wdata_q >> 16;
      wstrb_q <= wstrb_q >> 2;
    end
    if (!w_valid_q || (issue && burst_q.write && last_word)) begin
      wdata_q <= wnext_q;
      wstrb_q <= wnext_strb_q;
      w_valid_q <= wnext_valid_q;
      wnext_valid_q <= 1'b0;
    end
    if (wready_o) begin
      wnext_q <= wdata_i;
      wnext_strb_q <= wstrb_i;
      wnext_valid_q <= wvalid_i;
    end
    if (!rst_ni) begin
      w_valid_q <= 1'b0;
      wnext_valid_q <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (bready_i) bvalid_o <= 1'b0;
    if (burst_done && burst_q.write) begin
      bvalid_o <= 1'b1;
      bid_o <= burst_q.id;
    end
    if (!rst_ni) bvalid_o <= 1'b0;
  end

  // ---- commands ----------------------------------------------------------------------------------------------------------------
  // wait_q: until the next command; ras_q, turn_q: until a row may be closed, and a word written. Each is for all banks.
  logic [$clog2(POWER_UP + 1)-1:0] wait_q;
  logic [$clog2(T_RAS + T_WR + 1)-1:0] ras_q;
  logic [$clog2(TURN + 1)-1:0] turn_q;
  logic [$clog2(REFRESH + 1)-1:0] refresh_q;
  logic refresh_due_q, ready_q, closable_q, writable_q;
  logic [3:0] open_q, start_q;  // start_q: commands of the start, to 0
  logic [12:0] row_q [4];
  logic room_q;  // for a beat that is read

  logic [12:0] row;
  logic [1:0] bank;
  logic [8:0] column;
  logic hit, possible;
  assign {row, bank, column} = burst_q.word;
  assign hit = open_q[bank] && row_q[bank] == row;
  // A beat of a read begins when the FIFO has room for it, the last word of a write when b has room.
  assign possible = active_q && (burst_q.write
      ? w_valid_q && writable_q && !(bvalid_o && !bready_i && last_word && burst_q.left == '0)
      : room_q || burst_q.word[WORD_BITS-1:0] != '0);

  command_e command;
  always_comb begin
    command = NOTHING;
    if (ready_q) begin
      if (start_q != '0) command = start_q == 4'd10 ? PRECHARGE : start_q == 4'd1 ? MODE_SET : REFRESHED;
      else if (refresh_due_q) begin
        if (open_q == '0) command = REFRESHED;
        else if (closable_q) command = PRECHARGE;
      end else if (possible) begin
        if (hit) command = burst_q.write ? WRITE : READ;
        else if (!open_q[bank]) command = ACTIVATE;
        else if (closable_q) command = PRECHARGE;
      end
    end
  end
  assign issue = command == WRITE || command == READ;

  always_ff @(posedge clk_i) begin
    command_o <= command;
    ba_o <= bank;
    dq_o <= wdata_q[15:0];
    dqm_o <= command == WRITE ? ~wstrb_q[1:0] : 2'b00;
    dq_oe_o <= command == WRITE;
    a_o <= {4'd0, column};
    if (command == ACTIVATE) a_o <= row;
    if (command == PRECHARGE) a_o[10] <= refresh_due_q || start_q != '0;  // all banks
    if (command == MODE_SET) begin
      a_o <= MODE;
      ba_o <= 2'b00;
    end

    // `ready_q` and its like say of the next cycle what the counter will be.
    ready_q <= wait_q <= 1;
    if (wait_q != '0) wait_q <= wait_q - 1'b1;
    closable_q <= ras_q <= 1;
    if (ras_q != '0) ras_q <= ras_q - 1'b1;
    writable_q <= turn_q <= 1;
    if (turn_q != '0) turn_q <= turn_q - 1'b1;
    case (command)
      PRECHARGE: begin
        wait_q <= ($bits(wait_q))'(T_RP - 1);
        ready_q <= T_RP == 1;
        if (refresh_due_q || start_q != '0) open_q <= '0;
        else open_q[bank] <= 1'b0;
      end
      ACTIVATE: begin
        wait_q <= ($bits(wait_q))'(T_RCD - 1);
        ready_q <= T_RCD == 1;
        ras_q <= ($bits(ras_q))'(T_RAS - 1);
        closable_q <= 1'b0;
        open_q[bank] <= 1'b1;
        row_q[bank] <= row;
      end
      WRITE: begin
        if (ras_q < ($bits(ras_q))'(T_WR)) begin
          ras_q <= ($bits(ras_q))'(T_WR - 1);
          closable_q <= 1'b0;
        end
      end
      READ: begin
        turn_q <= ($bits(turn_q))'(TURN - 1);
        writable_q <= 1'b0;
      end
      REFRESHED: begin
        wait_q <= ($bits(wait_q))'(T_RFC - 1);
        ready_q <= 1'b0;
      end
      MODE_SET: begin
        wait_q <= ($bits(wait_q))'(T_MRD - 1);
        ready_q <= 1'b0;
      end
      default: ;
    endcase

    if (refresh_q == '0) refresh_q <= ($bits(refresh_q))'(REFRESH - 1);
    else refresh_q <= refresh_q - 1'b1;
    if (refresh_q == '0) refresh_due_q <= 1'b1;
    else if (command == REFRESHED) refresh_due_q <= 1'b0;
    if (start_q != '0 && command != NOTHING) start_q <= start_q - 1'b1;
    if (start_q != '0) begin
      refresh_due_q <= 1'b0;
      refresh_q <= ($bits(refresh_q))'(REFRESH / 2);
    end

    if (!rst_ni) begin
      command_o <= NOTHING;
      dq_oe_o <= 1'b0;
      start_q <= 4'd10;  // close all, eight refreshes, mode
      wait_q <= ($bits(wait_q))'(POWER_UP);
      {ready_q, closable_q, writable_q} <= '0;
      {open_q, ras_q, turn_q} <= '0;
      refresh_due_q <= 1'b0;
      cke_o <= 1'b0;
    end else begin
      cke_o <= 1'b1;
    end
  end

  // ---- data that come back -----------------------------------------------------------------------------------------------------
  // Tags of the words in the pipeline, set when their read is on the pins.
  typedef struct packed {
    logic               valid, last_word, last;
    logic [ID_BITS-1:0] id;
  } tag_t;
  tag_t tags_q [READ_DELAY+1];
  logic [BUS_BYTES*8-1:0] beat_q;
  logic beat_done_q, fifo_valid;
  tag_t beat_tag_q;
  logic [$clog2(FIFO + 1)-1:0] reserved_q;

  always_ff @(posedge clk_i) begin
    tags_q[0] <= '{valid: command == READ, last_word: last_word, last: burst_q.left == '0, id: burst_q.id};
    for (int unsigned i = 1; i <= READ_DELAY; i++) tags_q[i] <= tags_q[i-1];
    if (tags_q[READ_DELAY].valid) beat_q <= {dq_i, beat_q[BUS_BYTES*8-1:16]};
    beat_done_q <= tags_q[READ_DELAY].valid && tags_q[READ_DELAY].last_word;
    beat_tag_q <= tags_q[READ_DELAY];
    if (!rst_ni) begin
      for (int unsigned i = 0; i <= READ_DELAY; i++) tags_q[i].valid <= 1'b0;
      beat_done_q <= 1'b0;
    end
  end

  // FIFO entries are reserved for beats that are requested or wait.
  logic begun, taken;
  assign begun = command == READ && burst_q.word[WORD_BITS-1:0] == '0;
  assign taken = rvalid_o && rready_i;
  always_ff @(posedge clk_i) begin
    reserved_q <= reserved_q + ($bits(reserved_q))'(begun) - ($bits(reserved_q))'(taken);
    room_q <= reserved_q < ($bits(reserved_q))'(FIFO - 1);
    if (!rst_ni) begin
      reserved_q <= '0;
      room_q <= 1'b0;
    end
  end

  logic fifo_room, fifo_pop;
  logic [ID_BITS+BUS_BYTES*8:0] fifo_data;
  opu_queue #(
      .WIDTH(ID_BITS + 1 + BUS_BYTES * 8),
      .DEPTH(FIFO)
  ) u_beats (
      .clk_i,
      .rst_ni,
      .push_valid_i(beat_done_q),
      .push_ready_o(fifo_room),
      .push_data_i ({beat_tag_q.id, beat_tag_q.last, beat_q}),
      .pop_valid_o (fifo_valid),
      .pop_ready_i (fifo_pop),
      .pop_data_o  (fifo_data)
  );
  assign fifo_pop = !rvalid_o || rready_i;
  always_ff @(posedge clk_i) begin
    if (fifo_pop) {rid_o, rlast_o, rdata_o} <= fifo_data;
    if (fifo_pop) rvalid_o <= fifo_valid;
    if (!rst_ni) rvalid_o <= 1'b0;
  end

  // The count of beats says where a burst ends; addresses are those of beats in 32 MB.
  logic unused;
  assign unused = &{wlast_i, beat_tag_q.valid, beat_tag_q.last_word, awaddr_i, araddr_i};

  `OPU_STABLE(ReadDataStable, rvalid_o, rready_i, {rid_o, rlast_o, rdata_o})
  `OPU_STABLE(WriteAnswerStable, bvalid_o, bready_i, bid_o)
  `OPU_STABLE(WriteAddressStable, awvalid_i, awready_o, {awid_i, awaddr_i, awlen_i})
  `OPU_STABLE(WriteDataStable, wvalid_i, wready_o, {wdata_i, wstrb_i, wlast_i})
  `OPU_STABLE(ReadAddressStable, arvalid_i, arready_o, {arid_i, araddr_i, arlen_i})
  `OPU_ASSERT(RoomForEveryBeat, beat_done_q |-> fifo_room)
  `OPU_ASSERT(OnePageReads, arvalid_i |-> 32'(araddr_i[11:0]) + (32'(arlen_i) + 1) * BUS_BYTES <= 4096)
  `OPU_ASSERT(OnePageWrites, awvalid_i |-> 32'(awaddr_i[11:0]) + (32'(awlen_i) + 1) * BUS_BYTES <= 4096)
  `OPU_ASSERT(FullBeats, (arvalid_i |-> araddr_i[WORD_BITS:0] == '0) and (awvalid_i |-> awaddr_i[WORD_BITS:0] == '0))

endmodule
