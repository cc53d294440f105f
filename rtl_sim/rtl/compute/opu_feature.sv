// Feature buffer: one word written, two neighbouring words read per cycle.
//
//   raddr_i, next_raddr_i --> even words (RAM) --+--> select --> first_*
//                         --> odd words (RAM)  --+--> select --> next_*
//
// Even and odd words are separate memories. first_*: word raddr_i. next_*: its successor, next_raddr_i. Both arrive two
// cycles after their enable and are held until the next one. bytes_i: byte enables of the write; only load.unfold
// writes parts of words.
module opu_feature
  import opu_pkg::*;
  import opu_compute_pkg::*;
(
    input  logic                 clk_i,

    input  logic                 we_i,
    input  logic [WORD_CHANNELS-1:0] bytes_i,
    input  feature_addr_t        waddr_i,
    input  logic [WORD_BITS-1:0] wdata_i,

    input  logic                 first_re_i,
    input  logic                 next_re_i,
    input  feature_addr_t        raddr_i,
    input  feature_addr_t        next_raddr_i,
    output logic [WORD_BITS-1:0] first_rdata_o,
    output logic [WORD_BITS-1:0] next_rdata_o
);

  localparam int unsigned DEPTH = (FEATURE_WORDS + 1) / 2;
  localparam int unsigned BANK_ADDR_BITS = (DEPTH > 1) ? $clog2(DEPTH) : 1;

  localparam int unsigned WRITE_LANES = HAS_UNFOLD ? WORD_CHANNELS : 1;
  logic [WRITE_LANES-1:0] lanes;
  if (HAS_UNFOLD) begin : g_bytes
    assign lanes = we_i ? bytes_i : '0;
  end else begin : g_words
    assign lanes = we_i;
    logic unused;
    assign unused = &bytes_i;
  end

  logic odd, odd_q, odd_late_q;
  assign odd = raddr_i[0];

  logic [WORD_BITS-1:0] even_rdata, odd_rdata;

  opu_ram_1r1w #(
      .WIDTH(WORD_BITS),
      .DEPTH(DEPTH),
      .OUTPUT_REGISTER(1'b1),
      .WRITE_LANES(WRITE_LANES)
  ) u_even (
      .clk_i,
      .we_i   (waddr_i[0] ? '0 : lanes),
      .waddr_i(BANK_ADDR_BITS'(waddr_i >> 1)),
      .wdata_i,
      .re_i   (odd ? next_re_i : first_re_i),
      .raddr_i(BANK_ADDR_BITS'(next_raddr_i >> 1)),  // raddr_i is even: the same
      .rdata_o(even_rdata)
  );

  opu_ram_1r1w #(
      .WIDTH(WORD_BITS),
      .DEPTH(DEPTH),
      .OUTPUT_REGISTER(1'b1),
      .WRITE_LANES(WRITE_LANES)
  ) u_odd (
      .clk_i,
      .we_i   (waddr_i[0] ? lanes : '0),
      .waddr_i(BANK_ADDR_BITS'(waddr_i >> 1)),
      .wdata_i,
      .re_i   (odd ? first_re_i : next_re_i),
      .raddr_i(BANK_ADDR_BITS'(raddr_i >> 1)),
      .rdata_o(odd_rdata)
  );

  always_ff @(posedge clk_i) begin
    if (first_re_i || next_re_i) odd_q <= odd;
    odd_late_q <= odd_q;
  end
  // After the output registers, which are inside the blocks.
  assign first_rdata_o = odd_late_q ? odd_rdata : even_rdata;
  assign next_rdata_o = odd_late_q ? even_rdata : odd_rdata;

endmodule
