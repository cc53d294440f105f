// opu_store keeps AXI's handshake: addresses, data and strobes are held until they are taken, a burst's last beat is
// marked, as many beats come as were announced. While something is open it offers or moves something, or the memory
// owes an answer: so from every halt the bus becomes quiet as soon as the memory has taken and answered all, and
// quiet_o says so then only.
module opu_store_proof
  import opu_pkg::*;
(
    input logic                clk_i,
    input logic                rst_ni,
    input logic                halt_i,
    input logic                start_valid_i,
    input store_params_t       params_i,
    input logic                done_ready_i,
    input logic                aw_ready_i,
    input logic                w_ready_i,
    input logic                b_valid_i,
    input logic                b_error_i
);

  localparam int unsigned ADDRESS_BITS = 40;
  logic quiet, aw_valid, w_valid, w_last;
  logic [ADDRESS_BITS-1:0] aw_addr;
  logic [8:0] aw_beats;
  logic [BUS_BYTES*8-1:0] w_data;
  logic [BUS_BYTES-1:0] w_strobe;

  opu_store dut (
      .clk_i,
      .rst_ni,
      .halt_i,
      .quiet_o      (quiet),
      .window_base_i('0),
      .window_size_i(33'h1_0000_0000),
      .start_valid_i,
      .start_ready_o(),
      .pc_i         ('0),
      .params_i,
      .done_valid_o (),
      .done_ready_i,
      .fault_o      (),
      .fault_code_o (),
      .fault_pc_o   (),
      .out_re_o     (),
      .out_addr_o   (),
      .out_data_i   ('0),
      .aw_valid_o   (aw_valid),
      .aw_ready_i,
      .aw_addr_o    (aw_addr),
      .aw_beats_o   (aw_beats),
      .w_valid_o    (w_valid),
      .w_ready_i,
      .w_data_o     (w_data),
      .w_strobe_o   (w_strobe),
      .w_last_o     (w_last),
      .b_valid_i,
      .b_error_i
  );

  logic begun_q = 1'b0, aw_waits_q, w_waits_q, answers;
  logic [ADDRESS_BITS+8:0] address_q;
  logic [BUS_BYTES*9:0] word_q;
  // Bursts: addresses and last beats that the memory has, without those that it answered. Beats: announced without sent.
  logic [7:0] addresses_q, ends_q;
  logic signed [15:0] beats_q;
  assign answers = b_valid_i && addresses_q != '0 && ends_q != '0;
  always_ff @(posedge clk_i) begin
    begun_q <= 1'b1;
    aw_waits_q <= rst_ni && aw_valid && !aw_ready_i;
    address_q <= {aw_addr, aw_beats};
    w_waits_q <= rst_ni && w_valid && !w_ready_i;
    word_q <= {w_data, w_strobe, w_last};
    if (!rst_ni) begin
      {addresses_q, ends_q, beats_q} <= '0;
    end else begin
      addresses_q <= addresses_q + 8'(aw_valid && aw_ready_i) - 8'(answers);
      ends_q <= ends_q + 8'(w_valid && w_ready_i && w_last) - 8'(answers);
      beats_q <= beats_q + ((aw_valid && aw_ready_i) ? 16'(aw_beats) : 16'd0) - 16'(w_valid && w_ready_i);
    end
  end

  always_comb begin
    assume (begun_q || !rst_ni);
    assume (!b_valid_i || answers || quiet);           // or one that comes late, of a run that was aborted
    if (begun_q) begin
      if (aw_waits_q) assert (aw_valid && {aw_addr, aw_beats} == address_q);
      if (w_waits_q) assert (w_valid && {w_data, w_strobe, w_last} == word_q);
      if (aw_valid) assert (aw_beats != '0 && 32'(aw_beats) <= MAX_BURST);
      if (quiet) assert (!aw_valid && !w_valid && addresses_q == '0 && ends_q == '0 && beats_q == '0);
      assert (quiet || aw_valid || w_valid || dut.sent_q || dut.send || (addresses_q != '0 && ends_q != '0));
    end
  end

endmodule
