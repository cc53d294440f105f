"""The serial line to a LiteX SoC with the machine: LiteX' BIOS, and the firmware that it boots.

Both take frames of LiteX' serial boot (litex.tools.litex_term): a command of up to 255 bytes with a
CRC-16, answered with one letter. What is damaged is sent again: frames write memory, so twice is as
good as once.
"""

import contextlib
import time
import zlib
from collections.abc import Iterator
from typing import Protocol

from litex.tools.litex_term import (
    SFLFrame,
    sfl_ack_crcerror,
    sfl_ack_error,
    sfl_ack_success,
    sfl_ack_unknown,
    sfl_cmd_abort,
    sfl_cmd_jump,
    sfl_cmd_load,
    sfl_magic_ack,
    sfl_magic_req,
)
from serial import Serial, SerialException, serial_for_url

from opu_fuse.errors import RunError

DIGEST = b"\x80"
"""COMMAND_DIGEST of firmware/commands.h."""
DATA = 248
"""Of a frame: whole words, so that memory is copied by words."""
BATCH = 64
"""Frames on their way before all answers are awaited. The firmware is as fast as the line."""
BIOS_DATA = 64
"""Of a frame for the BIOS, which waits for its answer: it is slower, its queue has 128 bytes."""
ATTEMPTS = 4
BOOT = 10
"""Times as long as an answer: a restart of the board."""
CONSOLE = b"\nserialboot\n"
"""Starts the serial boot of a BIOS that waits for commands."""
REFUSED = {
    sfl_ack_error: "the address is outside of its memory, or bytes were lost",
    sfl_ack_crcerror: "the checksum is wrong",
    sfl_ack_unknown: "it does not know the command",
    b"": "no answer",
}


class Line(Protocol):
    """What is used of a `serial.Serial`; `read` returns what came within `timeout` seconds."""

    @property
    def timeout(self) -> float | None: ...

    @timeout.setter
    def timeout(self, seconds: float | None, /) -> None: ...

    def write(self, data: bytes, /) -> int | None: ...

    def read(self, size: int = 1, /) -> bytes: ...


def opened(port: str, baud: int) -> Serial:
    """A serial port, or a URL as pySerial has it. RunError where it cannot be opened."""
    try:
        line = serial_for_url(port, baud)
        with contextlib.suppress(OSError, NotImplementedError, ValueError, AttributeError):
            line.set_low_latency_mode(True)  # of Linux: else an adapter keeps answers for 16 ms
        return line
    except (SerialException, ValueError) as error:
        what = f"no serial port: {error}"
        raise RunError(port, what, "name the port of the board") from error


class Board:
    """A board at the end of a line. seconds: how long the answer to a frame may take; quiet: how
    long silence is, after which both sides begin a frame anew (the board waits 0.25).

    RunError where it does not answer or refuses.
    """

    def __init__(self, line: Line, *, seconds: float = 1.0, quiet: float = 0.4) -> None:
        self._line, self._seconds, self._silence = line, seconds, quiet

    def boot(self, firmware: bytes, address: int, payload: int, *, listen: float = 0.5) -> bool:
        """Have this firmware run, from `address` on; whether it had to be loaded.

        payload: address of the program that the firmware would start with, which is cleared.
        listen: seconds in which a board that is starting may say so. LiteX' BIOS hears nothing any
        more after bytes that come before it has set up its serial line.
        """
        if not self._find(sfl_magic_req, listen):
            if self._digest(address, len(firmware), 2) == zlib.crc32(firmware):
                return False
            self._line.write(frame(sfl_cmd_abort))  # another firmware restarts
            self._find_bios()
        self._line.write(sfl_magic_ack)
        self.load(address, firmware, size=BIOS_DATA, batch=1)
        self.load(payload, bytes(BIOS_DATA))
        self.start(address)
        self._find(b"Liftoff", BOOT * self._seconds)
        self._quiet()
        if not self.holds(address, firmware):
            raise RunError("board", "the firmware does not start", "press the board's reset")
        return True

    def holds(self, address: int, data: bytes) -> bool:
        """Whether memory there has these bytes, by their CRC-32."""
        return self._digest(address, len(data), ATTEMPTS) == zlib.crc32(data)

    def load(self, address: int, data: bytes, *, size: int = DATA, batch: int = BATCH) -> None:
        """Write memory, so many bytes a frame, so many frames at once."""
        frames = [
            frame(sfl_cmd_load, (address + at).to_bytes(4, "big") + data[at : at + size])
            for at in range(0, len(data), size)
        ]
        for at in range(0, len(frames), batch):
            self._send(frames[at : at + batch])

    def start(self, address: int) -> None:
        """BIOS: run the code there. Firmware: run the program."""
        self._send([frame(sfl_cmd_jump, address.to_bytes(4, "big"))])

    def lines(self, seconds: float) -> Iterator[str]:
        """What it prints, line by line, until nothing comes for so long."""
        self._line.timeout = seconds
        text = b""
        while byte := self._line.read(1):
            text += byte
            if byte == b"\n":
                yield text.decode("ascii", errors="replace").strip()
                text = b""

    def _send(self, frames: list[bytes]) -> None:
        answer = b""
        for _ in range(ATTEMPTS):
            self._line.write(b"".join(frames))
            self._line.timeout = self._seconds
            for _ in frames:
                answer = self._line.read(1)
                if answer != sfl_ack_success:
                    break
            else:
                return
            self._quiet()
        why = REFUSED.get(answer, f"its answer is {answer!r}")
        raise RunError("board", f"it refuses a frame: {why}", "is the line disturbed?")

    def _digest(self, address: int, count: int, attempts: int) -> int | None:
        """CRC-32 of memory; None where nobody says it."""
        asked = frame(DIGEST, address.to_bytes(4, "big") + count.to_bytes(4, "big"))
        for _ in range(attempts):
            self._line.write(asked)
            self._line.timeout = self._seconds + count / 1e6
            if self._line.read(1) == sfl_ack_success and len(found := self._line.read(4)) == 4:
                return int.from_bytes(found, "big")
            self._quiet()
        return None

    def _find_bios(self) -> None:
        """Have the BIOS wait for frames: after a reset, or from its console."""
        for _ in range(BOOT):
            if self._find(sfl_magic_req, self._seconds):
                return
            self._line.write(CONSOLE)
        raise RunError(
            "board",
            "its BIOS does not answer",
            "is the bitstream loaded, and the port that of the board?",
        )

    def _find(self, text: bytes, seconds: float) -> bool:
        """Drop what comes up to a text and this text."""
        until, seen = time.monotonic() + seconds, b""
        while (left := until - time.monotonic()) > 0:
            self._line.timeout = left
            seen = (seen + self._line.read(1))[-len(text) :]
            if seen == text:
                return True
        return False

    def _quiet(self) -> None:
        """Drop what comes until nothing comes."""
        self._line.timeout = self._silence
        while self._line.read(1 << 12):
            pass


def frame(command: bytes, payload: bytes = b"") -> bytes:
    """A command as it is sent."""
    whole = SFLFrame()
    whole.cmd, whole.payload = command, payload
    return whole.encode()
