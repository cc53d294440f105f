// What the cells of ECP5 that LiteX uses around pins and clocks do. Simulation only: Yosys has its own for synthesis.
`timescale 1ns / 1ps

// A PLL whose feedback is its third output. Times follow from its parameters and the input's period, which is measured.
module EHXPLLL #(
    parameter int CLKI_DIV = 1,
    parameter int CLKFB_DIV = 1,
    parameter int CLKOP_DIV = 8,
    parameter int CLKOP_CPHASE = 0,
    parameter int CLKOP_FPHASE = 0,
    parameter int CLKOS_DIV = 8,
    parameter int CLKOS_CPHASE = 0,
    parameter int CLKOS_FPHASE = 0,
    parameter int CLKOS2_DIV = 8,
    parameter int CLKOS2_CPHASE = 0,
    parameter int CLKOS2_FPHASE = 0,
    parameter CLKOP_ENABLE = "DISABLED",
    parameter CLKOS_ENABLE = "DISABLED",
    parameter CLKOS2_ENABLE = "DISABLED",
    parameter FEEDBK_PATH = "CLKOP"
) (
    input  logic CLKI,
    input  logic RST,
    input  logic STDBY,
    output bit   CLKOP,
    output bit   CLKOS,
    output bit   CLKOS2,
    output logic LOCK
);
  real input_ns, first_ns, vco_ns, out_ns, late_ns;
  initial begin
    LOCK = 1'b0;
    if (FEEDBK_PATH != "INT_OS2" || CLKOP_DIV != CLKOS_DIV) $fatal(1, "no model of a PLL with these settings");
    @(posedge CLKI) first_ns = $realtime;
    @(posedge CLKI) input_ns = $realtime - first_ns;
    vco_ns = input_ns * CLKI_DIV / (CLKFB_DIV * CLKOS2_DIV);
    out_ns = vco_ns * CLKOP_DIV;
    late_ns = vco_ns * (real'(CLKOS_CPHASE - CLKOP_CPHASE) + (CLKOS_FPHASE - CLKOP_FPHASE) / 8.0);
    fork
      forever begin
        #(out_ns / 2.0) CLKOP = 1'b1;
        #(out_ns / 2.0) CLKOP = 1'b0;
      end
      begin
        #(late_ns);
        forever begin
          #(out_ns / 2.0) CLKOS = 1'b1;
          #(out_ns / 2.0) CLKOS = 1'b0;
        end
      end
      forever begin
        wait (!RST && !STDBY);
        #(1000.0) LOCK = !RST;
        wait (RST);
        LOCK = 1'b0;
      end
    join
  end
  assign CLKOS2 = 1'b0;
endmodule

module FD1S3BX (
    input  logic CK,
    input  logic D,
    input  logic PD,
    output logic Q
);
  always_ff @(posedge CK or posedge PD) Q <= PD ? 1'b1 : D;
endmodule

module OFS1P3BX (
    input  logic SCLK,
    input  logic PD,
    input  logic SP,
    input  logic D,
    output logic Q
);
  always_ff @(posedge SCLK) if (PD) Q <= 1'b1; else if (SP) Q <= D;
endmodule

module IFS1P3BX (
    input  logic SCLK,
    input  logic PD,
    input  logic SP,
    input  logic D,
    output logic Q
);
  always_ff @(posedge SCLK) if (PD) Q <= 1'b1; else if (SP) Q <= D;
endmodule

// Only for a clock at a pin: the first half of a cycle is D0, the second D1.
module ODDRX1F (
    input  logic SCLK,
    input  logic RST,
    input  logic D0,
    input  logic D1,
    output logic Q
);
  assign Q = SCLK ? D0 : D1;
endmodule

module TRELLIS_IO #(
    parameter DIR = "INPUT"
) (
    inout  wire  B,
    input  logic I,
    input  logic T,
    output logic O
);
  assign B = T ? 1'bz : I;
  assign O = B;
endmodule
