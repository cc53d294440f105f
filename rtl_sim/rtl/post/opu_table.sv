// TABLE: each lane replaces its int8 value v by the byte at base_i + v + 128 of its table memory (synchronous read, data
// one cycle after the address). Latency 2, one item per cycle. Items that are not present (positions outside the tile)
// read nothing and do not change value_o. base_i must not change while items are inside.
//
//   cycle     0            1                     2
//   item_i    address -->  table memory answers  value_o
module opu_table
  import opu_pkg::*;
  import opu_post_pkg::*;
(
    input  logic                     clk_i,
    input  logic                     rst_ni,

    /* verilator lint_off UNUSEDSIGNAL */  // base_i is as wide as its register; its upper bits are unused
    input  logic [VALUE_BITS-1:0]    base_i,
    /* verilator lint_on UNUSEDSIGNAL */

    output logic                     re_o,
    output table_addr_t [WORD_CHANNELS-1:0] addr_o,
    input  logic [WORD_BITS-1:0]     rdata_i,

    input  item_t                    item_i,
    input  lanes_t                   value_i,
    output item_t                    item_o,
    output lanes_t                   value_o
);

  item_t read_item_q;

  assign re_o = item_i.valid && item_i.present;
  always_comb begin
    addr_o = '0;
    if (re_o) begin
      // v + 128: the sign bit inverted. All memories of a word read; the beat then selects LANES of the bytes.
      for (int unsigned l = 0; l < WORD_CHANNELS; l++) begin
        addr_o[l] = table_addr_t'(base_i) + table_addr_t'({!value_i[8*(l%LANES)+7], value_i[8*(l%LANES)+:7]});
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (read_item_q.valid && read_item_q.present) value_o <= rdata_i[LANES_BITS*32'(read_item_q.beat)+:LANES_BITS];
    read_item_q <= item_i;
    item_o <= read_item_q;
    if (!rst_ni) begin
      read_item_q.valid <= 1'b0;
      item_o.valid <= 1'b0;
    end
  end

endmodule
