"""A stand-in for the module `pynq`, which only boards have: one machine in an overlay."""

import sys
from types import ModuleType
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from opu_fuse import devices
from opu_fuse.hw.rtlgen.rtl_files import rtl_files
from tests.devices.register_model import MachineModel


class Pynq:
    """What the stand-in has in front of it. freed: bytes of buffers that were given back."""

    def __init__(self, model: MachineModel) -> None:
        self.model = model
        self.freed: list[int] = []
        self.drivers: dict[str, Any] = {}

    def allocate(self, shape: tuple[int, ...], **_: Any) -> np.ndarray:
        pynq = self

        class Buffer(np.ndarray):
            physical_address = pynq.model.address

            def flush(self) -> None:
                pynq.model.to_device()

            def invalidate(self) -> None:
                pynq.model.to_processor()

            def freebuffer(self) -> None:
                pynq.freed.append(self.size)

        return self.model.memory[: shape[0]].view(Buffer)


def install_pynq(monkeypatch: pytest.MonkeyPatch, model: MachineModel) -> Pynq:
    """Make `import pynq` find it; the driver is imported afresh."""
    pynq = Pynq(model)

    class DefaultIP:
        def __init_subclass__(cls) -> None:
            pynq.drivers |= dict.fromkeys(vars(cls)["bindto"], cls)

        def __init__(self, description: dict[str, str]) -> None:
            self._fullpath = description["fullpath"]

        def read(self, offset: int) -> int:
            return model.read(offset)

        def write(self, offset: int, value: int) -> None:
            model.write(offset, value)

    class Overlay:
        """Its machine has the driver that is bound to the VLNV of `component.xml`."""

        def __init__(self, bitstream: str) -> None:
            component = ET.fromstring(rtl_files(model.spec)["component.xml"])
            tags = ("vendor", "library", "name", "version")
            vlnv = ":".join(str(component.findtext(f"{{*}}{tag}")) for tag in tags)
            self.opu_0 = pynq.drivers[vlnv]({"fullpath": "opu_0"})
            self.bitstream = bitstream

    shim = ModuleType("pynq")
    vars(shim).update(DefaultIP=DefaultIP, Overlay=Overlay, allocate=pynq.allocate)
    monkeypatch.setitem(sys.modules, "pynq", shim)
    monkeypatch.delitem(sys.modules, "opu_fuse.devices.pynq_driver", raising=False)
    monkeypatch.delattr(devices, "pynq_driver", raising=False)
    return pynq
