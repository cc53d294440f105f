// Types and arithmetic of the post engine. The arithmetic is that of opu_fuse/fixedpoint.py.
`ifdef SYNTHESIS
`define OPU_EXACT_WIDTHS
`endif

package opu_post_pkg;

  import opu_pkg::*;

  localparam int unsigned LANES = WORD_CHANNELS;
  localparam int unsigned WORD_BITS = 8 * LANES;
  localparam int unsigned PSUM_BITS = 32 * LANES;

  localparam int unsigned Y_BITS = 26;  // 17 bit origin + 16 bit count times 8 bit stride + 8 bit window

  typedef logic [PSUM_ADDR_BITS-1:0] psum_addr_t;
  typedef logic [PARAM_ADDR_BITS-1:0] param_addr_t;
  typedef logic [RESIDUAL_ADDR_BITS-1:0] residual_addr_t;
  typedef logic [OUTPUT_ADDR_BITS-1:0] output_addr_t;

  // Widths of the intermediates: exact where logic is built, whole machine words where a simulator computes them. The
  // values are the same; a bench compares both.
`ifdef OPU_EXACT_WIDTHS
  localparam int unsigned REQUANT_BITS = 50;          // (int32 + int32) * uint16, and room to round
  localparam int unsigned POOL_BITS = 26;             // 255 * 255 differences of 9 bits
  localparam int unsigned AVERAGE_PRODUCT_BITS = 44;  // times uint16, and room to round
  localparam int unsigned SCALED_BITS = 28;           // sum of two 9 bit * uint16, and room to round
`else
  localparam int unsigned REQUANT_BITS = 64;
  localparam int unsigned POOL_BITS = 32;
  localparam int unsigned AVERAGE_PRODUCT_BITS = 64;
  localparam int unsigned SCALED_BITS = 32;
`endif
  typedef logic signed [REQUANT_BITS-1:0] requant_t;
  typedef logic signed [POOL_BITS-1:0] pool_t;
  typedef logic signed [AVERAGE_PRODUCT_BITS-1:0] average_t;
  typedef logic signed [SCALED_BITS-1:0] scaled_t;

  // What travels beside the W lanes of a value.
  typedef struct packed {
    logic           valid;
    logic           present;   // the window position lies in the tile
    logic           first;     // of its window
    logic           last;      // of its window
    logic           final_one; // of its instruction
    residual_addr_t res_addr;
    output_addr_t   out_addr;
  } item_t;

  // A chain of stages: which stage feeds which. STAGE_REQUANT stands for the head of the chain (also when it only
  // narrows), STAGE_END for "not in the chain".
  typedef struct packed {
    logic   requant;
    stage_e act_from;
    stage_e pool_from;
    stage_e residual_from;
    stage_e exit_from;
    logic   residual_before_pool;
    logic   pool;
    logic   legal;
  } chain_t;

  function automatic chain_t decode_chain(logic [19:0] order);
    stage_e feeder;
    logic ended;
    decode_chain = '0;
    decode_chain.act_from = STAGE_END;
    decode_chain.pool_from = STAGE_END;
    decode_chain.residual_from = STAGE_END;
    decode_chain.legal = 1'b1;
    feeder = STAGE_REQUANT;
    ended = 1'b0;
    for (int i = 0; i < 5; i++) begin
      case (order[4*i+:4])
        STAGE_END: ended = 1'b1;
        STAGE_REQUANT: begin
          if (i != 0) decode_chain.legal = 1'b0;
          decode_chain.requant = 1'b1;
        end
        STAGE_ACT: begin
          if (ended || decode_chain.act_from != STAGE_END) decode_chain.legal = 1'b0;
          decode_chain.act_from = feeder;
          feeder = STAGE_ACT;
        end
        STAGE_POOL: begin
          if (ended || decode_chain.pool) decode_chain.legal = 1'b0;
          decode_chain.residual_before_pool = decode_chain.residual_from != STAGE_END;
          decode_chain.pool_from = feeder;
          decode_chain.pool = 1'b1;
          feeder = STAGE_POOL;
        end
        STAGE_RESIDUAL: begin
          if (ended || decode_chain.residual_from != STAGE_END) decode_chain.legal = 1'b0;
          decode_chain.residual_from = feeder;
          feeder = STAGE_RESIDUAL;
        end
        default: decode_chain.legal = 1'b0;
      endcase
    end
    decode_chain.exit_from = feeder;
  endfunction

  // lo and hi lie in int8.
  function automatic logic [7:0] clamp8(scaled_t x, scaled_t lo, scaled_t hi);
    clamp8 = (x < lo) ? lo[7:0] : (x > hi) ? hi[7:0] : x[7:0];
  endfunction

  // Rounding x / 2**shift, halves to even: (x + 2**(shift-1) - 1 + bit `shift` of x) >> shift. The first two terms are
  // the same for all lanes.
  function automatic scaled_t scaled_half(logic [5:0] shift);
    scaled_half = (shift == '0) ? '0 : (scaled_t'(1) << (shift - 6'd1)) - scaled_t'(1);
  endfunction

  function automatic scaled_t scaled_shift(scaled_t x, logic [5:0] shift, scaled_t half);
    scaled_t odd;
    odd = (shift == '0) ? '0 : (x >>> shift) & scaled_t'(1);
    scaled_shift = (x + half + odd) >>> shift;
  endfunction

  // |x| < 2**25 in the comparator and the residual adder: from this shift on everything rounds to 0.
  function automatic logic [5:0] scaled_limit(logic [5:0] shift);
    scaled_limit = (shift > 6'd27) ? 6'd27 : shift;
  endfunction

endpackage
