// Memory with one write port and one read port, both synchronous (a simple dual-port block RAM).
//
//   cycle      0           1            2
//   re_i       1
//   raddr_i    A
//   rdata_o                mem[A]       (mem[A] here with OUTPUT_REGISTER)
//
// Write: wdata_i is stored at waddr_i in a cycle with we_i; we_i has one bit for each of WRITE_LANES equal parts of a
//        word.
// Read:  rdata_o shows the word at raddr_i from the cycle after re_i on (with an output register the second one), and
//        keeps it while re_i is low. The output of a block RAM comes late in its cycle: logic that computes with it
//        needs the register. A read of the word that is written in the same cycle returns the old content. Nothing is
//        reset: the content and rdata_o are undefined until written and read. Addresses must be below DEPTH.
module opu_ram_1r1w #(
    parameter int unsigned WIDTH = 32,
    parameter int unsigned DEPTH = 16,
    parameter bit OUTPUT_REGISTER = 1'b0,
    parameter int unsigned WRITE_LANES = 1,
    localparam int unsigned ADDR_BITS = (DEPTH > 1) ? $clog2(DEPTH) : 1
) (
    input  logic                 clk_i,

    input  logic [WRITE_LANES-1:0] we_i,
    input  logic [ADDR_BITS-1:0] waddr_i,
    input  logic [WIDTH-1:0]     wdata_i,

    input  logic                 re_i,
    input  logic [ADDR_BITS-1:0] raddr_i,
    output logic [WIDTH-1:0]     rdata_o
);

  localparam int unsigned LANE = WIDTH / WRITE_LANES;
  logic [WIDTH-1:0] mem [DEPTH];

  always_ff @(posedge clk_i) begin
    for (int unsigned l = 0; l < WRITE_LANES; l++) begin
      if (we_i[l]) mem[waddr_i][l*LANE+:LANE] <= wdata_i[l*LANE+:LANE];
    end
  end

  logic [WIDTH-1:0] rdata;

  always_ff @(posedge clk_i) begin
    if (re_i) rdata <= mem[raddr_i];
  end

  if (OUTPUT_REGISTER) begin : g_register
    always_ff @(posedge clk_i) rdata_o <= rdata;
  end else begin : g_wire
    assign rdata_o = rdata;
  end

endmodule
