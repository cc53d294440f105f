"""The serial line of the board, and what is said on it (firmware.c)."""

import os
import select
import socket
import struct
import termios
import time
import tty
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from opu_fuse.errors import RunError
from opu_fuse.hw.isa.register_map import ErrorCode
from opu_fuse.hw.isa.table import Engine

PROTOCOL, BLOCK = 1, 2048
OK, BAD_CHECKSUM = 0, 1
DAMAGED, SILENT = -1, -2
"""Detected on the host, when no status arrives from the board."""
STATUS = {2: "a bad argument", 3: "a command that it does not know", 4: "no machine"}
ATTEMPTS = 3


class Link(Protocol):
    """Bytes to the board and from it."""

    def send(self, data: bytes) -> None: ...

    def receive(self, count: int, seconds: float) -> bytes:
        """As many bytes as came in that time, `count` at most."""
        ...


class Descriptor:
    """An open file: a serial port, or a socket."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, data: bytes) -> None:
        while data:
            select.select((), (self._descriptor,), ())
            data = data[os.write(self._descriptor, data) :]

    def receive(self, count: int, seconds: float) -> bytes:
        data, until = b"", time.monotonic() + seconds
        while len(data) < count and (left := until - time.monotonic()) > 0:
            if select.select((self._descriptor,), (), (), left)[0]:
                received = os.read(self._descriptor, count - len(data))
                if not received:
                    break
                data += received
        return data

    def close(self) -> None:
        os.close(self._descriptor)


def serial(port: Path, baud: int) -> Descriptor:
    """A serial port, raw. RunError when it cannot be opened or does not have that speed."""
    speed = getattr(termios, f"B{baud}", None)
    if speed is None:
        raise RunError(str(port), f"{baud} baud is no speed of a serial port here", "use 1000000")
    try:
        descriptor = os.open(port, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        tty.setraw(descriptor)
        settings = termios.tcgetattr(descriptor)
        settings[2] |= termios.CLOCAL | termios.CREAD
        settings[4] = settings[5] = speed
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, settings)
    except (OSError, termios.error) as error:
        what = f"no serial port: {error}"
        raise RunError(str(port), what, "name the port of the board") from error
    return Descriptor(descriptor)


def listening(path: Path) -> socket.socket:
    """A socket to which a simulated board connects (ulx3s_board.sv)."""
    waiting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    waiting.bind(str(path))
    waiting.listen(1)
    return waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What a board says of itself."""

    spec_hash: int
    clock_khz: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """Why and where a program ended before its end; pc: word of the program."""

    code: ErrorCode
    engine: Engine
    pc: int


class Board:
    """A board at the end of a line. seconds: how long an answer may take, a program's aside.

    RunError when it does not answer, or refuses.
    """

    def __init__(self, link: Link, *, seconds: float = 2.0) -> None:
        self._link, self._seconds = link, seconds

    def probe(self) -> Probed:
        protocol, low, high, clock, size = struct.unpack("<5I", self._ask(b"P"))
        if protocol != PROTOCOL:
            help_ = "load the bitstream of this version"
            raise RunError("board", f"it speaks version {protocol}, not {PROTOCOL}", help_)
        return Probed(spec_hash=low | high << 32, clock_khz=clock, memory_bytes=size)

    def write(self, address: int, data: bytes) -> None:
        """Both multiples of 4."""
        for at in range(0, len(data), BLOCK):
            part = data[at : at + BLOCK]
            self._ask(b"W", address + at, len(part), payload=part)

    def clear(self, address: int, count: int) -> None:
        self._ask(b"Z", address, count, seconds=self._seconds + count / 1e6)

    def read(self, address: int, count: int) -> bytes:
        parts = range(address, address + count, BLOCK)
        return b"".join(self._ask(b"R", at, min(BLOCK, address + count - at)) for at in parts)

    def run(self, window: int, program: int, words: int, seconds: float) -> int | Stopped:
        """Cycles of a program, or why it stopped."""
        # Sent again only where the board did not take it: inputs may be overwritten by a run.
        answer = self._ask(b"G", window, program, words, seconds=seconds, repeat=False)
        code, engine, pc, low, high = struct.unpack("<5I", answer)
        if code:
            return Stopped(code=ErrorCode(code), engine=Engine(engine), pc=pc)
        return low | high << 32

    def _ask(
        self,
        letter: bytes,
        *arguments: int,
        payload: bytes = b"",
        seconds: float | None = None,
        repeat: bool = True,
    ) -> bytes:
        head = letter + struct.pack("<3I", *arguments, *(0,) * (3 - len(arguments)))
        command = b"O" + head + _sum(head) + (payload + _sum(payload) if payload else b"")
        status = SILENT
        for _ in range(ATTEMPTS):
            self._link.send(command)
            status, answer = self._answer(self._seconds if seconds is None else seconds)
            if status == OK:
                return answer
            if status not in (BAD_CHECKSUM, DAMAGED, SILENT):
                raise RunError("board", f"it met {STATUS.get(status, status)}", "see firmware.c")
            if status != BAD_CHECKSUM and not repeat:
                break
        if status == SILENT:
            help_ = "is the bitstream loaded, is that its port?"
            raise RunError("board", "it does not answer", help_)
        help_ = "look at the cable; a lower speed needs another bitstream"
        raise RunError("board", f"the line is disturbed: {ATTEMPTS} attempts failed", help_)

    def _answer(self, seconds: float) -> tuple[int, bytes]:
        """Status and bytes of an answer; DAMAGED or SILENT where there is none."""
        while (mark := self._link.receive(1, seconds)) not in (b"o", b""):
            pass
        head = self._link.receive(5, self._seconds)
        if not mark or len(head) < 5:
            return SILENT, b""
        status, count = struct.unpack("<BI", head)
        if count > BLOCK:
            self._link.receive(BLOCK, self._seconds)
            return DAMAGED, b""
        rest = self._link.receive(count + 4, self._seconds + count / 1e4)
        answer = rest[:count]
        return (status, answer) if rest[count:] == _sum(head + answer) else (DAMAGED, b"")


def _sum(data: bytes) -> bytes:
    return struct.pack("<I", zlib.crc32(data))
