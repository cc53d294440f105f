"""opu-fuse in other people's cocotb benches (docs/cosimulation.md). Needs the extra `rtl`.

Loaded on first use::

    opu = OpuDriver(AxiLiteMaster(...), base=0x1000, irq=dut.irq)
    bench = ProgramBench(Program.load("network.opu"), opu, AxiRam(...), machine=dut.u_opu)
    await bench.load()
    result = await bench.run({"input": x})
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from opu_fuse.cosim.driver import OpuDriver
    from opu_fuse.cosim.program import ProgramBench
    from opu_fuse.cosim.retired import RetireMonitor
    from opu_fuse.cosim.simulator import simulate
    from opu_fuse.cosim.stalls import stall, stall_all

__all__ = ["OpuDriver", "ProgramBench", "RetireMonitor", "simulate", "stall", "stall_all"]

_MODULE_OF = {
    "OpuDriver": "driver",
    "ProgramBench": "program",
    "RetireMonitor": "retired",
    "simulate": "simulator",
    "stall": "stalls",
    "stall_all": "stalls",
}


def __getattr__(name: str) -> object:
    import importlib

    if name not in _MODULE_OF:
        raise AttributeError(f"module 'opu_fuse.cosim' has no attribute {name!r}")
    return getattr(importlib.import_module(f"opu_fuse.cosim.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    """The public names alone."""
    return [*__all__]
