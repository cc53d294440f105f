"""A serial line that damages what passes."""

from collections.abc import Set as AbstractSet

from rtl_sim.litex.link import Line


class Disturbed:
    """sent, received: in which of the calls of `write`, and of those of `read` that have a byte, a
    bit flips, counted from 1; lost: in which of `write` the last byte is missing. damaged: how
    often that was.
    """

    def __init__(
        self,
        line: Line,
        *,
        sent: AbstractSet[int] = frozenset(),
        received: AbstractSet[int] = frozenset(),
        lost: AbstractSet[int] = frozenset(),
    ) -> None:
        self._line, self.sent, self.received, self.lost = line, sent, received, lost
        self.writes = self.reads = self.damaged = 0

    @property
    def timeout(self) -> float | None:
        return self._line.timeout

    @timeout.setter
    def timeout(self, seconds: float | None) -> None:
        self._line.timeout = seconds

    def write(self, data: bytes) -> int | None:
        self.writes += 1
        if self.writes in self.lost:
            data = data[:-1]
            self.damaged += 1
        if self.writes in self.sent:
            data = data[:-1] + bytes([data[-1] ^ 4])
            self.damaged += 1
        return self._line.write(data)

    def read(self, size: int = 1) -> bytes:
        data = self._line.read(size)
        self.reads += bool(data)
        if data and self.reads in self.received:
            self.damaged += 1
            return bytes([data[0] ^ 8]) + data[1:]
        return data
