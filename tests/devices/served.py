"""A machine behind the socket of `opu-fuse hw sim`, as a model in this process or as RTL in
another.
"""

import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from opu_fuse.devices.sim_server import SimServer
from opu_fuse.errors import RunError
from opu_fuse.hw.isa.register_map import OFFSET
from opu_fuse.hw.spec.hw_spec import HwSpec
from tests.devices.register_model import BUSY, DONE, ERROR, MachineModel
from tests.some import some

MEMORY_BYTES = 1 << 22


class ModelMachine:
    """A `MachineModel` for a `SimServer`, with its memory in a file from bus address 0 on.

    resets: how often the reset line was pulled.
    """

    def __init__(self, model: MachineModel, folder: Path) -> None:
        self.model, self.resets = model, 0
        self.memory_file = folder / "dram.bin"
        model.memory = np.memmap(self.memory_file, np.uint8, "w+", shape=(MEMORY_BYTES,))
        model.address = 0

    def read(self, offset: int, *, cycles: int) -> int:
        assert cycles > 0, "a client that polls would wait for ever"
        self._require(offset)
        return self.model.read(offset)

    def write(self, offset: int, value: int, *, cycles: int) -> None:
        assert cycles > 0
        self._require(offset)
        self.model.write(offset, value)

    def wait(self, cycles: int) -> bool:
        assert cycles > 0
        if self.model.later:
            self.model.advance()
        status = self.model.read(OFFSET["STATUS"])
        time.sleep(0.001)
        return not status & BUSY and bool(status & (DONE | ERROR))

    def reset(self) -> None:
        self.resets += 1
        self.model.set("STATUS", 0)

    def _require(self, offset: int) -> None:
        if offset not in OFFSET.values():
            raise RunError("model", f"the access to {offset:#x} was answered with SLVERR", "-")


@contextlib.contextmanager
def served_model(
    spec: HwSpec, **options: bool
) -> Iterator[tuple[Path, ModelMachine, threading.Event]]:
    """Socket, machine, and the event that ends the server. options: of `MachineModel`."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "socket"
        machine, ended = ModelMachine(MachineModel(spec, **options), Path(name)), threading.Event()
        server = SimServer(path)
        server.listen()
        thread = threading.Thread(target=_serve, args=(server, machine, ended))
        thread.start()
        try:
            yield path, machine, ended
        finally:
            ended.set()
            thread.join()


def _serve(server: SimServer, machine: ModelMachine, ended: threading.Event) -> None:
    with server:
        while not ended.is_set():
            server.step(machine, patience=0.02)


@contextlib.contextmanager
def served_rtl(spec: str, *options: str) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """Socket and process of `opu-fuse hw sim`."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "socket"
        command = [sys.executable, "-m", "opu_fuse", "hw", "sim", spec, str(path), *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            try:
                line = some(child.stdout).readline()
                assert f"is sim:{path}" in line, line
                yield path, child
            finally:
                child.terminate()
