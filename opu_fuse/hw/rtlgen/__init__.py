"""SystemVerilog and C that are generated from specs and the instruction table."""
