// Arbiter of the read side of one AXI4 port between two readers. Reader 0 (fetch) has priority; data return by id.
//
//   reader 0 --ar--> +----------+     +----------+
//                    | priority | --> | register | --ar--> bus
//   reader 1 --ar--> +----------+     +----------+
//   readers <-- register <----- r, routed by id ----------- bus
//
// ar side: valid/ready. A burst is accepted in a cycle with valid and ready of its reader, then held in the register
//          until the bus accepts it: latency 1, one burst per cycle. At most OUTSTANDING bursts are open.
// r side:  always ready. r_valid_o and r_end_o, the last beat of a burst, are registers: the paths through the readers
//          begin here and not in the interconnect. Latency 1; data and response are delayed outside.
// quiet_o: nothing is held or open (after an error the readers request nothing more).
// Reset:   that of the engines. After an abort it drops the held address and forgets the open bursts. Beats that arrive
//          while nothing is open belong to an aborted run and reach no reader.
`include "opu_assert.svh"

module opu_read_arbiter #(
    parameter int unsigned ADDRESS_BITS = 40,
    parameter int unsigned OUTSTANDING = 4
) (
    input  logic                    clk_i,
    input  logic                    rst_ni,
    output logic                    quiet_o,

    input  logic [1:0]              ar_valid_i,
    output logic [1:0]              ar_ready_o,
    input  logic [ADDRESS_BITS-1:0] ar_addr_i [2],
    input  logic [8:0]              ar_beats_i [2],
    output logic [1:0]              r_valid_o,
    output logic                    r_end_o,         // of reader 1

    output logic                    bus_ar_valid_o,
    input  logic                    bus_ar_ready_i,
    output logic                    bus_ar_id_o,
    output logic [ADDRESS_BITS-1:0] bus_ar_addr_o,
    output logic [7:0]              bus_ar_len_o,    // beats - 1
    input  logic                    bus_r_valid_i,
    input  logic                    bus_r_id_i,
    input  logic                    bus_r_last_i
);

  localparam int unsigned COUNT_BITS = $clog2(OUTSTANDING + 1);

  logic valid_q, id_q;
  logic [ADDRESS_BITS-1:0] addr_q;
  logic [7:0] len_q;
  logic [COUNT_BITS-1:0] open_q;
  logic room_q, some_q;  // what open_q says of OUTSTANDING and 0: the paths through the engines begin here

  logic free, pick, take, expected, finish;
  assign free = (!valid_q || bus_ar_ready_i) && room_q;
  assign pick = !ar_valid_i[0];
  assign ar_ready_o = free ? {pick, 1'b1} : 2'b00;
  assign take = (ar_valid_i & ar_ready_o) != '0;
  assign expected = bus_r_valid_i && some_q;
  assign finish = expected && bus_r_last_i;

  always_ff @(posedge clk_i) begin
    r_valid_o <= (rst_ni && expected) ? {bus_r_id_i, !bus_r_id_i} : 2'b00;
    r_end_o <= rst_ni && finish && bus_r_id_i;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_q <= 1'b0;
      id_q <= 1'b0;
      addr_q <= '0;
      len_q <= '0;
      open_q <= '0;
      room_q <= 1'b1;
      some_q <= 1'b0;
    end else begin
      if (take) begin
        valid_q <= 1'b1;
        id_q <= pick;
        addr_q <= ar_addr_i[pick];
        len_q <= 8'(ar_beats_i[pick] - 9'd1);
      end else if (bus_ar_ready_i) begin
        valid_q <= 1'b0;
      end
      open_q <= open_q + COUNT_BITS'(take) - COUNT_BITS'(finish);
      room_q <= finish || (take ? open_q != COUNT_BITS'(OUTSTANDING - 1) : room_q);
      some_q <= take || (some_q && !(finish && open_q == COUNT_BITS'(1)));
    end
  end

  assign bus_ar_valid_o = valid_q;
  assign bus_ar_id_o = id_q;
  assign bus_ar_addr_o = addr_q;
  assign bus_ar_len_o = len_q;
  assign quiet_o = !some_q;

  `OPU_ASSERT(FlagsAreTheCount, room_q == (open_q != COUNT_BITS'(OUTSTANDING)) && some_q == (open_q != '0))
  `OPU_STABLE(AddressStable, bus_ar_valid_o, bus_ar_ready_i, {bus_ar_id_o, bus_ar_addr_o, bus_ar_len_o})

endmodule
