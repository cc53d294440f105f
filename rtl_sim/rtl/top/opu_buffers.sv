// On-chip memories: feature, weight, parameter, residual and output buffer, partial sums, parameters of the pre chain,
// tables, exponentials of norms, images. Wiring only; docs/machine.md says who reads and writes what.
//
//   load ----> feature, weight, param, residual, pre, table, norm, image     (im2row and keep: feature)
//   compute <- feature, weight, pre       compute <-> psum
//   post <---- psum, param, residual, table, norm    post ----> output ----> store
//
// Read latency: 2 cycles, of output buffer and tables 1 (see opu_ram_1r1w; partial sums: opu_psum). Load and post share
//               the write port of the feature buffer. Tables, norms: one memory and one address per lane; a word of
//               norms is 3 bytes, the same for all lanes. Memories that the
//               machine does not have are absent; their read data are 0. Residual buffer and tables exist once for
//               every unit of post that reads them; a load writes all copies.
module opu_buffers
  import opu_pkg::*;
#(
    parameter int unsigned WIDTH_BYTES = 64   // of a word that load writes
) (
    input  logic                           clk_i,
    input  logic                           rst_ni,

    // load
    input  logic                           feature_we_i,
    input  logic                           weight_we_i,
    input  logic                           param_we_i,
    input  logic                           residual_we_i,
    input  logic                           pre_we_i,
    input  logic                           table_we_i,
    input  logic                           norm_we_i,
    input  logic [VALUE_BITS-1:0]          load_addr_i,
    input  logic [WIDTH_BYTES*8-1:0]       load_data_i,
    input  logic                           image_we_i,
    input  logic                           image_re_i,
    input  logic [IMAGE_ADDR_BITS-1:0]     image_addr_i,
    output logic [WORD_BYTES*8-1:0]        image_rdata_o,
    input  logic                           unfold_we_i,    // bytes of a word of the feature buffer
    input  logic [WORD_BYTES-1:0]          unfold_strobe_i,
    input  logic [VALUE_BITS-1:0]          unfold_addr_i,
    input  logic [WORD_BYTES*8-1:0]        unfold_data_i,

    // compute
    input  logic                           feature_re_i,
    input  logic                           feature_next_re_i,
    input  logic [FEATURE_ADDR_BITS-1:0]   feature_addr_i,
    input  logic [FEATURE_ADDR_BITS-1:0]   feature_next_addr_i,
    output logic [WORD_CHANNELS*8-1:0]     feature_rdata_o,
    output logic [WORD_CHANNELS*8-1:0]     feature_next_rdata_o,
    input  logic                           weight_re_i,
    input  logic [WEIGHT_ADDR_BITS-1:0]    weight_addr_i,
    output logic [WEIGHT_WIDTH*8-1:0]      weight_rdata_o,
    input  logic                           pre_re_i,
    input  logic [PRE_ADDR_BITS-1:0]       pre_addr_i,
    output logic [WORD_CHANNELS*8-1:0]     pre_rdata_o,
    input  opu_compute_pkg::groups_t       compute_re_i,
    input  opu_compute_pkg::psum_addr_t    compute_raddr_i,
    output logic [1:0]                     compute_from_o,
    output logic [2*WORD_CHANNELS*32-1:0]  compute_rdata_o,
    input  opu_compute_pkg::groups_t       compute_we_i,
    input  opu_compute_pkg::psum_addr_t    compute_waddr_i,
    input  logic [WORD_CHANNELS*32-1:0]    compute_wdata_i,

    // post
    input  logic                           post_re_i,
    input  opu_compute_pkg::psum_addr_t    post_addr_i,
    output logic                           post_grant_o,
    output logic [WORD_CHANNELS*32-1:0]    post_rdata_o,
    input  logic                           param_re_i,
    input  logic [PARAM_ADDR_BITS-1:0]     param_addr_i,
    output logic [WORD_CHANNELS*8-1:0]     param_rdata_o,
    input  logic [RESIDUAL_UNITS-1:0]      residual_re_i,
    input  logic [RESIDUAL_UNITS-1:0][RESIDUAL_ADDR_BITS-1:0] residual_addr_i,
    output logic [RESIDUAL_UNITS-1:0][WORD_CHANNELS*8-1:0] residual_rdata_o,
    input  logic [TABLE_UNITS-1:0]         table_re_i,
    input  logic [TABLE_UNITS-1:0][WORD_CHANNELS-1:0][TABLE_ADDR_BITS-1:0] table_addr_i,
    output logic [TABLE_UNITS-1:0][WORD_CHANNELS*8-1:0] table_rdata_o,
    input  logic [NORM_UNITS-1:0]          norm_re_i,
    input  logic [NORM_UNITS-1:0][POST_LANES-1:0][NORM_ADDR_BITS-1:0] norm_addr_i,
    output logic [NORM_UNITS-1:0][POST_LANES-1:0][23:0] norm_rdata_o,
    input  logic                           out_we_i,
    input  logic [OUTPUT_ADDR_BITS-1:0]    out_waddr_i,
    input  logic [WORD_CHANNELS*8-1:0]     out_wdata_i,
    input  logic                           keep_we_i,      // with out_wdata_i
    input  logic [FEATURE_ADDR_BITS-1:0]   keep_addr_i,

    // store
    input  logic                           out_re_i,
    input  logic [OUTPUT_ADDR_BITS-1:0]    out_raddr_i,
    output logic [WORD_CHANNELS*8-1:0]     out_rdata_o,

    // An address after the end of its memory; both writers of the feature buffer at once.
    output logic                           compute_beyond_o,
    output logic                           post_beyond_o,
    output logic                           two_writers_o
);

  // Load's two write paths to the feature buffer, transfers and im2row, are never active in the same cycle.
  logic im2row_writes, load_feature;
  logic [FEATURE_ADDR_BITS-1:0] load_feature_addr;
  logic [WORD_CHANNELS*8-1:0] load_feature_data;
  assign im2row_writes = HAS_UNFOLD && unfold_we_i;
  assign load_feature = feature_we_i || im2row_writes;
  assign load_feature_addr = FEATURE_ADDR_BITS'(im2row_writes ? unfold_addr_i : load_addr_i);
  assign load_feature_data = im2row_writes ? unfold_data_i[WORD_CHANNELS*8-1:0] : load_data_i[WORD_CHANNELS*8-1:0];
  opu_feature u_feature (
      .clk_i,
      .we_i         (load_feature || keep_we_i),
      .bytes_i      ((im2row_writes && !keep_we_i) ? unfold_strobe_i[WORD_CHANNELS-1:0] : '1),
      .waddr_i      (keep_we_i ? keep_addr_i : load_feature_addr),
      .wdata_i      (keep_we_i ? out_wdata_i : load_feature_data),
      .first_re_i   (feature_re_i),
      .next_re_i    (feature_next_re_i),
      .raddr_i      (feature_addr_i),
      .next_raddr_i (feature_next_addr_i),
      .first_rdata_o(feature_rdata_o),
      .next_rdata_o (feature_next_rdata_o)
  );

  opu_ram_1r1w #(
      .WIDTH(WEIGHT_WIDTH * 8),
      .DEPTH(WEIGHT_WORDS),
      .OUTPUT_REGISTER(1'b1)
  ) u_weight (
      .clk_i,
      .we_i   (weight_we_i),
      .waddr_i(load_addr_i[WEIGHT_ADDR_BITS-1:0]),
      .wdata_i(load_data_i[WEIGHT_WIDTH*8-1:0]),
      .re_i   (weight_re_i),
      .raddr_i(weight_addr_i),
      .rdata_o(weight_rdata_o)
  );

  opu_ram_1r1w #(
      .WIDTH(WORD_CHANNELS * 8),
      .DEPTH(PARAM_WORDS),
      .OUTPUT_REGISTER(1'b1)
  ) u_param (
      .clk_i,
      .we_i   (param_we_i),
      .waddr_i(load_addr_i[PARAM_ADDR_BITS-1:0]),
      .wdata_i(load_data_i[WORD_CHANNELS*8-1:0]),
      .re_i   (param_re_i),
      .raddr_i(param_addr_i),
      .rdata_o(param_rdata_o)
  );

  for (genvar u = 0; u < int'(RESIDUAL_UNITS); u++) begin : g_residual
    opu_ram_1r1w #(
        .WIDTH(WORD_CHANNELS * 8),
        .DEPTH(RESIDUAL_WORDS),
        .OUTPUT_REGISTER(1'b1)
    ) u_residual (
        .clk_i,
        .we_i   (residual_we_i),
        .waddr_i(load_addr_i[RESIDUAL_ADDR_BITS-1:0]),
        .wdata_i(load_data_i[WORD_CHANNELS*8-1:0]),
        .re_i   (residual_re_i[u]),
        .raddr_i(residual_addr_i[u]),
        .rdata_o(residual_rdata_o[u])
    );
  end

  opu_psum u_psum (
      .clk_i,
      .rst_ni,
      .compute_re_i   (compute_re_i),
      .compute_raddr_i(compute_raddr_i),
      .compute_from_o (compute_from_o),
      .compute_rdata_o(compute_rdata_o),
      .compute_we_i   (compute_we_i),
      .compute_waddr_i(compute_waddr_i),
      .compute_wdata_i(compute_wdata_i),
      .post_re_i      (post_re_i),
      .post_addr_i    (post_addr_i),
      .post_grant_o   (post_grant_o),
      .post_rdata_o   (post_rdata_o)
  );

  opu_ram_1r1w #(
      .WIDTH(WORD_CHANNELS * 8),
      .DEPTH(OUTPUT_WORDS)
  ) u_output (
      .clk_i,
      .we_i   (out_we_i),
      .waddr_i(out_waddr_i),
      .wdata_i(out_wdata_i),
      .re_i   (out_re_i),
      .raddr_i(out_raddr_i),
      .rdata_o(out_rdata_o)
  );

  if (HAS_PRE) begin : g_pre
    opu_ram_1r1w #(
        .WIDTH(WORD_CHANNELS * 8),
        .DEPTH(PRE_WORDS),
        .OUTPUT_REGISTER(1'b1)
    ) u_pre (
        .clk_i,
        .we_i   (pre_we_i),
        .waddr_i(load_addr_i[PRE_ADDR_BITS-1:0]),
        .wdata_i(load_data_i[WORD_CHANNELS*8-1:0]),
        .re_i   (pre_re_i),
        .raddr_i(pre_addr_i),
        .rdata_o(pre_rdata_o)
    );
  end else begin : g_no_pre
    assign pre_rdata_o = '0;
    logic unused_pre;
    assign unused_pre = &{pre_we_i, pre_re_i, pre_addr_i};
  end

  if (HAS_UNFOLD) begin : g_image
    opu_ram_1r1w #(
        .WIDTH(WORD_BYTES * 8),
        .DEPTH(IMAGE_WORDS),
        .OUTPUT_REGISTER(1'b1)
    ) u_image (
        .clk_i,
        .we_i   (image_we_i),
        .waddr_i(load_addr_i[IMAGE_ADDR_BITS-1:0]),
        .wdata_i(load_data_i[WORD_BYTES*8-1:0]),
        .re_i   (image_re_i),
        .raddr_i(image_addr_i),
        .rdata_o(image_rdata_o)
    );
  end else begin : g_no_image
    assign image_rdata_o = '0;
    logic unused_image;
    assign unused_image = &{image_we_i, image_re_i, image_addr_i};
  end

  if (HAS_TABLE) begin : g_table
    for (genvar u = 0; u < int'(TABLE_UNITS); u++) begin : g_unit
      for (genvar l = 0; l < int'(WORD_CHANNELS); l++) begin : g_lane
        opu_ram_1r1w #(
            .WIDTH(8),
            .DEPTH(TABLE_WORDS)
        ) u_table (
            .clk_i,
            .we_i   (table_we_i),
            .waddr_i(load_addr_i[TABLE_ADDR_BITS-1:0]),
            .wdata_i(load_data_i[8*l+:8]),
            .re_i   (table_re_i[u]),
            .raddr_i(table_addr_i[u][l]),
            .rdata_o(table_rdata_o[u][8*l+:8])
        );
      end
    end
  end else begin : g_no_table
    assign table_rdata_o = '0;
    logic unused_table;
    assign unused_table = &{table_we_i, table_re_i, table_addr_i};
  end

  if (HAS_NORM) begin : g_norm
    for (genvar u = 0; u < int'(NORM_UNITS); u++) begin : g_unit
      for (genvar l = 0; l < int'(POST_LANES); l++) begin : g_lane
        opu_ram_1r1w #(
            .WIDTH(24),
            .DEPTH(NORM_WORDS),
            .OUTPUT_REGISTER(1'b1)
        ) u_norm (
            .clk_i,
            .we_i   (norm_we_i),
            .waddr_i(load_addr_i[NORM_ADDR_BITS-1:0]),
            .wdata_i(load_data_i[23:0]),
            .re_i   (norm_re_i[u]),
            .raddr_i(norm_addr_i[u][l]),
            .rdata_o(norm_rdata_o[u][l])
        );
      end
    end
  end else begin : g_no_norm
    assign norm_rdata_o = '0;
    logic unused_norm;
    assign unused_norm = &{norm_we_i, norm_re_i, norm_addr_i};
  end

  // Upper address bits: load refuses addresses after the end of a buffer.
  logic unused;
  assign unused = &{load_addr_i, load_data_i, unfold_addr_i, unfold_data_i, unfold_strobe_i};

  // ---- faults of programs, a cycle later ----------------------------------------------------------------------------
  logic post_beyond;
  always_comb begin
    post_beyond = (post_re_i && 32'(post_addr_i) >= PSUM_WORDS) || (param_re_i && 32'(param_addr_i) >= PARAM_WORDS)
        || (out_we_i && 32'(out_waddr_i) >= OUTPUT_WORDS) || (keep_we_i && 32'(keep_addr_i) >= FEATURE_WORDS);
    for (int unsigned u = 0; u < RESIDUAL_UNITS; u++) begin
      if (residual_re_i[u] && 32'(residual_addr_i[u]) >= RESIDUAL_WORDS) post_beyond = 1'b1;
    end
    for (int unsigned u = 0; u < TABLE_UNITS; u++) begin
      for (int unsigned l = 0; l < WORD_CHANNELS; l++) begin
        if (HAS_TABLE && table_re_i[u] && 32'(table_addr_i[u][l]) >= TABLE_WORDS) post_beyond = 1'b1;
      end
    end
    for (int unsigned u = 0; u < NORM_UNITS; u++) begin
      for (int unsigned l = 0; l < POST_LANES; l++) begin
        if (HAS_NORM && norm_re_i[u] && 32'(norm_addr_i[u][l]) >= NORM_WORDS) post_beyond = 1'b1;
      end
    end
  end
  always_ff @(posedge clk_i) begin
    compute_beyond_o <= rst_ni
        && ((feature_re_i && 32'(feature_addr_i) >= FEATURE_WORDS)
            || (feature_next_re_i && 32'(feature_next_addr_i) >= FEATURE_WORDS)
            || (weight_re_i && 32'(weight_addr_i) >= WEIGHT_WORDS)
            || (HAS_PRE && pre_re_i && 32'(pre_addr_i) >= PRE_WORDS)
            || (compute_re_i != '0 && 32'(compute_raddr_i) >= PSUM_WORDS)
            || (compute_we_i != '0 && 32'(compute_waddr_i) >= PSUM_WORDS));
    post_beyond_o <= rst_ni && post_beyond;
    two_writers_o <= rst_ni && load_feature && keep_we_i;
  end

endmodule
