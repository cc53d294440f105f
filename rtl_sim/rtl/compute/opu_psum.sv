// Partial sum memory: two banks (lower and upper half of the addresses), each with one read and one write port.
//
//   compute_* --read, write--> bank 0 <--read-- post_*   granted unless compute reads the same bank
//                              bank 1
//
// compute_*: reads and writes any lane groups, never refused. Two cycles after a read compute_from_o names the bank
//            that was read, or none, and compute_rdata_o holds the words of both: the adder selects in the same table.
// post_*:    reads whole words. post_grant_o says in the same cycle that the read happens; it is refused while compute
//            reads the same bank. The data is valid in the second cycle after the grant only.
`include "opu_assert.svh"

module opu_psum
  import opu_pkg::*;
  import opu_compute_pkg::*;
(
    input  logic                 clk_i,
    input  logic                 rst_ni,

    input  logic [GROUPS-1:0]    compute_re_i,
    input  psum_addr_t           compute_raddr_i,
    output logic [1:0]           compute_from_o,   // a bit per bank
    output logic [2*PSUM_BITS-1:0] compute_rdata_o,
    input  logic [GROUPS-1:0]    compute_we_i,
    input  psum_addr_t           compute_waddr_i,
    input  logic [PSUM_BITS-1:0] compute_wdata_i,

    input  logic                 post_re_i,
    input  psum_addr_t           post_addr_i,
    output logic                 post_grant_o,
    output logic [PSUM_BITS-1:0] post_rdata_o
);

  localparam int unsigned BANK_WORDS = PSUM_WORDS / 2;
  localparam int unsigned BANK_BITS = (BANK_WORDS > 1) ? $clog2(BANK_WORDS) : 1;
  localparam int unsigned GROUP_BITS = 32 * GROUP_LANES;

  function automatic logic bank_of(psum_addr_t addr);
    bank_of = 32'(addr) >= BANK_WORDS;
  endfunction

  function automatic logic [BANK_BITS-1:0] word_of(psum_addr_t addr);
    word_of = bank_of(addr) ? BANK_BITS'(32'(addr) - BANK_WORDS) : BANK_BITS'(addr);
  endfunction

  logic [PSUM_BITS-1:0] rdata [2];
  logic read_bank, write_bank, post_bank, compute_reads;
  logic [1:0] compute_from_q;
  logic post_bank_q, post_from_q;

  assign read_bank = bank_of(compute_raddr_i);
  assign write_bank = bank_of(compute_waddr_i);
  assign post_bank = bank_of(post_addr_i);
  assign compute_reads = compute_re_i != '0;
  assign post_grant_o = post_re_i && !(compute_reads && read_bank == post_bank);

  for (genvar b = 0; b < 2; b++) begin : g_bank
    logic [BANK_BITS-1:0] raddr;
    logic by_compute, by_post;
    assign by_compute = compute_reads && read_bank == 1'(b);
    assign by_post = post_grant_o && post_bank == 1'(b);
    assign raddr = by_compute ? word_of(compute_raddr_i) : word_of(post_addr_i);

    for (genvar g = 0; g < int'(GROUPS); g++) begin : g_group
      opu_ram_1r1w #(
          .WIDTH          (GROUP_BITS),
          .DEPTH          (BANK_WORDS),
          .OUTPUT_REGISTER(1'b1)
      ) u_ram (
          .clk_i,
          .we_i   (compute_we_i[g] && write_bank == 1'(b)),
          .waddr_i(word_of(compute_waddr_i)),
          .wdata_i(compute_wdata_i[g*GROUP_BITS+:GROUP_BITS]),
          .re_i   (by_post || (by_compute && compute_re_i[g])),
          .raddr_i(raddr),
          .rdata_o(rdata[b][g*GROUP_BITS+:GROUP_BITS])
      );
    end
  end

  always_ff @(posedge clk_i) begin
    compute_from_q <= {compute_reads && read_bank, compute_reads && !read_bank};
    compute_from_o <= compute_from_q;
    if (post_grant_o) post_bank_q <= post_bank;
    post_from_q <= post_bank_q;
  end
  assign compute_rdata_o = {rdata[1], rdata[0]};
  assign post_rdata_o = post_from_q ? rdata[1] : rdata[0];

  logic unused;                                      // assertions look at it
  assign unused = rst_ni;

  `OPU_ASSERT(NoReadOfWrite, compute_reads && compute_we_i != '0
      |-> compute_raddr_i != compute_waddr_i || (compute_re_i & compute_we_i) == '0)

endmodule
