"""The machine in a LiteX SoC: `core.OPU`."""
