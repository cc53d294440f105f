// Adds the sums of the array to the partial sums of their word, lane group by lane group. One step per cycle.
//
//   cycle    0                       1              2                         3
//   read_i   step: psum read                        step_i, sums_i, psum data
//                                                   add                       psum write, retire_o
//
// read:  the word is read in the cycle in which read_i holds its step, unless the step overwrites. psum_from_i,
//        psum_rdata_i (see opu_psum) and sums_i belong to the second cycle after, in which step_i holds the step.
// write: psum_we_o (one bit per lane group) three cycles after the read. The same word must not be read again before
//        the cycle after the write: sweeps start every 4 cycles at most. retire_o pulses with the write of the last
//        step of an instruction.
module opu_accumulate
  import opu_pkg::*;
  import opu_compute_pkg::*;
(
    input  logic                 clk_i,
    input  logic                 rst_ni,

    /* verilator lint_off UNUSEDSIGNAL */  // each stage uses its fields
    input  step_t                read_i,
    /* verilator lint_on UNUSEDSIGNAL */
    output logic [GROUPS-1:0]    psum_re_o,
    output psum_addr_t           psum_raddr_o,

    /* verilator lint_off UNUSEDSIGNAL */  // each stage uses its fields
    input  step_t                step_i,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic [PSUM_BITS-1:0] sums_i,
    input  logic [1:0]           psum_from_i,
    input  logic [2*PSUM_BITS-1:0] psum_rdata_i,

    output logic [GROUPS-1:0]    psum_we_o,
    output psum_addr_t           psum_waddr_o,
    output logic [PSUM_BITS-1:0] psum_wdata_o,
    output logic                 retire_o
);

  assign psum_re_o = (read_i.valid && !read_i.overwrite) ? read_i.groups : '0;
  assign psum_raddr_o = read_i.psum;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      psum_we_o <= '0;
      retire_o <= 1'b0;
    end else begin
      psum_we_o <= step_i.valid ? step_i.groups : '0;
      retire_o <= step_i.valid && step_i.last;
    end
  end

  logic [PSUM_BITS-1:0] earlier;  // nothing was read for a step that overwrites
  assign earlier = (psum_rdata_i[PSUM_BITS-1:0] & {PSUM_BITS{psum_from_i[0]}})
      | (psum_rdata_i[2*PSUM_BITS-1:PSUM_BITS] & {PSUM_BITS{psum_from_i[1]}});

  always_ff @(posedge clk_i) begin
    if (step_i.valid) begin
      psum_waddr_o <= step_i.psum;
      /* verilator unroll_full */
      for (int unsigned g = 0; g < GROUPS; g++) begin
        if (step_i.groups[g]) begin
          /* verilator unroll_full */
          for (int unsigned l = g * GROUP_LANES; l < (g + 1) * GROUP_LANES; l++) begin
            psum_wdata_o[32*l+:32] <= sums_i[32*l+:32] + earlier[32*l+:32];
          end
        end
      end
    end
  end

endmodule
