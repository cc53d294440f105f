// Statistics of every pixel of a pass (opu_norm): maxima; sums, in whose place the last block leaves factor, offset and
// shift. Passes of a map have one record, that of pixel 0: its sums remain in registers until the last word of the pass.
// Passes of quarters have one for each beat, with two maxima; factor and shift of its odd quarter are in place of the offset.
//
//   terms_i, values_i --> [tree, a register a level] --> [beats of a word] --> [+ sums so far] --> sums --> next block
//                                                                                   |  ^
//                                                                                   |  +---- memory, read two cycles before
//                                                                                   +--> opu_norm_scaling --> memory
//
// item_i:    items of the unit; terms_i, values_i belong to the one of 9 cycles before. Lanes without a channel have terms
//            of 0, and values of 0, or -128 in a pass of maxima.
// maximum_o: of the pixel of the item 2 cycles before. factor_o, offset_o, shift_o: 6 cycles before.
// A pixel is in a block once, and a block begins POST_HOLD cycles after the one before at least: sums are written long
// before they are read. The next pass begins when the chain is empty: scaling is complete before it is read.
`include "opu_assert.svh"

module opu_norm_statistics
  import opu_pkg::*;
  import opu_post_pkg::*;
(
    input  logic                   clk_i,
    input  logic                   rst_ni,

    input  logic [3:0]             op_i,
    input  logic [7:0]             idle_i,
    input  logic signed [7:0]      zero_i,
    input  logic [15:0]            scale_i,
    input  logic signed [6:0]      shift_i,

    /* verilator lint_off UNUSEDSIGNAL */  // the chain uses the other fields
    input  item_t                  item_i,
    /* verilator lint_on UNUSEDSIGNAL */
    output logic signed [7:0]      maximum_o [NORM_HALVES],
    output logic [24:0]            factor_o [NORM_HALVES],
    output logic signed [31:0]     offset_o,
    output logic [5:0]             shift_o [NORM_HALVES],
    input  logic [LANES-1:0][23:0] terms_i,
    input  logic [LANES-1:0][8:0]  values_i
);

  localparam int unsigned PIXELS = NORM_HALVES * PSUM_WORDS / 2;
  localparam int unsigned PIXEL_BITS = $clog2(PIXELS);
  localparam int unsigned LEVELS = $clog2(LANES);
  localparam int unsigned INPUTS = 1 << LEVELS;
  localparam int unsigned IN = 9;               // cycles until terms_i
  localparam int unsigned WORD = IN + LEVELS + 1;  // until the sum of a word
  localparam int unsigned LATE = WORD + 2;      // until its sum with those of other blocks
  localparam int unsigned READ = WORD - 2;
  typedef logic [PIXEL_BITS-1:0] pixel_t;

  // ---- which pixel, which block -------------------------------------------------------------------------------------

  typedef struct packed {
    logic   valid;
    logic   whole;    // last beat of its word
    logic   begins;   // beat 0
    logic   first;    // block
    logic   last;     // block
    pixel_t pixel;
  } place_t;

  pixel_t pixel_q;
  logic first_q, pass_begins_q, block_begins_q;
  logic counts_q, restarts_q;
  logic [7:0] added_q, idle_q;
  logic [17:0] channels_q, count_q;  // values of a map, or channels of whole words and those of a pixel
  logic signed [24:0] zeros_q;      // count times the zero point
  logic [56:0] epsilon_q;
  place_t place, place_q [LATE];    // by the cycles since they entered, less one
  logic of_map, sums_map, quarters;
  assign quarters = norm_of_quarters(op_i);
  assign sums_map = op_i == NORM_MAP_MOMENTS;
  assign of_map = sums_map || op_i == NORM_MAP_NORMALISE;
  always_comb begin
    place.valid = item_i.valid;
    place.whole = quarters || item_i.beat == LAST_BEAT;
    place.begins = quarters || item_i.beat == '0;
    place.first = sums_map ? pass_begins_q : first_q;
    place.last = sums_map ? item_i.final_one : item_i.last_block;
    place.pixel = of_map ? '0 : pixel_q;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      pixel_q <= '0;
      first_q <= 1'b1;
      pass_begins_q <= 1'b1;
      block_begins_q <= 1'b1;
    end else if (item_i.valid && item_i.beat == LAST_BEAT) begin
      pixel_q <= item_i.block_last ? '0 : pixel_q + pixel_t'(1);
      first_q <= item_i.final_one || (first_q && !item_i.block_last);
      pass_begins_q <= item_i.final_one;
      block_begins_q <= item_i.block_last;
    end else if (item_i.valid && quarters) begin
      pixel_q <= pixel_q + pixel_t'(1);
    end
    counts_q <= item_i.valid && item_i.beat == LAST_BEAT && (sums_map || block_begins_q);
    restarts_q <= pass_begins_q;
    added_q <= 8'(WORD_CHANNELS) - (sums_map && item_i.last_block ? idle_i : '0);
    if (counts_q) channels_q <= (restarts_q ? '0 : channels_q) + 18'(added_q);
    idle_q <= sums_map ? '0 : idle_i;
    count_q <= channels_q - 18'(idle_q);
    zeros_q <= 25'(signed'({1'b0, count_q})) * 25'(zero_i);
    epsilon_q <= 57'(scale_i) << shift_i[5:0];
    place_q[0] <= place;
    for (int unsigned s = 1; s < LATE; s++) place_q[s] <= place_q[s-1];
    if (!rst_ni) begin
      for (int unsigned s = 0; s < LATE; s++) place_q[s] <= '0;
    end
  end

  logic maxima, results;
  assign maxima = norm_finds_maximum(op_i);
  assign results = norm_has_results(op_i);

  // ---- a word: trees over the lanes, then its beats -----------------------------------------------------------------

  logic [31:0] term_q [LEVELS+1][INPUTS];
  logic signed [16:0] value_q [LEVELS+1][INPUTS];
  logic signed [7:0] most_q [LEVELS][INPUTS];     // without the last level
  always_comb begin
    for (int unsigned l = 0; l < INPUTS; l++) begin
      term_q[0][l] = (l < LANES) ? 32'(terms_i[l%LANES]) : '0;
      value_q[0][l] = (l < LANES) ? 17'(signed'(values_i[l%LANES])) : '0;
      most_q[0][l] = (l < LANES) ? values_i[l%LANES][7:0] : 8'h80;
    end
  end
  for (genvar v = 1; v <= int'(LEVELS); v++) begin : g_level
    always_ff @(posedge clk_i) begin
      for (int unsigned l = 0; l < INPUTS >> v; l++) begin
        term_q[v][l] <= term_q[v-1][2*l] + term_q[v-1][2*l+1];
        value_q[v][l] <= value_q[v-1][2*l] + value_q[v-1][2*l+1];
      end
    end
    if (v < int'(LEVELS)) begin : g_maxima
      always_ff @(posedge clk_i) begin
        for (int unsigned l = 0; l < INPUTS >> v; l++) begin
          most_q[v][l] <= (most_q[v-1][2*l] > most_q[v-1][2*l+1]) ? most_q[v-1][2*l] : most_q[v-1][2*l+1];
        end
      end
    end
    for (genvar l = int'(INPUTS) >> v; l < int'(INPUTS); l++) begin : g_none
      assign term_q[v][l] = '0;
      assign value_q[v][l] = '0;
      if (v < int'(LEVELS)) begin : g_no_maximum
        assign most_q[v][l] = '0;
      end
    end
  end

  logic [31:0] word_terms_q;
  logic signed [16:0] word_value_q;
  // The last level of maxima: in passes of quarters each half of a beat has its own, else both have that of all lanes.
  logic signed [7:0] lower, upper, beat_most_q [NORM_HALVES], word_most_q [NORM_HALVES];
  assign lower = most_q[LEVELS-1][0];
  assign upper = most_q[LEVELS-1][1];
  always_ff @(posedge clk_i) begin
    beat_most_q[0] <= (quarters || lower > upper) ? lower : upper;
    if (NORM_HALVES > 1) beat_most_q[NORM_HALVES-1] <= (!quarters && lower > upper) ? lower : upper;
  end
  always_ff @(posedge clk_i) begin
    word_terms_q <= term_q[LEVELS][0] + (place_q[WORD-2].begins ? '0 : word_terms_q);
    word_value_q <= value_q[LEVELS][0] + (place_q[WORD-2].begins ? '0 : word_value_q);
    for (int unsigned h = 0; h < NORM_HALVES; h++) begin
      if (place_q[WORD-2].begins || beat_most_q[h] > word_most_q[h]) word_most_q[h] <= beat_most_q[h];
    end
  end

  // ---- sums of the blocks -------------------------------------------------------------------------------------------

  /* verilator lint_off UNUSEDSIGNAL */  // some fields are of other cycles, some for assertions
  place_t word, next, late, reader, maximum_reader;
  logic pending;                    // some scaling is not complete
  /* verilator lint_on UNUSEDSIGNAL */
  // Sums of exponentials or squares have 41 bits: the lower 20, a cycle ahead of the others, and a carry.
  logic [65:0] sums, sums_d;
  logic [65:20] sums_q;
  logic [20:0] low_terms_q;
  logic [31:20] word_high_q;
  logic [40:0] terms_q;
  logic signed [16:0] late_value_q;
  logic signed [24:0] values_q;
  logic signed [7:0] maximum_q [NORM_HALVES];
  assign word = place_q[WORD-1];
  assign next = place_q[WORD];
  assign late = place_q[LATE-1];

  always_ff @(posedge clk_i) begin
    sums_q <= sums[65:20];
    word_high_q <= word_terms_q[31:20];
    late_value_q <= word_value_q;
    if (!sums_map || (word.valid && word.whole)) begin
      low_terms_q <= (word.first ? '0 : 21'(sums_map ? low_terms_q[19:0] : sums[19:0])) + 21'(word_terms_q[19:0]);
    end
    if (!sums_map || (next.valid && next.whole)) begin
      terms_q[19:0] <= low_terms_q[19:0];
      terms_q[40:20] <= (next.first ? '0 : sums_map ? terms_q[40:20] : sums_q[40:20]) + 21'(word_high_q) + 21'(low_terms_q[20]);
      values_q <= (next.first ? '0 : sums_map ? values_q : signed'(sums_q[65:41])) + 25'(late_value_q);
    end
    for (int unsigned h = 0; h < NORM_HALVES; h++) begin
      maximum_q[h] <= (!word.first && maximum_o[h] > word_most_q[h]) ? maximum_o[h] : word_most_q[h];
    end
  end

  // The next pass may have other settings before the scaling of the last pixels is complete.
  logic [3:0] op_q;
  logic [16:0] mantissa_q;
  logic [17:0] channel_count_q;
  logic signed [6:0] exponent_q;
  logic [56:0] variance_q;
  logic signed [24:0] centre_q;
  always_ff @(posedge clk_i) begin
    if (word.valid) begin
      op_q <= op_i;
      mantissa_q <= 17'(scale_i) + 17'd1;
      exponent_q <= shift_i;
      variance_q <= epsilon_q;
      channel_count_q <= count_q;
      centre_q <= zeros_q;
    end
  end

  logic summed, scaled;
  pixel_t scaled_pixel;
  logic [24:0] factor;
  logic signed [31:0] offset;
  logic [5:0] shift;
  assign summed = late.valid && late.whole && !maxima && !results;

  opu_norm_scaling #(
      .TAG_BITS(PIXEL_BITS)
  ) u_scaling (
      .clk_i,
      .rst_ni,
      .softmax_i (norm_adds_exponentials(op_q)),
      .rms_i     (op_q == NORM_SQUARES),
      .count_i   (channel_count_q),
      .centre_i  (centre_q),
      .epsilon_i (variance_q),
      .mantissa_i(mantissa_q),
      .exponent_i(exponent_q),
      .valid_i   (summed && late.last),
      .tag_i     (late.pixel),
      .terms_i   (terms_q),
      .values_i  (values_q),
      .pending_o (pending),
      .valid_o   (scaled),
      .tag_o     (scaled_pixel),
      .factor_o  (factor),
      .offset_o  (offset),
      .shift_o   (shift)
  );

  // ---- memories -----------------------------------------------------------------------------------------------------

  // The record of an odd quarter is written over the offset, which a Softmax has not.
  logic odd, sums_we;
  assign odd = op_q == NORM_QUARTER_EXPSUM_ODD;
  assign sums_we = summed && !late.last;
  assign sums_d = !scaled ? {values_q, terms_q} : odd ? 66'({shift, factor[16:0]}) : 66'({shift, factor, offset});
  assign offset_o = quarters ? '0 : sums[31:0];
  assign factor_o[0] = sums[56:32];
  assign shift_o[0] = sums[62:57];
  if (NORM_HALVES > 1) begin : g_odd
    assign factor_o[NORM_HALVES-1] = quarters ? 25'(sums[16:0]) : factor_o[0];
    assign shift_o[NORM_HALVES-1] = quarters ? sums[22:17] : shift_o[0];
  end
  logic read;
  assign reader = results ? place_q[3] : place_q[READ-1];
  assign maximum_reader = maxima ? place_q[READ-1] : place;
  assign read = reader.valid && (results || reader.whole);

  pixel_t sums_waddr;
  assign sums_waddr = scaled ? scaled_pixel : late.pixel;

  opu_ram_1r1w #(
      .WIDTH(32),
      .DEPTH(PIXELS),
      .OUTPUT_REGISTER(1'b1)
  ) u_offsets (
      .clk_i,
      .we_i   (scaled || sums_we),
      .waddr_i(sums_waddr),
      .wdata_i(sums_d[31:0]),
      .re_i   (read),
      .raddr_i(reader.pixel),
      .rdata_o(sums[31:0])
  );

  opu_ram_1r1w #(
      .WIDTH(34),
      .DEPTH(PIXELS),
      .OUTPUT_REGISTER(1'b1)
  ) u_factors (
      .clk_i,
      .we_i   ((scaled && !odd) || sums_we),
      .waddr_i(sums_waddr),
      .wdata_i(sums_d[65:32]),
      .re_i   (read),
      .raddr_i(reader.pixel),
      .rdata_o(sums[65:32])
  );

  logic [8*NORM_HALVES-1:0] maxima_d, maxima_q;
  for (genvar h = 0; h < int'(NORM_HALVES); h++) begin : g_maximum
    assign maxima_d[8*h+:8] = maximum_q[h];
    assign maximum_o[h] = maxima_q[8*h+:8];
  end

  opu_ram_1r1w #(
      .WIDTH(8 * NORM_HALVES),
      .DEPTH(PIXELS),
      .OUTPUT_REGISTER(1'b1)
  ) u_maxima (
      .clk_i,
      .we_i   (next.valid && next.whole && maxima),
      .waddr_i(next.pixel),
      .wdata_i(maxima_d),
      .re_i   (maximum_reader.valid && (!maxima || maximum_reader.whole)),
      .raddr_i(maximum_reader.pixel),
      .rdata_o(maxima_q)
  );

  `OPU_ASSERT(ScalingComplete, read && results |-> !pending)
  `OPU_ASSERT(OneWriter, scaled |-> !sums_we)
  `OPU_ASSERT(PixelsFit, item_i.valid |-> 32'(place.pixel) < PIXELS)
  for (genvar s = int'(READ); s < int'(LATE); s++) begin : g_written
    `OPU_ASSERT(SumsWritten, read && !results && !sums_map && !reader.first |->
        !(place_q[s].valid && place_q[s].whole && place_q[s].pixel == reader.pixel))
  end

endmodule
