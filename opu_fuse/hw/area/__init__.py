"""FPGA resources of a machine, estimated in closed form."""
