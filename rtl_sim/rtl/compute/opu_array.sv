// The inner-product array: weight row registers, the alignment of the feature words, the window of depthwise, the
// multipliers and adder trees.
//
// One step per cycle, latency 2 + MULTIPLY_STAGES from a step with its feature words to its sums:
//   align    pixel p's bytes, `pixel_x` behind those of pixel p - 1, move to lane 0, going on into the next word; bytes
//            outside the tile are `pad`. depthwise: unit u takes the taps of lane u of the part
//   multiply unit u sums its MULTIPLIERS products with the operands of segment part u mod k, k = ic / MULTIPLIERS, of its
//            pixel: px equal groups of neighbouring units. This takes MULTIPLY_STAGES cycles: factors, products, sums of
//            two products and every level of the adders are registered
//   combine  k neighbouring units are summed: output channel o of the mode; the sums stand in the lanes of the group
// A copy step passes the aligned bytes, sign-extended, to all lanes.
// fill_i writes one word of a row register (one a pixel); a row that is filled must not be used by a step in `multiply`.
// enter_i writes one or two words, those of the same cycle, into the window; steps of later cycles see them.
//
// The whole datapath is one clocked process, written from the last stage to the first with blocking assignments to
// variables that nothing else reads (what other processes read is assigned without blocking): each stage sees its predecessor's result of the cycle before, as registers do.
// Loops stand in functions and, where their bodies are alike, stay rolled: a simulator's compiler then sees vectors, which
// run an order of magnitude faster than an instance per multiplier. Where widths are exact (synthesis), `multiply` has
// another body: two units that have the same operands in every mode share multipliers (opu_multiply_pair), others stand
// alone (opu_multiply_unit). The simulator's body multiplies in the first of these cycles and lets the sums wait.
`include "opu_assert.svh"

module opu_array
  import opu_pkg::*;
  import opu_compute_pkg::*;
(
    input  logic                     clk_i,

    input  fill_t                    fill_i,
    input  logic [WEIGHT_BITS-1:0]   fill_data_i,

    /* verilator lint_off UNUSEDSIGNAL */  // each stage needs some fields of its step
    input  step_t                    align_i,
    input  step_t                    multiply_i,
    input  step_t                    combine_i,
    /* verilator lint_on UNUSEDSIGNAL */
    input  enter_t                   enter_i,
    input  logic [WORD_BITS-1:0]     feature_i,        // belongs to align_i and enter_i, as does the next word
    input  logic [WORD_BITS-1:0]     next_i,

    output logic [PSUM_BITS-1:0]     sums_o            // one cycle after `combine`; lanes outside the group: anything
);

  localparam int unsigned PARTS = WORD_CHANNELS / MULTIPLIERS;

  // A chunk of a row is part of one weight word and one unit's share: as long as the largest power of two that divides both.
  localparam int unsigned SHARE_CHUNK = MULTIPLIERS & (~MULTIPLIERS + 1);
  localparam int unsigned CHUNK = (WEIGHT_WIDTH < SHARE_CHUNK) ? WEIGHT_WIDTH : SHARE_CHUNK;
  localparam int unsigned UNIT_CHUNKS = MULTIPLIERS / CHUNK;
  localparam int unsigned WORD_CHUNKS = WEIGHT_WIDTH / CHUNK;
  `OPU_ASSERT_STATIC(WordsAndUnitsAlign, MULTIPLIERS % CHUNK == 0 && WEIGHT_WIDTH % CHUNK == 0)

  localparam int unsigned SEGMENT_OPERANDS = MODE_PX_MAX * PARTS;
  localparam int unsigned OPERANDS = (HAS_DEPTHWISE && UNITS > SEGMENT_OPERANDS) ? UNITS : SEGMENT_OPERANDS;

  /* verilator lint_off UNUSEDSIGNAL */  // read where widths are exact
  element_t operand_q [OPERANDS][MULTIPLIERS];
  /* verilator lint_on UNUSEDSIGNAL */
  element_t operand [OPERANDS][MULTIPLIERS];  // of conv: the parts of pixel 0, of pixel 1, …
  element_t copied [MULTIPLY_STAGES][PARTS][MULTIPLIERS];  // by the cycles behind `multiply`, as the sums
  sum_t unit_sum [MULTIPLY_STAGES][UNITS];
  // A sum of as many units as there are parts; its sign is repeated behind the register. A register for each of these bits would
  // have its own wire from the end of the sums.
  localparam int unsigned KEPT_BITS = EXACT ? SUM_BITS + $clog2(PARTS) : 32;
  logic [KEPT_BITS*WORD_CHANNELS-1:0] sums_q;
  logic [16*WORD_BYTES-1:0] words;
  logic [WORD_BITS-1:0] word;
  logic [WORD_BITS-1:0] window [WINDOW_SIDE][COLUMNS];

  // Where widths are exact (synthesis). Units u and u + PARTS are a pair: parts repeat every k <= PARTS units, and a pixel's
  // units begin at whole pairs. The units of depthwise have operands of their own. A pair of products in short slices would take two
  // and an adder behind them.
  localparam bit PAIRED = !HAS_DEPTHWISE && !SHORT_SLICES && UNITS / MODE_PX_MAX % (2 * PARTS) == 0
      && MULTIPLIERS > 1 && $onehot(MULTIPLIERS);
  sum_t exact_sum [UNITS];

  // Pairs keep the weights at work in their slices. The row that enters then needs one register, and no multiplexer: its words
  // wait a cycle, so the first comes when the row before has gone over into the slices. Weights of the high unit of a pair
  // come PARTS units behind those of the low one; each is kept less 1 where the low one is negative (opu_multiply_pair).
  localparam bit HELD = EXACT && PAIRED;
  localparam int unsigned KEPT_ROWS = HELD ? 1 : ROWS;
  localparam int unsigned KEPT_WEIGHT_BITS = HELD ? 9 : ELEMENT_BITS;
  typedef logic signed [KEPT_WEIGHT_BITS-1:0] kept_weight_t;
  kept_weight_t row [KEPT_ROWS][ROW_WORDS][WEIGHT_WIDTH];
  kept_weight_t filling [WEIGHT_WIDTH];
  fill_t fill_q, entering;
  logic [WEIGHT_BITS-1:0] fill_data_q, entering_data;
  logic [WORD_CHANNELS-1:0] negative_q;  // signs of the weights that entered last, the first one at bit 0
  assign entering = HELD ? fill_q : fill_i;
  assign entering_data = HELD ? fill_data_q : fill_data_i;

  if (!EXACT) begin : g_rolled
    assign exact_sum = '{default: '0};
  end else begin : g_exact
    logic [8*MULTIPLIERS-1:0] weight [UNITS];
    logic [9*MULTIPLIERS-1:0] high_weight [UNITS];
    for (genvar u = 0; u < int'(UNITS); u++) begin : g_unit
      // Chosen byte by byte: a dynamic index into `row` makes a multiplexer of a whole row, here one for every weight.
      for (genvar i = 0; i < int'(MULTIPLIERS); i++) begin : g_weight
        localparam int unsigned AT = u * MULTIPLIERS + i;
        logic [KEPT_ROWS-1:0][KEPT_WEIGHT_BITS-1:0] kept;
        for (genvar r = 0; r < int'(KEPT_ROWS); r++) begin : g_row
          assign kept[r] = row[r][AT/WEIGHT_WIDTH][AT%WEIGHT_WIDTH];
        end
        assign weight[u][8*i+:8] = 8'(kept[HELD ? '0 : multiply_i.row_select]);
        assign high_weight[u][9*i+:9] = 9'(kept[0]);
      end

      if (!PAIRED || u / PARTS % 2 == 0) begin : g_multiply
        logic [8*MULTIPLIERS-1:0] operands;
        always_comb begin
          operands = '0;
          for (int unsigned m = 0; m < LAYOUTS; m++) begin
            automatic int unsigned pixel = u / (UNITS / 32'(LAYOUT_PX[m]));
            automatic int unsigned part = u % (32'(LAYOUT_IC[m]) / MULTIPLIERS);
            if (multiply_i.layout == layout_t'(m)) begin
              for (int unsigned i = 0; i < MULTIPLIERS; i++) begin
                operands[8*i+:8] = 8'(operand_q[(m == MODE_COUNT) ? u : pixel * PARTS + part][i]);
              end
            end
          end
        end
        if (PAIRED) begin : g_pair
          opu_multiply_pair #(
              .TERMS     (MULTIPLIERS),
              .SUM_STAGES(SUM_STAGES)
          ) u_pair (
              .clk_i,
              .load_i    (multiply_i.first),
              .shared_i  (operands),
              .low_i     (weight[u]),
              .high_i    (high_weight[u+PARTS]),
              .low_sum_o (exact_sum[u]),
              .high_sum_o(exact_sum[u+PARTS])
          );
        end else begin : g_alone
          opu_multiply_unit #(
              .TERMS     (MULTIPLIERS),
              .SUM_STAGES(SUM_STAGES)
          ) u_unit (
              .clk_i,
              .operand_i(operands),
              .weight_i (weight[u]),
              .sum_o    (exact_sum[u])
          );
        end
      end
    end
  end

  function automatic void fill(row_t select, int unsigned index, int unsigned pitch);
    /* verilator unroll_full */
    for (int unsigned b = 0; b < WEIGHT_WIDTH; b++) filling[b] = KEPT_WEIGHT_BITS'(signed'(entering_data[8*b+:8]));
    if (HELD) begin
      automatic logic [WEIGHT_WIDTH-1:0] signs;
      automatic logic [WEIGHT_WIDTH+WORD_CHANNELS-1:0] negative;
      for (int unsigned b = 0; b < WEIGHT_WIDTH; b++) signs[b] = entering_data[8*b+7];
      negative = {signs, negative_q};
      for (int unsigned b = 0; b < WEIGHT_WIDTH; b++) begin
        if ((index * WEIGHT_WIDTH + b) / WORD_CHANNELS % 2 == 1) filling[b] = filling[b] - KEPT_WEIGHT_BITS'(negative[b]);
      end
      negative_q <= negative[WEIGHT_WIDTH+:WORD_CHANNELS];
    end
    if (EXACT) begin  // a write enable a word, not a shifter over all rows
      for (int unsigned w = 0; w < ROW_WORDS; w++) begin
        automatic logic hit = 1'b0;
        for (int unsigned p = 0; p < MODE_PX_MAX; p++) hit = hit || p * pitch + index == w;
        for (int unsigned r = 0; r < KEPT_ROWS; r++) if (hit && (HELD || select == row_t'(r))) row[r][w] <= filling;
      end
    end else begin
      /* verilator unroll_full */
      for (int unsigned p = 0; p < MODE_PX_MAX; p++) begin
        if (p * pitch + index < ROW_WORDS) row[select][ROW_WORD_BITS'(p*pitch+index)] <= filling;
      end
    end
  endfunction

  function automatic void align();
    automatic logic simple = align_i.whole && !align_i.crosses;
    if (!simple) words = {(8 * WORD_BYTES)'(next_i), (8 * WORD_BYTES)'(feature_i)};
    if (!align_i.whole) begin
      /* verilator unroll_full */
      for (int unsigned b = 0; b < 2 * WORD_BYTES; b++) begin
        if ((b < WORD_BYTES && !align_i.first_inside) || WINDOW_BITS'(b) >= align_i.end_) words[8*b+:8] = align_i.pad;
      end
    end
    /* verilator unroll_full */
    for (int unsigned p = 0; p < MODE_PX_MAX; p++) begin
      if (p < 32'd1 << px_log2(align_i.layout)) begin
        automatic logic [WINDOW_BITS-1:0] at = WINDOW_BITS'(align_i.offset) + WINDOW_BITS'(p) * WINDOW_BITS'(align_i.pixel_x);
        word = simple ? feature_i >> {at, 3'b0} : WORD_BITS'(words >> {at, 3'b0});
        spread(p);
      end
    end
  endfunction

  // The lanes of `word` become the operands of a pixel.
  function automatic void spread(int unsigned pixel);
    /* verilator unroll_full */
    for (int unsigned p = 0; p < PARTS; p++) begin
      /* verilator unroll_full */
      for (int unsigned i = 0; i < MULTIPLIERS; i++) begin
        operand[pixel*PARTS+p][i] = ELEMENT_BITS'(signed'(word[8*(p*MULTIPLIERS+i)+:8]));
      end
    end
  endfunction

  // The taps of every lane of a part become the operands of its unit.
  function automatic void gather();
    /* verilator unroll_full */
    for (int unsigned t = 0; t < MULTIPLIERS; t++) begin
      automatic int unsigned ky = t / WINDOW_SIDE;
      automatic int unsigned kx = t % WINDOW_SIDE;
      word = '0;
      if (ky < 32'(align_i.kernel_rows) && kx < 32'(align_i.kernel_cols)) begin
        if (EXACT) begin  // a multiplexer of this line, not of all
          automatic logic [COLUMNS-1:0][WORD_BITS-1:0] line;
          for (int unsigned c = 0; c < COLUMNS; c++) line[c] = window[ky][c];
          word = line[align_i.column+COLUMN_BITS'(kx)];
        end else begin
          word = window[ky][align_i.column+COLUMN_BITS'(kx)];
        end
        word = word >> (32'(align_i.part) * 8 * PART_LANES);
      end
      /* verilator unroll_full */
      for (int unsigned u = 0; u < PART_LANES; u++) operand[u][t] = ELEMENT_BITS'(signed'(word[8*u+:8]));
    end
  endfunction

  function automatic void enter();
    automatic logic [COLUMN_BITS-1:0] next_column = enter_i.column + COLUMN_BITS'(1);
    automatic logic [WORD_BITS-1:0] first = enter_i.first_inside ? feature_i : {WORD_CHANNELS{enter_i.pad}};
    automatic logic [WORD_BITS-1:0] next = enter_i.next_inside ? next_i : {WORD_CHANNELS{enter_i.pad}};
    if (EXACT) begin  // a write enable a word, as in `fill`
      for (int unsigned l = 0; l < WINDOW_SIDE; l++) begin
        for (int unsigned c = 0; c < COLUMNS; c++) begin
          if (enter_i.line == LINE_BITS'(l)) begin
            if (enter_i.column == COLUMN_BITS'(c)) window[l][c] = first;
            else if (enter_i.both && next_column == COLUMN_BITS'(c)) window[l][c] = next;
          end
        end
      end
    end else begin
      window[enter_i.line][enter_i.column] = first;
      if (enter_i.both) window[enter_i.line][next_column] = next;
    end
  endfunction

  function automatic void multiply(row_t select, int unsigned mask, int unsigned pitch);
    automatic int unsigned pixel_operand = 0;
    automatic int unsigned next_pixel = pitch;
    /* verilator unroll_disable */
    for (int unsigned w = 0; w < ROW_WORDS; w++) begin
      if (MODE_PX_MAX > 1 && w == next_pixel) begin
        pixel_operand = pixel_operand + PARTS;
        next_pixel = next_pixel + pitch;
      end
      /* verilator unroll_full */
      for (int unsigned c = 0; c < WORD_CHUNKS; c++) begin
        automatic int unsigned unit = (w * WORD_CHUNKS + c) / UNIT_CHUNKS;
        automatic int unsigned share = (w * WORD_CHUNKS + c) % UNIT_CHUNKS;
        automatic sum_t products = (share == 0) ? '0 : unit_sum[0][unit];
        /* verilator unroll_disable */
        for (int unsigned i = 0; i < CHUNK; i++) begin
          products = products + SUM_BITS'(row[select][w][c*CHUNK+i])
              * SUM_BITS'(operand[pixel_operand+(unit&mask)][share*CHUNK+i]);
        end
        unit_sum[0][unit] = products;
      end
    end
  endfunction

  // Sum of `count` units from `first` on.
  function automatic logic [KEPT_BITS-1:0] combined(int unsigned first, int unsigned count);
    combined = '0;
    /* verilator unroll_full */
    for (int unsigned j = 0; j < count; j++) begin
      combined = combined + KEPT_BITS'(EXACT ? exact_sum[first+j] : unit_sum[MULTIPLY_STAGES-1][first+j]);
    end
  endfunction

  for (genvar l = 0; l < int'(WORD_CHANNELS); l++) begin : g_sum
    assign sums_o[32*l+:32] = 32'(signed'(sums_q[KEPT_BITS*l+:KEPT_BITS]));
  end

  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    // combine
    if (combine_i.valid && combine_i.copy) begin
      /* verilator unroll_full */
      for (int unsigned l = 0; l < WORD_CHANNELS; l++) begin
        sums_q[KEPT_BITS*l+:KEPT_BITS] <= KEPT_BITS'(copied[MULTIPLY_STAGES-1][l/MULTIPLIERS][l%MULTIPLIERS]);
      end
    end
    /* verilator unroll_full */
    for (int unsigned m = 0; m < LAYOUTS; m++) begin
      if (combine_i.valid && !combine_i.copy && combine_i.layout == layout_t'(m)) begin
        /* verilator unroll_full */
        for (int unsigned g = 0; g < GROUPS; g++) begin
          if (combine_i.groups[g]) begin
            /* verilator unroll_full */
            for (int unsigned l = g * GROUP_LANES; l < (g + 1) * GROUP_LANES; l++) begin
              automatic int unsigned lanes = WORD_CHANNELS / 32'(LAYOUT_PX[m]);  // of a pixel
              automatic int unsigned channel = l / lanes * 32'(LAYOUT_OC[m]) + l % lanes % 32'(LAYOUT_OC[m]);
              automatic int unsigned count = 32'(LAYOUT_IC[m]) / MULTIPLIERS;
              sums_q[KEPT_BITS*l+:KEPT_BITS] <= combined(channel * count, count);
            end
          end
        end
      end
    end

    // multiply
    for (int unsigned s = MULTIPLY_STAGES - 1; s > 0; s--) begin
      copied[s] = copied[s-1];
      if (!EXACT) unit_sum[s] = unit_sum[s-1];
    end
    for (int unsigned p = 0; p < PARTS; p++) copied[0][p] = operand[p];
    if (!EXACT && multiply_i.valid && !multiply_i.copy) begin
      multiply(multiply_i.row_select, 32'(part_mask(multiply_i.layout)), 32'(row_words(multiply_i.layout)));
    end

    // align
    if (align_i.valid) begin
      if (HAS_DEPTHWISE && align_i.depthwise) begin
        gather();
      end else if (align_i.reads) begin
        align();
      end else begin
        word = {WORD_CHANNELS{align_i.pad}};
        for (int unsigned p = 0; p < MODE_PX_MAX; p++) spread(p);
      end
    end
    if (EXACT) operand_q <= operand;
    if (HAS_DEPTHWISE && enter_i.valid) enter();

    // fill
    fill_q <= fill_i;
    fill_data_q <= fill_data_i;
    if (entering.valid) fill(entering.row_select, 32'(entering.word), 32'(entering.row_words));
  end
  /* verilator lint_on BLKSEQ */

endmodule
