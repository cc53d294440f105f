// The clocks of the board: 25 MHz of the oscillator times CLKFB_DIV / CLKI_DIV, and that for the SDRAM's pin, PHASE / CLKOP_DIV of a
// cycle late. The PLL's own frequency, CLKOP_DIV times the clock, is between 400 and 800 MHz. In simulation a behavioural twin
// generates a clock of 1,000,000 / CLOCK_KHZ ns, rounded down.
module ulx3s_clocks #(
    parameter int unsigned CLOCK_KHZ = 60_000,
    parameter int unsigned CLKI_DIV = 5,
    parameter int unsigned CLKFB_DIV = 12,
    parameter int unsigned CLKOP_DIV = 10,
    parameter int unsigned PHASE = 2
) (
    input  logic clk_25_i,
    output logic clk_o,
    output logic sdram_clk_o,
    output logic locked_o
);

`ifdef SYNTHESIS
  if (25_000 * CLKFB_DIV / CLKI_DIV != CLOCK_KHZ) begin : g_clock
    $error("the dividers make another clock");
  end

  // Feedback is the clock itself, so that its edges are those of the oscillator; half of the divider is the phase 0.
  (* FREQUENCY_PIN_CLKI = "25", ICP_CURRENT = "12", LPF_RESISTOR = "8", MFG_ENABLE_FILTEROPAMP = "1", MFG_GMCREF_SEL = "2" *)
  EHXPLLL #(
      .CLKI_DIV     (CLKI_DIV),
      .CLKFB_DIV    (CLKFB_DIV),
      .CLKOP_DIV    (CLKOP_DIV),
      .CLKOP_CPHASE (CLKOP_DIV / 2),
      .CLKOS_DIV    (CLKOP_DIV),
      .CLKOS_CPHASE (CLKOP_DIV / 2 + PHASE),
      .CLKOP_ENABLE ("ENABLED"),
      .CLKOS_ENABLE ("ENABLED"),
      .FEEDBK_PATH  ("CLKOP")
  ) u_pll (
      .CLKI        (clk_25_i),
      .CLKFB       (clk_o),
      .CLKOP       (clk_o),
      .CLKOS       (sdram_clk_o),
      .LOCK        (locked_o),
      .RST         (1'b0),
      .STDBY       (1'b0),
      .PHASESEL0   (1'b0),
      .PHASESEL1   (1'b0),
      .PHASEDIR    (1'b1),
      .PHASESTEP   (1'b1),
      .PHASELOADREG(1'b1),
      .PLLWAKESYNC (1'b0),
      .ENCLKOP     (1'b0)
  );
`else
  localparam int unsigned PERIOD_NS = 1_000_000 / CLOCK_KHZ;
  localparam int unsigned LATE_NS = PERIOD_NS * PHASE / CLKOP_DIV;
  bit clk;
  initial forever begin
    #(PERIOD_NS - PERIOD_NS / 2) clk = 1'b1;
    #(PERIOD_NS / 2) clk = 1'b0;
  end
  assign clk_o = clk;
  always @(clk) sdram_clk_o <= #(LATE_NS) clk;
  initial begin
    locked_o = 1'b0;
    #200 locked_o = 1'b1;
  end
  logic unused;
  assign unused = clk_25_i;
`endif  // SYNTHESIS

endmodule
