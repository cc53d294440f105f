// Types and derived sizes of the compute engine.
`ifdef SYNTHESIS
`define OPU_EXACT_WIDTHS
`endif

package opu_compute_pkg;

  import opu_pkg::*;

  localparam int unsigned WORD_SHIFT = $clog2(WORD_BYTES);
  localparam int unsigned WORD_BITS = 8 * WORD_CHANNELS;
  localparam int unsigned WEIGHT_BITS = 8 * WEIGHT_WIDTH;
  localparam int unsigned PSUM_BITS = 32 * WORD_CHANNELS;
  localparam int unsigned ROW_WORD_BITS = (ROW_WORDS > 1) ? $clog2(ROW_WORDS) : 1;

  // Coordinates never wrap: 17 bit origin + 16 bit count times 8 bit stride + 16 bit count times 8 bit dilation.
  localparam int unsigned Y_BITS = 26;
  localparam int unsigned X_BITS = Y_BITS + WORD_SHIFT;  // column times bytes per pixel
  localparam int unsigned LANE_BITS = $clog2(WORD_CHANNELS + 1);  // a number of lanes

  // A partial sum word is written in groups of as many lanes as the narrowest mode has output channels.
  function automatic int unsigned narrowest_oc();
    narrowest_oc = 32'(MODE_OC[0]);
    for (int m = 1; m < int'(MODE_COUNT); m++) begin
      if (32'(MODE_OC[m]) < narrowest_oc) narrowest_oc = 32'(MODE_OC[m]);
    end
  endfunction

  localparam int unsigned GROUP_LANES = narrowest_oc();
  localparam int unsigned GROUPS = WORD_CHANNELS / GROUP_LANES;

  typedef logic [FEATURE_ADDR_BITS-1:0] feature_addr_t;
  typedef logic [WEIGHT_ADDR_BITS-1:0] weight_addr_t;
  typedef logic [PSUM_ADDR_BITS-1:0] psum_addr_t;
  typedef logic [GROUPS-1:0] groups_t;

  // Lanes of output group 0 of a mode.
  function automatic groups_t mode_groups(logic [3:0] mode);
    mode_groups = '0;
    for (int m = 0; m < int'(MODE_COUNT); m++) begin
      if (mode == 4'(m)) begin
        for (int g = 0; g < int'(GROUPS); g++) mode_groups[g] = g * GROUP_LANES < 32'(MODE_OC[m]);
      end
    end
  endfunction

  // Input channels of a mode.
  function automatic logic [15:0] mode_ic(logic [3:0] mode);
    mode_ic = '0;
    for (int m = 0; m < int'(MODE_COUNT); m++) if (mode == 4'(m)) mode_ic = MODE_IC[m];
  endfunction

  // Output groups of a partial sum word in a mode.
  function automatic logic [15:0] mode_word_groups(logic [3:0] mode);
    mode_word_groups = '0;
    for (int m = 0; m < int'(MODE_COUNT); m++) begin
      if (mode == 4'(m)) mode_word_groups = 16'(WORD_CHANNELS / 32'(MODE_OC[m]));
    end
  endfunction

  // Neighbouring units summed in a mode, minus one (the number is a power of two).
  function automatic logic [15:0] mode_part_mask(logic [3:0] mode);
    mode_part_mask = '0;
    for (int m = 0; m < int'(MODE_COUNT); m++) begin
      if (mode == 4'(m)) mode_part_mask = 16'(32'(MODE_IC[m]) / MULTIPLIERS - 1);
    end
  endfunction

  // What a sweep over the output pixels of a tile needs: one weight row (conv) or one channel block (copy).
  typedef struct packed {
    logic                     copy;
    logic [3:0]               mode;
    logic [7:0]               pad;
    logic                     last;          // last sweep of the instruction
    logic                     overwrite;     // first visit of these lanes, nothing to accumulate on
    logic                     row_select;    // weight row register
    logic [LANE_BITS-1:0]     segment;       // first lane of the input segment
    logic [LANE_BITS-1:0]     lanes;         // lanes of the segment
    groups_t                  groups;        // lanes of the output group
    psum_addr_t               psum;          // word of output pixel 0
    feature_addr_t            row_addr;      // word of column 0 in tile row y
    feature_addr_t            stride_pitch;  // feature words between output rows
    logic signed [Y_BITS-1:0] y;
    logic signed [X_BITS-1:0] x;             // column of output column 0, in bytes
    logic [7:0]               stride_y;
    logic [X_BITS-1:0]        stride_x;      // in bytes
    logic [15:0]              in_rows;
    logic [X_BITS-1:0]        in_cols;       // in bytes
    logic [15:0]              out_rows;
    logic [15:0]              out_cols;
  } sweep_t;

  // One (sweep, pixel) step on its way through the array.
  typedef struct packed {
    logic                   valid;
    logic                   last;      // last step of the instruction
    logic                   copy;
    logic                   reads;     // some lanes lie inside the tile; else all are `pad`
    logic                   whole;     // all lanes lie inside the tile
    logic [LANE_BITS-1:0]   first;     // first lane inside the tile
    logic [LANE_BITS-1:0]   end_;      // first lane behind those inside
    logic                   overwrite;
    logic                   row_select;
    logic [3:0]             mode;
    logic [7:0]             pad;
    logic [WORD_SHIFT-1:0]  offset;    // byte of lane 0 in the feature word
    logic                   crosses;   // lanes go on into the next word
    groups_t                groups;
    psum_addr_t             psum;
  } step_t;

  // Simulators compute fastest on whole machine words: there, int8 elements and sums are carried sign-extended to 32
  // bits. The values are the same; a bench compares both widths.
`ifdef OPU_EXACT_WIDTHS
  localparam int unsigned ELEMENT_BITS = 8;
  localparam int unsigned SUM_BITS = 16 + $clog2(MULTIPLIERS);
`else
  localparam int unsigned ELEMENT_BITS = 32;
  localparam int unsigned SUM_BITS = 32;
`endif
  typedef logic signed [ELEMENT_BITS-1:0] element_t;
  typedef logic signed [SUM_BITS-1:0] sum_t;

endpackage
