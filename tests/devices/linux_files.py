"""Files that stand for /dev and /sys of a board with UIO and u-dma-buf."""

from pathlib import Path

import numpy as np

from opu_fuse.hw.isa.register_map import CONTROL_REGISTERS, ID_VALUE, VERSION_VALUE
from opu_fuse.hw.spec.hw_spec import HwSpec
from tests.devices.register_model import DONE

OFFSET = {register.name: register.offset for register in CONTROL_REGISTERS}
MEMORY = 1 << 22
"""Bytes of udmabuf0."""


def write_linux_files(root: Path, spec: HwSpec) -> Path:
    """A machine uio0 that ends each program at once and does nothing. Returns `root`."""
    buffer = root / "sys/class/u-dma-buf/udmabuf0"
    buffer.mkdir(parents=True)
    (root / "dev").mkdir()
    for name, text in (("phys_addr", "0x70000000"), ("size", str(MEMORY))):
        (buffer / name).write_text(f"{text}\n")
    for name in ("sync_offset", "sync_size", "sync_direction", "sync_for_device", "sync_for_cpu"):
        (buffer / name).write_text("")
    (root / "dev/udmabuf0").write_bytes(bytes(MEMORY))
    words = np.zeros(1024, "<u4")
    for name, value in {
        "ID": ID_VALUE,
        "VERSION": VERSION_VALUE,
        "SPEC_HASH_LO": spec.spec_hash & 0xFFFF_FFFF,
        "SPEC_HASH_HI": spec.spec_hash >> 32,
        "STATUS": DONE,
    }.items():
        words[OFFSET[name] // 4] = value
    words.tofile(root / "dev/uio0")
    return root
