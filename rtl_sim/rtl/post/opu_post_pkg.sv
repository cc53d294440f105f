// Types and arithmetic of the post engine. The arithmetic is that of opu_fuse/fixedpoint.py.
`ifdef SYNTHESIS
`define OPU_EXACT_WIDTHS
`endif

package opu_post_pkg;

  import opu_pkg::*;

  localparam int unsigned WORD_BITS = 8 * WORD_CHANNELS;
  localparam int unsigned PSUM_BITS = 32 * WORD_CHANNELS;

  // A word passes the chain in BEATS beats of LANES channels, one a cycle, the lowest channels first.
  localparam int unsigned LANES = POST_LANES;
  localparam int unsigned BEATS = WORD_CHANNELS / LANES;
  localparam int unsigned RESIDUAL_PACE = LANES / RESIDUAL_LANES;  // cycles that each of them takes in a pass with a second operand
  localparam int unsigned BEAT_BITS = (BEATS * RESIDUAL_PACE > 1) ? $clog2(BEATS * RESIDUAL_PACE) : 1;  // one of the two factors is 1
  typedef logic [BEAT_BITS-1:0] beat_t;
  localparam beat_t LAST_BEAT = beat_t'(BEATS - 1);
  localparam int unsigned LANES_BITS = 8 * LANES;
  typedef logic [LANES_BITS-1:0] lanes_t;  // of a beat

  localparam int unsigned Y_BITS = 26;  // 17 bit origin + 16 bit count times 8 bit stride + 8 bit window

  typedef logic [PSUM_ADDR_BITS-1:0] psum_addr_t;
  typedef logic [PARAM_ADDR_BITS-1:0] param_addr_t;
  typedef logic [RESIDUAL_ADDR_BITS-1:0] residual_addr_t;
  typedef logic [OUTPUT_ADDR_BITS-1:0] output_addr_t;
  typedef logic [FEATURE_ADDR_BITS-1:0] feature_addr_t;
  typedef logic [TABLE_ADDR_BITS-1:0] table_addr_t;
  typedef logic [NORM_ADDR_BITS-1:0] norm_addr_t;

  // Widths of the intermediates: exact where logic is built, where products and roundings are those of
  // opu_multiply_soft and opu_round too; whole machine words where a simulator computes them. The values are the same;
  // a bench compares both.
  /* verilator lint_off UNUSEDPARAM */  // no machine has all units
`ifdef OPU_EXACT_WIDTHS
  localparam bit EXACT = 1'b1;
  localparam int unsigned REQUANT_BITS = 49;          // (int32 + int32) * uint16
  localparam int unsigned CENTRED_BITS = 9;           // difference of two int8
  localparam int unsigned POOL_BITS = 25;             // 255 * 255 differences of at most 255
  localparam int unsigned AVERAGE_PRODUCT_BITS = 41;  // times uint16
  localparam int unsigned SCALED_BITS = 25;           // 9 bit * uint16
  localparam int unsigned RESIDUAL_BITS = HAS_PRODUCT ? 33 : 26;  // one of these times 9 bit with products, else the sum of two
`else
  localparam bit EXACT = 1'b0;
  localparam int unsigned REQUANT_BITS = 64;
  localparam int unsigned CENTRED_BITS = 16;
  localparam int unsigned POOL_BITS = 32;
  localparam int unsigned AVERAGE_PRODUCT_BITS = 64;
  localparam int unsigned SCALED_BITS = 32;
  localparam int unsigned RESIDUAL_BITS = HAS_PRODUCT ? 64 : 32;
`endif
  /* verilator lint_on UNUSEDPARAM */
  // Has the device multipliers of 18 by 18 bits, none of 25 by 18? A sum is cut into other parts then (opu_requant).
`ifdef OPU_SHORT_SLICES
  localparam bit SHORT_SLICES = 1'b1;
`else
  localparam bit SHORT_SLICES = 1'b0;
