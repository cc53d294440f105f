// Cells of ECP5 that the board's design names, for synthesis only: their ports as far as they are used. Yosys knows the rest.

(* blackbox *)
module EHXPLLL #(
    parameter CLKI_DIV = 1,
    parameter CLKFB_DIV = 1,
    parameter CLKOP_DIV = 8,
    parameter CLKOP_CPHASE = 0,
    parameter CLKOS_DIV = 8,
    parameter CLKOS_CPHASE = 0,
    parameter CLKOP_ENABLE = "ENABLED",
    parameter CLKOS_ENABLE = "DISABLED",
    parameter FEEDBK_PATH = "CLKOP"
) (
    input  CLKI,
    input  CLKFB,
    output CLKOP,
    output CLKOS,
    output LOCK,
    input  RST,
    input  STDBY,
    input  PHASESEL0,
    input  PHASESEL1,
    input  PHASEDIR,
    input  PHASESTEP,
    input  PHASELOADREG,
    input  PLLWAKESYNC,
    input  ENCLKOP
);
endmodule

// Registers at a pad: of an output, of an input.
(* blackbox *)
module OFS1P3DX (
    input  SCLK,
    input  SP,
    input  CD,
    input  D,
    output Q
);
endmodule

(* blackbox *)
module IFS1P3DX (
    input  SCLK,
    input  SP,
    input  CD,
    input  D,
    output Q
);
endmodule

// A pad of both directions; T: it is not driven.
(* blackbox *)
module BB (
    input I,
    input T,
    output O,
    inout B
);
endmodule

// Two bits a cycle: D0 behind the rising edge, D1 behind the falling one.
(* blackbox *)
module ODDRX1F (
    input  SCLK,
    input  RST,
    input  D0,
    input  D1,
    output Q
);
endmodule
