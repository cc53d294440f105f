// Post engine with its memories, for tests: the bench writes the inputs and reads the output buffer, or with read_kept_i the
// feature buffer, word by word.
//
// load_*: one word per cycle into the memory named; only while the engine is idle.
// hold_i: the partial sum memory refuses the post engine's reads, as when compute is busy on the same bank.
module opu_post_bench
  import opu_pkg::*;
  import opu_post_pkg::*;
(
    input  logic                            clk_i,
    input  logic                            rst_ni,

    input  logic                            start_valid_i,
    output logic                            start_ready_o,
    input  logic [3:0]                      op_i,
    input  logic [$bits(post_params_t)-1:0] params_i,
    output logic                            illegal_o,
    output logic                            done_valid_o,
    input  logic                            done_ready_i,
    input  logic                            hold_i,

    input  logic                            load_psum_i,
    input  logic                            load_param_i,
    input  logic                            load_residual_i,
    input  logic                            load_table_i,
    input  logic                            load_norm_i,
    input  logic [VALUE_BITS-1:0]           load_addr_i,
    input  logic [PSUM_BITS-1:0]            load_data_i,

    input  logic                            read_re_i,
    input  logic                            read_kept_i,
    input  logic [VALUE_BITS-1:0]           read_addr_i,
    output logic [WORD_BITS-1:0]            read_data_o,
    output logic                            out_we_o
);

  logic psum_re, psum_grant, param_re;
  logic [RESIDUAL_UNITS-1:0] res_re;
  residual_addr_t [RESIDUAL_UNITS-1:0] res_addr;
  logic [RESIDUAL_UNITS-1:0][WORD_BITS-1:0] res_rdata;
  logic [TABLE_UNITS-1:0] table_re;
  table_addr_t [TABLE_UNITS-1:0][WORD_CHANNELS-1:0] table_addr;
  logic [TABLE_UNITS-1:0][WORD_BITS-1:0] table_rdata;
  logic [NORM_UNITS-1:0] norm_re;
  norm_addr_t [NORM_UNITS-1:0][LANES-1:0] norm_addr;
  logic [NORM_UNITS-1:0][LANES-1:0][23:0] norm_rdata;
  psum_addr_t psum_addr;
  param_addr_t param_addr;
  output_addr_t out_addr;
  logic keep_we, kept_q;
  feature_addr_t keep_addr;
  logic [PSUM_BITS-1:0] psum_rdata;
  logic [2*PSUM_BITS-1:0] unused_rdata;
  logic [1:0] unused_from;
  logic [WORD_BITS-1:0] param_rdata, out_wdata, out_rdata, kept_rdata;

  opu_post u_post (
      .clk_i,
      .rst_ni,
      .start_valid_i,
      .start_ready_o,
      .op_i,
      .params_i      (post_params_t'(params_i)),
      .illegal_o,
      .unfit_o       (),
      .done_valid_o,
      .done_ready_i,
      .psum_re_o     (psum_re),
      .psum_addr_o   (psum_addr),
      .psum_grant_i  (psum_grant),
      .psum_rdata_i  (psum_rdata),
      .param_re_o    (param_re),
      .param_addr_o  (param_addr),
      .param_rdata_i (param_rdata),
      .res_re_o      (res_re),
      .res_addr_o    (res_addr),
      .res_rdata_i   (res_rdata),
      .table_re_o    (table_re),
      .table_addr_o  (table_addr),
      .table_rdata_i (table_rdata),
      .norm_re_o     (norm_re),
      .norm_addr_o   (norm_addr),
      .norm_rdata_i  (norm_rdata),
      .out_we_o,
      .out_addr_o    (out_addr),
      .out_wdata_o   (out_wdata),
      .keep_we_o     (keep_we),
      .keep_addr_o   (keep_addr)
  );

  opu_psum u_psum (
      .clk_i,
      .rst_ni,
      .compute_re_i   ('0),
      .compute_raddr_i('0),
      .compute_from_o (unused_from),
      .compute_rdata_o(unused_rdata),
      .compute_we_i   ({opu_compute_pkg::GROUPS{load_psum_i}}),
      .compute_waddr_i(psum_addr_t'(load_addr_i)),
      .compute_wdata_i(load_data_i),
      .post_re_i      (psum_re && !hold_i),
      .post_addr_i    (psum_addr),
      .post_grant_o   (psum_grant),
      .post_rdata_o   (psum_rdata)
  );

  opu_ram_1r1w #(
      .WIDTH(WORD_BITS),
      .DEPTH(PARAM_WORDS),
      .OUTPUT_REGISTER(1'b1)
  ) u_param (
      .clk_i,
      .we_i   (load_param_i),
      .waddr_i(param_addr_t'(load_addr_i)),
      .wdata_i(load_data_i[WORD_BITS-1:0]),
      .re_i   (param_re),
      .raddr_i(param_addr),
      .rdata_o(param_rdata)
  );

  for (genvar u = 0; u < int'(RESIDUAL_UNITS); u++) begin : g_residual
    opu_ram_1r1w #(
        .WIDTH(WORD_BITS),
        .DEPTH(RESIDUAL_WORDS),
        .OUTPUT_REGISTER(1'b1)
    ) u_residual (
        .clk_i,
        .we_i   (load_residual_i),
        .waddr_i(residual_addr_t'(load_addr_i)),
        .wdata_i(load_data_i[WORD_BITS-1:0]),
        .re_i   (res_re[u]),
        .raddr_i(res_addr[u]),
        .rdata_o(res_rdata[u])
    );
  end

  for (genvar u = 0; u < int'(TABLE_UNITS); u++) begin : g_table
    for (genvar l = 0; l < int'(WORD_CHANNELS); l++) begin : g_lane
      opu_ram_1r1w #(
          .WIDTH(8),
          .DEPTH(TABLE_WORDS)
      ) u_table (
          .clk_i,
          .we_i   (load_table_i),
          .waddr_i(table_addr_t'(load_addr_i)),
          .wdata_i(load_data_i[8*l+:8]),
          .re_i   (table_re[u]),
          .raddr_i(table_addr[u][l]),
          .rdata_o(table_rdata[u][8*l+:8])
      );
    end
  end

  for (genvar u = 0; u < int'(NORM_UNITS); u++) begin : g_norm
    for (genvar l = 0; l < int'(LANES); l++) begin : g_lane
      opu_ram_1r1w #(
          .WIDTH(24),
          .DEPTH(NORM_WORDS),
          .OUTPUT_REGISTER(1'b1)
      ) u_norm (
          .clk_i,
          .we_i   (load_norm_i),
          .waddr_i(NORM_ADDR_BITS'(load_addr_i)),
          .wdata_i(load_data_i[23:0]),
          .re_i   (norm_re[u]),
          .raddr_i(norm_addr[u][l]),
          .rdata_o(norm_rdata[u][l])
      );
    end
  end

  opu_ram_1r1w #(
      .WIDTH(WORD_BITS),
      .DEPTH(OUTPUT_WORDS)
  ) u_output (
      .clk_i,
      .we_i   (out_we_o),
      .waddr_i(out_addr),
      .wdata_i(out_wdata),
      .re_i   (read_re_i),
      .raddr_i(output_addr_t'(read_addr_i)),
      .rdata_o(out_rdata)
  );

  opu_ram_1r1w #(
      .WIDTH(WORD_BITS),
      .DEPTH(FEATURE_WORDS)
  ) u_feature (
      .clk_i,
      .we_i   (keep_we),
      .waddr_i(keep_addr),
      .wdata_i(out_wdata),
      .re_i   (read_re_i),
      .raddr_i(feature_addr_t'(read_addr_i)),
      .rdata_o(kept_rdata)
  );

  always_ff @(posedge clk_i) kept_q <= read_kept_i;
  assign read_data_o = kept_q ? kept_rdata : out_rdata;

endmodule
