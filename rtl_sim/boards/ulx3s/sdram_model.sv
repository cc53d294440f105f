// What an SDR SDRAM of 16 bits does, as far as `sdram_controller` uses it, and all times that its data sheet asks for, measured in ns.
// Simulation only. Rules of the slowest of the memories that the board was sold with; a rule that is broken is an $error with its
// name. Contents: the image of opu_image.cpp where IMAGE (byte address: row 24:12, bank 11:10, column 9:1), else an own array.
//
// Reads: data are on dq_o from ACCESS_NS after the edge before the one at which they are due to HOLD_NS after that one; else
// dq_oe_o is low, and what a reader takes for data is 16'hdead.
module sdram_model #(
    parameter bit IMAGE = 1'b0,
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

  localparam longint T_RCD = 20, T_RP = 20, T_RAS = 44, T_RC = 66, T_RRD = 15, T_RFC = 66, T_WR = 15;
  localparam longint REFRESH_NS = 7_812;
  localparam longint HOLD_NS = 3;

  typedef struct {
    bit          open;
    logic [12:0] row;
    longint      activated, precharged, written;
  } bank_t;
  bank_t banks [4];
  longint refreshed, activated_any, mode_set, edge_ns;
  int unsigned refreshes, commands_after_write;
  int unsigned refreshes_at_start;
  bit ready;  // mode is set
  logic [15:0] contents [IMAGE ? 1 : 1 << 24];
  int unsigned counted [8];  // of every command, for benches

  initial begin
    for (int b = 0; b < 4; b++) banks[b] = '{open: 1'b0, row: '0, activated: -1000, precharged: -1000, written: -1000};
    edge_ns = -1000;
    refreshed = -1000;
    activated_any = -1000;
  end

  // Words on their way: due at this edge, at the next one.
  logic [15:0] due [2];
  logic [1:0] due_valid = '0;

  function automatic void must(bit holds, string rule);
    if (!holds) $error("SDRAM: %s", rule);
  endfunction

  function automatic void close(int b, longint now);
    if (!banks[b].open) return;
    must(now - banks[b].activated >= T_RAS, "tRAS");
    must(now - banks[b].written >= T_WR, "tWR");
    banks[b].open = 1'b0;
    banks[b].precharged = now;
  endfunction

  function automatic longint byte_address(logic [1:0] bank, logic [12:0] row, logic [8:0] column);
    return longint'({row, bank, column, 1'b0});
  endfunction

  /* verilator lint_off BLKSEQ */
  always @(posedge clk_i) begin
    automatic longint now = $time;
    automatic logic [2:0] command = cs_ni ? 3'b111 : {ras_ni, cas_ni, we_ni};
    automatic int b = int'(ba_i);
    automatic bit [15:0] stored;
    automatic longint at;
    must(now - edge_ns >= 10, "clock period of CAS latency 2");
    edge_ns = now;
    due[1] = due[0];
    due_valid = {due_valid[0], 1'b0};
    if (cke_i && command != 3'b111) begin
      counted[command]++;
      must(now >= longint'(POWER_UP_NS), "commands before the power is up");
      must(now - refreshed >= T_RFC, "tRFC");
      must(now - mode_set >= 20 || mode_set == 0, "tMRD");
      if (ready) must(now - refreshed <= REFRESH_NS, "refresh interval");
      case (command)
        3'b000: begin
          must(!banks[0].open && !banks[1].open && !banks[2].open && !banks[3].open, "mode with open rows");
          must(a_i[6:0] == 7'b010_0_000, "mode: bursts of one, CAS latency 2");
          must(refreshes_at_start >= 2, "two refreshes before the mode is set");
          mode_set = now;
          ready = 1'b1;
        end
        3'b001: begin
          for (int i = 0; i < 4; i++) begin
            must(!banks[i].open, "refresh with open rows");
            must(now - banks[i].precharged >= T_RP, "tRP before a refresh");
          end
          refreshed = now;
          refreshes_at_start++;
          refreshes++;
        end
        3'b010: begin
          for (int i = 0; i < 4; i++) if (a_i[10] || i == b) close(i, now);
        end
        3'b011: begin
          must(ready, "activation before the mode is set");
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
          must(!a_i[10], "no auto-precharge is expected");
          at = byte_address(ba_i, banks[b].row, a_i[8:0]);
          if (command == 3'b100) begin
            must(dq_driven_i, "a write without data");
            must(!dq_oe_o && !due_valid[1], "a write while a read is answered");
            banks[b].written = now;
            if (IMAGE) must(opu_image_write(at, 2, dq_i, ~dqm_i) != 0, "a write beyond the image");
            else for (int i = 0; i < 2; i++) if (!dqm_i[i]) contents[at[24:1]][8*i+:8] = dq_i[8*i+:8];
          end else begin
            must(dqm_i == '0, "a masked read");
            if (IMAGE) must(opu_image_read(at, 2, stored) != 0, "a read beyond the image");
            else stored = contents[at[24:1]];
            due[0] = stored;
            due_valid[0] = 1'b1;
          end
        end
        default: must(1'b0, "a command that is not used");
      endcase
    end
    if (ready) must(now - refreshed <= REFRESH_NS, "refresh interval");
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
    #(longint'(ACCESS_NS) - HOLD_NS) dq_oe_o = due_valid[1];
    if (due_valid[1]) dq_o = due[1];
    if (due_valid[1] && dq_driven_i) $error("SDRAM: two drive the data");
  end

endmodule
