// Converts parameter words of the pre chain to records. On machines with gates before the array it also computes, from
// a gate word, the records of the same product: (v - x_zero)(r - zero) * mult = v * A + B with A = (r - zero) * mult
// and B = (zero - r) * (x_zero * mult). A gate word comes once for each of its eight parts.
//
//   constants ------------------------------------------------------------------+--> records_o
//   gate word --> [part] --> [r - zero, zero - r] --> products (GATE_CYCLES) ---+
//
// gate_i: that of the current instruction, from the cycle on in which its first word is read until GATE_CYCLES after
//         the last.
// Latency: gates GATE_CYCLES, constants 0. Constants do not come while gates are inside.
`include "opu_assert.svh"

module opu_pre_gate
  import opu_pkg::*;
  import opu_compute_pkg::*;
  import opu_pre_pkg::*;
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
    logic signed [8:0] gate_q [LOAD_LANES], minus_q [LOAD_LANES];
    affine_record_t [LOAD_LANES-1:0] records_q;
    logic [FACTOR_BITS-1:0] factor [LOAD_LANES];
    logic [31:0] add [LOAD_LANES];

    // x_zero * mult, valid with the first gate.
    logic signed [24:0] scaled, scaled_q;
    logic signed [16:0] mult, mult_q;
    assign mult = {1'b0, gate_i.mult};
    opu_multiply_soft #(
        .X_BITS     (8),
        .FACTOR_BITS(17)
    ) u_scaled (
        .clk_i,
        .x_i      (gate_i.x_zero),
        .factor_i (mult),
        .product_o(scaled)
    );
    // What moves on for some cycles has a reset somewhere, or tools make a slow shift register of it.
    always_ff @(posedge clk_i) begin
      scaled_q <= rst_ni ? scaled : '0;
      mult_q <= mult;
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
      if (!rst_ni) late_q[LATE-1] <= '0;
      part_q <= part;
      for (int unsigned i = 0; i < LOAD_LANES; i++) begin
        gate_q[i] <= 9'(signed'(part_q[i])) - 9'(signed'(gate_i.zero));
        minus_q[i] <= 9'(signed'(gate_i.zero)) - 9'(signed'(part_q[i]));
        if (!rst_ni) {gate_q[i], minus_q[i]} <= '0;
        records_q[i] <= '{factor: factor[i], add: add[i], shift: {2'b00, gate_i.shift}};
      end
    end

    for (genvar i = 0; i < int'(LOAD_LANES); i++) begin : g_lane
      opu_multiply_soft #(
          .X_BITS      (9),
          .FACTOR_BITS (17),
          .PRODUCT_BITS(FACTOR_BITS)
      ) u_factor (
          .clk_i,
          .x_i      (gate_q[i]),
          .factor_i (mult_q),
          .product_o(factor[i])
      );
      opu_multiply_soft #(
          .X_BITS      (9),
          .FACTOR_BITS (25),
          .PRODUCT_BITS(32)
      ) u_add (
          .clk_i,
          .x_i      (minus_q[i]),
          .factor_i (scaled_q),
          .product_o(add[i])
      );
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
