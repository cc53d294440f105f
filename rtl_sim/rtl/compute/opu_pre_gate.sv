// Parameters of the unit before the array on their way from the memory. Machines with gates there: of a gate's word, which comes
// once for each of its eight parts, it makes the records that the unit would be given for the same product,
// (v - x_zero)(r - zero) * mult = v * A + B with A = (r - zero) * mult and B = -x_zero * A.
//
// gate_i: of the instruction at work, from the cycle on in which its first word is read until GATE_CYCLES behind the last one.
// Records of gates come GATE_CYCLES later than their words, constants at once; constants do not come meanwhile.
`include "opu_assert.svh"

module opu_pre_gate
  import opu_pkg::*;
  import opu_compute_pkg::*;
(
    input  logic                     clk_i,
    input  logic                     rst_ni,

    input  gate_t                    gate_i,
    input  pre_load_t                load_i,
    input  logic [WORD_BITS-1:0]     data_i,

    output pre_load_t                load_o,
    output affine_record_t [LOAD_LANES-1:0] records_o
);

  // int32 B, int16 A, int8 s and a zero byte for each lane.
  affine_record_t [LOAD_LANES-1:0] constants;
  always_comb begin
    for (int unsigned i = 0; i < LOAD_LANES; i++) begin
      constants[i].add = data_i[64*i+:32];
      constants[i].factor = FACTOR_BITS'(signed'(data_i[64*i+32+:16]));
      constants[i].shift = data_i[64*i+48+:8];
    end
  end

  if (HAS_GATES) begin : g_gates
    localparam int unsigned LATE = GATE_CYCLES;
    pre_load_t late_q [LATE];
    logic [LOAD_LANES-1:0][7:0] part, part_q;
    logic signed [8:0] gate_q [LOAD_LANES];
    logic signed [FACTOR_BITS-1:0] factor_q [LOAD_LANES];
    logic signed [31:0] add_q [LOAD_LANES];
    affine_record_t [LOAD_LANES-1:0] records_q;

    // -x_zero * mult, there before the first gate.
    logic signed [8:0] x_zero_q;
    logic signed [24:0] mult_add_q;
    logic signed [16:0] mult_q;
    always_ff @(posedge clk_i) begin
      x_zero_q <= -9'(signed'(gate_i.x_zero));
      mult_q <= {1'b0, gate_i.mult};
      mult_add_q <= 25'(x_zero_q) * 25'(mult_q);
    end

    always_comb begin
      for (int unsigned i = 0; i < LOAD_LANES; i++) part[i] = data_i[8*(32'(load_i.word)*LOAD_LANES+i)+:8];
    end

    always_ff @(posedge clk_i) begin
      late_q[0] <= load_i;
      late_q[0].valid <= rst_ni && load_i.valid && load_i.gate;
      for (int unsigned s = 1; s < LATE; s++) begin
        late_q[s] <= late_q[s-1];
        if (!rst_ni) late_q[s].valid <= 1'b0;
      end
      part_q <= part;
      for (int unsigned i = 0; i < LOAD_LANES; i++) begin
        gate_q[i] <= 9'(signed'(part_q[i])) - 9'(signed'(gate_i.zero));
        factor_q[i] <= FACTOR_BITS'(gate_q[i]) * FACTOR_BITS'(mult_q);
        add_q[i] <= 32'(gate_q[i]) * 32'(mult_add_q);
        records_q[i].factor <= factor_q[i];
        records_q[i].add <= add_q[i];
        records_q[i].shift <= {2'b00, gate_i.shift};
      end
    end

    always_comb begin
      load_o = late_q[LATE-1].valid ? late_q[LATE-1] : load_i;
      if (load_i.gate) load_o.valid = late_q[LATE-1].valid;
    end
    assign records_o = late_q[LATE-1].valid ? records_q : constants;

    `OPU_ASSERT(OneAtATime, !(late_q[LATE-1].valid && load_i.valid && !load_i.gate))
  end else begin : g_constants
    assign load_o = load_i;
    assign records_o = constants;
    logic unused;
    assign unused = &{clk_i, rst_ni, gate_i};
  end

endmodule
