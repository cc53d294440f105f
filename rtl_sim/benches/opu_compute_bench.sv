// Compute engine with its memories, for tests: the bench writes all memories and reads the partial sums word by word.
//
// load_*: one word per cycle into the memory named by load_space; only while the engine is idle.
// read_*: the read port that the post engine has; read_grant_o says whether the read happens.
module opu_compute_bench
  import opu_pkg::*;
  import opu_compute_pkg::*;
(
    input  logic                               clk_i,
    input  logic                               rst_ni,

    input  logic                               start_valid_i,
    output logic                               start_ready_o,
    input  logic [3:0]                         op_i,
    input  logic [$bits(compute_params_t)-1:0] params_i,
    output logic                               illegal_o,
    output logic                               done_valid_o,
    input  logic                               done_ready_i,

    input  logic                               load_feature_i,
    input  logic                               load_weight_i,
    input  logic                               load_psum_i,
    input  logic                               load_pre_i,
    input  logic [VALUE_BITS-1:0]              load_addr_i,
    input  logic [PSUM_BITS-1:0]               load_data_i,

    input  logic                               read_re_i,
    input  psum_addr_t                         read_addr_i,
    output logic                               read_grant_o,
    output logic [PSUM_BITS-1:0]               read_data_o
);

  logic feature_re, feature_next_re, weight_re;
  feature_addr_t feature_addr, feature_next_addr;
  weight_addr_t weight_addr;
  logic [WORD_BITS-1:0] feature_rdata, feature_next_rdata;
  logic [WEIGHT_BITS-1:0] weight_rdata;
  groups_t psum_re, psum_we;
  psum_addr_t psum_raddr, psum_waddr;
  logic [1:0] psum_from;
  logic [2*PSUM_BITS-1:0] psum_rdata;
  logic [PSUM_BITS-1:0] psum_wdata;
  logic pre_re;
  pre_addr_t pre_addr;
  logic [WORD_BITS-1:0] pre_rdata;

  opu_compute u_compute (
      .clk_i,
      .rst_ni,
      .start_valid_i,
      .start_ready_o,
      .op_i,
      .params_i       (compute_params_t'(params_i)),
      .illegal_o,
      .unfit_o        (),
      .done_valid_o,
      .done_ready_i,
      .multiplies_o   (),
      .feature_re_o   (feature_re),
      .feature_next_re_o(feature_next_re),
      .feature_addr_o (feature_addr),
      .feature_next_addr_o(feature_next_addr),
      .feature_rdata_i(feature_rdata),
      .feature_next_rdata_i(feature_next_rdata),
      .weight_re_o    (weight_re),
      .weight_addr_o  (weight_addr),
      .weight_rdata_i (weight_rdata),
      .psum_re_o      (psum_re),
      .psum_raddr_o   (psum_raddr),
      .psum_from_i    (psum_from),
      .psum_rdata_i   (psum_rdata),
      .psum_we_o      (psum_we),
      .psum_waddr_o   (psum_waddr),
      .psum_wdata_o   (psum_wdata),
      .pre_re_o       (pre_re),
      .pre_addr_o     (pre_addr),
      .pre_rdata_i    (pre_rdata)
  );

  opu_feature u_feature (
      .clk_i,
      .we_i         (load_feature_i),
      .bytes_i      ('1),
      .waddr_i      (feature_addr_t'(load_addr_i)),
      .wdata_i      (load_data_i[WORD_BITS-1:0]),
      .first_re_i   (feature_re),
      .next_re_i    (feature_next_re),
      .raddr_i      (feature_addr),
      .next_raddr_i (feature_next_addr),
      .first_rdata_o(feature_rdata),
      .next_rdata_o (feature_next_rdata)
  );

  opu_ram_1r1w #(
      .WIDTH(WEIGHT_BITS),
      .DEPTH(WEIGHT_WORDS),
      .OUTPUT_REGISTER(1'b1)
  ) u_weight (
      .clk_i,
      .we_i   (load_weight_i),
      .waddr_i(weight_addr_t'(load_addr_i)),
      .wdata_i(load_data_i[WEIGHT_BITS-1:0]),
      .re_i   (weight_re),
      .raddr_i(weight_addr),
      .rdata_o(weight_rdata)
  );

  opu_ram_1r1w #(
      .WIDTH(WORD_BITS),
      .DEPTH(PRE_WORDS),
      .OUTPUT_REGISTER(1'b1)
  ) u_pre (
      .clk_i,
      .we_i   (load_pre_i),
      .waddr_i(pre_addr_t'(load_addr_i)),
      .wdata_i(load_data_i[WORD_BITS-1:0]),
      .re_i   (pre_re),
      .raddr_i(pre_addr),
      .rdata_o(pre_rdata)
  );

  opu_psum u_psum (
      .clk_i,
      .rst_ni,
      .compute_re_i   (psum_re),
      .compute_raddr_i(psum_raddr),
      .compute_from_o (psum_from),
      .compute_rdata_o(psum_rdata),
      .compute_we_i   (load_psum_i ? '1 : psum_we),
      .compute_waddr_i(load_psum_i ? psum_addr_t'(load_addr_i) : psum_waddr),
      .compute_wdata_i(load_psum_i ? load_data_i : psum_wdata),
      .post_re_i      (read_re_i),
      .post_addr_i    (read_addr_i),
      .post_grant_o   (read_grant_o),
      .post_rdata_o   (read_data_o)
  );

endmodule
