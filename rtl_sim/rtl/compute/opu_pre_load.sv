// Address generator of the pre chain's parameters: eight words for each unit in use, once a block. Of a gate it reads
// one word a block eight times, and waits until that is converted to parameters (opu_pre_gate).
//
//   cycle            0              1            2
//   start_i, next_i  a block begins
//   re_o, addr_o                    first word   second word
//   load_o                                       unit and position of the first word
//
// open_i:  the parameters of an instruction, latched if it starts: the word of its block 0, and its first block.
// start_i: it starts, its features pass start_units_i units. next_i: a block begins, and another one follows. The
//          inactive bank takes the words: bank_o is the one that was loaded last.
// few_o:   at most one word is left to be read, or of a gate to be waited for.
// re_o, addr_o: read port, one word per cycle; load_o, one cycle after the read, names unit and position of the word.
`include "opu_assert.svh"

module opu_pre_load
  import opu_pkg::*;
  import opu_compute_pkg::*;
  import opu_pre_pkg::*;
(
    input  logic        clk_i,
    input  logic        rst_ni,

    input  logic        open_i,
    input  logic        start_i,
    input  logic [2:0]  start_units_i,
    input  logic        start_gate_i,
    input  pre_addr_t   param_i,
    /* verilator lint_off UNUSEDSIGNAL */  // as many bits as addresses have
    input  logic [15:0] first_block_i,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic        next_i,
    input  logic [2:0]  next_units_i,
    output logic        few_o,
    output logic        bank_o,

    output logic        re_o,
    output pre_addr_t   addr_o,
    output pre_load_t   load_o
);

  localparam int unsigned UNITS_BITS = $clog2(PRE_UNITS + 1);  // more units than there are: refused

  logic start_gate;
  logic [PRE_ADDR_BITS+2:0] skipped;  // words of the blocks before the first one
  assign start_gate = HAS_GATES && start_gate_i;
  always_comb begin
    skipped = '0;
    for (int unsigned u = 0; u < UNITS_BITS; u++) begin
      if (start_units_i[u]) skipped += (PRE_ADDR_BITS + 3)'(first_block_i) << (3 + u);
    end
  end

  logic load_start, gate_q, starts_gate;
  logic [5:0] left_q;           // cycles until the parameters are loaded
  logic [5:0] late, starts_late; // those of them without a read
  pre_addr_t first_q;           // of the instruction
  /* verilator lint_off UNUSEDSIGNAL */  // the upper bits are a gate's
  logic [PRE_ADDR_BITS+2:0] passed_q; // reads after that, eight of a gate's word
  /* verilator lint_on UNUSEDSIGNAL */
  assign load_start = (start_i && start_units_i != '0) || next_i;
  assign addr_o = first_q + (gate_q ? pre_addr_t'(passed_q >> 3) : pre_addr_t'(passed_q));
  assign starts_gate = start_i ? start_gate : gate_q;
  assign late = gate_q ? 6'(GATE_CYCLES) : '0;
  assign starts_late = starts_gate ? 6'(GATE_CYCLES) : '0;

  always_ff @(posedge clk_i) begin
    load_o <= {re_o && rst_ni, bank_o, {next_units_i, 3'd0} + late - left_q, gate_q};  // unit and word, concatenated
    if (!rst_ni) begin
      left_q <= '0;
      few_o <= 1'b1;
      re_o <= 1'b0;
      bank_o <= 1'b0;
      gate_q <= 1'b0;
    end else begin
      if (load_start) left_q <= {start_i ? start_units_i : next_units_i, 3'd0} + starts_late;
      else if (left_q != '0) left_q <= left_q - 6'd1;
      few_o <= !load_start && left_q <= 6'd2;
      re_o <= load_start || left_q > late + 6'd1;
      if (load_start) bank_o <= !bank_o;
      if (start_i) gate_q <= start_gate;
    end
    if (re_o) passed_q <= passed_q + (PRE_ADDR_BITS + 3)'(1);
    if (open_i) begin
      first_q <= param_i;
      passed_q <= skipped;
    end
  end

  `OPU_ASSERT(ReadsAreLeft, re_o == (left_q > late) && few_o == (left_q <= 6'd1))

endmodule
