// FIFO with valid/ready on both sides.
//
//   push_* --> entries, DEPTH of them --> [oldest entry, with REGISTER] --> pop_*
//
// push side: an entry is accepted in every cycle with push_valid_i and push_ready_o; ready falls when DEPTH entries are
//            stored.
// pop side:  pop_data_o is the oldest entry while pop_valid_o; it is removed in a cycle with pop_ready_i.
// Latency 1 cycle from push to pop, one entry per cycle on both sides. Reset empties it.
// REGISTER: the oldest entry is in a register, for entries from which a long path starts.
`include "opu_assert.svh"

module opu_queue #(
    parameter int unsigned WIDTH = 32,
    parameter int unsigned DEPTH = 64,
    parameter bit REGISTER = DEPTH > 16
) (
    input  logic             clk_i,
    input  logic             rst_ni,

    input  logic             push_valid_i,
    output logic             push_ready_o,
    input  logic [WIDTH-1:0] push_data_i,

    output logic             pop_valid_o,
    input  logic             pop_ready_i,
    output logic [WIDTH-1:0] pop_data_o
);

  localparam int unsigned LUT_RAM_DEPTH = 64;
  // A block RAM shows its words late in the cycle: what fits is stored in LUTs.
  /* verilator lint_off UNUSEDPARAM */  // it does not read attributes
  localparam STYLE = (DEPTH > LUT_RAM_DEPTH) ? "auto" : "distributed";
  /* verilator lint_on UNUSEDPARAM */
  localparam int unsigned POINTER_BITS = (DEPTH > 1) ? $clog2(DEPTH) : 1;
  localparam int unsigned COUNT_BITS = $clog2(DEPTH + 1);
  localparam logic [POINTER_BITS-1:0] LAST = POINTER_BITS'(DEPTH - 1);

  // What is read while it is written is never looked at.
  (* ram_style = STYLE, no_rw_check *) logic [WIDTH-1:0] entries [DEPTH];
  logic [POINTER_BITS-1:0] head_q, tail_q;
  logic [COUNT_BITS-1:0] count_q;
  logic room_q, some_q;  // what count_q says of DEPTH and 0, for those who wait for it

  logic push, pop, written, read;  // written, read: of `entries`
  assign push_ready_o = room_q;
  assign pop_valid_o = some_q;
  assign push = push_valid_i && push_ready_o;
  assign pop = pop_valid_o && pop_ready_i;

  function automatic logic [POINTER_BITS-1:0] after(logic [POINTER_BITS-1:0] pointer);
    after = (DEPTH != 1 << POINTER_BITS && pointer == LAST) ? '0 : pointer + POINTER_BITS'(1);
  endfunction

  if (REGISTER) begin : g_register
    logic has_second;  // an entry after the oldest one
    assign has_second = count_q > COUNT_BITS'(1);
    assign written = push && some_q && (has_second || !pop);
    assign read = pop && has_second;
    if (DEPTH > LUT_RAM_DEPTH) begin : g_block
      // Only a register follows the block RAM. It shows the entry after the oldest one and reads the next one when that
      // is removed. Entries that come too late for that, with two entries or less, are stored in a register next to it.
      // pop arrives late.
      logic [WIDTH-1:0] second_q, late_q, read_q, pushed_q;
      logic [POINTER_BITS-1:0] second_head_q;  // the entry after head_q
      logic second_late, popped_q, few_q, alone_q, was_read_q;  // second_late: the second entry, if any, is in late_q
      assign second_late = popped_q ? few_q : alone_q;
      assign pop_data_o = was_read_q ? read_q : pushed_q;
      always_ff @(posedge clk_i) begin
        if (pop) second_q <= entries[second_head_q];
        popped_q <= pop;
        few_q <= count_q < COUNT_BITS'(3);
        alone_q <= count_q == COUNT_BITS'(1) || second_late;
        if (pop || !(has_second && second_late)) late_q <= push_data_i;
        if (pop || !some_q) begin
          read_q <= second_q;
          pushed_q <= has_second ? late_q : push_data_i;
          was_read_q <= has_second && !second_late;
        end
        if (!rst_ni) second_head_q <= POINTER_BITS'(1);
        else if (read) second_head_q <= after(second_head_q);
      end
    end else begin : g_table
      logic [WIDTH-1:0] oldest_q;
      assign pop_data_o = oldest_q;
      always_ff @(posedge clk_i) begin
        if (pop || !some_q) oldest_q <= has_second ? entries[head_q] : push_data_i;
      end
    end
  end else begin : g_direct
    assign written = push;
    assign read = pop;
    assign pop_data_o = entries[head_q];
  end

  always_ff @(posedge clk_i) begin
    if (push) entries[tail_q] <= push_data_i;  // if not `written` it is a free entry: that flag arrives late
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      head_q <= '0;
      tail_q <= '0;
      count_q <= '0;
      room_q <= 1'b1;
      some_q <= 1'b0;
    end else begin
      if (written) tail_q <= after(tail_q);
      if (read) head_q <= after(head_q);
      if (push != pop) count_q <= push ? count_q + COUNT_BITS'(1) : count_q - COUNT_BITS'(1);
      // pop arrives late. A pushed entry always has room.
      room_q <= pop || (push ? count_q != COUNT_BITS'(DEPTH - 1) : room_q);
      some_q <= push || (some_q && !(pop && count_q == COUNT_BITS'(1)));
    end
  end

  `OPU_ASSERT(CountInRange, count_q <= COUNT_BITS'(DEPTH))
  `OPU_ASSERT(FlagsAreTheCount, room_q == (count_q != COUNT_BITS'(DEPTH)) && some_q == (count_q != '0))

endmodule
