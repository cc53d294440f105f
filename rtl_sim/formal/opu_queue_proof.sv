// opu_queue: never more than DEPTH entries, and every entry comes out as it went in, in order. Proved for every length
// of run, by one entry followed from the push to the pop, whatever it holds and whenever it comes.
module opu_queue_proof #(
    parameter int unsigned DEPTH = 4,
    parameter int unsigned WIDTH = 2,
    parameter bit REGISTER = DEPTH > 16
) (
    input logic             clk_i,
    input logic             rst_ni,
    input logic             push_valid_i,
    input logic [WIDTH-1:0] push_data_i,
    input logic             pop_ready_i,
    input logic             follow_i
);

  localparam bit SHORT = !REGISTER;  // entries only; else the oldest one is in a register

  logic push_ready, pop_valid;
  logic [WIDTH-1:0] pop_data;
  opu_queue #(
      .WIDTH(WIDTH),
      .DEPTH(DEPTH),
      .REGISTER(REGISTER)
  ) dut (
      .clk_i,
      .rst_ni,
      .push_valid_i,
      .push_ready_o(push_ready),
      .push_data_i,
      .pop_valid_o (pop_valid),
      .pop_ready_i,
      .pop_data_o  (pop_data)
  );

  logic push, pop, begun_q = 1'b0, followed_q;
  int unsigned count_q, ahead_q;
  logic [WIDTH-1:0] data_q;
  assign push = push_valid_i && push_ready;
  assign pop = pop_valid && pop_ready_i;

  always_ff @(posedge clk_i) begin
    begun_q <= 1'b1;
    if (!rst_ni) begin
      count_q <= 0;
      followed_q <= 1'b0;
    end else begin
      count_q <= count_q + 32'(push) - 32'(pop);
      if (followed_q) begin
        followed_q <= !(pop && ahead_q == 0);
        ahead_q <= ahead_q - 32'(pop);
      end else begin
        followed_q <= push && follow_i;
        ahead_q <= count_q - 32'(pop);
        data_q <= push_data_i;
      end
    end
  end

  // The index of the followed entry in the memory.
  int unsigned stored, index;
  logic [WIDTH-1:0] stored_data;
  assign stored = SHORT ? count_q : count_q - 32'(count_q != 0);
  assign index = 32'(dut.head_q) + ahead_q - (SHORT ? 0 : 1);
  assign stored_data = dut.entries[index < DEPTH ? index : index - DEPTH];

  always_comb begin
    assume (begun_q || !rst_ni);
    if (begun_q) begin
      assert (count_q <= DEPTH);
      assert (push_ready == (count_q != DEPTH));
      assert (pop_valid == (count_q != 0));
      if (followed_q) assert (ahead_q < count_q);
      if (followed_q && ahead_q == 0) assert (pop_data == data_q);
      // What makes the above inductive.
      assert (32'(dut.count_q) == count_q);
      assert (32'(dut.head_q) < DEPTH && 32'(dut.tail_q) < DEPTH);
      assert (32'(dut.head_q) + stored == 32'(dut.tail_q) || 32'(dut.head_q) + stored == 32'(dut.tail_q) + DEPTH);
      if (followed_q && (SHORT || ahead_q != 0)) assert (stored_data == data_q);
    end
  end

  if (DEPTH > 64) begin : g_block  // what block RAM has read, and what came too late for that
    always_comb begin
      if (begun_q && followed_q && ahead_q == 1) begin
        assert (data_q == (dut.g_register.g_block.second_late ? dut.g_register.g_block.late_q : dut.g_register.g_block.second_q));
      end
      if (begun_q) assert (dut.g_register.g_block.second_head_q == dut.after(dut.head_q));
    end
  end

endmodule