`endif
  typedef logic signed [REQUANT_BITS-1:0] requant_t;
  typedef logic signed [POOL_BITS-1:0] pool_t;
  typedef logic signed [AVERAGE_PRODUCT_BITS-1:0] average_t;
  typedef logic signed [SCALED_BITS-1:0] scaled_t;
  typedef logic signed [RESIDUAL_BITS-1:0] residual_t;

  // A norm has two quarters of a word in each beat, if a beat is half a word.
  localparam bit NORM_QUARTERS = BEATS == 2 && LANES == 1 << $clog2(LANES);
  localparam int unsigned NORM_HALVES = NORM_QUARTERS ? 2 : 1;
  // Which half of its beat a lane of a word is in.
  function automatic int unsigned half_of(int unsigned lane);
    half_of = (lane % LANES) / (LANES / NORM_HALVES);
  endfunction
  function automatic logic norm_of_quarters(logic [3:0] op);
    norm_of_quarters = op >= NORM_QUARTER_MAX;
  endfunction
  function automatic logic norm_finds_maximum(logic [3:0] op);
    norm_finds_maximum = op inside {NORM_MAX, NORM_QUARTER_MAX};
  endfunction
  function automatic logic norm_adds_exponentials(logic [3:0] op);
    norm_adds_exponentials = op inside {NORM_EXPSUM, NORM_QUARTER_EXPSUM, NORM_QUARTER_EXPSUM_ODD};
  endfunction
  function automatic logic norm_has_results(logic [3:0] op);
    norm_has_results = op inside {NORM_SOFTMAX, NORM_NORMALISE, NORM_MAP_NORMALISE, NORM_QUARTER_SOFTMAX};
  endfunction

  typedef logic [((MODE_PX_MAX > 2) ? 2 : 1)-1:0] part_t;  // of a word that has MODE_PX_MAX of them

  // `spread` is the pixels of a word and, below that bit, the slot of second operands.
  function automatic logic [2:0] spread_pixels(logic [2:0] spread);
    spread_pixels = spread[2] ? 3'd4 : spread[1] ? 3'd2 : spread;
  endfunction

  // Sideband of the LANES lanes of a value. res_addr: for every unit that reads the residual buffer.
  typedef struct packed {
    logic           valid;
    logic           present;   // the window position is in the tile
    logic           first;     // of its window
    logic           last;      // of its window
    logic [1:0]     again;     // the next window, the one after it have this position too and skip it
    logic           right;     // in the last column of its window
    logic           final_one; // of its instruction
    logic           bank;      // of the parameters of its block
    beat_t          beat;      // which channels of the word
    logic           row_last;  // of its row
    logic           block_last; // of its block
    logic           last_block; // in the last block
    residual_addr_t [RESIDUAL_UNITS-1:0] res_addr;
    output_addr_t   out_addr;
    feature_addr_t  keep_addr;
  } item_t;

  // A pass through the chain. Units are numbered as in PLACE_* of opu_pkg: the exit is 0, the requantiser 1. It is at
  // the head of every pass, also when it only narrows.
  //   from[p]      the unit that feeds unit p, if p is in the pass; from[AT_EXIT]: the last one
  //   passes[p]    unit p is in the pass; pool: the one that pools, AT_EXIT without one
  //   residual     units that read a second map; product: those that multiply; before_pool: those before the pool
  //   norm         units that normalise
  //   words        parameter words of a block, those of unit p from first[p] on
  //   late         some of them are for units after the requantiser
  localparam int unsigned PLACES = POST_PLACES;
  typedef logic [PLACE_BITS-1:0] unit_t;
  localparam unit_t AT_EXIT = unit_t'(0);
  localparam unit_t AT_HEAD = unit_t'(1);
  typedef logic [5:0] words_t;
  typedef struct packed {
    logic                legal;
    logic [RESIDUAL_UNITS-1:0] residual;
    logic [RESIDUAL_UNITS-1:0] product;
    logic [RESIDUAL_UNITS-1:0] before_pool;
    logic [NORM_UNITS-1:0] norm;
    logic                requant;
    logic                late;
    words_t              words;
    logic [PLACES-1:0]   passes;
    words_t [PLACES-1:0] first;
    unit_t               pool;
    unit_t [PLACES-1:0]  from;
  } chain_t;

  // Parameters of channels are addressed by bank and beat.
  localparam int unsigned RECORDS = 2 * BEATS;
  typedef logic [$clog2(RECORDS)-1:0] record_t;
  function automatic record_t record_of(logic bank, int unsigned beat);
    record_of = record_t'(32'(bank) * BEATS + beat);
  endfunction

  // No unit is used twice, so that no legal order is longer.
  localparam int LONGEST = (int'(PLACES) - 1 < 15) ? int'(PLACES) - 1 : 15;

  // A decoded order. at: the unit of each code, one-hot, none after the last one; unit: its number.
  typedef struct packed {
    logic [LONGEST-1:0] follows, ends, first;  // may follow its predecessor; ends legally; first of its unit
    logic               whole;                 // the longest order has no end mark
    logic               some;
    logic [LONGEST-1:0] last, pools, product;
    unit_t [LONGEST-1:0] unit;
    logic [LONGEST-1:0][PLACES-1:0] at;
  } decoding_t;

  // Every code is checked against those before it, all of them concurrently. A unit and the loop of a pool are used
  // once.
  function automatic decoding_t decoding_of(logic [59:0] order);
    logic [LONGEST+1:0][3:0] codes;
    logic [3:0] code, prior, follower;
    unit_t unit;
    codes = {4'd0, order[4*LONGEST-1:0], 4'd0};
    decoding_of = '0;
    for (int i = 0; i < LONGEST; i++) begin
      prior = codes[i];
      code = codes[i+1];
      follower = codes[i+2];
      unit = POST_PLACE[code];
      decoding_of.unit[i] = unit;
      for (int unsigned p = 1; p < PLACES; p++) decoding_of.at[i][p] = unit == unit_t'(p);
      decoding_of.last[i] = code != '0 && follower == '0;
      decoding_of.pools[i] = PLACE_STAGE[unit] == STAGE_POOL;
      decoding_of.product[i] = POST_PRODUCT[code];
      decoding_of.follows[i] = code == '0 || (unit != AT_EXIT && (i == 0 || prior != '0)
          && (POST_FOLLOW[prior][code] || (i == 0 && unit == AT_HEAD)));
      decoding_of.ends[i] = (code == '0 && i != 0) || follower != '0 || POST_END[code];
      decoding_of.first[i] = 1'b1;
      for (int j = 0; j < i; j++) begin
        decoding_of.first[i] &= unit == AT_EXIT || !(unit == decoding_of.unit[j] || (decoding_of.pools[i] && decoding_of.pools[j]));
      end
    end
    decoding_of.some = order[3:0] != '0;
    decoding_of.whole = (order >> 4 * LONGEST) == '0;
  endfunction

  // Parameter words of some units: no sum where only one takes any.
  function automatic words_t words_of(logic [PLACES-1:0] units);
    words_of = '0;
    for (int unsigned p = 1; p < PLACES; p++) words_of += units[p] ? words_t'(PLACE_WORDS[p]) : '0;
  endfunction

  // The route through the chain; that of an illegal order is never used. No unit is used twice, so few bits are or'ed.
  function automatic chain_t decoded(decoding_t decoding);
    logic [PLACES-1:0] passed;                 // units of the codes before
    logic [PLACES-1:0][PLACES-1:0] prior;      // units of the codes before that of unit p
    logic [PLACES-1:0] product;
    decoded = '0;
    passed = '0;
    prior = '0;
    product = '0;
    decoded.legal = &{decoding.follows, decoding.ends, decoding.first, decoding.whole};
    for (int i = 0; i < LONGEST; i++) begin
      for (int unsigned p = 1; p < PLACES; p++) begin
        prior[p] |= decoding.at[i][p] ? passed : '0;
        decoded.from[p] |= !decoding.at[i][p] ? '0 : (i == 0) ? AT_HEAD : decoding.unit[(i == 0) ? 0 : i-1];
        product[p] |= decoding.at[i][p] && decoding.product[i];
      end
      for (int unsigned p = 1; p < PLACES; p++) begin
        for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) begin
          if (PLACE_STAGE[p] == STAGE_RESIDUAL && PLACE_BANK[p] == 4'(u)) decoded.before_pool[u] |= decoding.pools[i] && passed[p];
        end
      end
      decoded.from[AT_EXIT] |= decoding.last[i] ? decoding.unit[i] : '0;
      passed |= decoding.at[i];
    end
    if (!decoding.some) decoded.from[AT_EXIT] = AT_HEAD;
    decoded.passes = passed;
    decoded.words = words_of(passed);
    for (int unsigned p = 1; p < PLACES; p++) begin
      if (PLACE_STAGE[p] == STAGE_REQUANT) decoded.requant |= passed[p];
      if (PLACE_STAGE[p] == STAGE_POOL) decoded.pool |= passed[p] ? unit_t'(p) : '0;
      for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) begin
        if (PLACE_STAGE[p] == STAGE_RESIDUAL && PLACE_BANK[p] == 4'(u)) begin
          decoded.residual[u] |= passed[p];
          decoded.product[u] |= product[p];
        end
      end
      for (int unsigned u = 0; u < NORM_UNITS; u++) begin
        if (PLACE_STAGE[p] == STAGE_NORM && PLACE_BANK[p] == 4'(u)) decoded.norm[u] |= passed[p];
      end
      if (PLACE_WORDS[p] != '0) decoded.first[p] = words_of(prior[p]);
      if (PLACE_WORDS[p] != '0 && unit_t'(p) != AT_HEAD) decoded.late |= passed[p];
    end
  endfunction

  // Copies of a shift (opu_copies), and which of them a lane takes.
  localparam int unsigned SHIFT_COPIES = (LANES < 4) ? LANES : 4;
  function automatic int unsigned copy_of(int unsigned lane, int unsigned lanes);
    copy_of = lane * SHIFT_COPIES / lanes;
  endfunction

  // Words of two or four pixels: neighbours in lower and upper half of the lanes, which of them is the larger one, and
  // a word that has it in the half that `right` names, the lowest value in the other one.
  function automatic logic [WORD_BITS-1:0] pairs_of(logic [WORD_BITS-1:0] word, logic four);
    pairs_of = word;
    if (four) begin
      pairs_of[WORD_BITS/4+:WORD_BITS/4] = word[WORD_BITS/2+:WORD_BITS/4];
      pairs_of[WORD_BITS/2+:WORD_BITS/4] = word[WORD_BITS/4+:WORD_BITS/4];
    end
  endfunction

  function automatic logic [WORD_CHANNELS/2-1:0] lower_larger(logic [WORD_BITS-1:0] pairs);
    for (int unsigned l = 0; l < WORD_CHANNELS / 2; l++) begin
      lower_larger[l] = signed'(pairs[8*l+:8]) > signed'(pairs[8*l+WORD_BITS/2+:8]);
    end
  endfunction

  function automatic logic [WORD_BITS-1:0] folded(logic [WORD_BITS-1:0] pairs, logic [WORD_CHANNELS/2-1:0] larger, logic right);
    automatic logic [7:0] largest;
    for (int unsigned l = 0; l < WORD_CHANNELS / 2; l++) begin
      largest = larger[l] ? pairs[8*l+:8] : pairs[8*l+WORD_BITS/2+:8];
      folded[8*l+:8] = right ? 8'h80 : largest;
      folded[8*l+WORD_BITS/2+:8] = right ? largest : 8'h80;
    end
  endfunction

  // lo and hi are int8.
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

  // |x| < 2**24 in the comparator: from this shift on everything rounds to 0.
  function automatic logic [5:0] scaled_limit(logic [5:0] shift);
    scaled_limit = (shift > 6'd27) ? 6'd27 : shift;
  endfunction

endpackage
