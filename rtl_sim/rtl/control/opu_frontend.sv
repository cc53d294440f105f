// Instruction front end of one engine: words from the queue become parameter writes and engine starts.
//
//   word --+-- U-type --> set_*   (parameter register)
//          +-- C-type --> wait for tokens, for the engine --> start_* ... done_* --> signal tokens
//
// queue side: a word and its index in the program, valid/ready. word_starts_i: it is a legal start of this engine.
//             opu_issue decodes that before the word enters the queue, since what a start enables is on a long path.
// set_*:      one parameter register is written in every cycle with set_valid_o (the register file is outside, since
//             its type differs from engine to engine). It may be written while the engine runs: the engine latches at
//             its start.
// start_*:    valid/ready with the opcode. start_valid_o rises when every token of the wait mask has arrived; the
//             tokens are popped in the cycle of the handshake.
// done_*:     one handshake per started instruction, in the order of the starts. ready waits for space in every counter
//             of the signal mask; the tokens are pushed in the cycle of the handshake. Up to IN_FLIGHT may be open.
// fault_o:    a word was not a legal instruction (level from the next cycle until reset); fault_pc_o is its index.
//             Nothing starts from it on; the register that it names may be written.
// halt_i:     no more words are popped, no more starts; open instructions may still retire.
// Throughput: one word per cycle.
`include "opu_assert.svh"

module opu_frontend #(
    parameter int unsigned ENGINE = 1,       // own number: bit position in the masks
    parameter int unsigned ENGINES = 5,
    parameter int unsigned PC_BITS = 24,
    parameter int unsigned IN_FLIGHT = 4
) (
    input  logic               clk_i,
    input  logic               rst_ni,
    input  logic               halt_i,

    input  logic               word_valid_i,
    output logic               word_ready_o,
    input  logic [31:0]        word_i,
    input  logic               word_starts_i,
    input  logic [PC_BITS-1:0] word_pc_i,

    output logic               set_valid_o,
    output logic [5:0]         set_index_o,
    output logic [21:0]        set_value_o,
    input  logic               set_legal_i,   // combinational answer to index and value

    output logic               take_valid_o,
    output logic [ENGINES-1:0] take_mask_o,
    input  logic [ENGINES-1:0] tokens_i,
    output logic               give_valid_o,
    output logic [ENGINES-1:0] give_mask_o,
    input  logic [ENGINES-1:0] space_i,

    output logic               start_valid_o,
    input  logic               start_ready_i,
    output logic [3:0]         start_op_o,
    output logic [PC_BITS-1:0] start_pc_o,
    input  logic               done_valid_i,
    output logic               done_ready_o,

    output logic               idle_o,        // nothing waits, nothing is open
    output logic               busy_o,        // at least one instruction is open
    output logic               stall_o,       // waits for a token, or holds a retirement
    output logic               retire_o,
    output logic [PC_BITS-1:0] latest_pc_o,   // instruction started last
    output logic               fault_o,
    output logic [PC_BITS-1:0] fault_pc_o
);

  // Decoding of the word at the head of the queue.
  logic is_start, tokens_here;
  logic [ENGINES-1:0] wait_mask, signal_mask;
  assign is_start = word_i[31];
  assign wait_mask = word_i[16+:ENGINES];
  assign signal_mask = word_i[8+:ENGINES];
  assign tokens_here = (wait_mask & ~tokens_i) == '0;

  assign set_index_o = word_i[27:22];
  assign set_value_o = word_i[21:0];

  logic legal;
  assign legal = is_start ? word_starts_i : set_legal_i && word_i[30:28] == 3'(ENGINE);

  // The decision is registered for the next cycle: the parameter write arrives late.
  logic fault_q;
  logic [PC_BITS-1:0] fault_pc_q;
  assign fault_o = fault_q;
  assign fault_pc_o = fault_pc_q;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) fault_q <= 1'b0;
    else if (word_valid_i && !legal) fault_q <= 1'b1;
    if (!fault_q) fault_pc_q <= word_pc_i;
  end

  logic go;
  assign go = word_valid_i && !fault_q && !halt_i;
  assign set_valid_o = go && !is_start;

  // Open instructions: signal mask, oldest first.
  logic open_ready, open_valid, start, retire;
  logic [ENGINES-1:0] open_signal;

  opu_queue #(
      .WIDTH(ENGINES),
      .DEPTH(IN_FLIGHT),
      .REGISTER(1'b1)
  ) u_open (
      .clk_i,
      .rst_ni,
      .push_valid_i(start),
      .push_ready_o(open_ready),
      .push_data_i (signal_mask),
      .pop_valid_o (open_valid),
      .pop_ready_i (retire),
      .pop_data_o  (open_signal)
  );

  assign start_valid_o = go && word_starts_i && tokens_here && open_ready;
  assign start_op_o = word_i[27:24];
  assign start_pc_o = word_pc_i;
  assign start = start_valid_o && start_ready_i;
  assign take_valid_o = start;
  assign take_mask_o = wait_mask;
  assign word_ready_o = go && (!is_start || start);

  logic space_here;
  assign space_here = (open_signal & ~space_i) == '0;
  assign done_ready_o = open_valid && space_here;
  assign retire = done_valid_i && done_ready_o;
  assign give_valid_o = retire;
  assign give_mask_o = open_signal;

  assign idle_o = !word_valid_i && !open_valid;
  assign busy_o = open_valid;
  assign stall_o = (word_valid_i && word_starts_i && !tokens_here)
      || (done_valid_i && !done_ready_o);
  assign retire_o = retire;

  logic [PC_BITS-1:0] latest_pc_q;
  assign latest_pc_o = latest_pc_q;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) latest_pc_q <= '0;
    else if (start) latest_pc_q <= word_pc_i;
  end

  `OPU_ASSERT(StartsAreStarts, word_valid_i && word_starts_i |-> is_start)
  `OPU_ASSERT(StartHeld, start_valid_o && !start_ready_i |=> start_valid_o || halt_i)
  `OPU_ASSERT(StartStable, start_valid_o && !start_ready_i |=> $stable(start_op_o) || halt_i)
  `OPU_ASSERT(DoneHasStart, done_valid_i |-> open_valid)

endmodule
