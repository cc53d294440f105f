// Byte shifter: bytes_o is bytes_i from byte shift_i on, zeros after the last byte. Latency 1, one shift per cycle.
//
//   bytes_i --> mux layers (high bits of shift) --> [register] --> mux layers (low bits) --> bytes_o
//
// Each multiplexer layer handles two bits of the shift, the most significant first, so that each layer is little wider
// than its output.
module opu_byte_shift #(
    parameter int unsigned IN_BYTES = 16,
    parameter int unsigned OUT_BYTES = 8,
    parameter int unsigned SHIFT_BITS = 3
) (
    input  logic                    clk_i,
    input  logic [8*IN_BYTES-1:0]   bytes_i,
    input  logic [SHIFT_BITS-1:0]   shift_i,
    output logic [8*OUT_BYTES-1:0]  bytes_o
);

  localparam int unsigned LAYERS = (SHIFT_BITS + 1) / 2;
  localparam int unsigned REGISTER = LAYERS / 2;  // layers before it
  logic [SHIFT_BITS-1:0] shift_q;
  always_ff @(posedge clk_i) shift_q <= shift_i;

  // Bytes before layer l: those that its output and the later layers can still select.
  function automatic int unsigned bytes_before(int unsigned l);
    bytes_before = (l == 0) ? IN_BYTES : OUT_BYTES + (32'd1 << 2 * (LAYERS - l)) - 1;
  endfunction

  for (genvar l = 0; l <= int'(LAYERS); l++) begin : g_layer
    localparam int unsigned BYTES = bytes_before(l);
    /* verilator lint_off UNUSEDSIGNAL */  // bytes that no shift moves into the output
    logic [8*BYTES-1:0] selected, layer_out;
    /* verilator lint_on UNUSEDSIGNAL */
    if (l == 0) begin : g_input
      assign selected = bytes_i;
    end else begin : g_shifted
      localparam int unsigned STEP = 32'd1 << 2 * (LAYERS - l);
      localparam int unsigned WEIGHT = 2 * (LAYERS - l);
      logic [1:0] by;
      logic [8*(BYTES+3*STEP)-1:0] layer_in;
      assign by = 2'(((l > REGISTER) ? shift_q : shift_i) >> WEIGHT);
      assign layer_in = (8 * (BYTES + 3 * STEP))'(g_layer[l-1].layer_out);
      for (genvar b = 0; b < 8 * int'(BYTES); b++) begin : g_bit
        assign selected[b] = by[1] ? (by[0] ? layer_in[b+24*STEP] : layer_in[b+16*STEP]) : (by[0] ? layer_in[b+8*STEP] : layer_in[b]);
      end
    end
    if (l == REGISTER) begin : g_register
      always_ff @(posedge clk_i) layer_out <= selected;
    end else begin : g_wire
      assign layer_out = selected;
    end
  end

  assign bytes_o = g_layer[LAYERS].layer_out;

endmodule
