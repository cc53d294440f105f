// Multiplexer: chosen_o is number code_i of COUNT inputs. Combinational: a tree with one bit of the code per level, so
// that four inputs take one table per bit. Codes from COUNT on select any input.
module opu_choose #(
    parameter int unsigned WIDTH = 8,
    parameter int unsigned COUNT = 2,
    localparam int unsigned LEVELS = $clog2(COUNT)
) (
    input  logic [WIDTH*COUNT-1:0] choices_i,
    /* verilator lint_off UNUSEDSIGNAL */  // more bits than the code has
    input  logic [15:0]            code_i,
    /* verilator lint_on UNUSEDSIGNAL */
    output logic [WIDTH-1:0]       chosen_o
);

  // Leaves without an input repeat one of the same half, so that their multiplexers are optimised away.
  function automatic int unsigned leaf(int unsigned index);
    leaf = index;
    for (int b = int'(LEVELS) - 2; b >= 0; b--) if (leaf >= COUNT) leaf = leaf & ~(32'd1 << b);
  endfunction

  for (genvar l = 0; l <= int'(LEVELS); l++) begin : g_level
    localparam int unsigned LEFT = 32'd1 << (LEVELS - l);
    logic [LEFT-1:0][WIDTH-1:0] left;
    for (genvar n = 0; n < int'(LEFT); n++) begin : g_node
      if (l == 0) begin : g_leaf
        assign left[n] = choices_i[WIDTH*leaf(n)+:WIDTH];
      end else begin : g_two
        assign left[n] = code_i[l-1] ? g_level[l-1].left[2*n+1] : g_level[l-1].left[2*n];
      end
    end
  end

  assign chosen_o = g_level[LEVELS].left[0];

endmodule
