// Body of the array (opu_array) for synthesis: every number has exactly the bits that it needs.
//
//   operands --+--> opu_multiply_pair  (two units with equal operands share multipliers) --+
//              +--> opu_multiply_unit  (a unit with operands of its own) ------------------+--> sums --> opu_choose
//              +--> opu_table_operands --> opu_multiply_tables --> opu_sum_tables ---------+      combine
//
// The last TABLE_TERMS products of every unit are in tables. Where the mode or opcode (the layout) selects a source,
// there are only a few different ones. Each multiplexer has a select code of its own for those, so that four sources
// take one table per bit. Select codes are computed one cycle before they are used.
`include "opu_assert.svh"

module opu_array_exact
  import opu_pkg::*;
  import opu_compute_pkg::*;
(
    input  logic                     clk_i,

    input  fill_t                    fill_i,
    input  logic [WEIGHT_BITS-1:0]   fill_data_i,

    /* verilator lint_off UNUSEDSIGNAL */  // each stage needs some fields of its step
    input  step_t                    align_i,
    input  step_t                    aligned_i,
    input  step_t                    multiply_i,
    input  step_t                    combining_i,
    input  step_t                    combine_i,
    input  enter_t                   enter_i,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic [WORD_BITS-1:0]     feature_i,
    input  logic [WORD_BITS-1:0]     next_i,

    output logic [PSUM_BITS-1:0]     sums_o
);

  localparam int unsigned UNIT_BITS = 8 * MULTIPLIERS;  // a unit's weights, or its operands

  // ---- The layout selects what a register loads, out of a few sources. Several layouts may select the same one.

  typedef logic [LAYOUTS-1:0][15:0] sources_t;

  typedef struct packed {
    logic [15:0] count;    // different sources
    sources_t    sources;  // by code
    sources_t    codes;    // by layout
  } choice_t;

  function automatic choice_t choice_of(sources_t named);  // by layout
    choice_of = '0;
    for (int unsigned m = 0; m < LAYOUTS; m++) begin
      automatic int unsigned code = 32'(choice_of.count);
      for (int unsigned k = 0; k < 32'(choice_of.count); k++) if (choice_of.sources[k] == named[m]) code = k;
      if (code == 32'(choice_of.count)) choice_of.count++;
      choice_of.sources[code] = named[m];
      choice_of.codes[m] = 16'(code);
    end
  endfunction

  // ---- The row that enters, and those at work.

  // Units u and u + PARTS are a pair: parts repeat every k <= PARTS units, and the units of a pixel begin at whole
  // pairs. The units of depthwise have operands of their own, where a window takes one cycle. A pair of products in
  // short slices would take two slices and an adder after them.
  localparam bit PAIRED = (!HAS_DEPTHWISE || HALVED) && !SHORT_SLICES && UNITS / MODE_PX_MAX % (2 * PARTS) == 0
      && MULTIPLIERS > 1 && $onehot(MULTIPLIERS);

  // Pairs hold the current weights in their slices. So the row that enters needs one register and no multiplexer: its
  // words are delayed by a cycle, so the first one comes when the row before has moved into the slices.
  localparam int unsigned KEPT_ROWS = PAIRED ? 1 : ROWS;
  row_t entering_row;
  logic [WEIGHT_WIDTH-1:0][8:0] filling;
  opu_array_weights #(.PAIRED(PAIRED)) u_weights (
      .clk_i,
      .fill_i,
      .fill_data_i,
      .row_o    (entering_row),
      .weights_o(filling)
  );

  for (genvar w = 0; w < int'(ROW_WORDS); w++) begin : g_word
    logic comes, comes_q, enters;
    always_comb begin  // a row is repeated for every pixel: as long as this one, a half, a quarter
      comes = 1'b0;
      for (int unsigned length = ROW_WORDS; length >= ROW_WORDS / MODE_PX_MAX; length = length / 2) begin
        comes = comes || (fill_i.valid && 32'(fill_i.row_words) == length && 32'(fill_i.word) == w % length);
        if (length == 1) break;
      end
    end
    always_ff @(posedge clk_i) comes_q <= comes;
    assign enters = PAIRED ? comes_q : comes;
    for (genvar r = 0; r < int'(KEPT_ROWS); r++) begin : g_row
      logic [WEIGHT_WIDTH-1:0][8:0] kept_q;
      always_ff @(posedge clk_i) begin
        if (enters && (PAIRED || entering_row == row_t'(r))) kept_q <= filling;
      end
    end
  end

  // ---- align

  // The words, with padding outside the tile; then two cycles of shifting.
  logic [2*WORD_BYTES-1:0][7:0] words_q;
  logic [MODE_PX_MAX-1:0][WINDOW_BITS-1:0] at_q;
  logic simple;
  always_ff @(posedge clk_i) at_q <= align_i.at;
  assign simple = align_i.whole && !align_i.crosses;

  for (genvar b = 0; b < 2 * int'(WORD_BYTES); b++) begin : g_byte
    localparam int unsigned LANE = b % WORD_BYTES;
    logic outside;
    logic [7:0] byte_in;
    assign outside = !align_i.reads || (!align_i.whole
        && ((b < WORD_BYTES && !align_i.first_inside) || WINDOW_BITS'(b) >= align_i.end_));
    if (LANE >= WORD_CHANNELS) begin : g_hole
      assign byte_in = '0;
    end else if (b < int'(WORD_BYTES)) begin : g_first
      assign byte_in = feature_i[8*LANE+:8];
    end else begin : g_next
      assign byte_in = simple ? '0 : next_i[8*LANE+:8];
    end
    always_ff @(posedge clk_i) words_q[b] <= outside ? align_i.pad : byte_in;
  end

  // Bytes of pixel p that some layout reads.
  function automatic int unsigned needed(int unsigned p);
    needed = (p == 0) ? WORD_CHANNELS : 0;
    for (int unsigned m = 0; m < MODE_COUNT; m++) begin
      if (32'(MODE_PX[m]) > p && 32'(MODE_IC[m]) > needed) needed = 32'(MODE_IC[m]);
    end
  endfunction

  logic [MODE_PX_MAX-1:0][WORD_BITS-1:0] pixel;
  for (genvar p = 0; p < int'(MODE_PX_MAX); p++) begin : g_pixel
    localparam int unsigned BYTES = needed(p);
    localparam int unsigned SHIFT_BITS = (p == 0) ? WORD_SHIFT : WORD_SHIFT + 1;
    logic [8*BYTES-1:0] bytes;
    opu_byte_shift #(
        .IN_BYTES  (2 * WORD_BYTES),
        .OUT_BYTES (BYTES),
        .SHIFT_BITS(SHIFT_BITS)
    ) u_shift (
        .clk_i,
        .bytes_i(words_q),
        .shift_i(at_q[p][SHIFT_BITS-1:0]),
        .bytes_o(bytes)
    );
    assign pixel[p] = WORD_BITS'(bytes);
  end

  localparam int unsigned WINDOW_UNITS = HALVED ? PART_LANES / 2 : PART_LANES;  // with windows of their own
  logic [OPERANDS-1:0][UNIT_BITS-1:0] taps;
  for (genvar o = 0; o < int'(OPERANDS); o++) begin : g_operand
    localparam bit OF_PIXEL = o / PARTS < MODE_PX_MAX;
    localparam bit OF_WINDOW = HAS_DEPTHWISE && o < int'(WINDOW_UNITS);
    logic [UNIT_BITS-1:0] own;
    /* verilator lint_off UNUSEDSIGNAL */  // of a pixel that no mode reads
    logic [UNIT_BITS-1:0] operand_q;
    /* verilator lint_on UNUSEDSIGNAL */
    if (OF_PIXEL) begin : g_pixel
      assign own = pixel[o/PARTS][UNIT_BITS*(o%PARTS)+:UNIT_BITS];
    end else begin : g_window
      assign own = '0;
    end
    always_ff @(posedge clk_i) begin
      if (aligned_i.valid) operand_q <= (OF_WINDOW && aligned_i.depthwise) ? taps[o] : own;
    end
  end

  // ---- The window of depthwise: the taps of every lane of a part become the operands of its unit.

  if (!HAS_DEPTHWISE) begin : g_no_window
    assign taps = '0;
  end else begin : g_window
    // Words enter as late as steps see them.
    enter_t enter_q [ALIGN_STAGES-1];
    logic [ALIGN_STAGES-2:0][2*WORD_BITS-1:0] given_q;
    enter_t entered;
    logic [COLUMN_BITS-1:0] next_column;
    logic [WORD_BITS-1:0] first, next;
    always_ff @(posedge clk_i) begin
      enter_q[0] <= enter_i;
      for (int unsigned s = 1; s < ALIGN_STAGES - 1; s++) enter_q[s] <= enter_q[s-1];
      given_q <= (2 * WORD_BITS * (ALIGN_STAGES - 1))'({given_q, next_i, feature_i});
    end
    assign entered = enter_q[ALIGN_STAGES-2];
    assign next_column = entered.column + COLUMN_BITS'(1);
    assign first = entered.first_inside ? given_q[ALIGN_STAGES-2][WORD_BITS-1:0] : {WORD_CHANNELS{entered.pad}};
    assign next = entered.next_inside ? given_q[ALIGN_STAGES-2][2*WORD_BITS-1:WORD_BITS] : {WORD_CHANNELS{entered.pad}};
    for (genvar l = 0; l < int'(WINDOW_SIDE); l++) begin : g_line
      for (genvar c = 0; c < int'(COLUMNS); c++) begin : g_column
        logic [WORD_BITS-1:0] word_q;
        always_ff @(posedge clk_i) begin
          if (entered.valid && entered.line == LINE_BITS'(l)) begin
            if (entered.column == COLUMN_BITS'(c)) word_q <= first;
            else if (entered.two_words && next_column == COLUMN_BITS'(c)) word_q <= next;
          end
        end
      end
    end
    for (genvar t = 0; t < int'(MULTIPLIERS); t++) begin : g_tap
      localparam int unsigned KY = t / WINDOW_SIDE;
      localparam int unsigned KX = t % WINDOW_SIDE;
      logic [8*PART_LANES-1:0] lanes;
      if (KY >= WINDOW_SIDE) begin : g_none
        assign lanes = '0;
      end else begin : g_some
        logic [COLUMNS-1:0][WORD_BITS-1:0] line;  // a multiplexer of this line, not of all
        for (genvar c = 0; c < int'(COLUMNS); c++) begin : g_column
          assign line[c] = g_line[KY].g_column[c].word_q;
        end
        logic tapped;
        logic [31:0] first_lane;  // of the part
        assign first_lane = HALVED ? 0 : 32'(aligned_i.part) * PART_LANES;
        assign tapped = KY < 32'(aligned_i.kernel_rows) && KX < 32'(aligned_i.kernel_cols);
        assign lanes = tapped
            ? (8 * PART_LANES)'(line[aligned_i.column+COLUMN_BITS'(KX)] >> (8 * first_lane)) : '0;
      end
      for (genvar u = 0; u < int'(WINDOW_UNITS); u++) begin : g_unit
        localparam int unsigned LANE = HALVED ? u + u / PARTS * PARTS : u;
        localparam int unsigned NEXT = HALVED ? LANE + PARTS : LANE;  // in the second cycle
        assign taps[u][8*t+:8] = (HALVED && aligned_i.part[0]) ? lanes[8*NEXT+:8] : lanes[8*LANE+:8];
      end
    end
    for (genvar u = WINDOW_UNITS; u < int'(OPERANDS); u++) begin : g_rest
      assign taps[u] = '0;
    end
  end

  // ---- multiply

  function automatic sources_t operands_of(int unsigned u);
    for (int unsigned m = 0; m < LAYOUTS; m++) begin
      operands_of[m] = (m == MODE_COUNT) ? 16'(HALVED ? u / (2 * PARTS) * PARTS + u % PARTS : u)
          : 16'(u / (UNITS / 32'(LAYOUT_PX[m])) * PARTS + u % (32'(LAYOUT_IC[m]) / MULTIPLIERS));
    end
  endfunction

  // The first unit that has the operands of unit u in all layouts.
  function automatic int unsigned first_with(int unsigned u);
    first_with = u;
    for (int unsigned v = u; v > 0; v--) if (operands_of(v - 1) == operands_of(u)) first_with = v - 1;
  endfunction

  logic [UNITS-1:0][SUM_BITS-1:0] slices_sum, unit_sum;

  for (genvar u = 0; u < int'(UNITS); u++) begin : g_unit
    /* verilator lint_off UNUSEDSIGNAL */  // of a pair the low unit has weights, the high one high_weights; others have weights
    logic [8*MULTIPLIERS-1:0] weights;
    logic [9*MULTIPLIERS-1:0] high_weights;
    /* verilator lint_on UNUSEDSIGNAL */
    for (genvar i = 0; i < int'(MULTIPLIERS); i++) begin : g_weight
      localparam int unsigned AT = u * MULTIPLIERS + i;
      logic [KEPT_ROWS-1:0][7:0] bytes;
      for (genvar r = 0; r < int'(KEPT_ROWS); r++) begin : g_row
        assign bytes[r] = g_word[AT/WEIGHT_WIDTH].g_row[r].kept_q[AT%WEIGHT_WIDTH][7:0];
      end
      assign weights[8*i+:8] = bytes[PAIRED ? '0 : multiply_i.row_select];
      assign high_weights[9*i+:9] = g_word[AT/WEIGHT_WIDTH].g_row[0].kept_q[AT%WEIGHT_WIDTH];
    end

    localparam int unsigned FIRST = first_with(u);
    if (!PAIRED || u / PARTS % 2 == 0) begin : g_multiply
      /* verilator lint_off UNUSEDSIGNAL */  // of table terms, in units that share operands
      logic [UNIT_BITS-1:0] operands;
      /* verilator lint_on UNUSEDSIGNAL */
      if (FIRST == u) begin : g_chooses
        localparam choice_t CHOICE = choice_of(operands_of(u));
        localparam int unsigned COUNT = 32'(CHOICE.count);
        logic [15:0] code_q;
        logic [UNIT_BITS*COUNT-1:0] choices;
        always_ff @(posedge clk_i) begin
          code_q <= '0;
          for (int unsigned m = 0; m < LAYOUTS; m++) if (aligned_i.layout == layout_t'(m)) code_q <= CHOICE.codes[m];
        end
        for (genvar s = 0; s < int'(COUNT); s++) begin : g_source
          assign choices[UNIT_BITS*s+:UNIT_BITS] = g_operand[32'(CHOICE.sources[s])].operand_q;
        end
        opu_choose #(
            .WIDTH(UNIT_BITS),
            .COUNT(COUNT)
        ) u_choose (
            .choices_i(choices),
            .code_i   (code_q),
            .chosen_o (operands)
        );
      end else begin : g_shares
        assign operands = g_unit[FIRST].g_multiply.operands;
      end

      if (PAIRED) begin : g_pair
        opu_multiply_pair #(
            .TERMS     (SLICE_TERMS),
            .SUM_STAGES(SUM_STAGES),
            .SUM_BITS  (SUM_BITS)
        ) u_pair (
            .clk_i,
            .load_i    (multiply_i.first),
            .shared_i  (operands[8*SLICE_TERMS-1:0]),
            .low_i     (weights[8*SLICE_TERMS-1:0]),
            .high_i    (g_unit[u+PARTS].high_weights[9*SLICE_TERMS-1:0]),
            .low_sum_o (slices_sum[u]),
            .high_sum_o(slices_sum[u+PARTS])
        );
      end else begin : g_alone
        opu_multiply_unit #(.TERMS(SLICE_TERMS), .SUM_STAGES(SUM_STAGES), .SUM_BITS(SUM_BITS)) u_unit (
            .clk_i,
            .operand_i(operands[8*SLICE_TERMS-1:0]),
            .weight_i (weights[8*SLICE_TERMS-1:0]),
            .sum_o    (slices_sum[u])
        );
      end
    end

    if (TABLE_TERMS == 0) begin : g_slices
      assign unit_sum[u] = slices_sum[u];
    end else begin : g_tables
      table_operands_t [TABLE_TERMS/2-1:0] table_operands;
      if (FIRST == u) begin : g_adds
        opu_table_operands u_operands (
            .clk_i,
            .operands_i(g_multiply.operands[UNIT_BITS-1:8*SLICE_TERMS]),
            .operands_o(table_operands)
        );
      end else begin : g_shares
        assign table_operands = g_unit[FIRST].g_tables.table_operands;
      end
      opu_sum_tables u_sum (
          .clk_i,
          .load_i    (PAIRED ? multiply_i.first : multiply_i.valid),  // without pairs every step has its row
          .valid_i   (multiply_i.valid),
          .weights_i (weights[UNIT_BITS-1:8*SLICE_TERMS]),
          .operands_i(table_operands),
          .slices_i  (slices_sum[u]),
          .sum_o     (unit_sum[u])
      );
    end
  end

  // ---- combine: after level j the sums of 2^j neighbouring units, as many as a mode has parts at most, a level a cycle.

  localparam int unsigned LEVELS = $clog2(PARTS);
  localparam int unsigned KEPT_BITS = SUM_BITS + LEVELS;  // signs are repeated after the register: fewer wires end at an adder
  typedef logic signed [KEPT_BITS-1:0] kept_t;

  function automatic sources_t sums_of(int unsigned l);  // level * UNITS + which of it
    for (int unsigned m = 0; m < LAYOUTS; m++) begin
      automatic int unsigned lanes = WORD_CHANNELS / 32'(LAYOUT_PX[m]);  // of a pixel
      automatic int unsigned channel = l / lanes * 32'(LAYOUT_OC[m]) + l % lanes % 32'(LAYOUT_OC[m]);
      sums_of[m] = 16'($clog2(32'(LAYOUT_IC[m]) / MULTIPLIERS) * UNITS + channel);
    end
  endfunction

  localparam int unsigned LAST = (LEVELS > 1) ? LEVELS : 1;  // cycles from a unit's sum to all that `combine` chooses from

  for (genvar j = 0; j <= int'(LEVELS); j++) begin : g_level
    localparam int unsigned MADE = (j > 1) ? j : 1;
    for (genvar n = 0; n < int'(UNITS >> j); n++) begin : g_sum
      kept_t made_q, sum;
      if (j == 0) begin : g_unit
        always_ff @(posedge clk_i) made_q <= KEPT_BITS'(signed'(unit_sum[n]));
      end else if (j == 1) begin : g_two
        always_ff @(posedge clk_i) made_q <= KEPT_BITS'(signed'(unit_sum[2*n])) + KEPT_BITS'(signed'(unit_sum[2*n+1]));
      end else begin : g_more
        always_ff @(posedge clk_i) made_q <= g_level[j-1].g_sum[2*n].made_q + g_level[j-1].g_sum[2*n+1].made_q;
      end
      if (MADE == LAST) begin : g_at_once
        assign sum = made_q;
      end else begin : g_waits
        logic [KEPT_BITS*(LAST-MADE)-1:0] waiting_q;
        always_ff @(posedge clk_i) waiting_q <= (KEPT_BITS * (LAST - MADE))'({waiting_q, made_q});
        assign sum = waiting_q[KEPT_BITS*(LAST-MADE-1)+:KEPT_BITS];
      end
    end
  end

  logic [MULTIPLY_STAGES-1:0][UNIT_BITS*PARTS-1:0] copied_q;  // pixel 0
  for (genvar o = 0; o < int'(PARTS); o++) begin : g_copied
    always_ff @(posedge clk_i) copied_q[0][UNIT_BITS*o+:UNIT_BITS] <= g_operand[o].operand_q;
  end
  always_ff @(posedge clk_i) copied_q[MULTIPLY_STAGES-1:1] <= copied_q[MULTIPLY_STAGES-2:0];

  for (genvar l = 0; l < int'(WORD_CHANNELS); l++) begin : g_lane
    localparam choice_t CHOICE = choice_of(sums_of(l));
    localparam int unsigned COUNT = 32'(CHOICE.count);  // after them the copied byte
    logic [15:0] code_q;
    logic [KEPT_BITS*(COUNT+1)-1:0] choices;
    logic [KEPT_BITS-1:0] next, sum_q;
    always_ff @(posedge clk_i) begin
      code_q <= 16'(COUNT);
      for (int unsigned m = 0; m < LAYOUTS; m++) begin
        if (!combining_i.copy && combining_i.layout == layout_t'(m)) code_q <= CHOICE.codes[m];
      end
    end
    for (genvar s = 0; s < int'(COUNT); s++) begin : g_source
      localparam int unsigned SUM = 32'(CHOICE.sources[s]);
      assign choices[KEPT_BITS*s+:KEPT_BITS] = g_level[SUM/UNITS].g_sum[SUM%UNITS].sum;
    end
    assign choices[KEPT_BITS*COUNT+:KEPT_BITS] = KEPT_BITS'(signed'(copied_q[MULTIPLY_STAGES-1][8*l+:8]));
    opu_choose #(
        .WIDTH(KEPT_BITS),
        .COUNT(COUNT + 1)
    ) u_choose (
        .choices_i(choices),
        .code_i   (code_q),
        .chosen_o (next)
    );
    logic takes;  // of a halved window each lane in its cycle, whatever the groups
    assign takes = (HALVED && combine_i.depthwise) ? combine_i.part[0] == 1'(l / PARTS)
                                                   : combine_i.copy || combine_i.groups[l/GROUP_LANES];
    always_ff @(posedge clk_i) if (combine_i.valid && takes) sum_q <= next;
    assign sums_o[32*l+:32] = 32'(signed'(sum_q));
  end

endmodule
