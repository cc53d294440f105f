// Reset synchroniser. rst_no is low with rst_ni and rises at the second clock edge that samples rst_ni high. So all
// registers that it resets leave reset in the same cycle, whenever rst_ni rises. Resets are synchronous: rst_ni must be
// low for at least one clock edge.
//
//   rst_ni --> [high_q[0]] --> [high_q[1]] --> and --> rst_no
//     +-----------------------------------------^
module opu_reset (
    input  logic clk_i,
    input  logic rst_ni,
    output logic rst_no
);

  (* ASYNC_REG = "TRUE" *) logic [1:0] high_q;
  always_ff @(posedge clk_i) high_q <= rst_ni ? {high_q[0], 1'b1} : '0;
  assign rst_no = rst_ni && high_q[1];

endmodule
