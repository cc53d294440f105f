// The four engines after the instruction queues, their parameter registers and the on-chip memories. Wiring only.
//
//   set_* --> parameter registers --+
//   start_*, done_* --> opu_load, opu_compute, opu_post, opu_store <--> opu_buffers
//                         |  ar, r                        |  aw, w, b
//
// Element e of a vector or array belongs to engine e; fetch (0) is outside. set_*, start_*, done_*: see opu_frontend.
// fault_*: level or pulse per engine with code and word index. ar_*, r_*: bus reads of load; aw_*, w_*, b_*: bus writes
// of store.
`include "opu_assert.svh"

module opu_engines
  import opu_pkg::*;
#(
    parameter int unsigned ADDRESS_BITS = 40,
    parameter int unsigned ENGINES = 5,
    parameter int unsigned PC_BITS = 24,
    parameter int unsigned IN_FLIGHT = 4
) (
    input  logic                    clk_i,
    input  logic                    rst_ni,
    input  logic                    halt_i,
    input  logic [ADDRESS_BITS-1:0] window_base_i,
    input  logic [32:0]             window_size_i,

    input  logic [ENGINES-1:1]      set_valid_i,
    input  logic [5:0]              set_index_i [ENGINES],
    input  logic [21:0]             set_value_i [ENGINES],
    output logic [ENGINES-1:1]      set_legal_o,
    input  logic [ENGINES-1:1]      start_valid_i,
    output logic [ENGINES-1:1]      start_ready_o,
    input  logic [3:0]              start_op_i [ENGINES],
    input  logic [PC_BITS-1:0]      start_pc_i [ENGINES],
    output logic [ENGINES-1:1]      done_valid_o,
    input  logic [ENGINES-1:1]      done_ready_i,
    input  logic [PC_BITS-1:0]      latest_pc_i [ENGINES],
    output logic [ENGINES-1:1]      fault_o,
    output error_e                  fault_code_o [ENGINES],
    output logic [PC_BITS-1:0]      fault_pc_o [ENGINES],
    output logic                    multiplies_o,

    output logic                    ar_valid_o,
    input  logic                    ar_ready_i,
    output logic [ADDRESS_BITS-1:0] ar_addr_o,
    output logic [8:0]              ar_beats_o,
    input  logic                    r_valid_i,
    input  logic [BUS_BYTES*8-1:0]  r_data_i,
    input  logic                    r_error_i,
    input  logic                    r_end_i,

    output logic                    write_quiet_o,
    output logic                    aw_valid_o,
    input  logic                    aw_ready_i,
    output logic [ADDRESS_BITS-1:0] aw_addr_o,
    output logic [8:0]              aw_beats_o,
    output logic                    w_valid_o,
    input  logic                    w_ready_i,
    output logic [BUS_BYTES*8-1:0]  w_data_o,
    output logic [BUS_BYTES-1:0]    w_strobe_o,
    output logic                    w_last_o,
    input  logic                    b_valid_i,
    input  logic                    b_error_i
);

  localparam int unsigned WIDTH_BYTES = (WORD_BYTES > WEIGHT_WIDTH) ? WORD_BYTES : WEIGHT_WIDTH;

  assign fault_code_o[ENGINE_FETCH] = ERR_NONE;
  assign fault_pc_o[ENGINE_FETCH] = '0;

  // Parameter registers.
  load_params_t load_params_q;
  compute_params_t compute_params_q;
  post_params_t post_params_q;
  store_params_t store_params_q;
  assign set_legal_o[ENGINE_LOAD] = fits_load(set_index_i[ENGINE_LOAD], set_value_i[ENGINE_LOAD]);
  assign set_legal_o[ENGINE_COMPUTE] = fits_compute(set_index_i[ENGINE_COMPUTE], set_value_i[ENGINE_COMPUTE], compute_params_q.bank);
  assign set_legal_o[ENGINE_POST] = fits_post(set_index_i[ENGINE_POST], set_value_i[ENGINE_POST], post_params_q.bank);
  assign set_legal_o[ENGINE_STORE] = fits_store(set_index_i[ENGINE_STORE], set_value_i[ENGINE_STORE]);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      load_params_q <= '0;
      compute_params_q <= '0;
      post_params_q <= '0;
      store_params_q <= '0;
    end else begin
      if (set_valid_i[ENGINE_LOAD]) begin
        load_params_q <= set_load(load_params_q, set_index_i[ENGINE_LOAD], set_value_i[ENGINE_LOAD]);
      end
      if (set_valid_i[ENGINE_COMPUTE]) begin
        compute_params_q <=
            set_compute(compute_params_q, set_index_i[ENGINE_COMPUTE], set_value_i[ENGINE_COMPUTE]);
      end
      if (set_valid_i[ENGINE_POST]) begin
        post_params_q <= set_post(post_params_q, set_index_i[ENGINE_POST], set_value_i[ENGINE_POST]);
      end
      if (set_valid_i[ENGINE_STORE]) begin
        store_params_q <= set_store(store_params_q, set_index_i[ENGINE_STORE], set_value_i[ENGINE_STORE]);
      end
    end
  end

  // ---- load ---------------------------------------------------------------------------------------------------------
  logic feature_we, weight_we, param_we, residual_we, pre_we, table_we, norm_we, image_we, im2row_we, image_re;
  logic [WORD_BYTES-1:0] im2row_strobe;
  logic [VALUE_BITS-1:0] im2row_addr;
  logic [WORD_BYTES*8-1:0] im2row_data, image_rdata;
  logic [IMAGE_ADDR_BITS-1:0] image_addr;
  logic [VALUE_BITS-1:0] load_addr;
  logic [WIDTH_BYTES*8-1:0] load_data;

  opu_load #(
      .ADDRESS_BITS(ADDRESS_BITS),
      .PC_BITS     (PC_BITS),
      .IN_FLIGHT   (IN_FLIGHT)
  ) u_load (
      .clk_i,
      .rst_ni,
      .halt_i,
      .window_base_i,
      .window_size_i,
      .start_valid_i(start_valid_i[ENGINE_LOAD]),
      .start_ready_o(start_ready_o[ENGINE_LOAD]),
      .op_i         (start_op_i[ENGINE_LOAD]),
      .pc_i         (start_pc_i[ENGINE_LOAD]),
      .params_i     (load_params_q),
      .done_valid_o (done_valid_o[ENGINE_LOAD]),
      .done_ready_i (done_ready_i[ENGINE_LOAD]),
      .fault_o      (fault_o[ENGINE_LOAD]),
      .fault_code_o (fault_code_o[ENGINE_LOAD]),
      .fault_pc_o   (fault_pc_o[ENGINE_LOAD]),
      .ar_valid_o,
      .ar_ready_i,
      .ar_addr_o,
      .ar_beats_o,
      .r_valid_i,
      .r_data_i,
      .r_error_i,
      .r_end_i,
      .feature_we_o (feature_we),
      .weight_we_o  (weight_we),
      .param_we_o   (param_we),
      .residual_we_o(residual_we),
      .pre_we_o     (pre_we),
      .table_we_o   (table_we),
      .norm_we_o    (norm_we),
      .image_we_o   (image_we),
      .waddr_o      (load_addr),
      .wdata_o      (load_data),
      .unfold_we_o  (im2row_we),
      .unfold_strobe_o(im2row_strobe),
      .unfold_addr_o(im2row_addr),
      .unfold_data_o(im2row_data),
      .image_re_o   (image_re),
      .image_addr_o (image_addr),
      .image_rdata_i(image_rdata)
  );

  // ---- compute ------------------------------------------------------------------------------------------------------
  logic compute_refuses, compute_illegal, compute_unfit, compute_beyond;
  logic feature_re, feature_next_re, weight_re;
  logic [FEATURE_ADDR_BITS-1:0] feature_addr, feature_next_addr;
  logic [WEIGHT_ADDR_BITS-1:0] weight_addr;
  logic [WORD_CHANNELS*8-1:0] feature_rdata, feature_next_rdata;
  logic [WEIGHT_WIDTH*8-1:0] weight_rdata;
  logic pre_re;
  logic [PRE_ADDR_BITS-1:0] pre_addr;
  logic [WORD_CHANNELS*8-1:0] pre_rdata;
  opu_compute_pkg::groups_t compute_re, compute_we;
  opu_compute_pkg::psum_addr_t compute_raddr, compute_waddr;
  logic [1:0] compute_from;
  logic [2*WORD_CHANNELS*32-1:0] compute_rdata;
  logic [WORD_CHANNELS*32-1:0] compute_wdata;

  opu_compute u_compute (
      .clk_i,
      .rst_ni,
      .start_valid_i       (start_valid_i[ENGINE_COMPUTE]),
      .start_ready_o       (start_ready_o[ENGINE_COMPUTE]),
      .op_i                (start_op_i[ENGINE_COMPUTE]),
      .params_i            (compute_params_q),
      .illegal_o           (compute_refuses),
      .unfit_o             (compute_unfit),
      .done_valid_o        (done_valid_o[ENGINE_COMPUTE]),
      .done_ready_i        (done_ready_i[ENGINE_COMPUTE]),
      .multiplies_o        (multiplies_o),
      .feature_re_o        (feature_re),
      .feature_next_re_o   (feature_next_re),
      .feature_addr_o      (feature_addr),
      .feature_next_addr_o (feature_next_addr),
      .feature_rdata_i     (feature_rdata),
      .feature_next_rdata_i(feature_next_rdata),
      .weight_re_o         (weight_re),
      .weight_addr_o       (weight_addr),
      .weight_rdata_i      (weight_rdata),
      .psum_re_o           (compute_re),
      .psum_raddr_o        (compute_raddr),
      .psum_from_i         (compute_from),
      .psum_rdata_i        (compute_rdata),
      .psum_we_o           (compute_we),
      .psum_waddr_o        (compute_waddr),
      .psum_wdata_o        (compute_wdata),
      .pre_re_o            (pre_re),
      .pre_addr_o          (pre_addr),
      .pre_rdata_i         (pre_rdata)
  );
  always_ff @(posedge clk_i) compute_illegal <= rst_ni && compute_refuses;  // after a comparison
  assign fault_o[ENGINE_COMPUTE] = compute_illegal || compute_unfit || compute_beyond;
  assign fault_code_o[ENGINE_COMPUTE] = compute_illegal ? ERR_ILLEGAL_INSTRUCTION : compute_unfit ? ERR_PARAMETER : ERR_BUFFER;
  assign fault_pc_o[ENGINE_COMPUTE] = latest_pc_i[ENGINE_COMPUTE];

  // ---- post ---------------------------------------------------------------------------------------------------------
  logic post_illegal, post_unfit, post_beyond, two_writers, post_re, post_grant, param_re, out_we;
  opu_compute_pkg::psum_addr_t post_addr;
  logic [WORD_CHANNELS*32-1:0] post_rdata;
  logic [PARAM_ADDR_BITS-1:0] param_addr;
  logic [RESIDUAL_UNITS-1:0] residual_re;
  logic [RESIDUAL_UNITS-1:0][RESIDUAL_ADDR_BITS-1:0] residual_addr;
  logic [RESIDUAL_UNITS-1:0][WORD_CHANNELS*8-1:0] residual_rdata;
  logic [OUTPUT_ADDR_BITS-1:0] out_waddr;
  logic keep_we;
  logic [FEATURE_ADDR_BITS-1:0] keep_addr;
  logic [TABLE_UNITS-1:0] table_re;
  logic [TABLE_UNITS-1:0][WORD_CHANNELS-1:0][TABLE_ADDR_BITS-1:0] table_addr;
  logic [TABLE_UNITS-1:0][WORD_CHANNELS*8-1:0] table_rdata;
  logic [NORM_UNITS-1:0] norm_re;
  logic [NORM_UNITS-1:0][POST_LANES-1:0][NORM_ADDR_BITS-1:0] norm_addr;
  logic [NORM_UNITS-1:0][POST_LANES-1:0][23:0] norm_rdata;
  logic [WORD_CHANNELS*8-1:0] param_rdata, out_wdata;

  opu_post u_post (
      .clk_i,
      .rst_ni,
      .start_valid_i(start_valid_i[ENGINE_POST]),
      .start_ready_o(start_ready_o[ENGINE_POST]),
      .op_i         (start_op_i[ENGINE_POST]),
      .params_i     (post_params_q),
      .illegal_o    (post_illegal),
      .unfit_o      (post_unfit),
      .done_valid_o (done_valid_o[ENGINE_POST]),
      .done_ready_i (done_ready_i[ENGINE_POST]),
      .psum_re_o    (post_re),
      .psum_addr_o  (post_addr),
      .psum_grant_i (post_grant),
      .psum_rdata_i (post_rdata),
      .param_re_o   (param_re),
      .param_addr_o (param_addr),
      .param_rdata_i(param_rdata),
      .res_re_o     (residual_re),
      .res_addr_o   (residual_addr),
      .res_rdata_i  (residual_rdata),
      .table_re_o   (table_re),
      .table_addr_o (table_addr),
      .table_rdata_i(table_rdata),
      .norm_re_o    (norm_re),
      .norm_addr_o  (norm_addr),
      .norm_rdata_i (norm_rdata),
      .out_we_o     (out_we),
      .out_addr_o   (out_waddr),
      .out_wdata_o  (out_wdata),
      .keep_we_o    (keep_we),
      .keep_addr_o  (keep_addr)
  );
  assign fault_o[ENGINE_POST] = post_illegal || post_unfit || post_beyond || two_writers;
  assign fault_code_o[ENGINE_POST] = post_illegal ? ERR_ILLEGAL_INSTRUCTION
      : post_unfit ? ERR_PARAMETER : post_beyond ? ERR_BUFFER : ERR_WRITERS;
  assign fault_pc_o[ENGINE_POST] = latest_pc_i[ENGINE_POST];

  // ---- store --------------------------------------------------------------------------------------------------------
  logic out_re;
  logic [OUTPUT_ADDR_BITS-1:0] out_raddr;
  logic [WORD_CHANNELS*8-1:0] out_rdata;

  opu_store #(
      .ADDRESS_BITS(ADDRESS_BITS),
      .PC_BITS     (PC_BITS),
      .IN_FLIGHT   (IN_FLIGHT)
  ) u_store (
      .clk_i,
      .rst_ni,
      .halt_i,
      .quiet_o      (write_quiet_o),
      .window_base_i,
      .window_size_i,
      .start_valid_i(start_valid_i[ENGINE_STORE]),
      .start_ready_o(start_ready_o[ENGINE_STORE]),
      .pc_i         (start_pc_i[ENGINE_STORE]),
      .params_i     (store_params_q),
      .done_valid_o (done_valid_o[ENGINE_STORE]),
      .done_ready_i (done_ready_i[ENGINE_STORE]),
      .fault_o      (fault_o[ENGINE_STORE]),
      .fault_code_o (fault_code_o[ENGINE_STORE]),
      .fault_pc_o   (fault_pc_o[ENGINE_STORE]),
      .out_re_o     (out_re),
      .out_addr_o   (out_raddr),
      .out_data_i   (out_rdata),
      .aw_valid_o,
      .aw_ready_i,
      .aw_addr_o,
      .aw_beats_o,
      .w_valid_o,
      .w_ready_i,
      .w_data_o,
      .w_strobe_o,
      .w_last_o,
      .b_valid_i,
      .b_error_i
  );

  // ---- memories -----------------------------------------------------------------------------------------------------
  opu_buffers #(
      .WIDTH_BYTES(WIDTH_BYTES)
  ) u_buffers (
      .clk_i,
      .rst_ni,
      .feature_we_i        (feature_we),
      .weight_we_i         (weight_we),
      .param_we_i          (param_we),
      .residual_we_i       (residual_we),
      .pre_we_i            (pre_we),
      .table_we_i          (table_we),
      .norm_we_i           (norm_we),
      .load_addr_i         (load_addr),
      .load_data_i         (load_data),
      .image_we_i          (image_we),
      .image_re_i          (image_re),
      .image_addr_i        (image_addr),
      .image_rdata_o       (image_rdata),
      .unfold_we_i         (im2row_we),
      .unfold_strobe_i     (im2row_strobe),
      .unfold_addr_i       (im2row_addr),
      .unfold_data_i       (im2row_data),
      .feature_re_i        (feature_re),
      .feature_next_re_i   (feature_next_re),
      .feature_addr_i      (feature_addr),
      .feature_next_addr_i (feature_next_addr),
      .feature_rdata_o     (feature_rdata),
      .feature_next_rdata_o(feature_next_rdata),
      .weight_re_i         (weight_re),
      .weight_addr_i       (weight_addr),
      .weight_rdata_o      (weight_rdata),
      .pre_re_i            (pre_re),
      .pre_addr_i          (pre_addr),
      .pre_rdata_o         (pre_rdata),
      .compute_re_i        (compute_re),
      .compute_raddr_i     (compute_raddr),
      .compute_from_o      (compute_from),
      .compute_rdata_o     (compute_rdata),
      .compute_we_i        (compute_we),
      .compute_waddr_i     (compute_waddr),
      .compute_wdata_i     (compute_wdata),
      .post_re_i           (post_re),
      .post_addr_i         (post_addr),
      .post_grant_o        (post_grant),
      .post_rdata_o        (post_rdata),
      .param_re_i          (param_re),
      .param_addr_i        (param_addr),
      .param_rdata_o       (param_rdata),
      .residual_re_i       (residual_re),
      .residual_addr_i     (residual_addr),
      .residual_rdata_o    (residual_rdata),
      .table_re_i          (table_re),
      .table_addr_i        (table_addr),
      .table_rdata_o       (table_rdata),
      .norm_re_i           (norm_re),
      .norm_addr_i         (norm_addr),
      .norm_rdata_o        (norm_rdata),
      .out_we_i            (out_we),
      .out_waddr_i         (out_waddr),
      .out_wdata_i         (out_wdata),
      .keep_we_i           (keep_we),
      .keep_addr_i         (keep_addr),
      .out_re_i            (out_re),
      .out_raddr_i         (out_raddr),
      .out_rdata_o         (out_rdata),
      .compute_beyond_o    (compute_beyond),
      .post_beyond_o       (post_beyond),
      .two_writers_o       (two_writers)
  );

  // Fetch's elements of the arrays, and the opcode and index that an engine with one opcode does not need.
  logic unused;
  assign unused = &{set_index_i[0], set_value_i[0], start_op_i[0], start_op_i[ENGINE_STORE], start_pc_i[0],
                    start_pc_i[ENGINE_COMPUTE], start_pc_i[ENGINE_POST], latest_pc_i[0],
                    latest_pc_i[ENGINE_LOAD], latest_pc_i[ENGINE_STORE]};

endmodule
