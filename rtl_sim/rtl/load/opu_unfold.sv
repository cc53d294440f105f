// load.unfold (im2row): rows of the image buffer -> feature buffer, the kernel rows of a column next to each other
// (docs/machine.md, load).
//
//           A               B, C                 D                        E
//   pass loop nest --> image buffer --> pixels of the word to --> bytes to their lanes --> [write]
//   image address      answers, half     the first lanes,          (a 3:1 multiplexer
//                      into a register   marks of first bytes      per lane)
//
// start_i:  params_i are latched (only when idle). legal_i, a cycle later: they are legal; else it remains busy.
// busy_o:   from the cycle after the start on. It falls in the cycle in which the last word is written; finish_o is the
//           cycle before.
// image_*:  read port of the image buffer, latency 2, data held until the next read.
// we_o:     writes the bytes strobe_o of a word of the feature buffer. Throughput: one word per cycle.
// beyond_o: an image word or a feature word outside its memory; that word is not written. Level, a cycle later, while
//           busy.
// halt_i:   no more words are begun.
//
// An instruction is rows x kernel_rows passes without bubbles. In a pass one kernel row is written to all words of its
// im2row row: pixel x to the bytes S * x + 3 * ky ... + 2 of the row, S the bytes of a column. A word of W bytes gets
// consecutive pixels. `beta` says where the first one goes (to byte beta - 2 ...; -1 and -2 are in the word before);
// the others follow every S bytes. For each S a lane selects one of three bytes: the first, second or third of one
// fixed pixel of these.
//
// Pixels arrive as halves of image words, W/8 of them, at most one half per word. A word needs pixels of the newest
// half and of the one before, from pixel 1 + `edge` of both on.
`include "opu_assert.svh"

module opu_unfold
  import opu_pkg::*;
(
    input  logic                       clk_i,
    input  logic                       rst_ni,
    input  logic                       halt_i,

    input  logic                       start_i,
    input  load_params_t               params_i,
    input  logic                       legal_i,
    output logic                       busy_o,
    output logic                       finish_o,
    output logic                       beyond_o,

    output logic                       image_re_o,
    output logic [IMAGE_ADDR_BITS-1:0] image_addr_o,
    input  logic [WORD_BYTES*8-1:0]    image_rdata_i,

    output logic                       we_o,
    output logic [WORD_BYTES-1:0]      strobe_o,
    output logic [VALUE_BITS-1:0]      addr_o,
    output logic [WORD_BYTES*8-1:0]    data_o
);

  localparam int unsigned W = WORD_BYTES;
  localparam int unsigned HALF = W / 8;              // pixels of half an image word
  localparam int unsigned EDGE_BITS = $clog2(HALF);
  localparam int unsigned QUARTER = W / 4;           // bytes; im2row rows are whole numbers of them
  localparam int unsigned MARKS = W + 2;             // a pixel may begin two bytes before the word
  localparam int unsigned BASE_BITS = 25;            // of an image word in or near the memory

  `OPU_ASSERT_STATIC(WordFits, W >= 16 && W == 1 << $clog2(W))

  // Kernel rows: three, five, seven. Bytes of a column, those of a word less whole columns, whole columns of a word.
  typedef enum logic [1:0] {THREE, FIVE, SEVEN} kernel_e;
  localparam int unsigned S [3] = '{9, 16, 22};

  typedef logic [S[SEVEN]-1:0] beta_t;               // bit b: it is b
  typedef logic [EDGE_BITS-1:0] edge_t;
  typedef logic signed [BASE_BITS-1:0] base_t;
  typedef logic signed [25:0] y_t;                   // origin_y + rows * stride_y + kernel rows

  // ---- start: registers are sampled while idle; the first pass begins three cycles after the start.
  logic busy_q, setup_q, ready_q, kick_q, active_q, beyond_q, written_q, in_buffer;
  kernel_e kernel_q;
  logic [15:0] run_q, in_rows_q, rows_left_q;        // rows_left: after that of the next pass
  logic [21:0] pitch_q;
  logic [7:0] stride_q, pad_q;
  logic signed [17:0] room_q;                        // the last image word at which a run may begin
  logic [18:0] words_q;                              // of a pass
  logic [3:0] rest_q;                                // quarters of the last word that belong to the row

  // Words of a pass: 9 * run / 4 are 2 * run and `more_q`, 11 * run / 2 are 4 * run and that, both rounded up.
  kernel_e kernel_d;
  logic [16:0] more_q;
  assign kernel_d = params_i.kernel_rows[2] ? (params_i.kernel_rows[1] ? SEVEN : FIVE) : THREE;
  always_ff @(posedge clk_i) begin
    if (!busy_q) begin
      kernel_q <= kernel_d;
      unique case (kernel_d)
        THREE: more_q <= 17'(params_i.run[15:2]) + 17'(params_i.run[1:0] != '0);
        FIVE: more_q <= '0;
        default: more_q <= 17'(params_i.run) + 17'(params_i.run[15:1]) + 17'(params_i.run[0]);
      endcase
      run_q <= params_i.run;
      in_rows_q <= params_i.in_rows;
      pitch_q <= params_i.row_pitch;
      stride_q <= params_i.stride_y;
      pad_q <= params_i.pad_value;
      room_q <= 18'(IMAGE_WORDS) - 18'(params_i.run);
    end
    words_q <= ((kernel_q == THREE) ? {2'b0, run_q, 1'b0} : {1'b0, run_q, 2'b0}) + 19'(more_q);
    unique case (kernel_q)
      THREE: rest_q <= (run_q[1:0] == 2'd0) ? 4'b1111 : (run_q[1:0] == 2'd1) ? 4'b0001 : (run_q[1:0] == 2'd2) ? 4'b0011 : 4'b0111;
      FIVE: rest_q <= 4'b1111;
      default: rest_q <= run_q[0] ? 4'b0011 : 4'b1111;
    endcase
  end

  // ---- passes: the next one is computed during the present one; its row and words are checked meanwhile.
  logic pass_ends, begins, ends_row, ends_all;       // begins: the next pass does; ends_*: it is the last one
  logic [2:0] next_ky_q;
  logic [18:0] next_offset_q;                        // of its image words from those of the row's first pass on
  base_t next_base_q, row_base_q;
  y_t next_y_q, row_y_q;
  logic next_inside_q, next_fits_q, far_q;
  assign begins = kick_q || pass_ends;
  assign ends_row = next_ky_q == ((kernel_q == THREE) ? 3'd2 : (kernel_q == FIVE) ? 3'd4 : 3'd6);
  assign ends_all = ends_row && rows_left_q == '0;
  always_ff @(posedge clk_i) begin
    if (!busy_q) begin
      next_ky_q <= '0;
      rows_left_q <= params_i.rows - 16'd1;
      next_offset_q <= '0;
    end else if (begins) begin
      next_ky_q <= ends_row ? '0 : next_ky_q + 3'd1;
      next_offset_q <= ends_row ? '0 : next_offset_q + 19'(run_q);
      if (ends_row) rows_left_q <= rows_left_q - 16'd1;
    end
    // Rows increase: once one is after every memory, so are all following ones.
    if (!busy_q || (begins && ends_row)) begin
      row_base_q <= (busy_q ? row_base_q : '0) + (!busy_q ? base_t'(params_i.image) : far_q ? '0 : base_t'({1'b0, pitch_q}));
      row_y_q <= (busy_q ? row_y_q : '0) + (busy_q ? y_t'({1'b0, stride_q}) : y_t'(params_i.origin_y));
    end
    far_q <= !row_base_q[BASE_BITS-1] && row_base_q[BASE_BITS-2:VALUE_BITS] != '0;
    next_base_q <= row_base_q + base_t'({1'b0, next_offset_q});
    next_y_q <= row_y_q + y_t'({1'b0, next_ky_q});
    next_inside_q <= next_y_q >= 0 && next_y_q < y_t'({1'b0, in_rows_q});
    next_fits_q <= next_base_q >= 0 && next_base_q <= base_t'(room_q);
  end

  // ---- A: a word of a pass ------------------------------------------------------------------------------------------
  // Flags of a word. shifts: it needs another half, the upper one of its image word or not, or padding.
  typedef struct packed {
    logic       shifts;
    logic       upper;
    logic       pads;
  } half_t;
  typedef struct packed {
    edge_t      edge_;
    beta_t      beta;
    logic [3:0] quarters;                            // of the word, that belong to the row
  } word_t;
  typedef struct packed {
    logic       valid;
    logic       pass;                                // the last word of it
    logic       row;                                 // the pass is the last one of it
    logic       all;
  } ends_t;
  half_t half_b_q, half_c_q;
  word_t b_q, c_q, d_q;
  ends_t ends_b_q, ends_c_q, ends_d_q, ends_q;

  logic shifts_q, upper_q, pads_q, reaches_q, last_q, row_ends_q, all_ends_q;
  edge_t edge_q;
  beta_t beta_q;
  logic [18:0] left_q;                               // words of the pass from this one on
  logic [15:0] reads_q;
  logic [IMAGE_ADDR_BITS-1:0] image_q;

  function automatic logic reaches(kernel_e kernel, beta_t beta);   // one column more than W / S begins in a word
    reaches = 1'b0;
    unique case (kernel)
      THREE: for (int unsigned b = 0; b < W % S[THREE]; b++) reaches |= beta[b];
      FIVE: ;                                        // words are whole numbers of columns
      default: for (int unsigned b = 0; b < W % S[SEVEN]; b++) reaches |= beta[b];
    endcase
  endfunction
  function automatic beta_t next_beta(kernel_e kernel, beta_t beta);
    next_beta = beta;
    unique case (kernel)
      THREE: for (int unsigned b = 0; b < S[THREE]; b++) next_beta[b] = beta[(b+W)%S[THREE]];
      FIVE: ;
      default: for (int unsigned b = 0; b < S[SEVEN]; b++) next_beta[b] = beta[(b+W)%S[SEVEN]];
    endcase
  endfunction

  logic [EDGE_BITS:0] whole, edge_d;                 // with the carry: the next word needs another half
  beta_t beta_d, first_beta;
  always_comb begin
    unique case (kernel_q)
      THREE: whole = (EDGE_BITS + 1)'(W / S[THREE]);
      FIVE: whole = (EDGE_BITS + 1)'(W / S[FIVE]);
      default: whole = (EDGE_BITS + 1)'(W / S[SEVEN]);
    endcase
  end
  assign edge_d = {1'b0, edge_q} + whole + (EDGE_BITS + 1)'(reaches_q);
  always_comb begin
    first_beta = '0;
    for (int unsigned k = 0; k < 7; k++) first_beta[3*k+2] = next_ky_q == 3'(k);
  end
  assign beta_d = begins ? first_beta : next_beta(kernel_q, beta_q);
  assign pass_ends = active_q && last_q;

  always_ff @(posedge clk_i) begin
    beta_q <= beta_d;
    reaches_q <= reaches(kernel_q, beta_d);
    if (begins) begin
      edge_q <= '1;
      shifts_q <= 1'b1;
      upper_q <= 1'b0;
      left_q <= words_q;
      last_q <= 1'b0;                                // a pass has three words at least
      reads_q <= run_q;
      image_q <= next_base_q[IMAGE_ADDR_BITS-1:0];
      pads_q <= !next_inside_q;
      row_ends_q <= ends_row;
      all_ends_q <= ends_all;
    end else begin
      edge_q <= edge_d[EDGE_BITS-1:0];
      shifts_q <= edge_d[EDGE_BITS];
      upper_q <= upper_q ^ edge_d[EDGE_BITS];
      left_q <= left_q - 19'd1;
      last_q <= left_q == 19'd2;
      if (shifts_q && !upper_q) begin
        reads_q <= reads_q - 16'd1;
        image_q <= image_q + IMAGE_ADDR_BITS'(1);
      end
    end
  end

  // After the last pixel of a row no data is used.
  assign image_re_o = active_q && shifts_q && !upper_q && !pads_q && reads_q != '0;
  assign image_addr_o = image_q;

  logic misses;                                      // the pass that begins reads words outside the image buffer
  assign misses = begins && !(pass_ends && all_ends_q) && next_inside_q && !next_fits_q;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      busy_q <= 1'b0;
      setup_q <= 1'b0;
      ready_q <= 1'b0;
      kick_q <= 1'b0;
      active_q <= 1'b0;
      beyond_q <= 1'b0;
    end else begin
      busy_q <= start_i || (busy_q && !finish_o);
      setup_q <= start_i;
      ready_q <= setup_q && legal_i;
      kick_q <= ready_q;
      active_q <= !halt_i && !misses && (kick_q || (active_q && !(last_q && all_ends_q)));
      // A word after the end of the buffer is one of every pass of its row: so it is detected before the last one is
      // written.
      beyond_q <= beyond_q || misses || (written_q && !in_buffer);
    end
  end

  // ---- B, C: the image buffer answers; padding replaces its rows.
  always_ff @(posedge clk_i) begin
    half_b_q <= '{shifts: shifts_q, upper: upper_q, pads: pads_q};
    half_c_q <= half_b_q;
    b_q <= '{edge_: edge_q, beta: beta_q, quarters: last_q ? rest_q : 4'b1111};
    c_q <= b_q;
    d_q <= c_q;
    ends_b_q <= '{valid: rst_ni && active_q, pass: last_q, row: row_ends_q, all: last_q && all_ends_q};
    ends_c_q <= ends_b_q;
    ends_d_q <= ends_c_q;
    ends_q <= ends_d_q;
    if (!rst_ni) begin
      d_q <= '0;                                     // registers: a shift register shows its bits late
      ends_c_q.valid <= 1'b0;
      ends_d_q.valid <= 1'b0;
      ends_q <= '0;
    end
  end

  typedef logic [2:0][7:0] pixel_t;
  pixel_t [HALF-1:0] newest_q;
  pixel_t [HALF-2:0] before_q;                       // the half before, without its first pixel
  always_ff @(posedge clk_i) begin
    if (half_c_q.shifts) begin
      before_q <= newest_q[HALF-1:1];
      for (int unsigned p = 0; p < HALF; p++) begin
        newest_q[p] <= half_c_q.pads ? {3{pad_q}} : half_c_q.upper ? image_rdata_i[32*(HALF+p)+:24] : image_rdata_i[32*p+:24];
      end
    end
  end

  // ---- D: pixels from the first one of the word on. Mark m: byte m - 2 of the word is the first of a pixel.
  pixel_t [HALF-1:0] pixels_q;
  logic [MARKS-1:0] marks_q;
  pixel_t [2*HALF-2:0] moved;
  always_comb begin
    moved = {newest_q, before_q};
    for (int unsigned b = 0; b < EDGE_BITS; b++) begin
      if (d_q.edge_[b]) moved = moved >> (24 << b);
    end
  end
  always_ff @(posedge clk_i) begin
    pixels_q <= moved[HALF-1:0];
    for (int unsigned m = 0; m < MARKS; m++) begin
      unique case (kernel_q)
        THREE: marks_q[m] <= d_q.beta[m%S[THREE]];
        FIVE: marks_q[m] <= d_q.beta[m%S[FIVE]];
        default: marks_q[m] <= d_q.beta[m%S[SEVEN]];
      endcase
      // Bytes after the end of the row are no pixel.
      if (!d_q.quarters[(m < 2) ? 0 : (m - 2) / QUARTER]) marks_q[m] <= 1'b0;
    end
  end

  // ---- E: which pixel begins at a mark does not depend on beta.
  pixel_t [MARKS-1:0] begun;
  logic [W*8-1:0] data_d;
  logic [W-1:0] strobe_d;
  always_comb begin
    for (int unsigned m = 0; m < MARKS; m++) begin
      unique case (kernel_q)
        THREE: begun[m] = pixels_q[m / S[THREE]];
        FIVE: begun[m] = pixels_q[m / S[FIVE]];
        default: begun[m] = pixels_q[m / S[SEVEN]];
      endcase
    end
    for (int unsigned j = 0; j < W; j++) begin
      data_d[8*j+:8] = marks_q[j+2] ? begun[j+2][0] : marks_q[j+1] ? begun[j+1][1] : begun[j][2];
      strobe_d[j] = marks_q[j] || marks_q[j+1] || marks_q[j+2];
    end
  end
  assign finish_o = ends_q.valid && ends_q.all;

  // ---- the word is written. An address after the end of the buffer is detected in parallel, and suppresses the write.
  localparam int unsigned SUM_BITS = VALUE_BITS + 1;
  logic [W*8-1:0] data_q;
  logic [W-1:0] strobe_q;
  logic [SUM_BITS-1:0] at_q, next_at_q, row_at_q;    // of the word that is written; the next one; the first one of the next pass of the row
  always_ff @(posedge clk_i) begin
    data_q <= data_d;
    strobe_q <= strobe_d;
    written_q <= rst_ni && ends_q.valid;
    at_q <= next_at_q;
    if (!busy_q) begin
      next_at_q <= {1'b0, params_i.dst};
      row_at_q <= {1'b0, params_i.dst};
    end else if (ends_q.valid) begin
      next_at_q <= (ends_q.pass && !ends_q.row) ? row_at_q : next_at_q + SUM_BITS'(1);
      if (ends_q.pass && ends_q.row) row_at_q <= next_at_q + SUM_BITS'(1);
    end
  end
  assign in_buffer = (FEATURE_WORDS == 1 << $clog2(FEATURE_WORDS)) ? at_q >> $clog2(FEATURE_WORDS) == '0 : at_q < SUM_BITS'(FEATURE_WORDS);
  assign we_o = written_q && in_buffer;
  assign strobe_o = strobe_q;
  assign addr_o = at_q[VALUE_BITS-1:0];
  assign data_o = data_q;
  assign beyond_o = beyond_q;
  assign busy_o = busy_q;

  // The fourth byte of a pixel is not moved; the DRAM address and blocks do not concern this instruction.
  logic unused;
  assign unused = &{image_rdata_i, params_i.dram_lo, params_i.dram_hi, params_i.blocks, params_i.block_pitch, params_i.kernel_rows,
                    params_i.zero_low, params_i.zero_high};

  `OPU_ASSERT(StartsIdle, start_i |-> !busy_q)
  `OPU_ASSERT(ReadsAreThere, image_re_o |-> 32'(image_addr_o) < IMAGE_WORDS)
  `OPU_ASSERT(PassesEnd, pass_ends |-> left_q == 19'd1)
  `OPU_ASSERT(NothingElseAtTheEnd, finish_o |=> !written_q || !(ends_q.valid || active_q))

endmodule
