"""A board at the end of a pseudo terminal: the firmware's own code for commands (commands.c),
around it what BIOS and libopu do, in Python.
"""

import contextlib
import ctypes
import os
import pty
import select
import struct
import subprocess
import threading
import tty
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np
from litex.tools.litex_term import crc16, sfl_magic_ack, sfl_magic_req

from opu_fuse.resources import runtime_dir
from rtl_sim.litex import image
from tests.runtime.libopu import File, Session, Status

MEMORY, MEMORY_BYTES = 0x4000_0000, 1 << 20
LIFTOFF = b"\n--============= \x1b[1mLiftoff!\x1b[0m ===============--\n"
RUN, RESTART = 0, 1
QUIET = 0.05
"""Seconds after which the model drops a frame; the real one waits 0.25."""

_Take = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
_Give = ctypes.CFUNCTYPE(None, ctypes.c_uint8)


class _Line(ctypes.Structure):
    _fields_ = (("take", _Take), ("give", _Give))


class _Memory(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("address", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("protected", ctypes.c_uint32),
    )


class _Closed(Exception):
    """The model ends."""


def commands_library(folder: Path) -> ctypes.CDLL:
    """commands.c with the CRCs of LiteX and libopu, for this processor."""
    software = Path(str(files("litex"))) / "soc" / "software"
    firmware = Path(image.__file__).parent / "firmware"
    sources = (
        firmware / "commands.c",
        software / "libbase/crc16.c",
        runtime_dir() / "src/opu_zip.c",
    )
    folders = (firmware, software, software / "bios", software / "libbase")
    folders += (runtime_dir() / "src", runtime_dir() / "include")
    target = folder / "commands.so"
    options = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-fsanitize=undefined")
    command = ["cc", *options, *(f"-I{path}" for path in folders), "-o", target, *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(target))


class BoardModel:
    """A board that waits in its BIOS.

    port: name of its serial port; memory: main memory; runs, restarts: how often a program ran, and
    the BIOS began; damaged_outputs: how many of the next outputs are damaged on their way.
    """

    def __init__(self, commands: ctypes.CDLL) -> None:
        self.memory = np.zeros(MEMORY_BYTES, np.uint8)
        self.runs = self.restarts = self.damaged_outputs = 0
        self.port_fd, terminal = pty.openpty()
        tty.setraw(terminal)
        self.port, self._terminal = os.ttyname(terminal), terminal
        self._commands, self._stop = commands, threading.Event()
        self._line = _Line(_Take(self._take), _Give(lambda byte: self._print(bytes([byte]))))
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        os.close(self.port_fd)
        os.close(self._terminal)

    def _live(self) -> None:
        with contextlib.suppress(_Closed):
            while True:
                self.restarts += 1
                self._bios()
                self._print(LIFTOFF)
                if self.memory[image.PAYLOAD_OFFSET :][:4].tobytes() == b"OPUL":
                    self._run()
                while self._next(image.PAYLOAD_OFFSET) == RUN:
                    self._run()

    def _bios(self) -> None:
        """Serial boot until a frame says where to jump; a console that knows one command else."""
        self._print(b"BIOS\n" + sfl_magic_req)
        seen = b""
        while not seen.endswith(sfl_magic_ack):
            byte = self._byte(None)
            assert byte is not None
            seen += byte
            if seen.endswith(b"serialboot\n"):
                self._print(sfl_magic_req)
        while self._next(0) != RUN:
            self._print(sfl_magic_req)

    def _next(self, protected: int) -> int:
        memory = _Memory(self.memory.ctypes.data, MEMORY, MEMORY_BYTES, protected)
        result: int = self._commands.command_next(ctypes.byref(self._line), ctypes.byref(memory))
        if self._stop.is_set():
            raise _Closed
        return result

    def _run(self) -> None:
        """What main.c prints, of libopu on the native engine."""
        self.runs += 1
        data = self.memory[image.PAYLOAD_OFFSET :]
        magic, size, images, _ = struct.unpack("<4sIII", data[:16].tobytes())
        file = File(data[image.ALIGNMENT : image.ALIGNMENT + size].tobytes())
        if magic != b"OPUL" or file.status != Status.OK:
            self._print(b"opu: error: no program\nopu: failed\n")
            return
        session, at, inputs = Session(file), image.ALIGNMENT + size, []
        for number in range(file.sizes.inputs):
            at = image.aligned(at)
            size = file.port("input", number).bytes * images
            inputs.append(data[at : at + size])
            at += size
        status, outputs = session.run(inputs, images)
        assert status is Status.OK
        for number, array in enumerate(outputs.values()):
            content = array.tobytes()
            text = f"opu: output {number} {content.hex()} {crc16(content) ^ number:04x}\n"
            if self.damaged_outputs:
                self.damaged_outputs -= 1
                text = text.replace("0", "1", 3)
            self._print(text.encode())
        self._print(
            b"opu: 300 cycles: machine 200, its start and end 40, processor 60\nopu: done\n"
        )

    def _take(self, first: int) -> int:
        byte = self._byte(None if first else QUIET)
        return -1 if byte is None else byte[0]

    def _byte(self, seconds: float | None) -> bytes | None:
        """The next byte; None where none comes in time, or the model ends."""
        while not self._stop.is_set():
            if select.select([self.port_fd], [], [], 0.05 if seconds is None else seconds)[0]:
                return os.read(self.port_fd, 1)
            if seconds is not None:
                return None
        return b"\0"

    def _print(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.port_fd, data) :]


@contextlib.contextmanager
def board_model(commands: ctypes.CDLL) -> Iterator[BoardModel]:
    model = BoardModel(commands)
    try:
        yield model
    finally:
        model.close()
