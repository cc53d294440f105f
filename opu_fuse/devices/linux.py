"""A machine on Linux: registers by UIO (driver `generic-uio`), memory by u-dma-buf; or both through
`/dev/mem`, for bring-up as root.

Sources: the kernel's "Userspace I/O HOWTO"; README of ikwzm/udmabuf (files below
`/sys/class/u-dma-buf`).
"""

import mmap
import os
import select
from pathlib import Path

import numpy as np

from opu_fuse.errors import RunError
from opu_fuse.hw.isa.register_map import ADDRESS_BITS

REGISTER_BYTES = 1 << ADDRESS_BITS
DEVICES = Path("/dev")
BUFFERS = Path("/sys/class/u-dma-buf")


class MappedRegisters:
    """32-bit registers in a mapped page. Every access is one load or store of 32 bits."""

    def __init__(self, page: np.ndarray) -> None:
        self._words = page.view(np.uint32)

    def read(self, offset: int) -> int:
        return int(self._words[offset // 4])

    def write(self, offset: int, value: int) -> None:
        self._words[offset // 4] = value


class UioInterrupt:
    """Interrupts of a UIO device: a written 1 arms one, a read of 4 bytes takes it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def wait(self, seconds: float) -> bool:
        os.write(self._descriptor, (1).to_bytes(4, "little"))
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        if ready:
            os.read(self._descriptor, 4)
        return bool(ready)


class UioPage:
    """The first register page of `/dev/uioN`, with its interrupt."""

    def __init__(self, number: int) -> None:
        path = DEVICES / f"uio{number}"
        self._descriptor = _opened(path)
        self.registers = MappedRegisters(_map(self._descriptor, REGISTER_BYTES, 0, path))
        self.interrupt = UioInterrupt(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class DmaBuffer:
    """A buffer of u-dma-buf: contiguous memory with a known bus address. Its files
    `sync_for_device` and `sync_for_cpu` maintain the caches.
    """

    def __init__(self, name: str) -> None:
        self._folder = BUFFERS / name
        if not self._folder.is_dir():
            help_ = f"load the driver: modprobe u-dma-buf {name}=67108864"
            raise RunError(str(self._folder), "there is no such buffer of u-dma-buf", help_)
        self.address, size = self._number("phys_addr"), self._number("size")
        self.bytes = _mapped(DEVICES / name, size, cached=True)
        self._write("sync_offset", 0)
        self._write("sync_size", size)
        self._write("sync_direction", 0)  # both

    def to_device(self) -> None:
        self._write("sync_for_device", 1)

    def to_processor(self) -> None:
        self._write("sync_for_cpu", 1)

    def _number(self, name: str) -> int:
        return int((self._folder / name).read_text().strip(), 0)

    def _write(self, name: str, value: int) -> None:
        (self._folder / name).write_text(str(value))


class PhysicalMemory:
    """A range of `/dev/mem`, mapped uncached. For bring-up: nothing keeps the kernel out of it."""

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.bytes = _mapped(DEVICES / "mem", size, offset=address)

    @staticmethod
    def registers(address: int) -> MappedRegisters:
        """The register page of a machine."""
        return MappedRegisters(_mapped(DEVICES / "mem", REGISTER_BYTES, offset=address))

    def to_device(self) -> None:
        """Uncached."""

    def to_processor(self) -> None:
        """Uncached."""


def _opened(path: Path, *, cached: bool = False) -> int:
    try:
        return os.open(path, os.O_RDWR | (0 if cached else os.O_SYNC))
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        help_ = "load its driver" if missing else "give the user access to it, or run as root"
        raise RunError(str(path), f"cannot be opened ({error.strerror})", help_) from error


def _mapped(path: Path, size: int, offset: int = 0, *, cached: bool = False) -> np.ndarray:
    """uint8 of a device's memory. cached: by the processor."""
    descriptor = _opened(path, cached=cached)
    try:
        return _map(descriptor, size, offset, path)
    finally:
        os.close(descriptor)


def _map(descriptor: int, size: int, offset: int, path: Path) -> np.ndarray:
    try:
        return np.frombuffer(mmap.mmap(descriptor, size, offset=offset), np.uint8)
    except (OSError, ValueError) as error:
        what = f"{size:,} bytes at {offset:#x} cannot be mapped ({error})"
        help_ = "look at address and size in the device tree; addresses are multiples of 4096"
        raise RunError(str(path), what, help_) from error
