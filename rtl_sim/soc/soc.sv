// A processor that controls the machine: PicoRV32 runs firmware.c, reaches the machine's control registers as any AXI4-Lite master
// does, and shares the memory with it. Simulation only.
//
//   picorv32 --+--> own memory, console
//              +----AXI4-Lite----> opu_machine (opu_top and its memory) --irq--> picorv32
//              +----DPI--------------> the same image of DRAM
//
// Map of the processor, all uncached (the constants are repeated in link.ld and firmware.c):
//   0x0000_0000  own memory, 32 KB, with the firmware     0x4000_0000  control registers of the machine
//   0x1000_0000  console: a character                     0x8000_0000  DRAM, bus address 0 on
//   0x1000_0004  exit code: the end of the simulation
//   0x1000_0008  accesses to control registers that were refused (SLVERR); a write clears it
// Interrupt 3: the machine's irq_o. Plusargs: those of opu_machine.sv, +firmware=FILE ($readmemh).
module soc
  import opu_pkg::*;
();
  localparam int unsigned LANE_BITS = $clog2(BUS_BYTES);

  import "DPI-C" function int opu_image_read(
      input longint address, input int bytes, output bit [BUS_BYTES*8-1:0] data);
  import "DPI-C" function int opu_image_write(
      input longint address, input int bytes, input bit [BUS_BYTES*8-1:0] data, input bit [BUS_BYTES-1:0] strobes);

  bit clk;
  initial forever #1 clk = !clk;
  logic rst_n = 1'b0;
  always @(posedge clk) rst_n <= 1'b1;

  logic finished /*verilator public_flat_rd*/ = 1'b0;
  logic [31:0] exit_code /*verilator public_flat_rd*/ = '0;

  logic [31:0] own [8192];
  initial begin
    string path;
    if (!$value$plusargs("firmware=%s", path)) $fatal(1, "+firmware=FILE is missing");
    $readmemh(path, own);
  end

  // ---- processor ----------------------------------------------------------------------------------------------------------
  logic valid, ready, irq, trap;
  logic [31:0] addr, wdata, rdata;
  logic [3:0] wstrb;
  /* verilator lint_off PINMISSING */
  picorv32 #(
      .ENABLE_IRQ    (1),
      .COMPRESSED_ISA(1),
      .LATCHED_IRQ   (32'd0),  // the machine's line is a level
      .STACKADDR     (32'h0000_8000)
  ) u_cpu (
      .clk,
      .resetn   (rst_n),
      .trap,
      .mem_valid(valid),
      .mem_ready(ready),
      .mem_addr (addr),
      .mem_wdata(wdata),
      .mem_wstrb(wstrb),
      .mem_rdata(rdata),
      .pcpi_wr   (1'b0),
      .pcpi_rd   (32'd0),
      .pcpi_wait (1'b0),
      .pcpi_ready(1'b0),
      .irq      ({28'd0, irq, 3'd0})
  );
  /* verilator lint_on PINMISSING */

  // One access at a time; the processor holds it until `ready`.
  logic to_registers, aw_done_q, w_done_q, ar_done_q;
  logic awready, wready, bvalid, arready, rvalid;
  logic [31:0] csr_rdata;
  logic [1:0] bresp, rresp;
  assign to_registers = valid && !ready && addr[31:28] == 4'h4;

  int unsigned refused;
  logic [BUS_BYTES*8-1:0] beat;
  longint beat_addr;
  assign beat_addr = longint'(addr[30:0] >> LANE_BITS << LANE_BITS);

  always @(posedge clk) begin
    ready <= 1'b0;
    if (!rst_n) begin
      {aw_done_q, w_done_q, ar_done_q} <= '0;
      refused <= 0;
    end else begin
      if (trap) $fatal(1, "the processor met an instruction or address that it does not know");
      if (to_registers) begin
        aw_done_q <= !bvalid && (aw_done_q || (wstrb != '0 && awready));
        w_done_q <= !bvalid && (w_done_q || (wstrb != '0 && wready));
        ar_done_q <= !rvalid && (ar_done_q || (wstrb == '0 && arready));
        ready <= bvalid || rvalid;
        rdata <= csr_rdata;
        if ((bvalid && bresp != '0) || (rvalid && rresp != '0)) refused <= refused + 1;
      end else if (valid && !ready) begin
        ready <= 1'b1;
        case (addr[31:28])
          4'h0: begin
            if (addr >= 32'h8000) $fatal(1, "the processor has no memory at 0x%h", addr);
            rdata <= own[addr[14:2]];
            for (int b = 0; b < 4; b++) if (wstrb[b]) own[addr[14:2]][8*b+:8] <= wdata[8*b+:8];
          end
          4'h1: begin
            rdata <= refused;
            if (wstrb != '0) begin
              case (addr[3:2])
                2'd0: $write("%c", wdata[7:0]);
                2'd1: begin
                  finished <= 1'b1;
                  exit_code <= wdata;
                end
                default: refused <= 0;
              endcase
            end
          end
          default: begin  // a word of the beat that holds it
            if (wstrb == '0) begin
              if (opu_image_read(beat_addr, int'(BUS_BYTES), beat) == 0) $fatal(1, "no DRAM at 0x%h", addr);
              rdata <= 32'(beat >> 8 * (addr[30:0] - 31'(beat_addr)));
            end else if (opu_image_write(
                    beat_addr, int'(BUS_BYTES), {BUS_BYTES / 4{wdata}},
                    BUS_BYTES'(wstrb) << (addr[30:0] - 31'(beat_addr))) == 0) begin
              $fatal(1, "no DRAM at 0x%h", addr);
            end
          end
        endcase
      end
    end
  end

  opu_machine u_machine (
      .clk_i    (clk),
      .rst_ni   (rst_n),
      .irq_o    (irq),
      .awaddr_i (addr[CSR_ADDR_BITS-1:0]),
      .awvalid_i(to_registers && wstrb != '0 && !aw_done_q),
      .awready_o(awready),
      .wdata_i  (wdata),
      .wstrb_i  (wstrb),
      .wvalid_i (to_registers && wstrb != '0 && !w_done_q),
      .wready_o (wready),
      .bresp_o  (bresp),
      .bvalid_o (bvalid),
      .bready_i (1'b1),
      .araddr_i (addr[CSR_ADDR_BITS-1:0]),
      .arvalid_i(to_registers && wstrb == '0 && !ar_done_q),
      .arready_o(arready),
      .rdata_o  (csr_rdata),
      .rresp_o  (rresp),
      .rvalid_o (rvalid),
      .rready_i (1'b1)
  );

endmodule
