// Two AXI managers on one memory port. What a channel carries is opaque; `owner` says whose it is, and comes back with the answer
// as the highest bit of its id. Fair: who was served last waits when both want. A burst of writes is not interrupted.
module soc_share #(
    parameter int unsigned AX_BITS = 1,
    parameter int unsigned W_BITS  = 1
) (
    input  logic                    clk,
    input  logic                    rst_n,

    input  logic [1:0]              awvalid_i,
    output logic [1:0]              awready_o,
    input  logic [1:0][AX_BITS-1:0] aw_i,
    input  logic [1:0]              wvalid_i,
    output logic [1:0]              wready_o,
    input  logic [1:0]              wlast_i,
    input  logic [1:0][W_BITS-1:0]  w_i,
    output logic [1:0]              bvalid_o,
    input  logic [1:0]              bready_i,
    input  logic [1:0]              arvalid_i,
    output logic [1:0]              arready_o,
    input  logic [1:0][AX_BITS-1:0] ar_i,
    output logic [1:0]              rvalid_o,
    input  logic [1:0]              rready_i,

    output logic                    awvalid_o,
    input  logic                    awready_i,
    output logic                    aw_owner_o,
    output logic [AX_BITS-1:0]      aw_o,
    output logic                    wvalid_o,
    input  logic                    wready_i,
    output logic                    wlast_o,
    output logic [W_BITS-1:0]       w_o,
    input  logic                    bvalid_i,
    output logic                    bready_o,
    input  logic                    b_owner_i,
    output logic                    arvalid_o,
    input  logic                    arready_i,
    output logic                    ar_owner_o,
    output logic [AX_BITS-1:0]      ar_o,
    input  logic                    rvalid_i,
    output logic                    rready_o,
    input  logic                    r_owner_i
);

  // Reads: an address that is shown is held until it is taken.
  logic ar_owner, ar_held;
  assign ar_owner_o = ar_held || !arvalid_i[!ar_owner] ? ar_owner : !ar_owner;
  assign arvalid_o  = arvalid_i[ar_owner_o];
  assign ar_o       = ar_i[ar_owner_o];
  assign arready_o  = 2'(arready_i) << ar_owner_o;
  assign rvalid_o   = 2'(rvalid_i) << r_owner_i;
  assign rready_o   = rready_i[r_owner_i];
  always_ff @(posedge clk) begin
    ar_owner <= ar_owner_o;
    ar_held  <= arvalid_o && !arready_i;
    if (!rst_n) ar_held <= 1'b0;
  end

  // Writes: the next address is taken after the last word of the burst before.
  logic aw_owner, aw_held, bursting;
  assign aw_owner_o = aw_held || bursting || !awvalid_i[!aw_owner] ? aw_owner : !aw_owner;
  assign awvalid_o  = !bursting && awvalid_i[aw_owner_o];
  assign aw_o       = aw_i[aw_owner_o];
  assign awready_o  = 2'(!bursting && awready_i) << aw_owner_o;
  assign wvalid_o   = bursting && wvalid_i[aw_owner];
  assign wlast_o    = wlast_i[aw_owner];
  assign w_o        = w_i[aw_owner];
  assign wready_o   = 2'(bursting && wready_i) << aw_owner;
  assign bvalid_o   = 2'(bvalid_i) << b_owner_i;
  assign bready_o   = bready_i[b_owner_i];
  always_ff @(posedge clk) begin
    aw_owner <= aw_owner_o;
    aw_held  <= awvalid_o && !awready_i;
    if (awvalid_o && awready_i) bursting <= 1'b1;
    else if (wvalid_o && wready_i && wlast_o) bursting <= 1'b0;
    if (!rst_n) begin
      aw_held  <= 1'b0;
      bursting <= 1'b0;
    end
  end

endmodule
