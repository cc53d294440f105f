// What an SDR SDRAM of 16 bits does, as far as LiteDRAM uses it, and all times that its data sheet asks for, measured. Simulation only.
// Rules of the slowest of the memories that the board was sold with; a rule that is broken is an $error with its name. Contents:
// the image of opu_image.cpp (byte address: row 24:12, bank 11:10, column 9:1).
// LiteDRAM refreshes before software sets the mode, and before the power is up: such refreshes do not count.
//
// Reads: data are on dq_o from ACCESS_NS after the edge before the one at which they are due to HOLD_NS after that one; else
// dq_oe_o is low, and what a reader takes for data is 16'hdead.
`timescale 1ns / 1ps
module sdram_model #(
    parameter int unsigned POWER_UP_NS = 200_000,
    parameter int unsigned ACCESS_NS = 6
) (
    input  logic        clk_i,
    input  logic        cke_i,
    input  logic        cs_ni,
    input  logic        ras_ni,
    input  logic        cas_ni,
    input  logic        we_ni,
    input  logic [1:0]  ba_i,
    input  logic [12:0] a_i,
    input  logic [1:0]  dqm_i,
    input  logic [15:0] dq_i,
    input  logic        dq_driven_i,  // somebody else drives the data
    output logic [15:0] dq_o,
    output logic        dq_oe_o
);

  import "DPI-C" function int opu_image_read(input longint address, input int bytes, output bit [15:0] data);
  import "DPI-C" function int opu_image_write(
      input longint address, input int bytes, input bit [15:0] data, input bit [1:0] strobes);

  localparam real T_RCD = 20.0, T_RP = 20.0, T_RAS = 44.0, T_RC = 66.0, T_RRD = 15.0, T_RFC = 66.0, T_WR = 15.0;
  localparam real REFRESH_NS = 64.0e6 / 8192.0 * 1.001;  // LiteDRAM rounds up to whole cycles
  localparam real HOLD_NS = 3.0;
  localparam int POSTPONED = 256;  // refreshes, 2 ms: a restart initialises the memory anew

  typedef struct {
    bit          open;
    logic [12:0] row;
    real         activated, precharged, written;
  } bank_t;
  bank_t banks [4];
  real refreshed, activated_any, mode_set, edge_ns, period_ns, first_activated;
  int unsigned refreshes, refreshes_at_start;
  logic [12:0] mode;
  bit ready;  // the first row has been opened

  initial begin
    for (int b = 0; b < 4; b++) banks[b] = '{open: 1'b0, row: '0, activated: -1.0e3, precharged: -1.0e3, written: -1.0e3};
    edge_ns = -1.0e3;
    refreshed = -1.0e3;
    activated_any = -1.0e3;
    mode_set = -1.0e3;
  end

  // Words on their way: due at this edge, at the next one.
  logic [15:0] due [2];
  logic [1:0] due_valid = '0;

  function automatic void must(bit holds, string rule);
    if (!holds) $error("SDRAM: %s", rule);
  endfunction

  function automatic void close(int b, real now);
    if (!banks[b].open) return;
    must(now - banks[b].activated >= T_RAS, "tRAS");
    must(now - banks[b].written >= T_WR, "tWR");
    banks[b].open = 1'b0;
    banks[b].precharged = now;
  endfunction

  // With the access itself: the memory waits for tRAS, and a cycle or tWR after the access.
  function automatic void close_after(int b, real now, bit writes);
    automatic real at = now + period_ns + (writes ? T_WR : 0.0);
    banks[b].open = 1'b0;
    banks[b].precharged = at > banks[b].activated + T_RAS ? at : banks[b].activated + T_RAS;
  endfunction

  function automatic longint byte_address(logic [1:0] bank, logic [12:0] row, logic [8:0] column);
    return longint'({row, bank, column, 1'b0});
  endfunction

  /* verilator lint_off BLKSEQ */
  always @(posedge clk_i) begin
    automatic real now = $realtime;
    automatic logic [2:0] command = cs_ni ? 3'b111 : {ras_ni, cas_ni, we_ni};
    automatic int b = int'(ba_i);
    automatic bit [15:0] stored;
    automatic longint at;
    must(now - edge_ns >= 10.0, "clock period of CAS latency 2");
    period_ns = now - edge_ns;
    edge_ns = now;
    due[1] = due[0];
    due_valid = {due_valid[0], 1'b0};
    if (cke_i && command != 3'b111) begin
      must(now - refreshed >= T_RFC, "tRFC");
      must(now - mode_set >= 20.0, "tMRD");
      case (command)
        3'b000: begin
          must(!banks[0].open && !banks[1].open && !banks[2].open && !banks[3].open, "mode with open rows");
          must(now >= real'(POWER_UP_NS), "mode before the power is up");
          if (ready) begin
            ready = 1'b0;
            refreshes = 0;
            refreshes_at_start = 0;
          end
          mode_set = now;
          mode = a_i;
        end
        3'b001: begin
          for (int i = 0; i < 4; i++) begin
            must(!banks[i].open, "refresh with open rows");
            must(now - banks[i].precharged >= T_RP, "tRP before a refresh");
          end
          refreshed = now;
          if (ready) refreshes++;
          else if (now >= real'(POWER_UP_NS)) refreshes_at_start++;
        end
        3'b010: begin
          for (int i = 0; i < 4; i++) if (a_i[10] || i == b) close(i, now);
        end
        3'b011: begin
          if (!ready) begin
            must(mode == 13'h020, "mode: bursts of one, CAS latency 2");
            must(refreshes_at_start >= 2, "two refreshes before the first row is opened");
            first_activated = now;
            ready = 1'b1;
          end
          must(!banks[b].open, "activation of an open bank");
          must(now - banks[b].precharged >= T_RP, "tRP");
          must(now - banks[b].activated >= T_RC, "tRC");
          must(now - activated_any >= T_RRD, "tRRD");
          banks[b].open = 1'b1;
          banks[b].row = a_i;
          banks[b].activated = now;
          activated_any = now;
        end
        3'b100, 3'b101: begin
          must(banks[b].open, "access to a closed bank");
          must(now - banks[b].activated >= T_RCD, "tRCD");
          at = byte_address(ba_i, banks[b].row, a_i[8:0]);
          if (command == 3'b100) begin
            must(dq_driven_i, "a write without data");
            must(!dq_oe_o && !due_valid[1], "a write while a read is answered");
            banks[b].written = now;
            must(opu_image_write(at, 2, dq_i, ~dqm_i) != 0, "a write beyond the image");
          end else begin
            must(dqm_i == '0, "a masked read");
            must(opu_image_read(at, 2, stored) != 0, "a read beyond the image");
            due[0] = stored;
            due_valid[0] = 1'b1;
          end
          if (a_i[10]) close_after(b, now, command == 3'b100);
        end
        default: must(1'b0, "a command that is not used");
      endcase
    end
    if (ready) must(now - first_activated <= REFRESH_NS * real'(refreshes + POSTPONED), "refresh interval");
  end
  /* verilator lint_on BLKSEQ */

  // What is due at the next edge appears ACCESS_NS after this one and disappears HOLD_NS after the next one, unless more follows.
  initial begin
    dq_oe_o = 1'b0;
    dq_o = 16'hdead;
  end
  always @(posedge clk_i) begin
    #(HOLD_NS) dq_oe_o = 1'b0;
    dq_o = 16'hdead;
    #(real'(ACCESS_NS) - HOLD_NS) dq_oe_o = due_valid[1];
    if (due_valid[1]) dq_o = due[1];
    if (due_valid[1] && dq_driven_i) $error("SDRAM: two drive the data");
  end

endmodule
