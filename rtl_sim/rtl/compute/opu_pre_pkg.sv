// Types of the pre chain: parameter words, records of lanes, a gate (opu_pre_load, opu_pre_gate, opu_pre).
package opu_pre_pkg;

  import opu_pkg::*;

  // A parameter word on its way into the pre chain.
  typedef struct packed {
    logic       valid;
    logic       bank;
    logic [2:0] unit;
    logic [2:0] word;
    logic       gate;  // an eighth of a gate's word, not one of eight
  } pre_load_t;

  // Operands of a lane of a unit: rne((v * factor + add) / 2**shift). A gate's factor is (r - zero) * mult.
  localparam int unsigned LOAD_LANES = WORD_CHANNELS / 8;  // of a parameter word
  localparam int unsigned FACTOR_BITS = HAS_GATES ? 25 : 16;
  typedef struct packed {logic [7:0] shift; logic [FACTOR_BITS-1:0] factor; logic [31:0] add;} affine_record_t;

  // The product with a gate that an instruction asks for.
  typedef struct packed {logic [7:0] x_zero; logic [7:0] zero; logic [15:0] mult; logic [5:0] shift;} gate_t;

endpackage
