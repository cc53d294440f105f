// The pins of the SDRAM: a register at every pad, in both directions, and its clock. A word that the memory gives at an edge of the delayed
// clock is on dq_o a cycle after the register has taken it. In simulation the registers are those of a twin.
module ulx3s_pads (
    input  logic        clk_i,
    input  logic        sdram_clk_i,

    input  logic        cke_i,
    input  logic [2:0]  command_i,
    input  logic [1:0]  ba_i,
    input  logic [12:0] a_i,
    input  logic [1:0]  dqm_i,
    input  logic [15:0] dq_i,
    input  logic        dq_oe_i,
    output logic [15:0] dq_o,

    output logic        sdram_clk_o,
    output logic        sdram_cke_o,
    output logic [2:0]  sdram_command_o,
    output logic [1:0]  sdram_ba_o,
    output logic [12:0] sdram_a_o,
    output logic [1:0]  sdram_dqm_o,
    inout  wire  [15:0] sdram_d_io
);

  localparam int unsigned OUTPUTS = 1 + 3 + 2 + 13 + 2;
  logic [OUTPUTS-1:0] outputs, outputs_q;
  assign outputs = {cke_i, command_i, ba_i, a_i, dqm_i};
  assign {sdram_cke_o, sdram_command_o, sdram_ba_o, sdram_a_o, sdram_dqm_o} = outputs_q;

`ifdef SYNTHESIS
  for (genvar i = 0; i < OUTPUTS; i++) begin : g_output
    OFS1P3DX u_register (.SCLK(clk_i), .SP(1'b1), .CD(1'b0), .D(outputs[i]), .Q(outputs_q[i]));
  end
  for (genvar i = 0; i < 16; i++) begin : g_data
    logic written, silent, pad;
    OFS1P3DX u_written (.SCLK(clk_i), .SP(1'b1), .CD(1'b0), .D(dq_i[i]), .Q(written));
    OFS1P3DX u_silent (.SCLK(clk_i), .SP(1'b1), .CD(1'b0), .D(!dq_oe_i), .Q(silent));
    BB u_pad (.I(written), .T(silent), .O(pad), .B(sdram_d_io[i]));
    IFS1P3DX u_read (.SCLK(clk_i), .SP(1'b1), .CD(1'b0), .D(pad), .Q(dq_o[i]));
  end
  ODDRX1F u_clock (.SCLK(sdram_clk_i), .RST(1'b0), .D0(1'b1), .D1(1'b0), .Q(sdram_clk_o));
`else
  logic [15:0] written_q;
  logic driven_q;
  always_ff @(posedge clk_i) begin
    outputs_q <= outputs;
    written_q <= dq_i;
    driven_q <= dq_oe_i;
    dq_o <= sdram_d_io;
  end
  assign sdram_d_io = driven_q ? written_q : 16'hzzzz;
  assign sdram_clk_o = sdram_clk_i;
`endif  // SYNTHESIS

endmodule
