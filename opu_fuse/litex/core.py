"""The machine as a LiteX module (https://github.com/enjoy-digital/litex)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from litedram.frontend.axi import LiteDRAMAXI2Native
from litex.gen import LiteXModule
from litex.soc.integration.soc import SoCRegion
from litex.soc.interconnect import axi
from litex.soc.interconnect.csr_eventmanager import EventManager, EventSourceLevel
from migen import ClockSignal, Instance, ResetSignal, Signal

from opu_fuse.hw.isa.register_map import ADDRESS_BITS
from opu_fuse.hw.rtlgen.plain_verilog import plain_verilog
from opu_fuse.hw.rtlgen.rtl_files import TOP, rtl_files
from opu_fuse.hw.rtlgen.top_ports import Port, top_ports
from opu_fuse.hw.spec.hw_spec import HwSpec

_BUS_BITS = 32
"""Addresses of LiteX' buses; higher bits of the machine's are 0 in a window below 4 GiB."""


class OPU(LiteXModule):
    """One machine: `control` (AXI4-Lite slave), `memory` (AXI4 master) and the event `ev.done`.

    platform: of the SoC; spec: the machine; folder: where its Verilog is written; defines: macros
    of its SystemVerilog, OPU_SHORT_SLICES for devices that multiply 18 x 18 bits.

        soc.opu = OPU(platform, load_hw("opu-tiny"), folder=Path("build"))
        soc.opu.connect(soc)
    """

    def __init__(
        self, platform: Any, spec: HwSpec, *, folder: Path, defines: Sequence[str] = ()
    ) -> None:
        width = 8 * spec.dram.bus_bytes
        self.control = axi.AXILiteInterface(data_width=32, address_width=_BUS_BITS)
        self.memory = axi.AXIInterface(data_width=width, address_width=_BUS_BITS, id_width=1)
        done = EventSourceLevel(description="The program ended, with or without error.")
        self.ev = EventManager()
        self.ev.done = done
        self.ev.finalize()
        self._spec, self._interrupt = spec, done.trigger
        files = rtl_files(spec)
        ports = top_ports(files[f"{TOP}.sv"], spec)
        self.machine = Instance(TOP, **dict(self._connection(port) for port in ports))
        source = folder / f"{TOP}.v"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(plain_verilog(files, TOP, defines=defines), encoding="utf-8")
        platform.add_source(str(source.resolve()))

    def connect(self, soc: Any, name: str = "opu", origin: int = 0xB000_0000) -> None:
        """Put it into a SoC: registers at `origin`, memory at LiteDRAM's crossbar where the SoC has
        one, else at its bus; its interrupt where the processor takes any.
        """
        region = SoCRegion(origin=origin, size=1 << ADDRESS_BITS, cached=False)
        soc.bus.add_slave(name, self.control, region)
        if hasattr(soc, "sdram"):
            port = soc.sdram.crossbar.get_port(data_width=self.memory.data_width)
            base = soc.bus.regions["main_ram"].origin
            self.to_dram = LiteDRAMAXI2Native(self.memory, port, base_address=base)
        else:
            soc.bus.add_master(name, self.memory)
        if soc.irq.enabled:
            soc.irq.add(name, use_loc_if_exists=True)
        soc.add_constant(f"{name}_MACHINE_LO", self._spec.spec_hash & 0xFFFF_FFFF)
        soc.add_constant(f"{name}_MACHINE_HI", self._spec.spec_hash >> 32)

    def _connection(self, port: Port) -> tuple[str, Any]:
        """What a port of the machine is joined to, as an argument of `Instance`."""
        key = f"{'o' if port.output else 'i'}_{port.name}"
        if port.name == "clk_i":
            return key, ClockSignal()
        if port.name == "rst_ni":
            return key, ~ResetSignal()
        if port.name == "irq_o":
            return key, self._interrupt
        bus = self.control if port.name.startswith("s_axil_") else self.memory
        channel, field = _channel(port.name)
        own = getattr(getattr(bus, channel), field, None)
        if field == "addr":
            return key, self._address(own, port)
        if own is None:  # AXI4-Lite of LiteX has no protection
            return key, Signal(port.width) if port.output else 0
        return key, own

    def _address(self, bus: Any, port: Port) -> Any:
        """The machine's address is shorter (registers) or longer (memory) than the bus's."""
        if not port.output:
            return bus[: port.width]
        whole = Signal(port.width)
        self.comb += bus.eq(whole)
        return whole


def _channel(name: str) -> tuple[str, str]:
    """`m_axi_awaddr` -> ("aw", "addr")."""
    rest = name.rpartition("_")[2]
    channel = rest[:2] if rest[:2] in ("aw", "ar") else rest[:1]
    return channel, rest.removeprefix(channel)
