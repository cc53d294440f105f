// The dependency counters of opu_issue: no word, no engine and no order of the two pops a token that was not pushed, or
// pushes one into a full counter, so no counter passes 0 or its largest value.
module opu_counters_proof
  import opu_pkg::*;
#(
    localparam int unsigned ENGINES = 5,
    localparam int unsigned TOKEN_BITS = 2
) (
    input logic               clk_i,
    input logic               rst_ni,
    input logic               halt_i,
    input logic [ENGINES-1:1] push_valid_i,
    input logic [31:0]        push_word_i,
    input logic [ENGINES-1:1] set_legal_i,
    input logic [ENGINES-1:1] start_ready_i,
    input logic [ENGINES-1:1] done_valid_i
);

  opu_issue #(
      .ENGINES    (ENGINES),
      .TOKEN_BITS (TOKEN_BITS),
      .QUEUE_DEPTH('{1, 2, 2, 2, 2})
  ) dut (
      .clk_i,
      .rst_ni,
      .halt_i,
      .push_valid_i,
      .push_ready_o (),
      .push_word_i,
      .push_pc_i    (24'd0),
      .set_valid_o  (),
      .set_index_o  (),
      .set_value_o  (),
      .set_legal_i,
      .start_valid_o(),
      .start_ready_i,
      .start_op_o   (),
      .start_pc_o   (),
      .done_valid_i,
      .done_ready_o (),
      .idle_o       (),
      .busy_o       (),
      .stall_o      (),
      .retire_o     (),
      .latest_pc_o  (),
      .fault_o      (),
      .fault_pc_o   ()
  );

  logic begun_q = 1'b0;
  always_ff @(posedge clk_i) begun_q <= 1'b1;
  always_comb assume (begun_q || !rst_ni);

  for (genvar s = 1; s < int'(ENGINES); s++) begin : g_source
    for (genvar d = 1; d < int'(ENGINES); d++) begin : g_drain
      if (s != d) begin : g_pair
        logic [TOKEN_BITS-1:0] count;
        logic give, take;
        assign count = dut.u_counters.g_source[s].g_drain[d].g_counter.count_q;
        assign give = dut.u_counters.g_source[s].g_drain[d].g_counter.give;
        assign take = dut.u_counters.g_source[s].g_drain[d].g_counter.take;
        always_comb begin
          if (begun_q) begin
            assert (dut.u_counters.g_source[s].g_drain[d].g_counter.some_q == (count != '0));
            assert (dut.u_counters.g_source[s].g_drain[d].g_counter.room_q == (count != '1));
          end
          if (begun_q && take) assert (count != '0);
          if (begun_q && give) assert (count != '1);
        end
      end
    end
  end

endmodule
