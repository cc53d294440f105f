// Retire records of the machine, bound into every opu_top that is simulated together with this file.
//
// `total` changes in every cycle in which an instruction retires; then, for the engines e in `engines`, pcs[e] is the word index of
// the one that did, starts[e] and `at` are its first and last cycle, as CYCLES counts. +retired=FILE: the same as lines of text,
// "engine word first last".
module opu_retired #(
    parameter int unsigned ENGINES = 5,
    parameter int unsigned PC_BITS = 24
) (
    input logic               clk_i,
    input logic               irq_i,
    input logic               run_i,
    input logic [ENGINES-1:0] start_i,
    input logic [PC_BITS-1:0] start_pc_i [ENGINES],
    input logic [ENGINES-1:0] retire_i,
    input logic [PC_BITS-1:0] fetch_pc_i,
    input logic [63:0]        cycles_i
);
  localparam int unsigned OPEN = 16;  // more than any engine may have open

  int unsigned total /*verilator public_flat_rd*/;
  logic [ENGINES-1:0] engines /*verilator public_flat_rd*/;
  logic [ENGINES-1:0][31:0] pcs /*verilator public_flat_rd*/;
  logic [ENGINES-1:0][63:0] starts /*verilator public_flat_rd*/;
  logic [63:0] at /*verilator public_flat_rd*/;

  int file = 0;
  initial begin
    string path;
    total = 0;
    if ($value$plusargs("retired=%s", path)) begin
      file = $fopen(path, "w");
      if (file == 0) $fatal(1, "%s cannot be written", path);
    end
  end

  // Starts wait in a circular buffer per engine until their retirement.
  logic [63:0] start_cycle [ENGINES][OPEN];
  logic [31:0] start_pc [ENGINES][OPEN];
  int unsigned opened [ENGINES];
  int unsigned closed [ENGINES];
  /* verilator lint_off BLKSEQ */
  always @(posedge clk_i) begin
    for (int e = 0; e < int'(ENGINES); e++) begin
      if (!run_i) begin
        opened[e] = 0;
        closed[e] = 0;
      end else begin
        if (start_i[e]) begin
          start_cycle[e][opened[e] % OPEN] = cycles_i;
          start_pc[e][opened[e] % OPEN] = 32'(start_pc_i[e]);
          opened[e] = opened[e] + 1;
        end
        if (retire_i[e]) begin
          pcs[e] = e == 0 ? 32'(fetch_pc_i) : start_pc[e][closed[e] % OPEN];
          starts[e] = e == 0 ? cycles_i : start_cycle[e][closed[e] % OPEN];
          closed[e] = closed[e] + 1;
          if (file != 0) $fwrite(file, "%0d %0d %0d %0d\n", e, pcs[e], starts[e], cycles_i);
        end
      end
    end
    if (run_i && retire_i != '0) begin
      engines = retire_i;
      at = cycles_i;
      total = total + 1;
    end
    if (file != 0 && irq_i) $fflush(file);
  end
  /* verilator lint_on BLKSEQ */
endmodule

bind opu_top opu_retired #(
    .ENGINES(ENGINES),
    .PC_BITS(PC_BITS)
) u_retired (
    .clk_i,
    .irq_i     (irq_o),
    .run_i     (run),
    .start_i   ({start_valid & start_ready, 1'b0}),
    .start_pc_i(start_pc),
    .retire_i  (retire),
    .fetch_pc_i(fetch_pc),
    .cycles_i  (cycles)
);
